"""The input pipeline of ResNet-50, the same for all frameworks: a random crop, resized and
perhaps flipped.

An image's crop depends only on the seed, the epoch and the image's index, in whichever process
decodes it.
"""

import math

import numpy

from benchbook.datasets.pictures import MEAN, STANDARD_DEVIATION, Pictures

CROP_AREA, CROP_RATIO = (
    (0.08, 1.0),
    (3 / 4, 4 / 3),
)  # Inception's, the defaults of torchvision's RandomResizedCrop
FLIPPED = 0.5  # probability
TRIES = 10
TEST_MARGIN = 256 / 224  # shorter side of a test image over the side of its crop
Box = tuple[float, float, float, float]


def random_box(width: int, height: int, random: numpy.random.Generator) -> Box:
    """Return a box (left, upper, right, lower): 8 to 100 % of the area, ratio 3:4 to 4:3; the
    middle if none fits.

    Source: https://github.com/pytorch/vision, RandomResizedCrop.get_params
    """
    for _ in range(TRIES):
        area = width * height * random.uniform(*CROP_AREA)
        ratio = math.exp(random.uniform(*(math.log(bound) for bound in CROP_RATIO)))
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            left, upper = random.integers(width - across + 1), random.integers(height - down + 1)
            return float(left), float(upper), float(left + across), float(upper + down)
    return _middle(
        width, height, min(width, height * CROP_RATIO[1]), min(height, width / CROP_RATIO[0])
    )


def middle_box(width: int, height: int) -> Box:
    """Return the centre square for tests: 224/256 of the shorter side."""
    side = min(width, height) / TEST_MARGIN
    return _middle(width, height, side, side)


class Crops:
    """One crop of each picture, decoded on access; at module level, so that worker processes can
    import it.

    Args:
        pictures: pictures to crop.
        image_size: pixels a side of a crop.
        seed: determines crops and flips together with the epoch.
        epoch: epoch of the indices below len(pictures); indices beyond it belong to later
        epochs, so that worker
            processes can keep this object. None: the centre square, for tests.
    """

    def __init__(
        self, pictures: Pictures, image_size: int, seed: int = 0, epoch: int | None = None
    ) -> None:
        self.pictures, self.image_size, self.seed, self.epoch = pictures, image_size, seed, epoch

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[numpy.ndarray, int]:
        """Return pixels, uint8, shape (size, size, 3), and the label."""
        from PIL import Image

        later, index = divmod(int(index), len(self))
        picture, flipped = self.pictures.open(index), False
        if self.epoch is None:
            box = middle_box(*picture.size)
        else:
            random = numpy.random.default_rng([self.seed, self.epoch + later, index])
            box, flipped = random_box(*picture.size, random=random), random.random() < FLIPPED
        crop = picture.resize((self.image_size, self.image_size), Image.Resampling.BILINEAR, box)
        pixels = numpy.asarray(crop)
        return numpy.ascontiguousarray(pixels[:, ::-1]) if flipped else pixels.copy(), int(
            self.pictures.labels[index]
        )

    def batch(self, indices: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return normalised images, float32, shape (n, size, size, 3), and labels, int32."""
        images, labels = zip(*(self[int(index)] for index in indices), strict=True)
        return normalise(numpy.stack(images)), numpy.array(labels, numpy.int32)


def normalise(pixels: numpy.ndarray) -> numpy.ndarray:
    """Return uint8 pixels of shape (..., 3) normalised by ImageNet's mean and standard
    deviation, float32."""
    mean, deviation = (numpy.array(values, numpy.float32) for values in (MEAN, STANDARD_DEVIATION))
    return (pixels.astype(numpy.float32) / numpy.float32(255) - mean) / deviation


def _middle(width: int, height: int, across: float, down: float) -> Box:
    left, upper = (width - across) / 2, (height - down) / 2
    return left, upper, left + across, upper + down
