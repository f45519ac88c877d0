"""What is to be built: the protocol's constants, and one point's choices, the same for every framework."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy

from benchbook.frameworks import batches
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import LabelsByImage
from benchbook.frameworks.workload import Settings
from benchbook.studies.datasets import Dataset
from benchbook.studies.mobilenetv2_energy import inputs
from benchbook.studies.mobilenetv2_energy.weights import Weights, for_parity

# Of two copies of the article's notebook.
DROPOUT = 0.4
DECAY_STEPS, DECAY_RATE = 50_000, 0.96
# Of keras.applications' MobileNetV2 and of Keras's Adam; torch has others by default.
NORM_EPSILON = 1e-3
ADAM_EPSILON = 1e-7
MOST_TEST_IMAGES = 128  # in a batch of the test
MOST_PARITY_IMAGES = 16  # in a batch that is repeated in float64, which is slow


@dataclass(frozen=True)
class Plan:
    """A point's choices, checked; see `mobilenetv2.build`.

    Attributes:
        weights: imagenet or random, as there are.
        arrays: the weights themselves, by Keras's layer names.
        folded: whether frozen batch norms may be folded into their convolutions.
    """

    dataset: Dataset
    device: Device
    trainable: bool
    weights: str
    arrays: Weights = field(repr=False)
    image_size: int
    batch_size: int
    learning_rate: float
    data_resident: bool
    num_workers: int
    seed: int
    folded: bool
    settings: Settings

    @property
    def num_classes(self) -> int:
        """Return the classes of the data set."""
        return int(self.dataset.train_labels.max()) + 1

    def order(self, epoch: int) -> list[numpy.ndarray]:
        """Return the indices of an epoch's batches."""
        return batches.training_order(len(self.dataset.train_labels), self.batch_size, self.seed, epoch)

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework."""
        return {
            "model": "mobilenetv2",
            "dataset": self.dataset.name,
            "dataset_samples": len(self.dataset.train_labels),
            "image_size": self.image_size,
            "num_workers": 0 if self.data_resident else self.num_workers,
        }

    @property
    def parity_batch_size(self) -> int:
        """Return the images in a step that is compared with float64."""
        return min(self.batch_size, MOST_PARITY_IMAGES)

    def rate(self, step: int) -> float:
        """Return a step's learning rate as the article's notebook has it: 4 % less after 50,000 steps."""
        return self.learning_rate * 0.96 ** (step / 50_000)

    @property
    def settle(self) -> Callable | None:
        """Return what makes the weights at which all layers are compared; a head alone is compared at the present ones.

        See `benchbook.frameworks.plain.Plain`.
        """
        return (lambda make, begun: for_parity(begun)) if self.trainable else None

    def label_finder(self, channels_first: bool = False) -> Callable[[tuple, int], numpy.ndarray]:
        """Return what says which labels of a batch are those of its images; see `benchbook.frameworks.plain.Plain`.

        Of an enlarged image one pixel is taken for each that the data set has.
        """
        images = self.dataset.train_images
        chosen = [numpy.unique(inputs.nearest(side, self.image_size), return_index=True) for side in images.shape[1:3]]
        (rows, first_rows), (columns, first_columns) = chosen
        stored = LabelsByImage(numpy.ascontiguousarray(images[:, rows][:, :, columns]), self.dataset.train_labels)

        def fit(batch: tuple, place: int) -> numpy.ndarray:
            pixels = batch[0].transpose(0, 2, 3, 1) if channels_first else batch[0]
            return stored.fit(pixels[:, first_rows][:, :, first_columns] * 255, batch[1])

        return fit
