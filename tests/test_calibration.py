"""Calibration with operations whose rate is known, and the synchronise self-test against
backends that do not wait."""

import functools
import json
import platform
import queue
import threading
import time
from types import SimpleNamespace

import numpy
import pandas
import pytest
import torch
import yaml
from torch import nn

from benchbook.frameworks import devices, operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch.devices import TorchBackend
from benchbook.frameworks.torch.runtime import flops_per_sample
from benchbook.judging import statistics
from benchbook.machine import kinds
from benchbook.measuring import calibration, sensors
from benchbook.measuring.window import window
from benchbook.rows.ceilings import ceilings, efficiency
from benchbook.rows.ceilings import shares as ceiling_shares
from benchbook.studies.calibrate import study
from benchbook.studies.experiments.parameters import check
from made.fakes import CPU, Clock
from made.rows import make_row, make_rows

CUDA = Device("cuda", "an NVIDIA GPU")


class Queue:
    """A device that works on a thread of its own: an operation is queued, and takes a twentieth
    of a second."""

    def __init__(self):
        self.work = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            done = self.work.get()
            time.sleep(0.05)
            done.set()

    def operation(self, previous):
        done = threading.Event()
        self.work.put(done)
        return done

    def wait(self, device, last):
        last.wait()

    def read(self, device, output):
        output.wait()
        return 1.0


class Donating(Queue):
    """One that waits, as JAX 0.7 does on a CPU, when an output is dropped: for the operation
    that took its memory."""

    class Output:
        def __init__(self, done):
            self.wait, self.taken = done.wait, None

        def __del__(self):
            if self.taken is not None:
                self.taken.wait()

    def operation(self, previous):
        done = super().operation(previous)
        if previous is not None:
            previous.taken = done
        return self.Output(done)


@pytest.fixture
def rate(monkeypatch):
    """Give every operation a known time, on a clock that nothing else moves; return seconds by
    (kind, size)."""
    clock, seconds = Clock(), {}
    monkeypatch.setattr(calibration, "window", functools.partial(window, clock=clock))
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.NO_SENSOR)

    def make(kind):
        def build(device, *arguments):
            wanted = seconds[kind, *arguments[:2]]
            if isinstance(wanted, Exception):
                raise wanted
            return lambda previous: clock.advance(wanted)

        return build

    for kind in ("multiplication", "copy"):
        monkeypatch.setattr(operations, kind, make(kind))
    silent = SimpleNamespace(launch=make("launch"), synchronize=lambda device, last=None: None)
    silent.reset_peak_memory = lambda device: None
    monkeypatch.setattr(devices, "backend", lambda framework: silent)
    monkeypatch.setattr(devices, "peak_memory", lambda device: (None, None))
    return seconds


@pytest.mark.parametrize("kind", [Queue, Donating])
def test_a_wait_that_waits_passes_and_one_that_does_not_or_for_another_output_is_caught(kind):
    device, seconds = kind(), 0.2
    earlier = device.operation(None)
    assert (
        calibration.check_synchronize(CPU, device.operation, device.read, device.wait, seconds)
        < 0.1
    )
    for wrong in (lambda device, last: None, lambda device, last: earlier.wait()):
        with pytest.raises(
            calibration.NotSynchronized, match=r"synchronising torch on cpu left .*% of the work"
        ):
            calibration.check_synchronize(CPU, device.operation, device.read, wrong, seconds)


class Apple(TorchBackend):
    """Arithmetic of Apple's GPUs in torch.

    M5 rounds operands to TF32's 10 bits. M1 and M2 add what lies behind the operands of a long
    product to outputs of 16 rows and columns or more: in bmm, and until torch 2.14 in mm.
    """

    def __init__(self, rounds: bool = False, wrong_from: int = 4):
        self.rounds, self.wrong_from = rounds, wrong_from  # dimensions of an operand

    def _rounded(self, part):
        return (
            ((part.view(numpy.int32) + 0x1000) & ~0x1FFF).view(numpy.float32)
            if self.rounds
            else part
        )

    def multiplication(self, device, first, second, dtype):
        right = super().multiplication(device, self._rounded(first), self._rounded(second), dtype)
        long = first.shape[-1] >= 32_767 and min(first.shape[-2], second.shape[-1]) >= 16
        return lambda previous: right(previous) + (long and first.ndim >= self.wrong_from)

    def convolution(self, device, images, kernel):
        return super().convolution(device, self._rounded(images), kernel)


@pytest.mark.parametrize(
    ("backend", "bits", "wrong", "words"),
    [
        (TorchBackend(), 23, {}, ["it keeps 23 in mm, 23 in bmm, 23 in convolution and 2"]),
        (
            Apple(rounds=True),
            10,
            {},
            ["it keeps 10 in mm, 10 in bmm, 10 in convolution and 2"],
        ),  # M5
        (
            Apple(wrong_from=2),
            23,
            {"mm", "bmm"},
            ["of 32,769 are wrong for outputs of 16 x 16 in mm, 17 x"],
        ),  # M1
        (
            Apple(wrong_from=3),
            23,
            {"bmm"},
            ["wrong for outputs of 16 x 16 in bmm, 17 x 17 in bmm and 64"],
        ),  # M2, 2.14
    ],
)
def test_arithmetic_that_rounds_or_adds_what_lies_behind_is_a_row_and_is_said(
    record, monkeypatch, backend, bits, wrong, words
):
    monkeypatch.setattr(devices, "backend", lambda framework: backend)
    monkeypatch.setattr(calibration, "check_synchronize", lambda device: 0.0)
    calibration.measure(CPU, record, BUDGET)
    rows = record.rows()
    found = rows[rows["model"].isin(operations.EXACT)].set_index("model")["settings"]
    assert [found[name]["mantissa_bits"] for name in ("mm", "bmm", "convolution")] == [bits] * 3
    assert found["attention"]["mantissa_bits"] >= 20  # whose weights are rounded
    said_wrong = {
        name: own["wrong_outputs"] for name, own in found.items() if own.get("wrong_outputs")
    }
    assert said_wrong == {name: [16, 17, 64] for name in wrong}
    assert all(part in study.reading(rows) for part in words)
    assert study.reading(pandas.concat([rows, rows], ignore_index=True)) == study.reading(rows), (
        "of two processes"
    )
    assert set(ceilings(rows)["model"]).isdisjoint(operations.EXACT)
    assert statistics.summarise(rows)["status"].tolist() == ["ok"]


BUDGET = {
    "num_windows": 1,
    "window_seconds": 0.01,
    "matrix_sizes": "8 16",
    "copy_mebibytes": 1,
    "seed": 0,
}
BUDGET |= {"idle_seconds": 0.0}


def test_the_wait_is_the_first_row_of_a_calibration_and_no_ceiling(record, monkeypatch):
    monkeypatch.setattr(calibration, "check_synchronize", lambda device: 0.012)
    record.describe(framework="torch", device="cpu", device_name="a processor")
    calibration.measure(CPU, record, BUDGET)
    rows = record.rows()
    first = rows.iloc[0]
    assert (first["phase"], first["model"], first["settings"]["remaining_share"]) == (
        "calibrate",
        "synchronize",
        0.012,
    )
    assert "synchronize" not in set(ceilings(rows)["model"])
    assert "Waiting for it is complete: 1.2 % of the work was left." in study.reading(rows)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_what_freed_memory_costs_that_goes_back_to_the_system_is_a_range_over_processes(
    record, monkeypatch
):
    for name, value in kinds.KINDS["cpu"].environment.items():
        monkeypatch.setenv(name, value)
    seconds = "import os; print(2 - ('MALLOC_ARENA_MAX' in os.environ))"
    monkeypatch.setattr(calibration, "STEPS", seconds)
    record.describe(framework="torch", device="cpu", device_name="a processor")
    calibration.measure(CPU, record, BUDGET)
    rows = record.rows()
    ratios = rows[rows["model"] == "freed_memory"]["settings"].item()["given_back"]
    assert ratios == [2.0] * 6
    assert "takes 2.0 times as long (6 pairs of processes)" in study.reading(rows)
    assert "freed_memory" not in set(ceilings(rows)["model"])


def test_a_device_that_does_not_wait_is_not_calibrated(record, monkeypatch):
    check = functools.partial(calibration.check_synchronize, synchronize=lambda device, last: None)
    device = Queue()
    monkeypatch.setattr(
        calibration,
        "check_synchronize",
        lambda _: check(CPU, device.operation, device.read, work_seconds=0.2),
    )
    with pytest.raises(calibration.NotSynchronized):
        calibration.measure(CPU, record, BUDGET)
    (row,) = record.rows().to_dict("records")
    assert row["status"] == "crashed"
    assert "synchronising torch on cpu left" in row["message"]


@pytest.mark.parametrize(
    "wrong", [{"num_windows": 0}, {"matrix_sizes": "0 8"}, {"matrix_sizes": ""}]
)
def test_what_is_out_of_range_is_an_error_that_names_the_value(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} .*; allowed: "):
        check("calibrate", wrong)


def test_products_are_rows_with_known_rates_and_sizes_that_are_too_slow_are_left_out(rate, record):
    # 1024 would take 1.6 s, more than two windows.
    for size in (128, 256, 512):
        for name, seconds in (("fp32", 0.2), ("bf16", 0.4)):
            rate["multiplication", size, name] = seconds * (size / 512) ** 3
    rate["multiplication", 128, "fp16"] = RuntimeError('"addmm" not implemented for Half')
    budget = BUDGET | {"num_windows": 2, "window_seconds": 0.5, "matrix_sizes": "128 1024 256 512"}
    record.describe(settings={"idle_seconds": 2.0})
    calibration.measure_arithmetic(CPU, record, budget)
    rows = record.rows()
    assert set(rows["phase"]) == {"calibrate"}
    good, refused = rows[rows["status"] == "ok"], rows[rows["status"] != "ok"]
    found = [
        (r["precision"], r["settings"]["matrix_size"], r["samples"])
        for r in good.to_dict("records")
    ]
    counts = {"fp32": (160, 20, 2), "bf16": (80, 10, 1)}
    assert found == [
        (name, size, count)
        for name, numbers in counts.items()
        for size, count in zip((128, 256, 512), numbers, strict=True)
        for _ in range(2)
    ]
    assert good["settings"].iloc[0]["idle_seconds"] == 2.0
    assert good["flops_per_sample"].iloc[0] == 2 * 128**3
    assert good["samples_per_second"].tolist() == pytest.approx(
        [1 / rate["multiplication", size, name] for name, size, _ in found]
    )
    assert refused[["precision", "model", "status", "message"]].values.tolist() == [
        ["fp16", "matmul", "unsupported", 'RuntimeError: "addmm" not implemented for Half']
    ]
    assert refused["seconds"].isna().all()


def test_a_device_that_cannot_multiply_in_fp32_fails(rate, record):
    rate["multiplication", 64, "fp32"] = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        calibration.measure_arithmetic(CPU, record, BUDGET | {"matrix_sizes": "64"})
    assert record.rows()["status"].tolist() == ["crashed"]


@pytest.mark.parametrize(
    ("device", "transfers"), [(CPU, []), (CUDA, ["host_to_device", "device_to_host"])]
)
def test_bytes_read_and_written_and_launches_are_counted_and_a_cpu_has_no_transfers(
    rate, record, device, transfers
):
    rate |= {
        ("copy", 1000): 0.25,
        ("copy", 1000, "host_to_device"): 0.5,
        ("copy", 1000, "device_to_host"): 1.0,
    }
    rate["launch",] = 0.001
    budget = BUDGET | {"window_seconds": 1.0, "copy_mebibytes": 1000 / 2**20}
    calibration.measure_memory(device, record, budget)
    calibration.measure_launches(device, record, budget)
    rows = record.rows()
    assert rows["model"].tolist() == ["copy", *transfers, "launch"]
    rates = (rows["bytes_per_sample"].fillna(1) * rows["samples_per_second"]).tolist()
    assert rates == pytest.approx([*[8000, 2000, 1000][: len(rows) - 1], 1000])
    assert rows["samples"].iloc[-1] == 1000
    assert rows["flops_per_sample"].isna().all()


@pytest.mark.parametrize(
    ("seconds", "message"),
    [(0.13, ""), (0.12, "allowed: up to"), (AttributeError("no _copy"), "AttributeError: no _co")],
)
def test_a_transfer_faster_than_the_devices_memory_or_refused_is_no_ceiling(
    rate, record, seconds, message
):
    """A copy of 1000 bytes reads and writes 2000 in 0.25 s: 8000 B/s, which 1000 bytes reach in
    0.125 s."""
    rate |= {("copy", 1000): 0.25}
    rate |= {("copy", 1000, "host_to_device"): seconds, ("copy", 1000, "device_to_host"): 1.0}
    calibration.measure_memory(
        CUDA, record, BUDGET | {"window_seconds": 1.0, "copy_mebibytes": 1000 / 2**20}
    )
    rows, status = record.rows().set_index("model"), "unsupported" if message else "ok"
    assert rows["status"].to_dict() == {
        "copy": "ok",
        "host_to_device": status,
        "device_to_host": "ok",
    }
    assert set(ceilings(rows.reset_index())["model"]) == set(rows.index[rows["status"] == "ok"])
    if status != "ok":
        assert message in rows.loc["host_to_device", "message"]
        assert rows.loc["host_to_device", ["seconds", "samples_per_second"]].isna().all()


class Twins(nn.Module):
    """A network of two outputs."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 3), nn.Linear(5, 2)

    def forward(self, images):
        return self.one(images), self.two(images)


@pytest.mark.parametrize(
    (
        "network",
        "images",
        "expected",
    ),  # 2 per multiply-add, as often again for weights and for what is trained below
    [
        (Twins(), (4, 5), 2 * 2 * 5 * (3 + 2)),
        *(
            (nn.Sequential(nn.Conv2d(6, 6, 1), layer), (2, 6, 8, 8), 2 * 2 * 64 * 36 + 3 * forward)
            for layer, forward in (
                (
                    nn.Conv2d(6, 12, 3, groups=3),
                    2 * 36 * 12 * 18,
                ),  # 36 positions, 12 kernels of 2 x 9
                (
                    nn.ConvTranspose2d(6, 4, 2, stride=2),
                    2 * 64 * 6 * 4 * 4,
                ),  # from 64 positions, 6 x 4 kernels of 4
                (nn.ConvTranspose2d(6, 6, 2, groups=6), 2 * 64 * 6 * 4),
            )
        ),
    ],
)
def test_arithmetic_of_a_training_step_equals_the_count_by_hand(network, images, expected):
    assert flops_per_sample(network, torch.zeros(images)) == expected
    assert all(
        parameter.grad is None and parameter.device.type == "cpu"
        for parameter in network.parameters()
    )


def calibrated(rates, size, precision="fp32", **columns):
    settings = json.dumps({"matrix_size": size})
    work = {
        "phase": "calibrate",
        "model": "matmul",
        "flops_per_sample": 1000.0,
        "settings": settings,
    }
    work |= {
        "study": "calibrate",
        "precision": precision,
        "run_id": f"c-{size}-{precision}-{columns}",
    }
    return [
        make_row(index=i, samples_per_second=float(r), **work | columns)
        for i, r in enumerate(rates)
    ]


def test_efficiency_is_against_the_best_products_of_the_machines_device_in_the_precision():
    lines = [
        *calibrated([10], 64),
        *calibrated([40], 64, "bf16"),
        *calibrated([5], 64, framework="jax"),
        *calibrated([99], 64, machine="other"),
        *calibrated([10], 64, device="cuda"),
    ]
    rows = make_rows(
        [*lines, make_row(phase="calibrate", model="mnist_cnn")]
    )  # a network that was only tried
    assert set(ceilings(rows)["model"]) == {"matmul"}
    work = {"flops_per_sample": 10.0, "samples_per_second": 320.0}
    trained = yaml.safe_load("""
    {same: {precision: fp32}, mixed: {precision: amp_bf16}, refused: {precision: fp16},
     another session: {precision: fp32, session: session-9}, another framework: {precision: fp32, framework: jax},
     two devices: {precision: fp32, device: cuda, device_count: 2}, unknown: {precision: fp32, flops_per_sample: null}}
    """)
    points = make_rows(
        [make_row(**work | columns, point=name, run_id=name) for name, columns in trained.items()]
    )
    summary, best = statistics.summarise(points), ceilings(rows)
    reached = efficiency(summary, best).set_index("point")["efficiency"].dropna()
    shares = dict.fromkeys(("same", "another session", "another framework"), 0.32)
    assert reached.to_dict() == pytest.approx(shares | {"mixed": 0.08, "two devices": 0.16})
    said = ceiling_shares(summary, best)
    assert (
        said["session-1 mnist_speedup mixed"] == "8% of this machine's best measured bf16 products."
    )
