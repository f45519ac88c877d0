"""Lies in well-formed rows, each planted in real ones; and the committed rows, which hold none."""

import copy
from datetime import UTC, datetime

import pandas
import pytest

from benchbook.rows import crosschecks, manifests, records
from rows import COMMITTED


@pytest.fixture(scope="module")
def committed():
    return records.merge(records.find(COMMITTED)), manifests.every(COMMITTED)


@pytest.fixture(scope="module")
def real(committed):
    """Return the rows and manifests of one session of MNIST and its calibration."""
    rows, described = committed
    kept = rows[rows["study"].isin(["calibrate", "mnist_speedup"])]
    kept = kept[kept["session"] == kept.loc[kept["study"] == "mnist_speedup", "session"].iloc[0]]
    return kept.reset_index(drop=True), {run_id: described[run_id] for run_id in set(kept["run_id"])}


def test_the_committed_rows_hold_no_contradiction(committed):
    assert crosschecks.complaints(*committed).to_dict("records") == []


def times(column, factor):
    """Change a measure of all training windows of a run."""
    return lambda rows, window: rows.loc[window, column] * factor


def value(given):
    return lambda rows, window: given


LIES = {
    "a rate ten times as high": {"samples_per_second": times("samples_per_second", 10.0)},
    "a rate a hundredth too high": {"samples_per_second": times("samples_per_second", 1.01)},
    "half the seconds": {"seconds": times("seconds", 0.5)},
    "twice the samples": {"samples": times("samples", 2)},
    "faster than the ceiling": {
        "samples_per_second": times("samples_per_second", 50.0),
        "seconds": times("seconds", 0.02),
    },
    "an endless rate": {"samples_per_second": value(float("inf"))},
    "endless operations": {"flops_per_sample": value(float("inf"))},
    "more wait than time": {"input_seconds": times("seconds", 3.0)},
    "a CPU's joules by NVML": {
        **{"energy_joules": value(10.0), "energy_method": value("nvml"), "energy_boundary": value("board")},
    },
    "a wall meter that reads a package": {
        **{"energy_joules": value(10.0), "energy_method": value("meter"), "energy_boundary": value("package")},
    },
    "a megawatt": {
        **{"energy_joules": times("seconds", 1e6), "energy_method": value("rapl"), "energy_boundary": value("package")},
    },
    "less than idle": {
        **{"energy_joules": times("seconds", 1.0), "energy_method": value("rapl"), "energy_boundary": value("package")},
        "idle_watts": value(50.0),
    },
    "measured tomorrow": {"started_at": value("2097-01-01T00:00:00.000Z")},
    "measured last year": {"started_at": value("2025-01-01T00:00:00.000Z")},
    "all at once": {"started_at": lambda rows, window: rows.loc[window, "started_at"].iloc[0]},
    "a gap in the index": {"index": lambda rows, window: rows.loc[window, "index"] + 1},
    "published among the measured": {"source": value("published")},
    "another machine": {"machine": value("an-h100")},
    "another chip": {"chip": value("Apple M9")},
    "another device": {"device": value("cuda")},
    "another variant": {"variant": value("controlled")},
    "another batch": {"batch_size": value(4096)},
    "another precision": {"precision": value("fp16")},
    "another precision than parity's": {"precision": value("amp_bf16")},
    "another data set": {"dataset": value("cifar10")},
    "memory that is not there": {"peak_memory_bytes": value(2**45)},
    "a commit of somebody": {"commit": value("trust-me")},
    "another commit": {"commit": value("0123456789ab")},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_with_its_file_and_line(real, lie):
    rows, described = real
    rows = rows.copy()
    run_id = rows.loc[(rows["phase"] == "train") & (rows["variant"] == "reference"), "run_id"].iloc[0]
    window = (rows["run_id"] == run_id) & (rows["phase"] == "train")
    for column, change in LIES[lie].items():
        rows.loc[window, column] = change(rows, window)
    table = crosschecks.complaints(rows, described)
    assert set(table["run_id"]) == {run_id}
    assert table["line"].between(2, 1 + (rows["run_id"] == run_id).sum()).all()
    said = []
    assert run_id not in set(crosschecks.without(rows, described, said.append)["run_id"])
    assert [f"{run_id}.csv, line " in text for text in said] == [True]


def test_a_copy_of_a_run_is_refused_under_its_new_name(real):
    rows, described = real
    run_id = rows.loc[rows["variant"] == "reference", "run_id"].iloc[0]
    other = run_id[:-1] + ("0" if run_id[-1] != "0" else "1")
    twin = rows[rows["run_id"] == run_id].assign(run_id=other)
    both = pandas.concat([rows, twin], ignore_index=True)
    assert set(crosschecks.complaints(both, described | {other: described[run_id]})["run_id"]) == {other}


def test_what_the_manifest_says_otherwise_is_refused(real):
    rows, described = real
    run_id = rows.loc[rows["variant"] == "reference", "run_id"].iloc[0]
    for place, lie in {
        ("machine", "chip"): "Apple M9",
        ("parameters", "batch_size"): 999,
        ("commit",): "0" * 12,
    }.items():
        changed = copy.deepcopy(described)
        inner = changed[run_id]
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = lie
        assert set(crosschecks.complaints(rows, changed)["run_id"]) == {run_id}


def test_nothing_lies_in_the_future_of_the_one_who_asks(real):
    rows, described = real
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert set(crosschecks.complaints(rows, described, long_ago)["reason"]) == {"it lies in the future"}
