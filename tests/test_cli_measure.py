"""The command that measures a network of one's own: what it measures again, and what it refuses beforehand."""

import json

import pytest
from typer.testing import CliRunner

from benchbook import cli, layout, machine, session


@pytest.fixture
def left(tmp_path, monkeypatch):
    """Measure with a session that runs nothing; return what it finds of a point that was done before."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    seen = []

    def run(points, name, retry):
        folder = layout.runs(machine.identify(name).name) / "your_network" / points[0].name
        seen.append(sorted(file.name for file in folder.glob("*done")) if folder.exists() else None)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done").write_text(json.dumps({"statuses": ["ok"]}))
        raise ValueError("planted")

    monkeypatch.setattr(session, "run", run)

    def measure(*options: str) -> list:
        CliRunner().invoke(cli.app, ["measure", "torchvision.models:resnet18", "--machine", "desk", *options])
        return seen

    return measure


def test_the_same_command_measures_again_for_the_code_may_have_changed(left):
    assert left() == [None]
    assert left()[1] == []


def test_a_session_that_was_cut_short_goes_on(left):
    left()
    (layout.runs("desk") / ".session").write_text("a-session")
    assert left()[1] == ["done"]


def test_a_file_that_is_not_there_is_refused_before_anything_runs(left):
    done = CliRunner().invoke(cli.app, ["measure", "nowhere.py:net"])
    assert "nowhere.py is not a file" in str(done.exception)
    assert left("--kernels", "0") == []
