"""Two augmented views of every image, made one image at a time in worker processes, or by the
batch on the device.

Both ways use the augmentations of Lightly's CIFAR-10 benchmark of June 2023: a crop of 8 to 100
% of the area, resized (bilinear); a flip in half of the cases; colour jitter in 80 %; grey in 20
%; no blur; then ImageNet's normalisation.
Source: https://github.com/lightly-ai/lightly,
docs/source/getting_started/benchmarks/cifar10_benchmark.py
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import transforms

from benchbook.datasets.pictures import MEAN, STANDARD_DEVIATION

CROP_SCALE = (0.08, 1.0)
FLIPPED, JITTERED, GREY = 0.5, 0.8, 0.2  # probabilities
JITTER = (0.4, 0.4, 0.4, 0.1)  # brightness, contrast, saturation, hue
MOST_EQUAL = 0.5  # of the pairs: two views of an image of one colour may be equal
ENOUGH_PAIRS, LEAST_ERRORS = 128, 2.5  # of `check_pairs`

Pair = tuple[torch.Tensor, torch.Tensor]


def per_image(size: tuple[int, int]) -> transforms.Compose:
    """Return torchvision's transforms from a PIL image to one view, shape (3, *size)."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=CROP_SCALE),
            transforms.RandomHorizontalFlip(FLIPPED),
            transforms.RandomApply([transforms.ColorJitter(*JITTER)], p=JITTERED),
            transforms.RandomGrayscale(GREY),
            plain(),
        ]
    )


def batched(size: tuple[int, int]) -> nn.Sequential:
    """Return kornia's transforms from a batch (n, 3, height, width), 0 to 1, to views (n, 3,
    *size), on any device.

    As with `per_image`, each image has its own crop, flip, colour factors and grey. Two things
    differ: one random order of the four colour steps holds for the whole batch, and pixels are
    not rounded to 8 bits in between.
    """
    from kornia import augmentation  # imported here, because only `tuned` needs it

    class ResizedCrop(augmentation.RandomResizedCrop):
        """Crops and resizes all images in one operation; kornia takes several operations for
        each image."""

        def apply_transform(self, input, params, flags, transform=None):
            return resized_crops(input, params["src"], flags["size"])

    return nn.Sequential(
        ResizedCrop(size, scale=CROP_SCALE),
        augmentation.RandomHorizontalFlip(p=FLIPPED),
        augmentation.ColorJitter(*JITTER, p=JITTERED),
        augmentation.RandomGrayscale(p=GREY),
        augmentation.Normalize(MEAN, STANDARD_DEVIATION),
    )


def resized_crops(
    images: torch.Tensor, corners: torch.Tensor, size: tuple[int, int]
) -> torch.Tensor:
    """Return a crop of each image, resized like `torch.nn.functional.interpolate` (bilinear,
    half-pixel centres).

    Args:
        images: shape (n, channels, height, width).
        corners: column and row of each crop's corner pixels, shape (n, 4, 2); first the top
        left, third the bottom
            right.
        size: height and width of the result.
    """
    extent = torch.tensor([images.shape[3], images.shape[2]], dtype=images.dtype)
    first, last = corners[:, 0].to(images.dtype), corners[:, 2].to(images.dtype)
    scale, centre = (last - first + 1) / extent, (first + last + 1) / extent - 1
    ends = ((2 * end + 1) / extent - 1 for end in (first, last))
    parts = torch.stack([*torch.diag_embed(scale).unbind(2), centre, *ends], dim=2)
    parts = parts.to(images.device, non_blocking=images.is_cuda)  # CUDA has read them by then
    grid = nn.functional.affine_grid(
        parts[:, :, :3], [*images.shape[:2], *size], align_corners=False
    )
    # Pixels beyond the crop must not show: places outside the centres of the crop's outermost
    # pixels take their values.
    low, high = parts[:, None, None, :, 3:].unbind(-1)
    return nn.functional.grid_sample(images, torch.clamp(grid, low, high), align_corners=False)


class AugmentedPairs(Dataset):
    """Two views of each image, made one image at a time; at module level, so that spawned
    workers can import it.

    Args:
        images: uint8, shape (n, height, width, 3); workers share their memory.
    """

    def __init__(self, images: numpy.ndarray) -> None:
        self.images = torch.from_numpy(numpy.array(images))
        self.view = per_image(images.shape[1:3])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Pair:
        image = Image.fromarray(self.images[index].numpy())
        return self.view(image), self.view(image)


def pairs(
    images: torch.Tensor, augment: nn.Module, batch_size: int, generator: torch.Generator
) -> Iterator[Pair]:
    """Yield the full batches of one shuffled epoch; both views of a batch are made together, on
    the device.

    Args:
        images: uint8, shape (n, 3, height, width), on the device.
        augment: from `batched`.
        batch_size: images in a batch.
        generator: draws the order and the views.
    """
    order = torch.randperm(len(images), generator=generator).to(images.device)
    for indices in order[: len(order) // batch_size * batch_size].split(batch_size):
        chosen = images[indices].float().div(255)
        with _seeded_from(generator):
            views = augment(torch.cat([chosen, chosen]))
        yield views[:batch_size], views[batch_size:]


def fixed_pairs(images: numpy.ndarray, seed: int) -> Pair:
    """Return two views of each image on the host, determined by the seed; the host's random
    state does not change."""
    views_by_image = AugmentedPairs(images)
    with _seeded_from(torch.Generator().manual_seed(seed)):
        first, second = zip(*(views_by_image[index] for index in range(len(images))), strict=True)
    return torch.stack(first), torch.stack(second)


def check_pairs(first: torch.Tensor, second: torch.Tensor) -> None:
    """Check that two batches of views differ and that each pair belongs to one image.

    Views of one image resemble each other in the mean and deviation of their colours. In batches
    of ENOUGH_PAIRS, their mean distance is 4 standard errors or more below that of other images'
    views; a few views do not suffice.

    Raises:
        ValueError: views are equal, or those of a pair are no closer than those of different
        images.
    """
    equal = (first == second).flatten(1).all(1).float().mean()
    if equal > MOST_EQUAL:
        raise ValueError(
            f"the two views are equal in {equal:.0%} of the pairs; allowed: two different views"
        )
    if len(first) < ENOUGH_PAIRS:
        return
    colours = [
        torch.cat([part.mean(2), part.std(2)], 1)
        for part in (first.cpu().flatten(2), second.cpu().flatten(2))
    ]
    distances = torch.cdist(*colours)
    own = distances.diagonal()
    closer = (distances.sum(1) - own) / (len(own) - 1) - own
    if closer.mean() < LEAST_ERRORS * closer.std() / len(own) ** 0.5:
        raise ValueError(
            "the two views of a pair are not of one image: they are no closer than those of other images"
        )


def as_pictures(views: torch.Tensor) -> numpy.ndarray:
    """Return normalised views (n, 3, height, width) as pixels from 0 to 1, shape (n, height,
    width, 3)."""
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STANDARD_DEVIATION))
    return (views.detach().cpu().float() * deviation + mean).clamp(0, 1).permute(0, 2, 3, 1).numpy()


def plain() -> transforms.Compose:
    """Return torchvision's transforms from a PIL image to the network's input, without
    augmentation."""
    return transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize(MEAN, STANDARD_DEVIATION)]
    )


@contextmanager
def _seeded_from(generator: torch.Generator) -> Iterator[None]:
    """Seed the host's generator, from which transforms draw, with a generator's next number;
    restore it at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield
