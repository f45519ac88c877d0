"""The SimCLR protocol: its constants, and one point's choices.

Source: https://github.com/lightly-ai/lightly,
docs/source/getting_started/benchmarks/cifar10_benchmark.py of June 2023, and Igor Susmelj,
"Apple M1 and M2 performance for training SSL models", 2023.

The source reads each image from a PNG file; here all images are in memory.
"""

import functools
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from benchbook.machine import identity
from benchbook.measuring import trials
from benchbook.studies.experiments.parameters import (
    BUDGET,
    AllowEmbedded,
    DataRoot,
    SearchSeconds,
    TestImages,
    TrialBatchSize,
)
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.experiments.process import Process

BATCH_SIZE = 128  # the article's, to which its learning rate belongs
EPOCHS = 200  # the article's, after which the cosine schedule ends at 0
REFERENCE_WORKERS = 8
EVERY_CORE = -1
COMPILERS = {
    "none": (),
    "eager": (False,),
    "all": (False, True),
}  # whether each precision of the matrix is compiled


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: colour images; SGD at 0.06 for 128 images, with momentum and weight
    decay; a cosine schedule.

    `reference` augments one image at a time in 8 worker processes, `controlled` in `num_workers`
    processes. `tuned` keeps the images on the device and augments a batch there when the batch
    is requested, so the time counts as input. On the CPU all of it is host wait; on an
    accelerator it is queued before the step's work.

    """

    PLAIN_STEP = True
    MODEL = "simclr_resnet18"
    TASK = (
        50_000 // BATCH_SIZE * BATCH_SIZE,
        "to train an epoch",
    )  # a smaller last batch is dropped
    FRAMEWORKS = ("torch",)
    VARIANTS = ("reference", "controlled", "tuned")
    FIXED = (*StudyPlan.FIXED, "matrix")
    EXAMPLE = {
        "dataset": "shapes",
        "batch_size": 8,
        "samples_per_window": 16,
        "num_bank_images": 100,
    }
    EXAMPLE |= {
        "num_test_images": 50,
        "num_warmup_steps": 1,
        "num_parity_steps": 2,
        "parity_batch_size": 4,
    }
    SMALLEST = {"variant": "tuned", "parity_batch_size": 8}
    WITHOUT = ("data_resident",)

    batch_size: Annotated[int, Field(ge=2, description="images a step, each in two views")] = (
        BATCH_SIZE
    )
    num_workers: Annotated[
        int,
        Field(
            ge=EVERY_CORE,
            description="processes that augment, with controlled; -1: one for each core",
        ),
    ] = EVERY_CORE
    matrix: Annotated[
        Literal[*COMPILERS], Field(description="try each precision; all: eager and compiled")
    ] = "none"
    num_warmup_steps: int = 3
    parity_batch_size: int = 16
    seed: int = 0
    num_bank_images: Annotated[
        int,
        Field(
            ge=0, description="training images that vote in the evaluation, evenly spread; 0: all"
        ),
        BUDGET,
    ] = 0
    num_test_images: TestImages = 0
    num_resident_steps: Annotated[
        int,
        Field(ge=0, description="steps timed on resident batches, for the input's share; 0: none"),
        BUDGET,
    ] = 3
    search_seconds: SearchSeconds = 120.0
    trial_batch_size: TrialBatchSize = 128
    matrix_seconds: Annotated[
        float, Field(ge=0, description="no trial of the matrix begins after this"), BUDGET
    ] = 600.0
    matrix_batch_size: Annotated[
        int, Field(ge=2, description="most images a step in the matrix"), BUDGET
    ] = 128
    allow_embedded: AllowEmbedded = True
    data_root: DataRoot = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.num_samples
        self.require("batch_size", self.batch_size <= count, f"2 to {count}, the training images")

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure windows, and how busy the article's setting keeps the device; the first
        process also evaluates, and tries resident batches and the matrix."""
        process.measure(evaluate_each_epoch=process.whole_epochs and process.is_first)
        if process.parameters["variant"] == "reference":
            trials.measure_busy(process.workload, process.run)
        if not process.is_first:
            return
        given, run = process.parameters, process.run
        trials.measure_resident(process.workload, run, given["num_resident_steps"])
        size = min(given["batch_size"], given["matrix_batch_size"])
        make = functools.partial(process.make, variant="tuned", batch_size=size)
        trials.measure_matrix(
            make, run, process.device, given["matrix_seconds"], COMPILERS[given["matrix"]]
        )

    @property
    def workers(self) -> int:
        """Return the number of worker processes that make views."""
        chosen = {"reference": REFERENCE_WORKERS, "tuned": 0}.get(self.variant, self.num_workers)
        return identity.usable_cores() if chosen == EVERY_CORE else chosen
