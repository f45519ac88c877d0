"""The labels of a data set by its images, without a framework; test_parity.py compares the plain optimisers."""

import numpy

from benchbook.frameworks.plain import LabelsByImage, all_of


def test_labels_are_looked_up_by_their_images_whatever_the_order_and_rounding():
    images = numpy.random.default_rng(0).integers(0, 256, (5, 3, 3), dtype=numpy.uint8)
    images[4] = images[3]  # twice, with two labels: both fit
    stored = LabelsByImage(images, numpy.array([7, 8, 9, 1, 2]))
    order = [3, 0, 4, 1]
    batch = images[order] + 0.3
    assert stored.fit(batch, numpy.array([2, 7, 1, 8])).tolist() == [True] * 4
    assert stored.fit(batch, numpy.array([2, 8, 1, 7])).tolist() == [True, False, True, False]
    assert stored.fit(batch + 5, numpy.array([2, 7, 1, 8])).tolist() == [False] * 4  # no image of the data set


def test_a_label_may_be_a_mask():
    images = numpy.arange(8, dtype=numpy.uint8).reshape(2, 2, 2)
    stored = LabelsByImage(images, images > 3)
    assert stored.fit(images, (images > 3).astype("float64")).all()
    assert not stored.fit(images, (images > 2).astype("float64")).all()


def test_the_last_part_of_a_batch_is_the_target():
    assert all_of((1, 2, 3)) == ((1, 2), 3)
