"""Images as the article's network takes them: 0 to 1, enlarged by nearest neighbours; one code for all frameworks."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy


def nearest(size: int, image_size: int) -> numpy.ndarray:
    """Return, for each pixel of an enlarged side, the pixel it is a copy of: int32, as tf.image.resize chooses it.

    Source: https://www.tensorflow.org/api_docs/python/tf/image/resize (pixels are compared at their centres)
    """
    return numpy.floor((numpy.arange(image_size) + 0.5) * size / image_size).astype(numpy.int32)


def enlarge(images: numpy.ndarray, image_size: int, channels_first: bool = False) -> numpy.ndarray:
    """Return images as float32, 0 to 1, enlarged.

    Args:
        images: uint8, shape (n, height, width, 3).
        image_size: pixels a side.
        channels_first: return (n, 3, image_size, image_size) instead of (n, image_size, image_size, 3).
    """
    rows, columns = (nearest(side, image_size) for side in images.shape[1:3])
    pixels = images.astype(numpy.float32) / numpy.float32(255)  # while they are few
    if channels_first:
        return numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))[:, :, rows][:, :, :, columns]
    return pixels[:, rows][:, :, columns]


def training_order(num_images: int, batch_size: int, seed: int, epoch: int) -> list[numpy.ndarray]:
    """Return the indices of each batch of an epoch, int32, shuffled; what does not fill a batch is left out.

    A last batch of another size would be compiled for itself, inside a window.
    """
    order = numpy.random.default_rng([seed, epoch]).permutation(num_images).astype(numpy.int32)
    whole = num_images // batch_size * batch_size
    return numpy.split(order[:whole], whole // batch_size)


def plain_order(num_images: int, batch_size: int) -> list[numpy.ndarray]:
    """Return the indices of each batch in the data set's order, int32."""
    indices = numpy.arange(num_images, dtype=numpy.int32)
    return [indices[start : start + batch_size] for start in range(0, num_images, batch_size)]


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
