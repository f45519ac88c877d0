"""Names that become paths: whatever an archive, a row, a manifest, a variable or a URL holds, nothing is written
anywhere else, and one line says which name it was and what is allowed."""

import itertools
import json
import re

import pandas
import pytest

from benchbook.frameworks.devices import Device
from benchbook.machine import identity, layout
from benchbook.measuring import runs
from benchbook.record import naming
from benchbook.rows import packing, records
from benchbook.running.profiles import Point
from benchbook.studies.parameters import declared
from rows import contents, make_row, make_rows, make_zip, write

RUN = "20260101T000000Z-1"
PLACE = f"desk/mnist_speedup/reference-cpu/{RUN}"
BAD = ["", ".", "..", "../x", "/x", "a/b", "a\\b", ".hidden", "-x", "_x", "a b", "<b>x", "x\n", "ünï", "C:x", "x" * 129]


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    """Point the project at outputs that lie deep in a tree, whose every file is compared before and after."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path / "home" / "project" / "outputs"))
    monkeypatch.delenv("BENCHBOOK_MACHINE", raising=False)
    return tmp_path


def make_archive(tree, place: str = PLACE, manifest: dict | None = None, **columns):
    """Write a zip of one run, unchecked."""
    row = pandas.DataFrame([make_row(run_id=RUN, settings="{}") | columns])
    members = {f"{place}.csv": row.to_csv(index=False), f"{place}.json": json.dumps(manifest or {})}
    return make_zip(tree / "theirs.zip", members)


def measured_here() -> None:
    """Write a run of a machine `desk`."""
    run = write(make_row(run_id=f"{RUN[:-1]}0")) / f"{PLACE[:-1]}0"
    run.with_suffix(".json").write_text(json.dumps({"machine": {"name": "desk", "fingerprint": "aaaa11112222"}}))


OUTSIDE = "/../../../../../../../planted"
PARAMETERS = declared("mnist_speedup")
MEMBERS = [
    *(PLACE.replace(part, name) for part, name in zip(itertools.cycle(PLACE.split("/")), BAD, strict=False)),
    *(f"{prefix}{PLACE}" for prefix in ("/", "../", "../../../../")),
    *(PLACE.replace("/", "\\"), RUN),
]
FINGERPRINTS = ["/../x", "<b>x", "../../x", "", "a b"]
ATTACKS = {
    "a device of version 1 in a point's name": (
        {"schema_version": 1, "device": None, "manifest": {"parameters": PARAMETERS | {"device": OUTSIDE}}},
        "column schema_version is '1'; allowed: greater than or equal to 2",
    ),
    **{
        f"fingerprint {value!r}": (
            {"manifest": {"machine": {"name": "desk", "fingerprint": value}}},
            f"machine.fingerprint is {value!r}; allowed: up to 128 letters",
        )
        for value in FINGERPRINTS
    },
    "a machine's name in the manifest": (
        {"manifest": {"machine": {"name": "../../x", "fingerprint": "bbbb33334444"}}},
        "machine.name is '../../x'; allowed: up to 128 letters",
    ),
    # The outermost of five folders may have any name.
    **{
        f"member {place!r}": ({"place": place}, repr(f"{place}.csv".split("/", place.count("/") == 4)[-1])[1:40])
        for place in MEMBERS
    },
    **{
        f"column {name}": ({name: "../../x"}, f"column {name} is '../../x'; allowed: up to 128 letters")
        for name in ("machine", "study", "point", "run_id")
    },
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_names_another_place_is_refused_and_nothing_is_written(tree, command, attack):
    columns, words = ATTACKS[attack]
    measured_here()
    path = make_archive(tree, **columns)
    before = contents(tree)
    status, said = command("add", path)
    assert contents(tree) == before
    assert status == 2
    assert said.splitlines()[-1].startswith("error: ")
    assert words in said
    assert "allowed: " in said or "has no rows of this run" in said
    assert len(said) < 500


def test_the_same_archive_with_plain_names_is_added(tree):
    measured_here()
    before = contents(tree)
    make_archive(tree, manifest={"machine": {"name": "desk", "fingerprint": "bbbb33334444"}})
    assert packing.add(tree / "theirs.zip")[0] == layout.runs("desk")
    new = {name for name in contents(tree) if name not in before and name.endswith((".csv", ".json"))}
    assert new == {f"home/project/outputs/runs/{PLACE}.{kind}" for kind in ("csv", "json")}
    assert identity.with_kind("x" * 128, "aaaa11112222") == "x" * 123 + "-aaaa"
    with pytest.raises(ValueError, match=r"machine name 'desk-/../'; allowed: up to 128 letters"):
        identity.with_kind("desk", "/../x")


@pytest.mark.parametrize("value", BAD)
def test_one_function_decides_what_a_name_may_be_and_says_so(value):
    """Wherever a name becomes part of a path: a folder of rows, a point from a file."""
    assert not layout.is_name(value)
    for what, make in {
        "study": lambda: layout.check_name(value, "study"),
        "machine name": lambda: layout.runs(value),
        "study ": lambda: layout.point("desk", value, "p"),
        "point": lambda: Point("mnist_speedup", value, {}, 60),
        "study  ": lambda: Point(value, "p", {}, 60),
    }.items():
        with pytest.raises(ValueError, match=re.escape(f"{what.strip()} {value[:80]!r}; allowed: up to 128 letters")):
            make()


@pytest.mark.parametrize("value", ["x", "9", "apple-m1-8core-16gb", "20260101T000000Z-1a2b3c4d", "a..b_c-", "x" * 128])
def test_a_plain_name_is_returned(value):
    assert layout.check_name(value, "point") == value


@pytest.mark.parametrize("value", ["../x", "/x", ".hidden", "-x", "<b>x", "x\n", "x" * 129])
@pytest.mark.parametrize("words", [["pack"], ["plan"]])
def test_a_machine_of_another_name_is_refused_wherever_it_is_given(tree, monkeypatch, command, words, value):
    before = contents(tree)
    ends = [command(*words, "--machine", value)]
    if words == ["pack"]:
        monkeypatch.setenv("BENCHBOOK_MACHINE", value)
        ends.append(command("pack"))
    for status, said in ends:
        assert status == 2
        assert said == f"error: machine name {value[:80]!r}; allowed: {layout.NAME_RULE}\n"
    assert contents(tree) == before


@pytest.mark.parametrize("value", ["../../../../x", "<b>x", ".x"])
def test_a_runs_name_is_refused_before_it_is_a_file(tree, value):
    before = contents(tree)
    with pytest.raises(records.SchemaError, match=re.escape(f"column run_id is {value!r}; allowed: up to 128 letters")):
        runs.start("mnist_speedup", "point", PARAMETERS | {"device": "cpu"}, Device("cpu", "a CPU", "torch"), value)
    assert contents(tree) == before


def test_no_manifest_is_read_where_a_rows_machine_leads_elsewhere(tree):
    runs_folder, elsewhere = layout.outputs() / "runs", tree / "elsewhere"
    runs_folder.mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / f"{RUN}.json").write_text(json.dumps({"machine": {"physical_cores": 77}}))
    rows = make_rows([make_row(machine="../../../../elsewhere")])
    assert "77" not in str(naming.from_rows(rows, runs_folder).machines["../../../../elsewhere"])
