"""Machines side by side, from manifests: what each is, and nothing private."""

import json
from dataclasses import asdict, replace

import pytest

from benchbook.machine import identity
from benchbook.report import machines
from benchbook.rows import manifests
from rows import make_row, make_rows

MACHINE = replace(
    identity.identify("desk"),
    chip="Chip A",
    physical_cores=8,
    usable_cores=8,
    logical_cores=8,
    memory_bytes=16 * 2**30,
    accelerators=["NVIDIA A", "NVIDIA A", "NVIDIA B"],
)


@pytest.fixture
def table(tmp_path):
    """Return a function that makes the table of runs with these manifests, named by their order."""

    def made(*own):
        rows = []
        for number, manifest in enumerate(own):
            run_id = f"2026010{number + 1}T000000Z-aa"
            rows += [make_row(run_id=run_id, session=f"session-{number}", index=index) for index in range(2)]
            if manifest:
                (tmp_path / f"{run_id}.json").write_text(json.dumps(manifest))
        return machines.table(make_rows(rows), manifests.read_all(tmp_path))

    return made


def test_a_machine_is_what_its_newest_manifest_says(table):
    versions = (replace(MACHINE, system=system) for system in ("Linux 6.1", "Linux 6.2"))
    line = table(*({"machine": asdict(each)} for each in versions)).iloc[0].to_dict()
    assert line == {
        "machine": "desk",
        "chip": "Chip A",
        "cores": 8,
        "memory_gib": 16,
        "accelerator": "2 x NVIDIA A, NVIDIA B",
        "system": "Linux 6.2",
        "sessions": 2,
        "notes": None,
        "rows": 4,
    }


def test_operations_that_the_device_lacks_and_limits_are_named(table):
    lacks = [{"ResizeBilinearGrad(float32)": 1}, {"Cast(uint8)": 1}, None]
    limited = {"machine": {"usable_cores": 2, "logical_cores": 8}}
    notes = table(*(limited | {"misplaced_operations": counts} for counts in lacks))["notes"].item()
    assert "2 of 8 logical cores were usable" in notes
    assert "ran on the host: Cast(uint8), ResizeBilinearGrad(float32)" in notes


def test_what_is_not_told_is_missing_and_said_and_without_rows_there_is_no_machine(table):
    bare, line = table(None).iloc[0], table({"machine": {"chip": "Chip A"}, "commit": "abc"}).iloc[0]
    for each in (bare, line):
        assert each[["machine", "chip", "sessions", "rows"]].tolist() == ["desk", "Chip A", 1, 2]
        assert each[["cores", "memory_gib", "accelerator", "system"]].isna().all()
    assert table().columns.tolist() == machines.COLUMNS


def test_two_kinds_of_computer_under_one_name_are_told_apart(tmp_path):
    rows = []
    for number, kind in enumerate(("aaaa1111", "bbbb2222", None, "no manifest")):
        run_id = f"2026010{number + 1}T000000Z-aa"
        rows += [make_row(run_id=run_id), make_row(run_id=run_id, machine="attic")]
        if kind != "no manifest":
            manifest = {"machine": {"fingerprint": kind} if kind else {}}
            (tmp_path / f"{run_id}.json").write_text(json.dumps(manifest))
    apart = machines.separate_kinds(make_rows(rows), manifests.read_all(tmp_path))
    assert apart["machine"].tolist()[::2] == ["desk (aaaa)", "desk (bbbb)", "desk (unknown)", "desk"]
    alike = machines.separate_kinds(make_rows(rows[::6]), manifests.read_all(tmp_path))
    assert set(alike["machine"]) == {"desk"}
