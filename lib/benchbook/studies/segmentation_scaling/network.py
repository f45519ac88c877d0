"""The article's network: like a U-Net, 20,886,706 parameters at its own size.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS, neural_networks/CV_net_Benchmark512.py.
"""

import functools

ARTICLE_SIZE = 512
STEP = 128  # sizes are multiples of it, so that the decoder meets the encoder again
STEM = 8
ENCODER = (8, 16, 32, 128, 512)
DEEP = (1024, 2048)
DECODER = (512, 384, 160, 56, 24)
LAST = 24
END = (32, 16)
MOMENTUM, SLOPE = 0.95, 0.2


def deep_kernel(image_size: int) -> int:
    """Return the side of the deep convolutions' kernels: two of them halve what the encoder leaves; 5 at 512 px.

    Raises:
        ValueError: the decoder would not meet the encoder again.
    """
    if image_size < STEP or image_size % STEP:
        raise ValueError(f"image_size {image_size}; allowed: multiples of {STEP}")
    return image_size // STEP + 1


def make_model(image_size: int = ARTICLE_SIZE, width: float = 1.0):
    """Return the network: grey images (n, size, size, 1), 0 to 1, to the probability of each pixel, same shape.

    Args:
        image_size: pixels a side; the article's is 512.
        width: factor of every layer's channels; the article's is 1.
    """
    import keras

    kernel, unit = deep_kernel(image_size), functools.partial(_unit, width=width)
    pixels = keras.Input((image_size, image_size, 1), name="image")
    stem = _convolve(pixels, "plain", STEM, 3, width, initializer="glorot_uniform", padding="same")
    stem = keras.layers.BatchNormalization(momentum=MOMENTUM)(stem)
    hidden = keras.layers.Activation("sigmoid", name="stem")(stem)
    skips = [hidden]
    for channels in ENCODER:
        hidden = unit(hidden, "halving", channels, 3, 0.25)
        sides = unit(hidden, "plain", channels, 1, 0.5), unit(hidden, "separable", channels, 5, 0.5, padding="same")
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


def _unit(hidden, kind: str, channels: int, side: int, dropout: float = 0.0, width: float = 1.0, **options):
    """Return a convolution with what follows it everywhere but in the stem: batch norm, leaky ReLU, dropout."""
    import keras

    hidden = _convolve(hidden, kind, channels, side, width, **options)
    hidden = keras.layers.BatchNormalization(momentum=MOMENTUM)(hidden)
    hidden = keras.layers.LeakyReLU(negative_slope=SLOPE)(hidden)
    return keras.layers.Dropout(dropout)(hidden) if dropout else hidden


def _convolve(hidden, kind: str, channels: int, side: int, width: float, initializer: str = "he_uniform", **options):
    """Return a convolution without bias; one that halves is padded at the top and the left, afterwards."""
    import keras

    channels = max(1, round(channels * width))
    if kind == "separable":
        initial = {"depthwise_initializer": initializer, "pointwise_initializer": initializer}
        return keras.layers.SeparableConv2D(channels, side, use_bias=False, **initial, **options)(hidden)
    layer = keras.layers.Conv2DTranspose if kind == "transposed" else keras.layers.Conv2D
    options |= {"strides": 2} if kind == "halving" else {}
    hidden = layer(channels, side, use_bias=False, kernel_initializer=initializer, **options)(hidden)
    return keras.layers.ZeroPadding2D(((1, 0), (1, 0)))(hidden) if kind == "halving" else hidden
