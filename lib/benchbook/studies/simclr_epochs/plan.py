"""The SimCLR protocol: its constants, and one point's choices.

Source: https://github.com/lightly-ai/lightly, docs/source/getting_started/benchmarks/cifar10_benchmark.py of June 2023,
and Igor Susmelj, "Apple M1 and M2 performance for training SSL models", 2023.

The source reads each image from a PNG file; here all images are in memory.
"""

import functools
from dataclasses import dataclass

from benchbook.machine import identity
from benchbook.measuring import trials
from benchbook.studies.plan import StudyPlan
from benchbook.studies.process import Process

BATCH_SIZE = 128  # the article's, to which its learning rate belongs
EPOCHS = 200  # the article's, after which the cosine schedule ends at 0
REFERENCE_WORKERS = 8
EVERY_CORE = -1
COMPILERS = {"none": (), "eager": (False,), "all": (False, True)}  # whether each precision of the matrix is compiled


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: colour images; SGD at 0.06 for 128 images, with momentum and weight decay; a cosine schedule.

    `reference` augments one image at a time in 8 worker processes, `controlled` in `num_workers` processes. `tuned`
    keeps the images on the device and augments a batch there when the batch is requested, so the time counts as input.
    On the CPU all of it is host wait; on an accelerator it is queued before the step's work.

    Attributes:
        num_workers: worker processes of `controlled`; -1: one for each core that this process may use.
        num_bank_images: how many images vote, evenly spread; 0: all.
        matrix: a key of COMPILERS: how `measure` tries each precision.
    """

    MODEL = "simclr_resnet18"
    FRAMEWORKS = ("torch",)
    VARIANTS = ("reference", "controlled", "tuned")
    LEAST = StudyPlan.LEAST | {"num_workers": EVERY_CORE}

    batch_size: int = BATCH_SIZE
    num_workers: int = EVERY_CORE
    parity_batch_size: int = 16
    seed: int = 0
    num_bank_images: int = 0
    matrix: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.num_samples
        self.require("matrix", self.matrix in COMPILERS, ", ".join(COMPILERS))
        self.require("batch_size", 2 <= self.batch_size <= count, f"2 to {count}, the training images")

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure windows; the first process also evaluates, and tries resident batches, the loader and the matrix."""
        process.measure(evaluate_each_epoch=process.whole_epochs and process.is_first)
        if not process.is_first:
            return
        given, run = process.parameters, process.run
        trials.measure_resident(process.workload, run, given["num_resident_steps"])
        if given["num_resident_steps"]:
            trials.measure_loader(process.workload, run)
        size = min(given["batch_size"], given["matrix_batch_size"])
        make = functools.partial(process.make, variant="tuned", batch_size=size)
        trials.measure_matrix(make, run, process.device, given["matrix_seconds"], COMPILERS[given["matrix"]])

    @property
    def workers(self) -> int:
        """Return the number of worker processes that make views."""
        chosen = {"reference": REFERENCE_WORKERS, "tuned": 0}.get(self.variant, self.num_workers)
        return identity.usable_cores() if chosen == EVERY_CORE else chosen
