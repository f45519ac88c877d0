"""In which order images make batches, and batches made ahead by threads; one code for all studies and frameworks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy


def check_fits(batch_size: int, num_images: int) -> None:
    """Refuse a batch that the training images do not fill.

    Raises:
        ValueError: the batch is larger than the data set.
    """
    if batch_size > num_images:
        raise ValueError(f"batch_size {batch_size}; allowed: up to {num_images}, the training images")


def order_seed(seed: int, epoch: int) -> int:
    """Return the seed of an epoch's order, for a framework's own generator; no epoch of another seed has the same."""
    return int(numpy.random.SeedSequence([seed, epoch]).generate_state(1, numpy.uint64)[0])


def training_order(num_images: int, batch_size: int, seed: int | None = None, epoch: int = 0) -> list[numpy.ndarray]:
    """Return the indices of each batch of an epoch, int32; what does not fill a batch is left out.

    A last batch of another size would be compiled for itself, inside a window.

    Args:
        num_images: how many there are.
        batch_size: images in a batch.
        seed: of the order; None: the data set's order.
        epoch: each has an order of its own.

    Raises:
        ValueError: the batch is larger than the data set.
    """
    check_fits(batch_size, num_images)
    return plain_order(num_images, batch_size, seed, epoch)[: num_images // batch_size]


def plain_order(num_images: int, batch_size: int, seed: int | None = None, epoch: int = 0) -> list[numpy.ndarray]:
    """Return the indices of each batch as `training_order` does, the last one perhaps smaller."""
    order = numpy.arange(num_images)
    if seed is not None:
        order = numpy.random.default_rng([seed, epoch]).permutation(order)
    order = order.astype(numpy.int32)
    return [order[start : start + batch_size] for start in range(0, num_images, batch_size)]


def loaded(order: Iterable[numpy.ndarray], load: Callable[[numpy.ndarray], Any], num_workers: int) -> Iterator:
    """Yield what `load` makes of each batch's indices, in order, made ahead by threads of this process.

    Args:
        order: indices of each batch.
        load: from indices to a batch; NumPy's copying lets other threads run.
        num_workers: threads, each one batch ahead; 0 makes a batch when it is asked for.
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
