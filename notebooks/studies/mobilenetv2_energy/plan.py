"""The MobileNetV2 protocol: its constants, and one point's choices, the same for every framework.

Source: Chris Van Pelt, Weights & Biases, 2021, from two copies of its notebook. In these,
training and test shared one cache file, so "validation" replayed training images; no variant
reproduces that.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy
from pydantic import Field

from benchbook.datasets import Dataset
from benchbook.frameworks.batches import check_batch_size
from benchbook.frameworks.plain import Adam, LabelsByImage, Plain
from benchbook.frameworks.workload import Workload
from benchbook.studies.experiments.parameters import (
    BUDGET,
    AllowEmbedded,
    DataRoot,
    ImageSize,
    LearningRate,
    SearchSeconds,
    TestImages,
)
from benchbook.studies.experiments.plan import StudyPlan
from benchbook.studies.experiments.process import Process
from benchbook.studies.mobilenetv2_energy.weights import MOMENTUM, Weights, choose, for_parity


@dataclass(frozen=True, kw_only=True)
class Plan(StudyPlan):
    """A point's choices: colour images in classes, scaled to 0 to 1, enlarged to their nearest
    neighbours.

    Adam with a learning rate that falls by 4 % in 50,000 steps; categorical cross-entropy;
    dropout before the head. With `tuned`, torch folds a frozen network's batch norms into
    its convolutions.

    Attributes:
        drawn: the kind and the arrays that `weights.choose` returns; None: choose them.
    """

    MODEL = "mobilenetv2"
    TASK = (1, "an image")
    FRAMEWORKS = ("torch", "tensorflow", "jax")
    FIXED = (*StudyPlan.FIXED, "weights")
    EXAMPLE = {
        "framework": "torch",
        "dataset": "shapes",
        "weights": "random",
        "trainable": True,
        "image_size": 64,
    }
    EXAMPLE |= {
        "batch_size": 16,
        "samples_per_window": 64,
        "num_test_images": 100,
        "num_warmup_steps": 2,
    }
    SMALLEST = {"variant": "tuned", "image_size": 32, "weights": "random"}
    DROPOUT, DECAY_STEPS, DECAY_RATE = (
        0.4,
        50_000,
        0.96,
    )  # from the two copies of the article's notebook
    # Keras's values, for its MobileNetV2 and its Adam; torch's defaults differ.
    NORM_EPSILON, ADAM_EPSILON = 1e-3, 1e-7
    MOST_TEST_IMAGES = 128  # per test batch

    num_workers: int = 2
    parity_batch_size: int = 16
    trainable: Annotated[
        bool,
        Field(
            description="train all layers; else the head alone, with batch norms in inference mode"
        ),
    ] = False
    weights: Annotated[
        Literal["imagenet", "random"], Field(description="random: drawn from the seed")
    ] = "imagenet"
    image_size: ImageSize = 128
    learning_rate: LearningRate = 5e-4
    allow_random: Annotated[
        bool,
        Field(
            description="if ImageNet's weights are unavailable, use random ones, which the rows name"
        ),
        BUDGET,
    ] = True
    num_test_images: TestImages = 0
    search_seconds: SearchSeconds = 120.0
    allow_embedded: AllowEmbedded = True
    data_root: DataRoot = ""
    drawn: tuple[str, Weights] | None = field(default=None, repr=False)

    @classmethod
    def start(cls, process: Process, data: Dataset) -> Workload:
        """Return the workload of a process's parameters; its rows have the kind of the initial
        weights."""
        given = process.parameters
        choices = [given[name] for name in ("image_size", "seed", "data_root", "allow_random")]
        with process.run.during("setup"):
            chosen = choose(given["weights"], data.num_classes, *choices)
        process.run.add_settings(weights=chosen[0], batch_norm_momentum=MOMENTUM[chosen[0]])
        if chosen[0] != given["weights"]:
            others = process.run.settings_with().get("replaced", {})
            process.run.add_settings(
                replaced=others | {f"{given['weights']} weights": f"{chosen[0]} weights"}
            )
        workload = process.build(cls, data, drawn=chosen)
        process.run.add_settings(trainable_parameters=workload.trainable_parameters())
        return workload

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batch_size(self.batch_size, len(self.dataset.train_labels))
        if self.drawn is None:
            chosen = choose(self.weights, self.dataset.num_classes, self.image_size, self.seed)
            object.__setattr__(self, "drawn", chosen)

    @property
    def arrays(self) -> Weights:
        """Return the initial weights by Keras's layer names."""
        return self.drawn[1]

    @property
    def momentum(self) -> float:
        """Return the momentum of the batch norms in Keras's convention: the share that each step
        keeps."""
        return MOMENTUM[self.drawn[0]]

    @property
    def folded(self) -> bool:
        """Return whether batch norms are folded into their convolutions, if the framework can do
        that."""
        return self.variant == "tuned" and not self.trainable

    def decay(self, step: Any) -> Any:
        """Return the share of the first learning rate that is left at a step, a number or a
        framework's array."""
        return self.DECAY_RATE ** (step / self.DECAY_STEPS)

    @property
    def chosen_pixels(self) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the original's row for each row of an enlarged image, and its column for each
        column."""
        return tuple(
            nearest(side, self.image_size) for side in self.dataset.train_images.shape[1:3]
        )

    def columns(self) -> dict:
        """Return the columns of a row that are the same for every framework.

        As in Keras, the parameters include the moving statistics of batch norms.
        """
        return super().columns() | {
            "parameters": sum(part.size for parts in self.arrays.values() for part in parts)
        }

    def plain(
        self,
        make_network: Callable,
        loss: Callable,
        *,
        channels_first: bool = False,
        uses_epsilon_hat: bool = False,
    ) -> Plain:
        """Return the plain version: Adam with a learning rate that falls by 4 % in 50,000 steps.

        If all layers are trained, they are compared at the weights of `weights.for_parity`; a
        head alone is compared at its present weights. To find an enlarged image's label, one
        copy of each original pixel is read.

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
    """Return the original pixel for each pixel along an enlarged side, int32, as tf.image.resize
    chooses it.

    Source: https://www.tensorflow.org/api_docs/python/tf/image/resize (the nearest by the
    pixels' centres)
    """
    return numpy.floor((numpy.arange(image_size) + 0.5) * size / image_size).astype(numpy.int32)


def enlarge(images: numpy.ndarray, image_size: int, channels_first: bool = False) -> numpy.ndarray:
    """Return enlarged images, float32 from 0 to 1.

    Args:
        images: uint8, shape (n, height, width, 3).
        image_size: height and width of the result.
        channels_first: return shape (n, 3, image_size, image_size) instead of (n, image_size,
        image_size, 3).
    """
    rows, columns = (nearest(side, image_size) for side in images.shape[1:3])
    pixels = images.astype(numpy.float32) / numpy.float32(
        255
    )  # before enlarging: fewer pixels to divide
    if channels_first:
        return numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))[:, :, rows][:, :, :, columns]
    return pixels[:, rows][:, :, columns]
