"""Views of images: the augmentations of both ways, by samples; crops and colours against torch's
and torchvision's."""

import pickle

import numpy
import pytest
import torch
from PIL import Image
from torch.nn import functional as F
from torchvision.transforms import functional as pictures

from benchbook.frameworks.torch.runtime import TransformedImages
from benchbook.studies.simclr_epochs import views

pytestmark = pytest.mark.usefixtures("own_random_state")

COUNT = 600
RANDOM = numpy.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=numpy.uint8)


def image_of(*colour: int) -> numpy.ndarray:
    return numpy.full((32, 32, 3), colour, numpy.uint8)


def drawn(way: str, image: numpy.ndarray) -> numpy.ndarray:
    """Return COUNT views of an image as pixels 0 to 1, shape (COUNT, 32, 32, 3)."""
    if way == "per image":
        transform, picture = views.per_image((32, 32)), Image.fromarray(image)
        made = torch.stack([transform(picture) for _ in range(COUNT)])
    else:
        pixels = torch.from_numpy(image).permute(2, 0, 1).float().div(255)
        made = views.batched((32, 32))(pixels.expand(COUNT, -1, -1, -1))
    return views.as_pictures(made)


@pytest.mark.parametrize("way", ["per image", "batched"])
def test_views_are_jittered_grey_flipped_and_cropped_as_often_and_as_far_as_the_article_has_it(way):
    middle = (
        drawn(way, image_of(128, 128, 128))[:, 0, 0, 0] * 255 / 128
    )  # crop, flip and grey leave this image alone
    changed = abs(middle - 1) > 0.01
    assert changed.mean() == pytest.approx(0.8 * (1 - 0.01 / 0.4), abs=0.05)
    assert middle[changed].mean() == pytest.approx(1, abs=0.03)
    assert (middle.min(), middle.max()) == pytest.approx((0.6, 1.4), abs=0.02)
    coloured = drawn(way, image_of(220, 60, 90))
    grey = abs(coloured - coloured.mean(axis=3, keepdims=True)).max(axis=(1, 2, 3)) < 0.005
    assert grey.mean() == pytest.approx(0.2, abs=0.05)
    ramp = drawn(
        way,
        numpy.broadcast_to(
            numpy.arange(100, 132, dtype=numpy.uint8)[None, :, None], (32, 32, 3)
        ).copy(),
    )
    slopes = ramp[:, :, 31].mean(axis=(1, 2)) - ramp[:, :, 0].mean(axis=(1, 2))
    assert (slopes < 0).mean() == pytest.approx(0.5, abs=0.06)
    # A crop spans the square root of an area drawn from 0.08 to 1, on average 0.708 of a side. It
    # is less here, because long crops that do not fit are drawn again.
    assert abs(slopes).mean() * 255 / 31 == pytest.approx(0.65, abs=0.05)


def test_a_crop_is_what_interpolate_makes_of_it():
    images = torch.rand(5, 3, 20, 24)
    boxes = [
        (0, 0, 24, 20),
        (3, 5, 9, 7),
        (23, 19, 1, 1),
        (10, 0, 1, 20),
        (2, 2, 22, 18),
    ]  # left, top, width, height
    corners = torch.tensor(
        [
            [[x, y], [x + width - 1, y], [x + width - 1, y + height - 1], [x, y + height - 1]]
            for x, y, width, height in boxes
        ]
    )
    found = views.resized_crops(images, corners.float(), (32, 30))
    for image, crop, (x, y, width, height) in zip(images, found, boxes, strict=True):
        part = image[None, :, y : y + height, x : x + width]
        torch.testing.assert_close(
            crop, F.interpolate(part, (32, 30), mode="bilinear")[0], rtol=0, atol=1e-5
        )


def test_colours_are_jittered_as_torchvision_does():
    jitter, images = views.batched((32, 32))[2], torch.rand(40, 3, 8, 8)
    found = jitter(images)
    chosen, factors = jitter._params["batch_prob"] > 0.5, jitter._params
    steps = (
        (pictures.adjust_brightness, "brightness_factor"),
        (pictures.adjust_contrast, "contrast_factor"),
        (pictures.adjust_saturation, "saturation_factor"),
        (pictures.adjust_hue, "hue_factor"),
    )
    for place in chosen.nonzero().ravel().tolist():
        expected = images[place]
        for adjust, name in (steps[position] for position in factors["order"].tolist()):
            expected = adjust(expected, factors[name][place].item())
        torch.testing.assert_close(found[place], expected, rtol=0, atol=2e-3)
    torch.testing.assert_close(found[~chosen], images[~chosen])


def test_views_of_an_image_differ_are_normalised_by_imagenets_constants_and_can_be_sent_to_spawned_workers():
    first, second = pickle.loads(pickle.dumps(views.AugmentedPairs(RANDOM)))[3]
    assert first.shape == second.shape == (3, 32, 32)
    assert not torch.equal(first, second)
    plain, label = pickle.loads(
        pickle.dumps(TransformedImages(RANDOM, numpy.arange(12), views.plain()))
    )[3]
    by_hand = (RANDOM[3] / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    torch.testing.assert_close(
        plain.double(), torch.from_numpy(by_hand.transpose(2, 0, 1)), rtol=0, atol=1e-5
    )
    assert label == 3
