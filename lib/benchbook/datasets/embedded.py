"""Data sets without a download: UCI's digits, images drawn from a seed, and the beginning of a
text."""

from pathlib import Path

import numpy
from PIL import Image, ImageDraw

from benchbook.datasets.sources import Dataset, Text

# Whether points are inside an outline, given their distances below and to the right of its centre,
# in extents.
OUTLINES = {
    "disc": lambda down, right: numpy.hypot(down, right) <= 1,
    "square": lambda down, right: numpy.maximum(abs(down), abs(right)) <= 0.85,
    "triangle": lambda down, right: (down <= 0.8) & (abs(right) <= (down + 1) / 1.8),
    "cross": lambda down, right: (
        (abs(down) <= 1) & (abs(right) <= 1) & (numpy.minimum(abs(down), abs(right)) <= 0.3)
    ),
    "ring": lambda down, right: (
        (numpy.hypot(down, right) >= 0.55) & (numpy.hypot(down, right) <= 1)
    ),
}
WARM, COLD = (0, 2), (2, 0)  # the bright and the dark colour channel
# Triangles. Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS,
# data/makeTriangleData.py.
ARTICLE_SIZE, MARGIN = 512, 20  # pixels
DARKEST, BRIGHTEST = 128, 255  # of each colour channel
THRESHOLD = 10  # brighter pixels belong to the mask
LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, OpenCV's weights for grey


def digits() -> Dataset:
    """Return the 1,797 handwritten 8x8 digits of scikit-learn, scaled to 28x28 like MNIST's.

    Every sixth image is a test image (300); the other 1,497 are for training. Source and licence:
    digits-licence.txt.
    """
    table = numpy.loadtxt(
        Path(__file__).parent / "digits.csv.gz", delimiter=","
    )  # 64 pixels and a label
    small = numpy.round(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(numpy.uint8)
    resample = Image.Resampling.BILINEAR
    images = numpy.stack(
        [numpy.asarray(Image.fromarray(image).resize((28, 28), resample)) for image in small]
    )
    labels = table[:, -1].astype(numpy.int64)
    test = numpy.arange(len(labels)) % 6 == 0
    return Dataset("digits-28px", images[~test], labels[~test], images[test], labels[test])


def shapes(
    train_per_class: int = 400, test_per_class: int = 100, size: int = 32, seed: int = 0
) -> Dataset:
    """Return ten classes of coloured shapes that a small network can learn: five outlines, warm
    or cold.

    Position, extent, colour and background vary with the seed. Test images have another seed.

    Args:
        train_per_class, test_per_class: images per class.
        size: of a side in pixels.
        seed: of everything drawn.

    Returns:
        RGB images; label = outline + 5 x cold; the order is shuffled.
    """
    train = _draw(train_per_class, size, numpy.random.default_rng([seed, 0]))
    test = _draw(test_per_class, size, numpy.random.default_rng([seed, 1]))
    return Dataset(f"shapes-{size}px", *train, *test)


def _draw(
    per_class: int, size: int, random: numpy.random.Generator
) -> tuple[numpy.ndarray, numpy.ndarray]:
    labels = random.permutation(numpy.repeat(numpy.arange(2 * len(OUTLINES)), per_class))
    count = len(labels)
    extent = random.uniform(0.22, 0.38, (count, 1, 1)) * size
    centres = random.uniform(0.4, 0.6, (2, count, 1, 1)) * size
    rows, columns = (side + 0.5 for side in numpy.ogrid[:size, :size])
    down, right = (rows - centres[0]) / extent, (columns - centres[1]) / extent
    inside = numpy.empty((count, size, size), bool)
    for outline, is_inside in enumerate(OUTLINES.values()):
        chosen = labels % len(OUTLINES) == outline
        inside[chosen] = is_inside(down[chosen], right[chosen])
    ground = random.integers(70, 130, (count, 1, 1, 3)).astype(numpy.uint8)
    noise = random.integers(-30, 31, (count, size, size, 3)).astype(numpy.int8)
    images = (ground + noise).astype(numpy.uint8)
    colours = random.integers(90, 150, (count, 3))
    for cold, (bright, dark) in enumerate((WARM, COLD)):
        chosen = labels // len(OUTLINES) == cold
        colours[chosen, bright] = random.integers(190, 240, chosen.sum())
        colours[chosen, dark] = random.integers(10, 60, chosen.sum())
    images = numpy.where(inside[..., None], colours[:, None, None].astype(numpy.uint8), images)
    return images, labels.astype(numpy.int64)


def excerpt() -> Text:
    """Return the first 24,000 characters of tiny Shakespeare."""
    return Text.parse(
        "tinyshakespeare-excerpt", (Path(__file__).parent / "excerpt.txt").read_bytes()
    )


def triangles(
    num_train: int = 500, num_test: int = 100, size: int = ARTICLE_SIZE, seed: int = 42
) -> Dataset:
    """Return grey images of one filled triangle each, with the triangle as the mask to learn.

    Corners and brightness are the same as from the article's generator. That one draws with
    OpenCV, this one with Pillow, so pixels on an edge may differ. Smaller images have the same
    triangles, scaled down.

    Args:
        num_train, num_test: images; the first ones are for training.
        size: of a side in pixels.
        seed: of everything drawn.

    Returns:
        Grey images, uint8, shape (n, size, size); labels are masks of the same shape, uint8, 1
        inside.
    """
    random, count = numpy.random.RandomState(seed), num_train + num_test
    corners = random.randint(
        MARGIN, ARTICLE_SIZE - MARGIN, (count, 3, 2)
    )  # drawn first, so greys depend on the count
    greys = numpy.rint(
        random.randint(DARKEST, BRIGHTEST + 1, (count, 3)) @ numpy.array(LUMA)
    ).astype(int)
    images = numpy.zeros((count, size, size), numpy.uint8)
    for place, scaled in enumerate(
        numpy.rint(corners * (size / ARTICLE_SIZE)).astype(int).tolist()
    ):
        image = Image.new("L", (size, size))
        ImageDraw.Draw(image).polygon([tuple(corner) for corner in scaled], fill=int(greys[place]))
        images[place] = numpy.asarray(image)
    masks = (images > THRESHOLD).astype(numpy.uint8)
    parts = images[:num_train], masks[:num_train], images[num_train:], masks[num_train:]
    return Dataset(f"triangles-{size}px", *parts)
