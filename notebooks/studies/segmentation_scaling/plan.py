"""The segmentation protocol: its constants, and one point's choices.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS (Takashi Shirakawa, 2021). The
article's milliseconds come from other code, which was not released.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy
from pydantic import Field

from benchbook import datasets
from benchbook.studies.experiments.parameters import BUDGET, Precision, SearchSeconds, TestImages
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.experiments.process import Process

ARTICLE_SIZE = 512
DATA = (
    "num_images",
    "num_test_images",
    "image_size",
)  # the parameters that say which images are generated
NUM_DRAWN, DRAWN_SIDE = (
    4,
    128,
)  # most test images saved with their masks; pixels, larger ones are subsampled
STAGES = ("before training", "after training")  # when the network predicts their masks
THRESHOLD = 0.5  # of an output, above which a pixel belongs to the mask
STEP = 128  # image sizes are multiples of it, so that the sizes in decoder and encoder match


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: grey square images with masks; Nesterov momentum; a learning rate that
    falls after one epoch.

    As in the article, images are not shuffled.
    """

    MODEL = "unet_triangles"
    TASK = (1, "an image")
    FRAMEWORKS = ("tensorflow", "jax")
    DATASETS = ()  # its images are generated
    FIXED = (*StudyPlan.FIXED, "sustained_minutes")
    EXAMPLE = {
        "image_size": 128,
        "width": 0.25,
        "batch_size": 4,
        "num_images": 24,
        "num_test_images": 8,
    }
    # With one channel, a kernel's scale before a batch norm has no gradient but rounding: a quarter
    # of the width.
    SMALLEST = {"variant": "tuned", "width": 0.25, "image_size": 128}
    shuffles = False

    image_size: Annotated[int, Field(gt=0, multiple_of=STEP, description="pixels a side")] = (
        ARTICLE_SIZE
    )
    width: Annotated[
        float,
        Field(gt=0, description="factor of every layer's channels; the article's network is 1"),
    ] = 1.0
    batch_size: int = 16
    precision: Precision = "fp32"
    sustained_minutes: Annotated[
        float, Field(ge=0, description="above 0: train so long without a pause, and nothing else")
    ] = 0.0
    num_images: Annotated[int, Field(ge=1, description="generated training images"), BUDGET] = 500
    num_test_images: TestImages = 100
    cooldown_seconds: Annotated[float, Field(ge=0, description="pause between repeats"), BUDGET] = (
        0.0
    )
    num_windows: int = 2
    num_warmup_steps: int = 2
    parity_batch_size: int = 2
    search_seconds: SearchSeconds = 120.0
    seed: int = 42

    def __post_init__(self) -> None:
        super().__post_init__()
        side = self.dataset.train_images.shape[1]
        self.require("image_size", self.image_size == side, f"{side}, as the data")
        self.order(0)  # raises if the images do not fill a batch

    @classmethod
    def load(cls, process: Process) -> datasets.Dataset:
        """Return generated images of the size that the parameters name."""
        return process.load(datasets.triangles, *(process.parameters[name] for name in DATA))

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure windows, or minutes without a pause; the first process saves the masks before
        and after."""
        if not process.is_first:
            process.measure()
            return
        before = _masks(process.workload)
        process.measure(evaluate_each_epoch=process.whole_epochs)
        data = process.make.args[0]
        rows = {"image": data.test_images, "triangle": data.test_labels == 1}
        rows |= dict(zip(STAGES, (before, _masks(process.workload)), strict=True))
        every = slice(None, None, max(1, data.test_images.shape[1] // DRAWN_SIDE))
        process.save_pictures(
            {name: part[: len(before), every, every] for name, part in rows.items()}
        )


def _masks(workload: Any) -> numpy.ndarray:
    """Return the masks that a workload's network predicts for NUM_DRAWN test images, or a batch:
    (n, side, side)."""
    inputs, _ = next(iter(workload.test_batches()))
    return workload.network.predict(inputs[:NUM_DRAWN])[..., 0] > THRESHOLD
