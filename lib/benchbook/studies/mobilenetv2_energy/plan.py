"""What is to be built: the protocol's constants, and one point's choices, the same for every framework.

Source: Chris Van Pelt, Weights & Biases, 2021, from two copies of its notebook; there train and test shared one cache
file, so that "validation" replayed training images. That is reproduced nowhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

from benchbook.frameworks.batches import check_batch_size
from benchbook.frameworks.plain import Adam, LabelsByImage, Plain
from benchbook.studies.datasets import Dataset, shapes
from benchbook.studies.mobilenetv2_energy.weights import MOMENTUM, Weights, choose, for_parity
from benchbook.studies.plan import StudyPlan

if TYPE_CHECKING:
    from benchbook.studies.experiments import Experiment  # a process that plans does without


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: colour images in classes, 0 to 1, enlarged by nearest neighbours.

    Adam with a learning rate that falls by 4 % in 50,000 steps, categorical cross-entropy, dropout before the head.
    With `tuned`, a frozen network's batch norms are folded into its convolutions in torch and MLX.

    Attributes:
        trainable: train all layers, or the head alone; then batch norms are in inference mode.
        weights: from `weights.choose`: a kind, and arrays by Keras's layer names; or a kind, which is then chosen.
        image_size: pixels a side that images are enlarged to.
        learning_rate: the first step's.
    """

    MODEL = "mobilenetv2"
    FRAMEWORKS = ("torch", "tensorflow", "jax", "mlx")
    SMALLEST = (
        lambda: shapes(2, 1, size=16),
        {"variant": "tuned", "data_resident": True, "num_workers": 0, "batch_size": 8, "image_size": 32},
    )
    DROPOUT, DECAY_STEPS, DECAY_RATE = 0.4, 50_000, 0.96  # of two copies of the article's notebook
    # Of keras.applications' MobileNetV2 and of Keras's Adam; torch has others by default.
    NORM_EPSILON, ADAM_EPSILON = 1e-3, 1e-7
    MOST_TEST_IMAGES = 128  # in a batch of the test

    num_workers: int = 2
    parity_batch_size: int = 16
    trainable: bool = False
    weights: tuple[str, Weights] | str = field(default="random", repr=False)
    image_size: int = 128
    learning_rate: float = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset.train_images.ndim != 4:
            raise ValueError(f"{self.dataset.name} has no colours; allowed: images of shape (n, height, width, 3)")
        self.require("image_size", self.image_size >= 32, "32 or more")
        self.require("learning_rate", self.learning_rate > 0, "above 0")
        check_batch_size(self.batch_size, len(self.dataset.train_labels))
        if isinstance(self.weights, str):
            chosen = choose(self.weights, self.num_classes, self.image_size, self.seed)
            object.__setattr__(self, "weights", chosen)

    @property
    def arrays(self) -> Weights:
        """Return the first weights."""
        return self.weights[1]

    @property
    def momentum(self) -> float:
        """Return how much of a batch norm's moving statistics each step keeps, as Keras counts it."""
        return MOMENTUM[self.weights[0]]

    @property
    def folded(self) -> bool:
        """Return whether batch norms may be folded into their convolutions."""
        return self.variant == "tuned" and not self.trainable

    @property
    def num_classes(self) -> int:
        """Return the classes of the data set."""
        return int(self.dataset.train_labels.max()) + 1

    def decay(self, step: Any) -> Any:
        """Return what is left of the first learning rate at a step, a number or a framework's array."""
        return self.DECAY_RATE ** (step / self.DECAY_STEPS)

    @property
    def chosen_pixels(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the row and the column of the data set that each one of an enlarged image is a copy of."""
        return tuple(nearest(side, self.image_size) for side in self.dataset.train_images.shape[1:3])

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework.

        Keras counts the moving statistics of batch norms among the parameters; so do these rows.
        """
        return super().columns() | {"parameters": sum(part.size for parts in self.arrays.values() for part in parts)}

    def plain(
        self, make_network: Callable, loss: Callable, *, channels_first: bool = False, uses_epsilon_hat: bool = False
    ) -> Plain:
        """Return what training is compared with: Adam with a rate that falls by 4 % in 50,000 steps.

        All layers are compared at weights of their own, see `weights.for_parity`; a head alone at the present ones. Of
        an enlarged image one pixel is taken for each that the data set has.

        Args:
            make_network, loss: see `benchbook.frameworks.plain.Plain`.
            channels_first: whether batches are (n, 3, height, width).
            uses_epsilon_hat: see `benchbook.frameworks.plain.Adam`.
        """
        chosen = [numpy.unique(side, return_index=True) for side in self.chosen_pixels]
        (rows, first_rows), (columns, first_columns) = chosen
        images = numpy.ascontiguousarray(self.dataset.train_images[:, rows][:, :, columns])
        stored = LabelsByImage(images, self.dataset.train_labels)

        def labels(batch: tuple, place: int) -> numpy.ndarray:
            pixels = batch[0].transpose(0, 2, 3, 1) if channels_first else batch[0]
            return stored.matches(pixels[:, first_rows][:, :, first_columns] * 255, batch[1])

        def rate(step: int) -> float:
            return self.learning_rate * 0.96 ** (step / 50_000)

        return Plain(
            make_network=make_network,
            loss=loss,
            make_optimizer=lambda: Adam(rate, epsilon=1e-7, uses_epsilon_hat=uses_epsilon_hat),
            batch_size=self.parity_batch_size,
            labels=labels,
            parity_weights=(lambda make, begun: for_parity(begun)) if self.trainable else None,
        )


def nearest(size: int, image_size: int) -> numpy.ndarray:
    """Return, for each pixel of an enlarged side, the pixel it is a copy of: int32, as tf.image.resize chooses it.

    Source: https://www.tensorflow.org/api_docs/python/tf/image/resize (pixels are compared at their centres)
    """
    return numpy.floor((numpy.arange(image_size) + 0.5) * size / image_size).astype(numpy.int32)


def enlarge(images: numpy.ndarray, image_size: int, channels_first: bool = False) -> numpy.ndarray:
    """Return images as float32, 0 to 1, enlarged.

    Args:
        images: uint8, shape (n, height, width, 3).
        image_size: pixels a side.
        channels_first: return (n, 3, image_size, image_size) instead of (n, image_size, image_size, 3).
    """
    rows, columns = (nearest(side, image_size) for side in images.shape[1:3])
    pixels = images.astype(numpy.float32) / numpy.float32(255)  # while they are few
    if channels_first:
        return numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))[:, :, rows][:, :, :, columns]
    return pixels[:, rows][:, :, columns]


build, source = Plan.build, Plan.source


def first_weights(experiment: "Experiment", data: Dataset) -> tuple[str, Weights]:
    """Return the weights that a run begins with, and tell the run which they are; see `weights.choose`."""
    given = experiment.parameters
    choices = [given[name] for name in ("image_size", "seed", "data_root", "allow_random")]
    with experiment.run.during("setup"):
        chosen = choose(given["weights"], int(data.train_labels.max()) + 1, *choices)
    experiment.run.add_settings(weights=chosen[0], batch_norm_momentum=MOMENTUM[chosen[0]])
    return chosen
