"""Folders with bad files in them: what is wrong is named, and everything else is read."""

import json
import os
import tracemalloc

import pandas
import pytest

from benchbook.machine import condition, context
from benchbook.rows import manifests, records, schema
from made.rows import make_row

pytestmark = pytest.mark.usefixtures("outputs")
STATE = {"awake_seconds": 1.0, "elapsed_seconds": 1.0, "load_average_1_minute": 0.5}
MANIFEST = {
    "commit": "abc",
    "parameters": {"seed": 1},
    "machine": {"chip": "Chip A", "memory_bytes": 2**30, "physical_cores": 2, "accelerators": []},
    "environment": {"python": "3.11.9", "packages": {"torch": "2.10.0"}},
    "condition_before": STATE | {"power_source": "mains", "swap_used_bytes": 0},
    "condition_after": STATE | {"swap_used_bytes": 0},
    "conditions": [STATE | {"index": 0, "repeat": 0}],
}


def run_id(number: int) -> str:
    return f"20260101T000000Z-0000000{number}"


@pytest.fixture
def runs(tmp_path):
    """A folder of three good runs with their manifests, before a fault is added."""
    for number in range(3):
        records.append(tmp_path / f"{run_id(number)}.csv", make_row(run_id=run_id(number)))
        (tmp_path / f"{run_id(number)}.json").write_text(json.dumps(MANIFEST))
    return tmp_path


def gather(folder):
    messages = []
    manifests.read_all(folder, messages.append)
    return records.gather(folder, messages.append), messages


def test_a_run_that_stands_in_two_files_is_read_once(runs):
    copy = runs / "00-again.csv"
    copy.write_bytes((runs / f"{run_id(1)}.csv").read_bytes())
    os.utime(copy, (4e9, 4e9))  # the copy sorts first, and is the later one
    rows, messages = gather(runs)
    assert sorted(rows["run_id"]) == [run_id(0), run_id(1), run_id(2)]
    assert messages == [f"Left out: {copy.name}: run {run_id(1)} is in {run_id(1)}.csv as well"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("colour", "colour"),
        ("note\x1b]0;pwned\x07\x1b[31m", r"note\x1b]0;pwned\x07\x1b[31m"),
        ("\u202enote\nLeft out: 1.csv", r"\u202enote\nLeft out: 1.csv"),
    ],
)
def test_columns_that_this_version_does_not_have_are_named_once_and_kept_as_text_by_merge_alone(
    runs, command, name, said
):
    for number in range(2):
        path = runs / f"{run_id(number)}.csv"
        header, row = path.read_text().splitlines()
        path.write_text(f'{header},"{name}"\n{row},007\n')
    rows, messages = gather(runs)
    both = f"(in runs {run_id(0)}, {run_id(1)})"
    line = "Not used, because this version does not know them: columns {} {}"
    assert messages == [line.format(name, both)]
    assert list(rows) == records.COLUMNS
    rows = records.merge(runs)
    assert sorted(rows[name].fillna("")) == ["", "007", "007"]
    assert list(rows) == [*records.COLUMNS, name]
    shown = f"{line.format(said, both)}\n3 rows in 3 files are valid.\n"
    assert command("validate", runs) == (0, shown)


def test_an_exception_while_a_file_is_checked_leaves_out_that_file(runs, monkeypatch):
    def cast(rows, source):
        if run_id(1) in set(rows["run_id"]):
            raise OverflowError("planted")
        return real(rows, source)

    real = schema.cast
    monkeypatch.setattr(schema, "cast", cast)
    context.change(strict=False)
    rows, messages = gather(runs)
    assert sorted(rows["run_id"]) == [run_id(0), run_id(2)]
    assert messages == [f"Left out: {run_id(1)}.csv: cannot be read (OverflowError: planted)"]


def test_what_a_manifest_lacks_or_has_besides_is_no_fault(tmp_path):
    path = tmp_path / f"{run_id(0)}.json"
    for content in (
        {},
        MANIFEST,
        MANIFEST | {"machine": None, "colour": ["red"], "conditions": None},
    ):
        path.write_text(json.dumps(content))
        assert manifests.read(path) == content
        condition.samples(manifests.read_all(tmp_path))


def test_a_large_bad_table_is_refused_by_its_first_fault_in_little_memory():
    rows = [make_row(phase=f"trian{index}", settings=None) for index in range(20_000)]
    rows = pandas.DataFrame(rows, columns=records.COLUMNS, dtype="string")
    tracemalloc.start()
    with pytest.raises(records.SchemaError, match=r"line 2: column phase is 'trian0'"):
        records.validate(rows)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert used < 20e6


def test_files_read_as_one_are_what_each_is_alone(runs):
    path = runs / f"{run_id(1)}.csv"
    path.write_text(path.read_text().replace(",ok,\n", ',ok,"a\nb"\n'))
    rows, messages = gather(runs)
    assert messages == []
    for number in range(3):
        alone = records.read(runs / f"{run_id(number)}.csv")
        pandas.testing.assert_frame_equal(
            rows[rows["run_id"] == run_id(number)].reset_index(drop=True), alone
        )
    assert rows["message"].dropna().tolist() == ["a\nb"]
