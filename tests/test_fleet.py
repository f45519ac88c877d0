"""Rows of many machines at once: a fleet's archives, and a pull request's rows; each machine is judged alone."""

import json
import shutil

import pytest

from benchbook import fleet, layout, packing, records
from rows import make_row
from test_packing import csv_text, files, make_zip, pack_version_1

RUN = "desk/mnist_speedup/reference-cpu/20260101T000000Z-"
COMMITTED = layout.root() / "outputs" / "runs"


@pytest.fixture(autouse=True)
def outputs(tmp_path, monkeypatch):
    """Point the project at an empty outputs folder."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "outputs"))
    return tmp_path / "outputs"


def members(tmp_path, run: str, kind: str, **columns) -> dict[str, str]:
    """Return the files of one run of the machine `desk`, whose computer is of a kind."""
    manifest = json.dumps({"machine": {"name": "desk", "fingerprint": kind}})
    row = make_row(run_id=f"20260101T000000Z-{run}", **columns)
    return {f"{RUN}{run}.csv": csv_text(tmp_path, row), f"{RUN}{run}.json": manifest}


def archive(tmp_path, name: str, contents: dict) -> None:
    (tmp_path / "fleet").mkdir(exist_ok=True)
    make_zip(tmp_path, contents).rename(tmp_path / "fleet" / f"{name}.zip")


def test_each_archive_of_a_fleet_is_judged_alone_and_a_second_time_nothing_changes(tmp_path, outputs):
    archive(tmp_path, "1-desk", members(tmp_path, "1", "aaaa11112222"))
    archive(tmp_path, "2-other-desk", members(tmp_path, "2", "bbbb33334444", chip="Chip B"))
    archive(tmp_path, "3-more-of-other-desk", members(tmp_path, "3", "bbbb33334444", chip="Chip B"))
    tomorrow = members(tmp_path, "4", "aaaa11112222")
    tomorrow[f"{RUN}4.csv"] = tomorrow[f"{RUN}4.csv"].replace("\n2,", "\n99,")
    archive(tmp_path, "4-from-tomorrow", tomorrow)
    (tmp_path / "fleet" / "5-torn.zip").write_bytes((tmp_path / "fleet" / "1-desk.zip").read_bytes()[:200])
    pack_version_1(tmp_path)[0].rename(tmp_path / "fleet" / "6-older.zip")
    lines = fleet.add(tmp_path / "fleet").set_index("archive")
    taken = lines[lines["problem"].isna()]
    assert taken["machine"].to_dict() == {
        "1-desk.zip": "desk",
        "2-other-desk.zip": "desk-bbbb",
        "3-more-of-other-desk.zip": "desk-bbbb",
        "6-older.zip": "desk",
    }
    assert taken["new"].tolist() == [1, 1, 1, 1]
    assert "schema_version" in lines.loc["4-from-tomorrow.zip", "problem"]
    assert "not a readable zip" in lines.loc["5-torn.zip", "problem"]
    rows = records.merge(records.find(outputs / "runs"))
    assert rows.groupby("machine")["run_id"].nunique().to_dict() == {"desk": 2, "desk-bbbb": 2}
    assert set(rows["schema_version"]) == {2}

    packing.pack("desk-bbbb", tmp_path / "again.zip")  # its rows and their manifests agree

    before = files(outputs)
    again = fleet.add(tmp_path / "fleet")
    assert files(outputs) == before
    assert again["new"].dropna().tolist() == [0, 0, 0, 0]


def test_a_folder_without_archives_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="has no archive; allowed: "):
        fleet.add(tmp_path)


def test_a_machines_archive_comes_back_byte_by_byte(tmp_path, outputs, monkeypatch):
    """The committed rows of one study; the whole machine takes many times as long and shows no more."""
    name = next(path.name for path in COMMITTED.iterdir() if path.is_dir())
    ignored = shutil.ignore_patterns("*.running", "*.reserve", "*.ipynb", "*.log", "*done", ".*")
    shutil.copytree(COMMITTED / name / "vae_stability", outputs / "runs" / name / "vae_stability", ignore=ignored)
    measured = files(outputs / "runs" / name)
    sent, _ = packing.pack(name, tmp_path / "sent.zip")
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "elsewhere"))
    folder, _ = packing.add(sent)
    assert files(folder) == measured
    assert packing.pack(name, tmp_path / "back.zip")[0].read_bytes() == sent.read_bytes()


def propose(tmp_path, contents: dict):
    for name, content in contents.items():
        path = tmp_path / "proposed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "proposed"


def test_proposed_rows_are_judged_with_their_headline_and_nothing_is_written(tmp_path, outputs):
    proposed = propose(tmp_path, members(tmp_path, "1", "aaaa11112222", started_at="2026-01-01T00:00:00.000Z"))
    lines, headlines = fleet.review(proposed)
    assert lines[["machine", "runs", "rows", "removed"]].to_numpy().tolist() == [["desk", 1, 1, 0]]
    assert headlines["desk"]["study"].tolist() == ["mnist_speedup"]
    assert not outputs.exists()
    text = fleet.as_markdown(lines, headlines)
    assert "## `desk`: can be merged" in text
    assert "`mnist_speedup`" in text
    shutil.copytree(proposed, outputs / "runs")
    assert fleet.review(proposed)[0].empty


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("edited", "here already with other content"),
        ("link", "is a link or a special file"),
        ("linked machine", "is a link or a special file"),
        ("notebook", "Z-1.ipynb"),
        ("faster than its clock", "samples_per_second"),
        ("other kind", "another kind of computer has this name"),
    ],
)
def test_a_proposal_that_may_not_be_merged_is_refused_by_its_machines_name(tmp_path, outputs, fault, problem):
    good = members(tmp_path, "1", "aaaa11112222")
    for name, content in good.items():
        (outputs / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        (outputs / "runs" / name).write_text(content)
    proposed = propose(tmp_path, good | members(tmp_path, "2", "aaaa11112222"))
    folder, secret = proposed / f"{RUN}1.csv", tmp_path / "secret"
    secret.write_text("a token")
    if fault == "edited":
        propose(tmp_path, members(tmp_path, "1", "aaaa11112222", loss=0.5))
    elif fault == "link":
        folder.with_name("run-3.csv").symlink_to(secret)
    elif fault == "linked machine":
        shutil.rmtree(proposed / "desk")
        (proposed / "desk").symlink_to(tmp_path)
    elif fault == "notebook":
        folder.with_name("20260101T000000Z-1.ipynb").write_text("{}")
    elif fault == "other kind":
        shutil.rmtree(proposed / "desk")
        propose(tmp_path, members(tmp_path, "3", "bbbb33334444"))
    else:
        propose(tmp_path, members(tmp_path, "3", "aaaa11112222", samples_per_second=1e9))
    lines, headlines = fleet.review(proposed)
    assert lines["machine"].tolist() == ["desk"]
    assert problem in lines["problem"].item()
    text = fleet.as_markdown(lines, headlines)
    assert "## `desk`: refused" in text
    assert "a token" not in text


def test_a_proposed_folder_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "runs").symlink_to("/etc")
    with pytest.raises(packing.PackError, match="is a link"):
        fleet.review(tmp_path / "outputs" / "runs")


def test_what_others_wrote_is_code_in_a_review():
    assert fleet._code("a `b` |\n<img src=x> [c](http://d)") == "`a 'b' / <img src=x> [c](http://d)`"
