"""The segmentation protocol: its constants, and one point's choices.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS (Takashi Shirakawa, 2021). The article's milliseconds
come from other code, which was not released.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas

from benchbook.studies.plan import StudyPlan
from benchbook.studies.segmentation_scaling import masks

if TYPE_CHECKING:
    from benchbook.studies.experiments import Experiment  # a process that only plans does not import it

ARTICLE_SIZE = 512
STEP = 128  # image sizes are multiples of it, so that the sizes in decoder and encoder match


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: grey square images with masks; Nesterov momentum; a learning rate that falls after one epoch.

    As in the article, images are not shuffled.

    Attributes:
        width: factor for the channels of every layer; with any value but 1 it is not the article's network.
    """

    MODEL = "unet_triangles"
    FRAMEWORKS = ("tensorflow", "jax")
    shuffles = False

    batch_size: int = 16
    parity_batch_size: int = 2
    seed: int = 42
    width: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        data = self.dataset
        if data.train_labels.shape != data.train_images.shape:
            shape = data.train_labels.shape
            raise ValueError(f"{data.name} has labels of shape {shape}; allowed: a mask for each image")
        self.require("width", self.width > 0, "above 0")
        self.require("image_size", self.image_size % STEP == 0, f"multiples of {STEP}")
        self.order(0)  # raises if the images do not fill a batch


build, source = Plan.build, Plan.source


def measure(experiment: "Experiment") -> pandas.DataFrame:
    """Measure windows, or minutes without a pause; save the masks predicted before and after in the manifest."""
    saved = experiment.run.manifest["masks"] = {"start": masks.predict(experiment.workload)}
    rows = experiment.measure(evaluate_each_epoch=experiment.whole_epochs)
    saved["end"] = masks.predict(experiment.workload)
    return rows
