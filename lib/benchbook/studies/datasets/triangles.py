"""Grey images of one filled triangle each, with the triangle as the mask to learn: no file, no network.

Source of the numbers: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS, data/makeTriangleData.py.
"""

import numpy
from PIL import Image, ImageDraw

from benchbook.studies.datasets.sources import Dataset

ARTICLE_SIZE, MARGIN = 512, 20  # pixels
DARKEST, BRIGHTEST = 128, 255  # of each colour channel
THRESHOLD = 10  # a brighter pixel belongs to the mask
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, as OpenCV turns colours to grey


def triangles(num_train: int = 500, num_test: int = 100, size: int = ARTICLE_SIZE, seed: int = 42) -> Dataset:
    """Return seeded triangles: corners and brightness are those that the article's generator draws.

    The article's rasteriser was OpenCV's, this is Pillow's: pixels on an edge may differ. Smaller images hold the same
    triangles, smaller.

    Args:
        num_train, num_test: images; the first of all go to training.
        size: pixels a side.
        seed: of everything drawn.

    Returns:
        Grey images, uint8, shape (n, size, size); labels are masks of the same shape, uint8, 1 inside.

    Raises:
        ValueError: a number is out of range.
    """
    for name, value, least in (("num_train", num_train, 1), ("num_test", num_test, 1), ("size", size, 8)):
        if value < least:
            raise ValueError(f"{name} {value}; allowed: {least} or more")
    corners, greys = draw(num_train + num_test, seed)
    scaled = numpy.rint(corners * (size / ARTICLE_SIZE)).astype(int)
    images = numpy.stack([fill(each, grey, size) for each, grey in zip(scaled, greys, strict=True)])
    masks = (images > THRESHOLD).astype(numpy.uint8)
    parts = images[:num_train], masks[:num_train], images[num_train:], masks[num_train:]
    return Dataset(f"triangles-{size}px", *parts)


def draw(count: int, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return corners, shape (count, 3, 2), x before y, in pixels of the article's size; and greys, shape (count,).

    For another `count` all brightnesses are others: the generator is asked for all corners first.
    """
    random = numpy.random.RandomState(seed)
    corners = random.randint(MARGIN, ARTICLE_SIZE - MARGIN, (count, 3, 2))
    colours = random.randint(DARKEST, BRIGHTEST + 1, (count, 3))
    return corners, numpy.rint(colours @ numpy.array(LUMA)).astype(int)


def fill(corners: numpy.ndarray, grey: int, size: int) -> numpy.ndarray:
    """Return one image, uint8, shape (size, size), of a filled triangle on black."""
    image = Image.new("L", (size, size))
    ImageDraw.Draw(image).polygon([tuple(corner) for corner in corners.tolist()], fill=int(grey))
    return numpy.asarray(image)
