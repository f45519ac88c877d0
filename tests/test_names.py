"""Names that become paths: whatever a command, a row or a variable holds, nothing is written
anywhere else."""

import json
import re

import pytest

from benchbook.frameworks.devices import Device
from benchbook.machine import identity, layout
from benchbook.measuring import runs
from benchbook.record import naming
from benchbook.rows import records
from benchbook.running.profiles import Point
from benchbook.studies.experiments.parameters import declared
from made.rows import contents, make_row, make_rows

BAD = [
    "",
    ".",
    "..",
    "../x",
    "/x",
    "a/b",
    "a\\b",
    ".hidden",
    "-x",
    "_x",
    "a b",
    "<b>x",
    "x\n",
    "ünï",
    "C:x",
    "x" * 129,
]


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    """Point the project at outputs that lie deep in a tree, whose every file is compared before
    and after."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "home" / "project" / "outputs"))
    return tmp_path


@pytest.mark.parametrize("value", BAD)
def test_one_function_decides_what_a_name_may_be_and_says_so(tree, value):
    """Wherever a name becomes part of a path: a folder of rows, a point from a file, a run."""
    assert not layout.is_name(value)
    for what, make in {
        "study": lambda: layout.check_name(value, "study"),
        "machine name": lambda: layout.runs(value),
        "study ": lambda: layout.point("desk", value, "p"),
        "point": lambda: Point("mnist_speedup", value, {}, 60),
        "study  ": lambda: Point(value, "p", {}, 60),
    }.items():
        with pytest.raises(
            ValueError,
            match=re.escape(f"{what.strip()} {value[:80]!r}; allowed: up to 128 letters"),
        ):
            make()
    parameters = declared("mnist_speedup") | {"device": "cpu"}
    if value:  # an empty one is chosen
        with pytest.raises(
            records.SchemaError, match=r"column run_id is .*; allowed: up to 128 letters"
        ):
            runs.start("mnist_speedup", "point", parameters, Device("cpu", "a CPU", "torch"), value)
    assert not contents(tree)


def test_a_machine_of_another_kind_has_a_name_of_its_own():
    assert identity.with_kind("x" * 128, "aaaa11112222") == "x" * 123 + "-aaaa"
    with pytest.raises(ValueError, match=r"machine name 'desk-/../'; allowed: up to 128 letters"):
        identity.with_kind("desk", "/../x")


@pytest.mark.parametrize(
    "words", [["pack", "--machine", "../x"], ["plan", "--machine", "../x"], ["pack"]]
)
def test_a_machine_of_another_name_is_refused_wherever_it_is_given(
    tree, monkeypatch, command, words
):
    monkeypatch.setenv("BENCHBOOK_MACHINE", "../x")
    assert command(*words) == (2, f"error: machine name '../x'; allowed: {layout.NAME_RULE}\n")
    assert not contents(tree)


def test_no_manifest_is_read_where_a_rows_machine_leads_elsewhere(tree):
    runs_folder, elsewhere = layout.outputs() / "runs", tree / "elsewhere"
    runs_folder.mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "20260101T000000Z-1.json").write_text(
        json.dumps({"machine": {"physical_cores": 77}})
    )
    rows = make_rows([make_row(machine="../../../../elsewhere")])
    assert "77" not in str(naming.from_rows(rows, runs_folder).machines["../../../../elsewhere"])
