"""Orders of batches, threads that make batches ahead, and labels by their images: what no
framework is needed for.

Sizes of test batches with Keras as well; its workloads are tried in frameworks/test_keras.py.
"""

import threading

import numpy
import pytest

from benchbook.frameworks import batches
from benchbook.frameworks.keras.runtime import evaluation_batch_size
from benchbook.frameworks.plain import LabelsByImage


def test_an_epochs_order_depends_on_seed_and_epoch_alone_and_holds_whole_batches():
    assert [part.tolist() for part in batches.batch_indices(5, 2)] == [[0, 1], [2, 3], [4]]
    order = batches.full_batches(11, 4)
    assert [part.tolist() for part in order] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert order[0].dtype == "int32"
    with pytest.raises(ValueError, match="batch_size 12; allowed: up to 11, the training images"):
        batches.full_batches(11, 12)
    assert len({batches.order_seed(seed, epoch) for seed in range(5) for epoch in range(20)}) == 100


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_are_loaded_in_order_and_no_more_than_asked_ahead(num_workers):
    begun, order = [], batches.batch_indices(20, 2)

    def load(indices):
        begun.append(threading.current_thread() is threading.main_thread())
        return indices.sum()

    made = batches.prefetch(order, load, num_workers)
    assert next(made) == 1
    assert len(begun) <= num_workers + 1
    assert list(made) == [part.sum() for part in order[1:]]
    assert begun == [num_workers == 0] * 10


def test_a_loader_that_is_left_stops_and_an_error_in_it_is_raised():
    def load(indices):
        return 1 / (5 - int(indices[0]))

    made = batches.prefetch(batches.batch_indices(10, 1), load, 2)
    with pytest.raises(ZeroDivisionError):
        list(made)
    made = batches.prefetch(batches.batch_indices(10, 1), lambda indices: indices, 2)
    next(made)
    made.close()
    assert not [
        thread
        for thread in threading.enumerate()
        if "ThreadPoolExecutor" in thread.name and lasts(thread)
    ]


def lasts(thread):
    thread.join(5)
    return thread.is_alive()


@pytest.mark.parametrize(
    ("num_images", "most", "expected"),
    [
        (10_000, 128, 125),
        (1000, 128, 125),
        (5000, 128, 125),
        (128, 128, 128),
        (7, 128, 7),
        (1009, 128, 128),
    ],
)
def test_test_batches_are_all_alike_where_they_can_be(num_images, most, expected):
    """A prime number of images leaves a smaller last one."""
    assert evaluation_batch_size(num_images, most) == expected


def test_labels_are_looked_up_by_their_images_whatever_the_order_and_rounding():
    images = numpy.random.default_rng(0).integers(0, 256, (5, 3, 3), dtype=numpy.uint8)
    images[4] = images[3]  # twice, with two labels: both fit
    stored, batch = LabelsByImage(images, numpy.array([7, 8, 9, 1, 2])), images[[3, 0, 4, 1]] + 0.3
    for labels, fits in (([2, 7, 1, 8], [True] * 4), ([2, 8, 1, 7], [True, False, True, False])):
        assert stored.matches(batch, numpy.array(labels)).tolist() == fits
    assert not stored.matches(
        batch + 5, numpy.array([2, 7, 1, 8])
    ).any()  # no image of the data set
