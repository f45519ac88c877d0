"""The article's U-Net-like network and its loss, on TensorFlow and JAX; 20,886,706 parameters at
the article's size.

Sources: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS,
neural_networks/CV_net_Benchmark512.py and utils/Loss_and_metrics.py.
"""

import functools

import numpy

from benchbook.frameworks.keras import runtime
from benchbook.frameworks.keras.training import KerasWorkload
from benchbook.frameworks.plain import SGD, LabelsByImage, Plain
from benchbook.studies.segmentation_scaling.plan import ARTICLE_SIZE, STEP, Plan

STEM = 8
ENCODER = (8, 16, 32, 128, 512)
DEEP = (1024, 2048)
DECODER = (512, 384, 160, 56, 24)
LAST = 24
END = (32, 16)
NORM_MOMENTUM, SLOPE = 0.95, 0.2
LEARNING_RATE, POWER, MOMENTUM = 0.25, 0.9, 0.95  # from the article's released code
PIXELS = (1, 2, 3)  # axes of (n, height, width, 1)
PARITY_SEED, PARITY_NOISE = 0, 0.25  # noise in brightness, uniform from 0; see `plain`


def make_model(image_size: int = ARTICLE_SIZE, width: float = 1.0):
    """Return the network: grey images (n, size, size, 1), 0 to 1, to a probability for each
    pixel, same shape.

    Args:
        image_size: pixels a side; 512 in the article.
        width: factor for the channels of every layer; 1 in the article.
    """
    import keras

    kernel = (
        image_size // STEP + 1
    )  # two such convolutions halve the encoder's output; 5 pixels a side at 512
    unit = functools.partial(_unit, width=width)
    pixels = keras.Input((image_size, image_size, 1), name="image")
    stem = _convolve(pixels, "plain", STEM, 3, width, initializer="glorot_uniform", padding="same")
    stem = keras.layers.BatchNormalization(momentum=NORM_MOMENTUM)(stem)
    hidden = keras.layers.Activation("sigmoid", name="stem")(stem)
    skips = [hidden]
    for channels in ENCODER:
        hidden = unit(hidden, "halving", channels, 3, 0.25)
        sides = (
            unit(hidden, "plain", channels, 1, 0.5),
            unit(hidden, "separable", channels, 5, 0.5, padding="same"),
        )
        hidden = keras.layers.Concatenate(name=f"encoder_{hidden.shape[1]}")(sides)
        skips.append(hidden)
    for channels in DEEP:
        hidden = unit(hidden, "separable", channels, kernel, 0.25)
    for channels in (*DECODER, LAST):
        hidden = keras.layers.UpSampling2D(interpolation="bilinear")(hidden)
        hidden = unit(hidden, "transposed", channels, 3, 0.25, padding="same")
        hidden = keras.layers.Concatenate(name=f"decoder_{hidden.shape[1]}")([hidden, skips.pop()])
    hidden = unit(unit(hidden, "plain", END[0], 3), "transposed", END[1], 3)
    hidden = keras.layers.Conv2D(1, 1)(keras.layers.Concatenate(name="end")([hidden, pixels]))
    return keras.Model(pixels, keras.layers.Activation("sigmoid", name="mask")(hidden))


def _unit(
    hidden, kind: str, channels: int, side: int, dropout: float = 0.0, width: float = 1.0, **options
):
    """Return a convolution followed by batch norm, leaky ReLU and dropout, as everywhere but in
    the stem."""
    import keras

    hidden = _convolve(hidden, kind, channels, side, width, **options)
    hidden = keras.layers.BatchNormalization(momentum=NORM_MOMENTUM)(hidden)
    hidden = keras.layers.LeakyReLU(negative_slope=SLOPE)(hidden)
    return keras.layers.Dropout(dropout)(hidden) if dropout else hidden


def _convolve(
    hidden,
    kind: str,
    channels: int,
    side: int,
    width: float,
    initializer: str = "he_uniform",
    **options,
):
    """Return a convolution without bias; the output of a halving one is padded at the top and
    the left."""
    import keras

    channels = max(1, round(channels * width))
    if kind == "separable":
        initial = {"depthwise_initializer": initializer, "pointwise_initializer": initializer}
        return keras.layers.SeparableConv2D(channels, side, use_bias=False, **initial, **options)(
            hidden
        )
    layer = keras.layers.Conv2DTranspose if kind == "transposed" else keras.layers.Conv2D
    options |= {"strides": 2} if kind == "halving" else {}
    hidden = layer(channels, side, use_bias=False, kernel_initializer=initializer, **options)(
        hidden
    )
    return keras.layers.ZeroPadding2D(((1, 0), (1, 0)))(hidden) if kind == "halving" else hidden


def squares_and_overlap(outputs: runtime.Array, masks: runtime.Array) -> runtime.Array:
    """Return the mean over images of: squared error divided by the union's pixels, plus 1, minus
    the squared IoU.

    Args:
        outputs: probabilities, shape (n, height, width, 1).
        masks: 0 or 1, of any type, same shape.
    """
    import keras

    masks = keras.ops.cast(masks, outputs.dtype)
    overlap, union = _overlap_and_union(outputs, masks)
    squares = keras.ops.sum(keras.ops.square(outputs - masks), PIXELS)
    return keras.ops.mean(squares / union + 1 - keras.ops.square(overlap / union))


def intersection_over_union(outputs: runtime.Array, masks: runtime.Array) -> runtime.Array:
    """Return the mean IoU over images; probabilities are not rounded, so a pixel at 0.9 overlaps
    by 0.9.

    Args:
        outputs, masks: as `squares_and_overlap` takes them.
    """
    import keras

    overlap, union = _overlap_and_union(outputs, keras.ops.cast(masks, outputs.dtype))
    return keras.ops.mean(overlap / union)


def _overlap_and_union(
    outputs: runtime.Array, masks: runtime.Array
) -> tuple[runtime.Array, runtime.Array]:
    """Return the pixels of the intersection and of the union, shape (n,); the union is at least
    1."""
    import keras

    union = keras.ops.sum(keras.ops.clip(masks + outputs, 0, 1), PIXELS)
    overlap = keras.ops.sum(masks, PIXELS) + keras.ops.sum(outputs, PIXELS) - union
    return overlap, keras.ops.maximum(union, 1)


def build(plan: Plan) -> KerasWorkload:
    """Return the study's workload on TensorFlow or JAX; see `Plan`. Accuracy is the IoU."""
    keras = runtime.import_keras(plan.device.framework)

    def scaled(images: runtime.Array) -> runtime.Array:
        return keras.ops.cast(images, "float32") / 255.0

    train, test = plan.inputs(
        lambda images, masks: runtime.ResidentArrays(
            plan.device, images[..., None], masks[..., None], scaled
        ),
        lambda images, masks: (scale(images), masks[..., None]),
        runtime.evaluation_batch_size(len(plan.dataset.test_images), plan.batch_size),
    )
    return KerasWorkload(
        **plan.common(train, test),
        make_model=functools.partial(make_model, plan.image_size, plan.width),
        make_optimizer=lambda: keras.optimizers.SGD(
            schedule(plan.steps_per_epoch), MOMENTUM, nesterov=True
        ),
        loss=squares_and_overlap,
        accuracy=intersection_over_union,
        metric="iou",
        plain=plain(plan),
        seed=plan.seed,
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version: the article's momentum and falling learning rate, with noise in
    the images.

    Without noise, all pixels of the uniform background are on the same side of a leaky ReLU's
    kink. Where a batch norm moves the background close to zero, rounding decides the slope of
    all of it, and no device agrees with float64.
    """
    data, steps_per_epoch = plan.dataset, plan.steps_per_epoch
    stored = LabelsByImage(data.train_images, data.train_labels)

    def with_noise(batch: tuple, place: int) -> tuple:
        random = numpy.random.default_rng([PARITY_SEED, place])
        noise = random.uniform(0, PARITY_NOISE, (len(batch[0]), *data.train_images.shape[1:], 1))
        return batch[0] + noise.astype("float32"), batch[1]

    def rate(step: int) -> float:
        return 0.25 * (1 - min(step // steps_per_epoch, 1) / 2) ** 0.9

    return Plain(
        make_network=runtime.zero_kernels()(
            functools.partial(make_model, plan.image_size, plan.width)
        ),
        loss=squares_and_overlap,
        make_optimizer=lambda: SGD(rate, momentum=0.95, nesterov=True, rate_in_momentum=True),
        batch_size=plan.parity_batch_size,
        labels=lambda batch, place: stored.matches(batch[0][..., 0] * 255, batch[1][..., 0]),
        noise=with_noise,
    )


def schedule(steps_per_epoch: int):
    """Return Keras's schedule of the learning rate: 0.25 (1 - epoch / 2) ** 0.9, constant from
    the second epoch on."""
    import keras

    rates = [LEARNING_RATE * (1 - epoch / 2) ** POWER for epoch in range(2)]
    # The boundary is the last step that has the first epoch's rate.
    return keras.optimizers.schedules.PiecewiseConstantDecay([steps_per_epoch - 1], rates)


def scale(images: numpy.ndarray) -> numpy.ndarray:
    """Return the network's input, float32 from 0 to 1, shape (n, height, width, 1), from uint8
    grey images."""
    return images[..., None].astype("float32") / numpy.float32(255)
