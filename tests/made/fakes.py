"""A clock, a sensor, a network and a run of plain Python, whose every number is known
beforehand."""

import platform
from pathlib import Path

import numpy
import pytest

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Evaluation, Workload
from benchbook.measuring import runs, sensors
from benchbook.measuring.sensors import Energy
from benchbook.measuring.writer import Run

CPU = Device("cpu", "a processor")
# What `ioreg -r -d 1 -w 0 -c IOAccelerator` prints, shortened.
IOREG = """+-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x1000004a5, registered, matched, active>
    {
      "IOClass" = "AGXAcceleratorG13X"
      "PerformanceStatistics" = {"Tiler Utilization %"=3,"recoveryCount"=0,"Device Utilization %"=37}
    }
"""


def apple_gpu(kind: str, framework: str):
    """Return an Apple GPU as a parameter of tests, which are skipped where there can be none."""
    absent = (platform.system(), platform.machine()) != ("Darwin", "arm64")
    marks = [pytest.mark.mps, pytest.mark.skipif(absent, reason="needs an Apple GPU")]
    return pytest.param(Device(kind, "an Apple GPU", framework), marks=marks, id=kind)


class Clock:
    """Stands in for a clock, and for the `time` module: its time moves only when told."""

    def __init__(self, log: list | None = None) -> None:
        self.seconds = 100.0
        self.slept = []
        self.log = log

    def __call__(self) -> float:
        if self.log is not None:
            self.log.append("clock")
        return self.seconds

    monotonic = __call__

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Sensor(sensors.Sensor):
    """Reads a known number of joules."""

    def __init__(self, log: list, joules: float = 5.0) -> None:
        super().__init__(method="nvml")
        self.log = log
        self.joules = joules

    def begin(self) -> None:
        self.log.append("begin")

    def end(self) -> Energy:
        self.log.append("end")
        return Energy(self.joules, "nvml", "board")


class FakeWorkload:
    """Ten images an epoch in batches of 4, 4 and 2; the loss is 1 over the steps since the
    weights were fresh.

    A batch is (epoch, position, images). Attribute `log` holds what was called, in order;
    `broken_steps` maps a step, counted from 0 over the whole life, to a loss or to an exception.
    """

    batch_size = 4

    def __init__(self, clock: Clock, broken_steps: dict | None = None) -> None:
        self.device = CPU
        self.epoch = 0
        self.num_steps = 0
        self.life = 0
        self.clock = clock
        self.broken_steps = broken_steps or {}
        self.log = []

    def description(self) -> dict:
        return {
            "model": "fake",
            "parameters": 1,
            "batch_size": self.batch_size,
            "dataset_samples": 10,
        }

    def batches(self, epoch: int):
        for position, images in enumerate((4, 4, 2)):
            self.clock.advance(2)
            yield epoch, position, images

    epochs = Workload.epochs

    def num_samples(self, batch: tuple) -> int:
        return batch[2]

    def step(self, batch: tuple) -> float:
        self.clock.advance(3)
        self.log.append(batch)
        self.num_steps += 1
        self.life += 1
        broken = self.broken_steps.get(self.life - 1)
        if isinstance(broken, BaseException):
            raise broken
        return broken or 1 / self.num_steps

    def check_batch(self, batch: tuple) -> None:
        pass

    def trained_weights(self) -> list:
        return [numpy.array(self.num_steps)]

    def steps_taken(self) -> int:
        return self.num_steps

    def mean_loss(self, losses: list) -> float:
        self.clock.advance(1000)
        self.log.append("mean_loss")
        return sum(losses) / len(losses)

    def enter(self) -> None:
        pass

    def end_epoch(self) -> None:
        self.epoch += 1
        self.log.append("end_epoch")

    def evaluate(self) -> Evaluation:
        self.clock.advance(7)
        self.log.append("evaluate")
        return Evaluation(loss=0.5, accuracy=0.75, samples=8)

    def snapshot(self) -> tuple:
        return self.epoch, self.num_steps

    def restore(self, state: tuple) -> None:
        self.epoch, self.num_steps = state
        self.log.append("restore")


def run(folder: Path, run_id: str = "run-1") -> Run:
    """Return a run whose rows are valid and whose folder is there."""
    folder.mkdir(parents=True, exist_ok=True)
    parameters = {"variant": "controlled", "device": "cpu"}
    return Run(
        folder, run_id, runs.identity("mnist_speedup", "a-point", run_id, "a-machine", parameters)
    )
