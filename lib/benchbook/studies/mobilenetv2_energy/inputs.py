"""Images as the article's network takes them: 0 to 1, enlarged by nearest neighbours; one code for all frameworks."""

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
