"""The first test images' masks as a network finds them, small enough for a run's manifest: pictures that travel."""

import base64

import numpy

NUM_IMAGES = 4
SIDE = 128  # pixels; larger masks are thinned to it
THRESHOLD = 0.5


def find(workload) -> list[str]:
    """Return the masks that a workload finds in its first test images, encoded.

    Args:
        workload: from `workload.build`.
    """
    inputs, _ = next(iter(workload.test_batches()))
    outputs = workload.network.predict(inputs[:NUM_IMAGES])
    return [encode(output[..., 0] > THRESHOLD) for output in outputs]


def encode(mask: numpy.ndarray) -> str:
    """Return a mask of shape (side, side), thinned to at most SIDE pixels a side, as text of eight pixels a byte."""
    thinned = mask[:: max(1, mask.shape[0] // SIDE), :: max(1, mask.shape[1] // SIDE)]
    return base64.b64encode(numpy.packbits(thinned)).decode()


def decode(text: str) -> numpy.ndarray:
    """Return an encoded mask: bool, square.

    Raises:
        ValueError: the text holds no square.
    """
    pixels = numpy.unpackbits(numpy.frombuffer(base64.b64decode(text), numpy.uint8)).astype(bool)
    side = round(len(pixels) ** 0.5)
    if side * side != len(pixels):
        raise ValueError(f"a mask of {len(pixels)} pixels; allowed: a square")
    return pixels.reshape(side, side)
