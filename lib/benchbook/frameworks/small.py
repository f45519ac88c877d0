"""The small training that every framework's starts measure: its images, sizes and first weights."""

import numpy

BATCH_SIZE, PIXELS, CLASSES, CHANNELS = 64, 28, 10, 32
LEARNING_RATE = 1e-4
KERNEL = (3, 3, 1, CHANNELS)  # height, width, in, out
HIDDEN = (PIXELS // 2) ** 2 * CHANNELS  # values of an image after padded convolution and pooling


def batch() -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return images, float32, shape (n, height, width, 1), and labels."""
    random = numpy.random.default_rng(0)
    images = random.normal(size=(BATCH_SIZE, PIXELS, PIXELS, 1)).astype(numpy.float32)
    return images, random.integers(CLASSES, size=BATCH_SIZE)


def weights() -> list[numpy.ndarray]:
    """Return a convolution's kernel and a dense layer's, for frameworks that draw none themselves."""
    random = numpy.random.default_rng(1)
    return [random.normal(scale=0.01, size=shape).astype(numpy.float32) for shape in (KERNEL, (HIDDEN, CLASSES))]
