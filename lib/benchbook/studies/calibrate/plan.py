"""How a process calibrates a device; there is no network."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from benchbook.machine.libraries import FRAMEWORKS
from benchbook.measuring import calibration
from benchbook.studies.experiments.parameters import BUDGET
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.experiments.process import Process

_WITHOUT = """batch_size data_resident num_workers num_repeats samples_per_window num_warmup_steps
    num_parity_steps parity_batch_size explore fewest_processes processes_part"""


@dataclass(frozen=True)
class Plan(StudyPlan):
    """How much to calibrate."""

    FRAMEWORKS = tuple(FRAMEWORKS)
    VARIANTS = DATASETS = ()
    EXAMPLE = {"num_processes": 2, "matrix_sizes": "512 1024 2048", "copy_mebibytes": 64}
    WITHOUT = (*_WITHOUT.split(),)

    num_processes: int = 1
    num_windows: int = 3
    window_seconds: float = 0.25
    matrix_sizes: Annotated[
        str,
        Field(
            pattern=r"^[1-9]\d*( [1-9]\d*)*$",
            description="rows of square matrices; too slow ones are left out",
        ),
        BUDGET,
    ] = "512 1024 2048 4096 8192"
    copy_mebibytes: Annotated[
        int, Field(ge=1, description="MiB read by one copy or transfer"), BUDGET
    ] = 256
    idle_seconds: Annotated[
        float,
        Field(ge=0, description="how long the idle device's power is read, if there is a sensor"),
        BUDGET,
    ] = 2.0
    seed: int = 0
    try_seconds: float = 1.0

    @classmethod
    def load(cls, process: Process) -> None:
        """Load nothing."""

    @classmethod
    def start(cls, process: Process, data: None) -> None:
        """Build nothing."""

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure the ceilings of the process's device."""
        calibration.measure(process.device, process.run, process.parameters)
