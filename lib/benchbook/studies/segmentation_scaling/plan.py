"""What is to be built: the protocol's constants, and one point's choices.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS (Takashi Shirakawa, 2021). The milliseconds that the
article prints came from other code, which was not released.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas

from benchbook.studies import datasets
from benchbook.studies.plan import StudyPlan
from benchbook.studies.segmentation_scaling import masks

if TYPE_CHECKING:
    from benchbook.studies.experiments import Experiment  # a process that plans does without

ARTICLE_SIZE = 512
STEP = 128  # sizes are multiples of it, so that the decoder meets the encoder again


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: grey square images with masks; Nesterov's momentum, a rate that falls with every epoch.

    As in the article the order of the images is always the same.

    Attributes:
        width: factor of every layer's channels; another than 1 is another network.
    """

    MODEL = "unet_triangles"
    FRAMEWORKS = ("tensorflow", "jax")
    shuffles = False
    SMALLEST = (
        lambda: datasets.triangles(4, 2, size=STEP),
        {"variant": "tuned", "batch_size": 2, "width": 0.25, "data_resident": True, "num_workers": 0},
    )

    batch_size: int = 16
    parity_batch_size: int = 2
    seed: int = 42
    width: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        data = self.dataset
        if data.train_labels.shape != data.train_images.shape:
            raise ValueError(f"{data.name} has labels of {data.train_labels.shape}; allowed: a mask for each image")
        self.require("width", self.width > 0, "above 0")
        self.require("image_size", self.image_size % STEP == 0, f"multiples of {STEP}")
        self.order(0)  # refuses a batch that the images do not fill


build, source = Plan.build, Plan.source


def measure(experiment: "Experiment") -> pandas.DataFrame:
    """Measure windows, or minutes without a pause; keep the masks that the network finds before and after."""
    found = experiment.run.manifest["masks"] = {"start": masks.find(experiment.workload)}
    rows = experiment.measure(evaluate_each_epoch=experiment.whole_epochs)
    found["end"] = masks.find(experiment.workload)
    return rows
