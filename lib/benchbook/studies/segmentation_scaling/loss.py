"""The article's loss and its measure of a mask, in keras.ops: both of each image, then averaged.

Source: https://github.com/tkshirakawa/benchmark_TensorFlow_macOS, utils/Loss_and_metrics.py.
"""

from benchbook.frameworks.keras.training import Array

PIXELS = (1, 2, 3)  # axes of (n, height, width, 1)


def squares_and_overlap(outputs: Array, masks: Array) -> Array:
    """Return the mean over images of the squared error a pixel of the union, plus 1 - IoU squared.

    Args:
        outputs: probabilities, shape (n, height, width, 1).
        masks: 0 or 1, of any type, same shape.
    """
    import keras

    masks = keras.ops.cast(masks, outputs.dtype)
    overlap, union = _overlap_and_union(outputs, masks)
    squares = keras.ops.sum(keras.ops.square(outputs - masks), PIXELS)
    return keras.ops.mean(squares / union + 1 - keras.ops.square(overlap / union))


def intersection_over_union(outputs: Array, masks: Array) -> Array:
    """Return the mean over images of the IoU, of probabilities as they are: a pixel at 0.9 overlaps by 0.9.

    Args:
        outputs, masks: as `squares_and_overlap` takes them.
    """
    import keras

    overlap, union = _overlap_and_union(outputs, keras.ops.cast(masks, outputs.dtype))
    return keras.ops.mean(overlap / union)


def _overlap_and_union(outputs: Array, masks: Array) -> tuple[Array, Array]:
    """Return pixels in both and pixels in either, shape (n,); the union of an empty mask and no output is 1."""
    import keras

    union = keras.ops.sum(keras.ops.clip(masks + outputs, 0, 1), PIXELS)
    overlap = keras.ops.sum(masks, PIXELS) + keras.ops.sum(outputs, PIXELS) - union
    return overlap, keras.ops.maximum(union, 1)
