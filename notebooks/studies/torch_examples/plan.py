"""What PyTorch's examples with 28x28 images share: their loaders' choices, and MNIST's pixels.

Source: https://github.com/pytorch/examples as of May 2022, and the Chinese PyTorch blog post of
2022-05-19, which timed them.
"""

from dataclasses import dataclass

import numpy

from benchbook.frameworks import batches
from benchbook.studies.experiments.parameters import AllowEmbedded, TestImages
from benchbook.studies.experiments.plan import StudyPlan

MEAN, STANDARD_DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels, from the examples' script


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: 28x28 images in ten classes.

    `reference` has the article's loaders: no worker and no shuffling on the CPU; one worker,
    pinned memory and shuffling on an accelerator. Others shuffle and have `num_workers` workers
    on every device.
    """

    TASK = (60_000, "to train an epoch")
    DATASETS = ("mnist", "digits")
    SMALLEST = {"variant": "controlled"}

    num_test_images: TestImages = 0
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
