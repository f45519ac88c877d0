"""Images that are drawn from a seed: no file, no network."""

import numpy

from benchbook.studies.datasets.sources import Dataset

# Which points are inside an outline, from how far they lie below and to the right of its centre, in extents.
OUTLINES = {
    "disc": lambda down, right: numpy.hypot(down, right) <= 1,
    "square": lambda down, right: numpy.maximum(abs(down), abs(right)) <= 0.85,
    "triangle": lambda down, right: (down <= 0.8) & (abs(right) <= (down + 1) / 1.8),
    "cross": lambda down, right: (
        (numpy.minimum(abs(down), abs(right)) <= 0.3) & (numpy.maximum(abs(down), abs(right)) <= 1)
    ),
    "ring": lambda down, right: (numpy.hypot(down, right) >= 0.55) & (numpy.hypot(down, right) <= 1),
}
WARM, COLD = (0, 2), (2, 0)  # colour channels: the one that is bright, the one that is dark


def shapes(train_per_class: int = 400, test_per_class: int = 100, size: int = 32, seed: int = 0) -> Dataset:
    """Return ten classes of coloured shapes that a small network can learn: five outlines, warm or cold.

    Position, extent, colour and background vary with the seed. Test images come from a seed of their own.

    Args:
        train_per_class, test_per_class: images a class.
        size: pixels a side.
        seed: of everything drawn.

    Returns:
        RGB images; label = outline + 5 x cold; the order is shuffled.
    """
    train = _draw(train_per_class, size, numpy.random.default_rng([seed, 0]))
    test = _draw(test_per_class, size, numpy.random.default_rng([seed, 1]))
    return Dataset(f"shapes-{size}px", *train, *test)


def _draw(per_class: int, size: int, random: numpy.random.Generator) -> tuple[numpy.ndarray, numpy.ndarray]:
    labels = random.permutation(numpy.repeat(numpy.arange(2 * len(OUTLINES)), per_class))
    count = len(labels)
    inside = _masks(labels % len(OUTLINES), size, random)
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


def _masks(outlines: numpy.ndarray, size: int, random: numpy.random.Generator) -> numpy.ndarray:
    """Return which pixels are inside, shape (n, size, size); centre and extent are drawn for each image."""
    extent = random.uniform(0.22, 0.38, (len(outlines), 1, 1)) * size
    centres = random.uniform(0.4, 0.6, (2, len(outlines), 1, 1)) * size
    rows, columns = (side + 0.5 for side in numpy.ogrid[:size, :size])
    down, right = (rows - centres[0]) / extent, (columns - centres[1]) / extent
    inside = numpy.empty((len(outlines), size, size), bool)
    for number, is_inside in enumerate(OUTLINES.values()):
        chosen = outlines == number
        inside[chosen] = is_inside(down[chosen], right[chosen])
    return inside
