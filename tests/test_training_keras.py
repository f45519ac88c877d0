"""Sizes of test batches with Keras; its workloads are tried in frameworks/test_keras.py."""

import pytest

from benchbook.frameworks.keras.training import evaluation_batch_size


@pytest.mark.parametrize(
    ("num_images", "most", "expected"), [(10_000, 128, 125), (1000, 128, 125), (5000, 128, 125), (128, 128, 128)]
)
def test_test_batches_are_all_alike_where_they_can_be(num_images, most, expected):
    assert evaluation_batch_size(num_images, most) == expected


def test_a_prime_number_of_images_leaves_a_smaller_last_batch():
    assert evaluation_batch_size(1009, 128) == 128
    assert evaluation_batch_size(7, 128) == 7
