import math
import subprocess
import sys
import time
from dataclasses import replace

import pandas
import pytest
import yaml

from benchbook.measuring import protocol, sensors
from benchbook.measuring.protocol import Amount
from benchbook.measuring.window import steps_lasting, train_window
from made import plants
from made.fakes import FakeWorkload, Sensor

pytestmark = pytest.mark.usefixtures("clock")


def _measure(workload, record, num_warmup_steps=2, **plan):
    protocol.warm_up(workload, record, num_warmup_steps)
    workload.log.clear()
    protocol.measure_windows(workload, record, Amount(**plan))
    return record.rows()


def _trained(rows):
    return rows[rows["phase"] == "train"]


def test_rows_are_those_on_disk_and_their_numbers_known_sums(record, clock):
    workload = FakeWorkload(clock)
    rows = _measure(workload, record, num_windows=2)
    first, second = (
        [(epoch, 0, 4), (epoch, 1, 4), (epoch, 2, 2), "mean_loss", "end_epoch"] for epoch in (0, 1)
    )
    assert workload.log == [*first, *second, "evaluate"]
    assert rows[["epoch", "index"]].iloc[2:4].values.tolist() == [[1, 0], [2, 1]]
    assert list(rows["phase"]) == ["compile", "warmup", "train", "train", "evaluate"]
    assert set(rows["status"]) == {"ok"}
    assert set(rows["model"]) == {"fake"}
    assert list(rows["samples"]) == [4, 8, 10, 10, 8]
    assert rows["steps"].astype(object).where(rows["steps"].notna(), None).tolist() == [
        1,
        2,
        3,
        3,
        None,
    ]
    first, last = _trained(rows).iloc[0], rows.iloc[-1]
    assert (first["seconds"], first["input_seconds"], first["samples_per_second"]) == (
        3 * (2 + 3),
        3 * 2,
        10 / 15,
    )
    assert first["loss"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert (last["seconds"], last["samples_per_second"], last["loss"]) == (7.0, 8 / 7, 0.5)
    assert (last["accuracy"], last["accuracy_metric"]) == (0.75, "top1")


@pytest.mark.parametrize(
    ("num_steps", "phases", "epochs"), [(0, ["compile"], 0), (7, ["compile", "warmup"], 2)]
)
def test_warm_up_of_any_length_ends_with_fresh_weights(record, clock, num_steps, phases, epochs):
    workload = FakeWorkload(clock)
    protocol.warm_up(workload, record, num_steps)
    assert list(record.rows()["phase"]) == phases
    assert (workload.log[-1], workload.log.count("end_epoch")) == ("restore", epochs)
    assert (workload.epoch, workload.num_steps) == (0, 0)


def test_losses_are_read_after_the_clock_has_stopped(clock):
    clock.log = []
    workload = FakeWorkload(clock)
    workload.log = clock.log
    measures = train_window(workload, Sensor(clock.log), [(0, 0, 4)])
    assert clock.log.count("mean_loss") == 1
    assert clock.log.index("mean_loss") > clock.log.index("end") > clock.log.index((0, 0, 4))
    assert measures["energy_joules"] == 5.0
    assert measures["seconds"] == 3


def test_partial_windows_run_on_across_the_end_of_an_epoch_and_belong_to_the_later_one(
    record, clock
):
    workload = FakeWorkload(clock)
    rows = _trained(_measure(workload, record, num_windows=4, samples_per_window=8))
    batches = [
        (0, 0, 4),
        (0, 1, 4),
        (0, 2, 2),
        (1, 0, 4),
        (1, 1, 4),
        (1, 2, 2),
        (2, 0, 4),
        (2, 1, 4),
    ]
    assert [entry for entry in workload.log if isinstance(entry, tuple)] == batches
    assert workload.log.count("end_epoch") == 2
    assert workload.log.index("end_epoch") == workload.log.index((0, 2, 2)) + 1
    assert list(rows["samples"]) == [8, 6, 6, 8]
    assert list(rows["epoch"]) == [1, 2, 2, 3]
    # The first batch is fetched before the clock starts; of two batches the second one's wait is in
    # the window.
    assert (rows["input_seconds"].iloc[0], rows["seconds"].iloc[0]) == (2, 2 + 2 * 3)


@pytest.mark.parametrize(
    ("window_seconds", "samples_per_window", "num_steps"),
    [(20.0, 0, 7), (20.0, 24, 6), (3, 4, 1), (0, 1, 1), (0, 4, 1), (0, 7, 2), (0, 9, 2)],
)
def test_a_window_lasts_as_long_as_planned_in_whole_steps(
    record, clock, window_seconds, samples_per_window, num_steps
):
    plan = {
        "num_windows": 2,
        "window_seconds": window_seconds,
        "samples_per_window": samples_per_window,
    }
    rows = _measure(FakeWorkload(clock), record, **plan)
    trained = _trained(rows)
    assert trained["seconds"].min() >= window_seconds
    assert trained["steps"].tolist() == [num_steps] * 2
    assert rows["phase"].tolist()[:3] == [
        "compile",
        "warmup",
        "warmup" if window_seconds else "train",
    ]
    assert trained["loss"].iloc[0] == pytest.approx(
        sum(1 / step for step in range(1, num_steps + 1)) / num_steps
    )


@pytest.mark.parametrize(
    ("seconds", "goal", "count"),
    [(0.001, 1.0, 0), (0.01, 1.0, 0), (0.3, 1.0, 0), (2.0, 1.0, 0), (0.15, 0.2, 2)],
)
def test_how_many_steps_last_so_long_is_said_by_a_window_that_is_half_as_long(seconds, goal, count):
    tried = []

    def train(count):
        tried.append(count * seconds)
        return {"seconds": tried[-1] + 5.0 * (len(tried) == 1 and seconds < 0.1)}  # it compiles

    num_steps = steps_lasting(goal, train)
    assert tried[-1] + 5.0 >= goal / 2
    assert num_steps * seconds >= goal or len(tried) == 1
    assert sum(tried) < 4.0
    assert not count or (num_steps, len(tried)) == (count, 1)


@pytest.mark.parametrize("samples_per_window", [0, 8])
def test_every_repeat_begins_again_from_fresh_weights(record, clock, samples_per_window):
    plan = {
        "num_repeats": 3,
        "num_windows": 2,
        "samples_per_window": samples_per_window,
        "cooldown_seconds": 30,
    }
    workload = FakeWorkload(clock)
    rows = _measure(workload, record, **plan)
    trained = _trained(rows)
    losses = trained.groupby("repeat")["loss"].apply(list)
    assert list(losses) == [losses[0]] * 3
    assert list(trained["repeat"]) == [0, 0, 1, 1, 2, 2]
    assert list(trained["index"]) == [0, 1] * 3
    assert ["moved_tensors" in settings for settings in trained["settings"]] == [False] * 5 + [True]
    assert list(rows[rows["phase"] == "evaluate"]["repeat"]) == [0, 1, 2]
    assert clock.slept == [30, 30]


def test_steps_are_the_optimisers_own_count_without_those_that_a_scaler_leaves_out():
    workload = plants.tiny("amp_fp16")
    workload.clock = iter(range(100, 200)).__next__

    def steps() -> int:
        return train_window(workload, sensors.NO_SENSOR, workload.batches(0))["steps"]

    assert steps() == 6
    workload.scaler.update(2.0**60)
    assert steps() < 6
    plants.no_update(workload)
    assert steps() == 0


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_diverged_loss_ends_its_repeat_and_later_repeats_still_run(record, clock, loss):
    # After 3 steps of warm-up and a window of 3, the second window's second step.
    workload = FakeWorkload(clock, broken_steps={3 + 4: loss})
    rows = _measure(workload, record, num_repeats=2, num_windows=3)
    trained = _trained(rows)
    assert list(trained["status"]) == ["ok", "diverged", "ok", "ok", "ok"]
    assert list(trained["repeat"]) == [0, 0, 1, 1, 1]
    assert list(rows[rows["phase"] == "evaluate"]["repeat"]) == [0, 1]
    assert trained.iloc[1]["seconds"] >= 0


@pytest.mark.parametrize(
    ("step", "error", "phases", "status"),
    [
        (0, MemoryError("no room"), ["compile"], "out_of_memory"),
        (
            3 + 4,
            RuntimeError("the device is gone"),
            ["compile", "warmup", "train", "train"],
            "crashed",
        ),
    ],
)
def test_exception_in_a_step_keeps_finished_rows_and_adds_one_of_its_phase(
    record, clock, step, error, phases, status
):
    with pytest.raises(type(error), match=str(error)):
        _measure(FakeWorkload(clock, broken_steps={step: error}), record, num_windows=3)
    rows = record.rows()
    assert list(rows["phase"]) == phases
    assert list(rows["status"]) == ["ok"] * (len(phases) - 1) + [status]
    last = rows.iloc[-1]
    assert (last["message"], last["index"]) == (
        f"{type(error).__name__}: {error}",
        phases.count(phases[-1]) - 1,
    )
    assert last[["samples", "seconds", "loss"]].isna().all()
    assert not record.marker.exists()


@pytest.mark.parametrize("wrong", [{"samples_per_window": 8}, {"window_seconds": 1.0}])
def test_windows_that_are_no_epochs_are_not_evaluated_each(wrong):
    with pytest.raises(ValueError, match="evaluate_each_epoch True; allowed with samples_per"):
        Amount(**wrong, evaluate_each_epoch=True)


class Spawned(FakeWorkload):
    """Its loader's processes take 7 s to begin, as by spawn, and stay alive from epoch to epoch."""

    def batches(self, epoch):
        self.clock.advance(7)
        yield from super().batches(epoch)

    def epochs(self):
        self.clock.advance(7)
        while True:
            yield super().batches(self.epoch)


@pytest.mark.parametrize(
    ("variant", "samples", "inside"),
    [("reference", 0, 7), ("controlled", 0, 0), ("controlled", 4, 0)],
)
def test_loaders_begin_inside_whole_epochs_of_the_reference_alone(
    record, clock, variant, samples, inside
):
    record.common["variant"] = variant
    for workload in (FakeWorkload(clock), Spawned(clock)):
        _measure(workload, record, num_windows=5, samples_per_window=samples)
    seconds = _trained(record.rows())["seconds"].tolist()
    assert [spawned - plain for plain, spawned in zip(seconds[:5], seconds[5:], strict=True)] == [
        inside
    ] * 5


def test_an_evaluation_can_follow_every_epoch_but_no_epoch_one_that_diverged(record, clock):
    rows = _measure(
        FakeWorkload(clock), record, num_windows=2, num_repeats=2, evaluate_each_epoch=True
    ).iloc[2:]
    assert list(rows["phase"]) == ["train", "evaluate"] * 4
    assert list(rows["epoch"]) == [1, 1, 2, 2] * 2
    assert list(rows["repeat"]) == [0] * 4 + [1] * 4
    workload = FakeWorkload(
        clock, broken_steps={3: math.nan}
    )  # after the first call and no warm-up: in epoch one
    rows = _measure(
        workload, record, num_warmup_steps=0, num_windows=3, evaluate_each_epoch=True
    ).iloc[len(rows) + 2 :]
    assert list(rows["phase"]) == ["compile", "train", "evaluate"]


def test_an_evaluation_without_a_loss_is_a_row_without_one(record, clock):
    workload = FakeWorkload(clock)
    measured = workload.evaluate
    workload.evaluate = lambda: replace(measured(), loss=None, metric="knn")
    row = _measure(workload, record).iloc[-1]
    assert (row["phase"], row["status"], row["accuracy"], row["accuracy_metric"]) == (
        "evaluate",
        "ok",
        0.75,
        "knn",
    )
    assert pandas.isna(row["loss"])


@pytest.mark.parametrize(
    ("step_seconds", "num_workers", "samples_per_window", "num_steps", "searches"),
    yaml.safe_load("""
- [0.5, 0, 4, 20, false]
- [0.5, 2, 4, 4, true]  # the loader's work is not in these seconds
- [0.5, 2, 80, 20, false]  # but can only make a window longer
- [0.0, 0, 4, 4, true]  # the warm-up was too short to tell
"""),
)
def test_the_warm_up_tells_the_steps_of_a_window(
    record, clock, step_seconds, num_workers, samples_per_window, num_steps, searches
):
    workload = FakeWorkload(clock)
    described = workload.description() | {"num_workers": num_workers}
    workload.description = lambda: described
    plan = Amount(window_seconds=10.0, samples_per_window=samples_per_window)
    protocol.measure_windows(workload, record, plan, step_seconds)
    rows = record.rows()
    assert rows.loc[rows["phase"] == "train", "steps"].tolist() == [num_steps]
    assert (rows["phase"] == "warmup").any() == searches


BUSY = """
import sys, time, pathlib
print("begins", flush=True)
while time.process_time() < 1: pass
pathlib.Path(sys.argv[1]).touch()
input()
"""


@pytest.mark.parametrize(("step_seconds", "taken"), [(1e-3, [4]), (60.0, [])])
def test_windows_begin_when_the_loaders_queue_is_in_steady_state(
    record, clock, monkeypatch, step_seconds, taken
):
    monkeypatch.setattr(protocol, "time", time)
    monkeypatch.setattr(
        protocol, "POLL_SECONDS", 1.0
    )  # next to other tests, a worker may get no core for a while
    workload, filled, steps = FakeWorkload(clock), record.path.with_suffix(".filled"), []
    workload.description = lambda: {"num_workers": 2}

    def train(count: int) -> dict:
        steps.append(count)
        return {"samples": count}

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BUSY, filled], **pipes) as worker:
        worker.stdout.readline()
        protocol._reach_steady_state(workload, record, train, step_seconds)
        assert filled.exists()
        worker.kill()
    assert steps == taken  # a loader slower than the steps has an empty queue in the end
