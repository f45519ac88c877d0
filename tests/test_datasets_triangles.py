"""Triangles: the numbers they are drawn from, and their pixels against half-planes."""

import numpy
import pytest

from benchbook.studies import datasets
from benchbook.studies.datasets.embedded import draw_triangles as draw
from benchbook.studies.datasets.embedded import fill_triangle as fill


def distances(corners, size):
    """Return each pixel's distance from the nearest edge line, positive inside the triangle, by half-planes."""
    down, right = numpy.mgrid[:size, :size].astype(float)
    (x, y), turned = corners.T, numpy.roll(corners, -1, axis=0).T
    along = turned - corners.T
    sides = along[0][:, None, None] * (down - y[:, None, None]) - along[1][:, None, None] * (right - x[:, None, None])
    sides = sides * numpy.sign(along[0][0] * along[1][1] - along[1][0] * along[0][1])
    return (sides / numpy.hypot(*along)[:, None, None]).min(axis=0)


@pytest.mark.parametrize("size", [512, 128])
def test_a_fill_is_what_half_planes_give_but_for_pixels_on_an_edge(size):
    for corners in draw(40, 7)[0] * size // 512:
        found, wanted = fill(corners, 200, size) == 200, distances(corners, size)
        assert found[wanted > 0.75].all()
        assert not found[wanted < -1.5].any()
        assert found.sum() == pytest.approx((wanted >= 0).sum(), abs=3 * size)


def test_corners_and_greys_are_those_that_the_articles_generator_draws():
    random = numpy.random.RandomState(42)
    corners, colours = random.randint(20, 492, (600, 3, 2)), random.randint(128, 256, (600, 3))
    found, greys = draw(600, 42)
    numpy.testing.assert_array_equal(found, corners)
    numpy.testing.assert_allclose(
        greys, 0.299 * colours[:, 0] + 0.587 * colours[:, 1] + 0.114 * colours[:, 2], atol=0.5
    )
    assert (found.min(), found.max()) == (20, 491)
    assert 128 <= greys.min() < greys.max() <= 255


def test_a_mask_is_its_image_and_both_come_from_the_seed():
    data = datasets.triangles(6, 3, size=64)
    assert data.name == "triangles-64px"
    assert data.train_images.shape == data.train_labels.shape == (6, 64, 64)
    assert len(data.test_images) == len(data.test_labels) == 3
    for images, masks in ((data.train_images, data.train_labels), (data.test_images, data.test_labels)):
        numpy.testing.assert_array_equal(masks, images > 0)
        assert all(len(numpy.unique(image)) == 2 for image in images)
    numpy.testing.assert_array_equal(data.test_images, datasets.triangles(6, 3, size=64).test_images)
    assert (data.train_labels != datasets.triangles(6, 3, size=64, seed=1).train_labels).any()


def test_smaller_images_hold_the_same_triangles():
    large, small = datasets.triangles(8, 1, size=512), datasets.triangles(8, 1, size=128)
    shares = [data.train_labels.mean(axis=(1, 2)) for data in (large, small)]
    numpy.testing.assert_allclose(*shares, atol=0.02)


@pytest.mark.parametrize(("options", "message"), [({"num_train": 0}, "num_train 0"), ({"size": 4}, "size 4")])
def test_too_little_is_refused(options, message):
    with pytest.raises(ValueError, match=f"{message}; allowed"):
        datasets.triangles(**options)
