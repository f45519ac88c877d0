"""Machines side by side, from manifests: what each is, and nothing private."""

from dataclasses import asdict, replace

from benchbook.machine import identity
from benchbook.report import machines
from made.rows import make_row, make_rows

MACHINE = replace(
    identity.identify("desk"),
    chip="Chip A",
    physical_cores=8,
    usable_cores=8,
    logical_cores=8,
    memory_bytes=16 * 2**30,
    accelerators=["NVIDIA A", "NVIDIA A", "NVIDIA B"],
)


def table(*described):
    """Return the table of runs with these manifests; a missing one is None."""
    rows = [
        make_row(run_id=f"2026010{number}T000000Z-aa", session=f"session-{number}", index=index)
        for number in range(len(described))
        for index in range(2)
    ]
    run_ids = dict.fromkeys(row["run_id"] for row in rows)
    return machines.table(
        make_rows(rows), {run: each for run, each in zip(run_ids, described, strict=True) if each}
    )


def test_a_machine_is_what_its_newest_manifest_says():
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


def test_operations_that_the_device_lacks_and_limits_are_named():
    lacks = [{"ResizeBilinearGrad(float32)": 1}, {"Cast(uint8)": 1}, None]
    limited = {"machine": {"usable_cores": 2, "logical_cores": 8}}
    notes = table(*(limited | {"misplaced_operations": counts} for counts in lacks))["notes"].item()
    assert "2 of 8 logical cores were usable" in notes
    assert "ran on the host: Cast(uint8), ResizeBilinearGrad(float32)" in notes


def test_what_is_not_told_is_missing_and_said_and_without_rows_there_is_no_machine():
    bare, line = (
        table(None).iloc[0],
        table({"machine": {"chip": "Chip A"}, "commit": "abc"}).iloc[0],
    )
    for each in (bare, line):
        assert each[["machine", "chip", "sessions", "rows"]].tolist() == ["desk", "Chip A", 1, 2]
        assert each[["cores", "memory_gib", "accelerator", "system"]].isna().all()
    assert table().columns.tolist() == machines.COLUMNS
