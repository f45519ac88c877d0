"""What a device supports: every trial a row, what was refused an answer, what is wrong named so."""

import itertools
import time
from types import SimpleNamespace

import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings
from benchbook.judging import statistics
from benchbook.machine import contention, processes
from benchbook.measuring import trials
from benchbook.rows import records
from made.fakes import CPU, IOREG, Clock, FakeWorkload

SECONDS = {"fp32": 3.0, "amp_bf16": 1.5, "amp_fp16": 3.0, "bf16": 1.0, "fp16": 4.0}


class Trial(FakeWorkload):
    """Steps take as long as the precision says; a first loss of 1 unless told otherwise."""

    def __init__(self, clock: Clock, settings: Settings, first_loss: float = 1.0) -> None:
        super().__init__(clock)
        self.settings, self.first_loss = settings, first_loss

    def description(self) -> dict:
        return super().description() | {"num_workers": 0}

    def to_device(self, batch: tuple) -> tuple:
        return (*batch, "on the device")

    def step(self, batch: tuple) -> float:
        assert batch[3] == "on the device"
        super().step(batch)
        self.clock.advance(SECONDS[self.settings.precision] - 3)
        return self.first_loss


@pytest.fixture
def record(record):
    record.describe(model="fake", settings={"seed": 1})
    return record


def measured(record, build, limit=1e9, compilers=(False, True)):
    trials.measure_matrix(build, record, CPU, limit, compilers)
    return record.rows()


def test_every_precision_is_tried_eager_and_then_compiled_in_windows_of_steps_on_ready_batches(
    record, clock
):
    rows = measured(record, lambda settings: Trial(clock, settings))
    tried = rows[["compiled", "precision"]].drop_duplicates().apply(tuple, axis=1).tolist()
    assert tried == [(False, name) for name in SECONDS] + [(True, name) for name in SECONDS]
    assert set(rows["phase"]) == {"calibrate"}
    assert rows["settings"].tolist() == [{"seed": 1, "tried": "matrix"}] * len(rows)
    assert set(rows["batch_size"]) == {4}
    seconds = {
        key: group["seconds"].tolist() for key, group in rows.groupby(["precision", "compiled"])
    }
    assert seconds["bf16", False] == [2.0, 2.0]
    assert seconds["fp32", False] == [6.0]
    assert seconds["fp16", False] == [
        4.0
    ]  # one step; compiled, the first one's time is mostly the compiler's
    assert seconds["fp16", True] == [8.0]
    assert rows["samples_per_second"].tolist()[0] == pytest.approx(8 / 6)


def test_what_is_refused_is_a_row_with_its_error_and_no_failure_of_the_run(record, clock):
    def build(settings):
        if settings.precision == "amp_fp16":
            raise NotImplementedError("no half here")
        if settings.precision == "fp16":
            raise RuntimeError("CUDA out of memory")
        return Trial(clock, settings)

    rows = measured(record, build, compilers=(False,)).set_index("precision")
    assert rows.loc["amp_fp16", ["status", "message"]].tolist() == [
        "unsupported",
        "NotImplementedError: no half here",
    ]
    assert rows.loc["fp16", "status"] == "out_of_memory"
    kept = records.without_refusals(rows.reset_index())
    assert "unsupported" not in set(kept["status"])
    assert "out_of_memory" in set(kept["status"])


def test_what_computes_something_else_has_diverged(record, clock):
    losses = {"amp_bf16": 1.02, "amp_fp16": 0.9, "fp16": float("nan")}
    build = lambda settings: Trial(clock, settings, losses.get(settings.precision, 1.0))  # noqa: E731
    rows = (
        measured(record, build, compilers=(False,))
        .drop_duplicates("precision")
        .set_index("precision")
    )
    assert rows["message"].dropna().to_dict() == {
        "amp_fp16": "the first loss is 0.9, and 1 in fp32",
        "fp16": "the first loss is not finite",
    }
    assert rows["status"].eq("diverged").tolist() == rows["message"].notna().tolist()
    assert statistics.summarise(rows.reset_index())["status"].tolist() == ["ok"]


def test_without_a_loss_in_fp32_nothing_else_is_what_others_are_compared_with(record, clock):
    def build(settings):
        if settings.precision == "fp32" and not settings.compiled:
            raise MemoryError("no room")
        return Trial(clock, settings, {"amp_bf16": 1.02}.get(settings.precision, 1.0))

    rows = measured(record, build)
    assert rows[rows["status"] != "ok"]["precision"].tolist() == ["fp32"]


def test_no_trial_begins_after_the_time_limit(record, clock):
    rows = measured(
        record, lambda settings: Trial(clock, settings), limit=3000
    )  # reading the losses takes 1000 each time
    assert set(rows["precision"]) == {"fp32", "amp_bf16"}


def test_ready_batches_of_the_run_itself_are_rows_that_are_told_apart(record, clock):
    workload = Trial(clock, Settings())
    trials.measure_resident(workload, record, 0)
    assert not record.path.exists()
    trials.measure_resident(workload, record, 1)
    rows = record.rows()
    assert rows["seconds"].tolist() == [3.0, 3.0]
    assert rows["precision"].isna().all()  # the run's own
    assert len(trials.rows_tried(rows, trials.RESIDENT)) == 2
    assert trials.rows_tried(rows, trials.MATRIX).empty


TOLD = [IOREG.replace("=37", f"={share}") for share in (100, 100, 0, 100, 100)]


@pytest.mark.parametrize(
    ("kind", "printed", "busy"),
    [
        ("mps", itertools.cycle(TOLD), 0.8),
        ("mps", itertools.repeat(""), None),  # the tool does not tell
        ("mps", itertools.chain(TOLD[:4], itertools.repeat("")), None),  # it ends in mid-run
        ("cpu", itertools.repeat(IOREG), None),
    ],
)
def test_how_busy_training_keeps_a_device_is_read_while_it_trains(
    record, clock, monkeypatch, kind, printed, busy
):
    workload = FakeWorkload(clock)
    workload.device, step = Device(kind, "Apple M1 Pro"), workload.step
    workload.step = lambda batch: time.sleep(0.02) or step(batch)
    nothing = lambda *given: None  # noqa: E731
    backend = SimpleNamespace(synchronize=nothing, reset_peak_memory=nothing)
    monkeypatch.setattr(devices, "backend", lambda framework: backend)
    monkeypatch.setattr(devices, "peak_memory", lambda device: (None, None))
    monkeypatch.setattr(processes, "output", lambda *command: next(printed))
    monkeypatch.setattr(contention, "SAMPLE_SECONDS", 0.0005)
    trials.measure_busy(workload, record)
    assert record.path.exists() == (busy is not None)
    for row in trials.rows_tried(record.rows(), trials.BUSY).to_dict("records"):
        assert row["settings"]["busy"] == pytest.approx(busy, abs=0.1)
