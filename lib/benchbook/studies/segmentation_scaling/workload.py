"""Find triangles in grey images with a network like a U-Net: what an article released beside its figures of an M1.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS (Takashi Shirakawa, 2021). The milliseconds that the
article prints came from other code, which was not released.
"""

import functools
from collections.abc import Callable

import numpy

from benchbook.frameworks.batches import loaded, plain_order, training_order
from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.training import (
    KerasWorkload,
    ResidentArrays,
    evaluation_batch_size,
    import_keras,
    kernels_of_zeros,
)
from benchbook.frameworks.plain import SGD, LabelsByImage, Plain
from benchbook.frameworks.workload import Settings, check_options
from benchbook.studies.datasets import Dataset
from benchbook.studies.segmentation_scaling import network
from benchbook.studies.segmentation_scaling.loss import intersection_over_union, squares_and_overlap

VARIANTS = ("reference", "tuned")
NUM_EPOCHS, LEARNING_RATE, POWER, MOMENTUM = 2, 0.25, 0.9, 0.95  # of the article's release
MOST_PARITY_IMAGES = 2  # in a batch that is repeated in float64, which is slow
PARITY_SEED, PARITY_NOISE = 0, 0.25  # of brightness; see `plain`


def build(
    dataset: Dataset,
    device: Device,
    variant: str = "reference",
    batch_size: int = 16,
    width: float = 1.0,
    num_epochs: int = NUM_EPOCHS,
    data_resident: bool = False,
    num_workers: int = 1,
    seed: int = 42,
    settings: Settings = Settings(),  # noqa: B008 (it is immutable)
) -> KerasWorkload:
    """Return the study's workload on TensorFlow or JAX, whichever the device is of.

    Nesterov's momentum, a rate that falls with every epoch, and the article's loss; accuracy is the IoU. As in the
    article the order of the images is always the same.

    Args:
        dataset: grey images with masks, square, of a multiple of 128 pixels a side.
        device: where to train, and with which framework.
        variant: `reference` has a loader, threads of this process; `tuned` may have the data on the device instead.
        batch_size: images a step.
        width: factor of every layer's channels; another than 1 is another network.
        num_epochs: over which the learning rate falls; later epochs keep the last one's.
        data_resident: not with `reference`: keep all images on the device and scale them there.
        num_workers: threads that prepare batches ahead (0: the training thread itself).
        seed: of weights and dropout.
        settings: how the network is computed, for `tuned`; chosen by `benchbook.measuring.tuned`.

    Raises:
        ValueError: an unknown variant, resident data with `reference`, labels that are no masks, or a number out of
            range.
        NotImplementedError: settings that Keras does not have.
    """
    check_options(VARIANTS, variant, data_resident, num_workers, batch_size)
    if dataset.train_labels.shape != dataset.train_images.shape:
        raise ValueError(f"{dataset.name} has labels of {dataset.train_labels.shape}; allowed: a mask for each image")
    if width <= 0:
        raise ValueError(f"width {width}; allowed: above 0")
    if num_epochs < 1:
        raise ValueError(f"num_epochs {num_epochs}; allowed: 1 or more")
    image_size = dataset.train_images.shape[1]
    network.deep_kernel(image_size)  # refuses a size that does not fit, before anything is made
    keras = import_keras(device.framework)
    order = training_order(len(dataset.train_images), batch_size)
    train, test = _inputs(dataset, device, order, batch_size, data_resident, num_workers)
    return KerasWorkload(
        device=device,
        batch_size=batch_size,
        make_model=functools.partial(network.make_model, image_size, width),
        make_optimizer=lambda: keras.optimizers.SGD(schedule(len(order), num_epochs), momentum=MOMENTUM, nesterov=True),
        train_batches=train,
        test_batches=test,
        loss=squares_and_overlap,
        accuracy=intersection_over_union,
        metric="iou",
        columns={
            "model": "unet_triangles",
            "dataset": dataset.name,
            "dataset_samples": len(dataset.train_images),
            "image_size": image_size,
            "num_workers": 0 if data_resident else num_workers,
        },
        plain=plain(dataset, width, min(batch_size, MOST_PARITY_IMAGES), len(order), num_epochs),
        settings=settings,
        seed=seed,
    )


def plain(dataset: Dataset, width: float, batch_size: int, steps_per_epoch: int, num_epochs: int) -> Plain:
    """Return what training is held against: the article's momentum and falling rate, and noise in the images.

    On a background of one colour every pixel stands at the same side of a leaky ReLU's kink. Where a batch norm puts
    that colour next to zero, rounding alone turns the whole background's slope, and no device agrees with float64.
    """
    stored = LabelsByImage(dataset.train_images, dataset.train_labels)

    def with_noise(batch: tuple, place: int) -> tuple:
        random = numpy.random.default_rng([PARITY_SEED, place])
        noise = random.uniform(0, PARITY_NOISE, (len(batch[0]), *dataset.train_images.shape[1:], 1))
        return batch[0] + noise.astype("float32"), batch[1]

    def rate(step: int) -> float:
        return 0.25 * (1 - min(step // steps_per_epoch, num_epochs - 1) / num_epochs) ** 0.9

    return Plain(
        make_network=kernels_of_zeros()(functools.partial(network.make_model, dataset.train_images.shape[1], width)),
        loss=squares_and_overlap,
        make_optimizer=lambda: SGD(rate, momentum=0.95, nesterov=True, keeps_rate=True),
        batch_size=batch_size,
        labels=lambda batch, place: stored.fit(batch[0][..., 0] * 255, batch[1][..., 0]),
        noise=with_noise,
    )


def rates(num_epochs: int) -> list[float]:
    """Return the learning rate of each epoch: 0.25 (1 - epoch / epochs) to the power of 0.9."""
    return [LEARNING_RATE * (1 - epoch / num_epochs) ** POWER for epoch in range(num_epochs)]


def schedule(steps_per_epoch: int, num_epochs: int):
    """Return the learning rate by steps as Keras takes it: one number, or a schedule that changes between epochs."""
    import keras

    if num_epochs == 1:
        return LEARNING_RATE
    ends = [steps_per_epoch * epoch - 1 for epoch in range(1, num_epochs)]  # the last step of an epoch has its rate
    return keras.optimizers.schedules.PiecewiseConstantDecay(ends, rates(num_epochs))


def scale(images: numpy.ndarray) -> numpy.ndarray:
    """Return grey images as the network takes them: float32, 0 to 1, shape (n, height, width, 1)."""
    return images[..., None].astype("float32") / numpy.float32(255)


def _inputs(
    dataset: Dataset, device: Device, order: list[numpy.ndarray], batch_size: int, data_resident: bool, num_workers: int
) -> tuple[Callable, Callable]:
    """Return functions to an epoch's training batches and to the test batches."""
    test_order = plain_order(len(dataset.test_images), evaluation_batch_size(len(dataset.test_images), batch_size))
    parts = (dataset.train_images, dataset.train_labels), (dataset.test_images, dataset.test_labels)
    if data_resident:
        train, test = (ResidentArrays(device, images[..., None], masks[..., None], _scale) for images, masks in parts)
        return lambda epoch: train.batches(order), lambda: test.batches(test_order)

    def load(images: numpy.ndarray, masks: numpy.ndarray, indices: numpy.ndarray) -> tuple:
        return scale(images[indices]), masks[indices][..., None]

    load_train, load_test = (functools.partial(load, *part) for part in parts)
    return (
        lambda epoch: loaded(order, load_train, num_workers),
        lambda: loaded(test_order, load_test, num_workers),
    )


def _scale(images):
    """Return what `scale` does, in Keras's operations: on the device."""
    import keras

    return keras.ops.cast(images, "float32") / 255.0
