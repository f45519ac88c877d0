"""The masks that a network predicts for the first test images, encoded so that they fit into a run's manifest."""

import base64

import numpy

NUM_IMAGES = 4
SIDE = 128  # pixels; larger masks are subsampled
THRESHOLD = 0.5


def predict(workload) -> list[str]:
    """Return the encoded masks that a segmentation workload's network predicts for its first test images."""
    inputs, _ = next(iter(workload.test_batches()))
    outputs = workload.network.predict(inputs[:NUM_IMAGES])
    return [encode(output[..., 0] > THRESHOLD) for output in outputs]


def encode(mask: numpy.ndarray) -> str:
    """Return a mask of shape (side, side) in base64, one bit per pixel, subsampled to about SIDE pixels a side."""
    step = max(1, len(mask) // SIDE)
    return base64.b64encode(numpy.packbits(mask[::step, ::step])).decode()


def decode(text: str) -> numpy.ndarray:
    """Return the mask in an encoded text: bool, square.

    Raises:
        ValueError: the number of pixels is not a square.
    """
    pixels = numpy.unpackbits(numpy.frombuffer(base64.b64decode(text), numpy.uint8)).astype(bool)
    side = round(len(pixels) ** 0.5)
    if side * side != len(pixels):
        raise ValueError(f"a mask of {len(pixels)} pixels; allowed: a square")
    return pixels.reshape(side, side)
