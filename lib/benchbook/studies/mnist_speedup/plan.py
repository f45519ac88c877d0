"""What is to be built: the protocol's constants, and one point's choices, the same for every framework.

Source: https://github.com/pytorch/examples/tree/main/mnist as of May 2022; figures of the Chinese PyTorch
blog post of 2022-05-19.
"""

from dataclasses import dataclass

import numpy

from benchbook.frameworks import batches
from benchbook.studies import datasets
from benchbook.studies.plan import StudyPlan

MEAN, STANDARD_DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels, from the examples' script
TEST_BATCH_SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: 28x28 images in ten classes, Adadelta at learning rate 1, times 0.7 after each epoch.

    `reference` takes the article's loaders: on the CPU no worker and no shuffling, on an accelerator one worker, pinned
    memory and shuffling. `controlled` shuffles everywhere, and takes `num_workers` everywhere. `tuned` as `controlled`,
    with torch on a CPU by `LeanNetwork`; Adadelta has no fused form in torch, so for `fused` its step is compiled.
    """

    MODEL = "mnist_cnn"
    FRAMEWORKS = ("torch", "mlx")
    VARIANTS = ("reference", "controlled", "tuned")
    SMALLEST = (
        lambda: datasets.load("digits"),
        {"variant": "controlled", "data_resident": True, "num_workers": 0, "batch_size": 8},
    )

    @property
    def workers(self) -> int:
        """Return the workers that prepare batches; the article's script has one on an accelerator."""
        return int(not self.device.is_cpu) if self.variant == "reference" else super().workers

    @property
    def shuffles(self) -> bool:
        """Return whether the order of the images is another one in each epoch."""
        return self.variant != "reference" or not self.device.is_cpu

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the indices of an epoch's batches, the last one perhaps smaller."""
        count = len(self.dataset.train_labels)
        return batches.batch_indices(count, self.batch_size, self.seed if self.shuffles else None, epoch)


build, source = Plan.build, Plan.source
