"""The MNIST protocol: its constants, and one point's choices, the same for every framework.

Source: https://github.com/pytorch/examples/tree/main/mnist as of May 2022, and the Chinese
PyTorch blog post of 2022-05-19 for the published figures.
"""

from dataclasses import dataclass

import numpy

from benchbook.frameworks import batches
from benchbook.studies.experiments.parameters import AllowEmbedded, SearchSeconds, TestImages
from benchbook.studies.experiments.plan import StudyPlan

MEAN, STANDARD_DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels, from the examples' script
TEST_BATCH_SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: 28x28 images in ten classes; Adadelta at learning rate 1, times 0.7
    after each epoch.

    `reference` has the article's loaders: no worker and no shuffling on the CPU; one worker,
    pinned memory and shuffling on an accelerator. `controlled` shuffles and has `num_workers`
    workers on every device. `tuned` does the same, and trains `LeanNetwork` with torch on a CPU.
    torch has no fused Adadelta: `fused` compiles its step instead.
    """

    PLAIN_STEP = True
    MODEL = "mnist_cnn"
    TASK = (60_000, "to train an epoch")
    FRAMEWORKS = ("torch", "mlx")
    FRAMEWORK = "torch"
    DATASETS = ("mnist", "digits")
    VARIANTS = ("reference", "controlled", "tuned")
    EXAMPLE = {"samples_per_window": 3200, "num_test_images": 2000}
    SMALLEST = {"variant": "controlled"}

    num_test_images: TestImages = 0
    search_seconds: SearchSeconds = 60.0
    allow_embedded: AllowEmbedded = True

    @property
    def workers(self) -> int:
        """Return the number of workers that prepare batches; the article's script has one, on
        accelerators only."""
        return int(not self.device.is_cpu) if self.variant == "reference" else super().workers

    @property
    def shuffles(self) -> bool:
        """Return whether each epoch has an image order of its own."""
        return self.variant != "reference" or not self.device.is_cpu

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the image indices of each batch of an epoch; the last batch may be smaller."""
        count = len(self.dataset.train_labels)
        return batches.batch_indices(
            count, self.batch_size, self.seed if self.shuffles else None, epoch
        )
