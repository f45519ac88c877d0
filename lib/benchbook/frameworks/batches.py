"""The order of images in batches, and batches that threads load ahead; for all studies and
frameworks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy


def check_batch_size(batch_size: int, num_images: int) -> None:
    """Refuse a batch that is larger than the training set.

    Raises:
        ValueError: it is.
    """
    if batch_size > num_images:
        raise ValueError(
            f"batch_size {batch_size}; allowed: up to {num_images}, the training images"
        )


def order_seed(seed: int, epoch: int) -> int:
    """Return the seed of an epoch's order, for a framework's own generator; every pair (seed,
    epoch) has another."""
    return int(numpy.random.SeedSequence([seed, epoch]).generate_state(1, numpy.uint64)[0])


def full_batches(
    num_images: int, batch_size: int, seed: int | None = None, epoch: int = 0
) -> list[numpy.ndarray]:
    """Return what `batch_indices` does without a last batch that is smaller.

    A compiler would compile such a batch separately, inside a window.

    Raises:
        ValueError: the batch is larger than the data set.
    """
    check_batch_size(batch_size, num_images)
    return batch_indices(num_images, batch_size, seed, epoch)[: num_images // batch_size]


def batch_indices(
    num_images: int, batch_size: int, seed: int | None = None, epoch: int = 0
) -> list[numpy.ndarray]:
    """Return the indices of each batch of an epoch, int32; the last batch may be smaller.

    Args:
        num_images: images in the data set.
        batch_size: images in a batch.
        seed: of the shuffling; None: the order of the data set.
        epoch: every epoch is shuffled differently.
    """
    order = numpy.arange(num_images)
    if seed is not None:
        order = numpy.random.default_rng([seed, epoch]).permutation(order)
    order = order.astype(numpy.int32)
    return [order[start : start + batch_size] for start in range(0, num_images, batch_size)]


def prefetch(
    order: Iterable[numpy.ndarray], load: Callable[[numpy.ndarray], Any], num_workers: int
) -> Iterator:
    """Yield each batch in order; threads of this process load them ahead.

    Args:
        order: indices of each batch.
        load: returns the batch of these indices; other threads run while NumPy copies.
        num_workers: threads, each one batch ahead; 0: a batch is loaded when it is needed.
    """
    if num_workers == 0:
        yield from map(load, order)
        return
    with ThreadPoolExecutor(num_workers) as pool:
        ahead = deque()
        try:
            for indices in order:
                ahead.append(pool.submit(load, indices))
                if len(ahead) > num_workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def rows(batch: Any) -> int | None:
    """Return the length of the first axis of a batch's first array; None without an array."""
    if len(shape := getattr(batch, "shape", ())):
        return shape[0]
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(batch, Mapping | list | tuple):
        return None
    return next((found for part in parts if (found := rows(part)) is not None), None)
