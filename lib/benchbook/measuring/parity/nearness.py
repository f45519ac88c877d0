"""How near a step comes to the reference's: its gradients, its moving statistics, and what the optimiser made of it."""

import math

import numpy

from benchbook.frameworks.plain import Arrays, Optimizer
from benchbook.frameworks.workload import ParitySubject

NOTHING = 1e-12  # of the whole gradient's norm, in float64: rounding of rounding
ROUNDING = 100  # times the least share that is judged, where the reference has nothing
# A mean of nothing, as behind a convolution of images whose mean is zero, is rounding alone: its error is measured by
# the channel's deviation, by which a batch norm divides it.
VARIANCES = {"running_mean": "running_var", "moving_mean": "moving_variance"}
OF_DEVIATION = 0.01
# Of the root mean square of a network's gradients. Adam makes a whole step of a gradient that is rounding alone, as of
# an offset before a batch norm; where a framework differentiates twice, each time rounds in its own way.
LEAST_ELEMENT = 1e-4
LOOKED_AT = 2**16  # elements of a parameter at most: optimisers treat each by itself


def compare(gradients: Arrays, reference: Arrays, least_share: float = 0.0) -> dict:
    """Return how near gradients are to the reference's, as a whole and in the worst layer.

    Args:
        gradients, reference: by parameter name; one that is missing is zero.
        least_share: see `judging.Tolerance`.

    Returns:
        gradient_cosine and gradient_norm_ratio of the whole; worst_cosine and worst_norm_ratio (the farthest from
        1) with the names of their tensors, worst_cosine_layer and worst_norm_ratio_layer; layers and
        layers_judged, their numbers. A number that is not finite is None.
    """
    products = numpy.array([_products(gradients.get(name, numpy.zeros(1)), reference[name]) for name in reference])
    shares = numpy.sqrt(products[:, 1:] / products[:, 1:].sum(axis=0).clip(min=numpy.finfo(float).tiny))
    # A gradient of nothing, as of the bias before a batch norm, is rounding on the device, and in a small network a
    # larger part of the whole. A share that is NaN is judged.
    of_nothing = (shares[:, 1] < NOTHING) & (shares[:, 0] < ROUNDING * least_share)
    judged = ~((shares < least_share).all(axis=1) | of_nothing)
    cosines, ratios = _near(products[judged])
    names = numpy.array(list(reference))[judged]
    whole_cosine, whole_ratio = _near(products.sum(axis=0, keepdims=True))
    # What is not finite is the worst there can be.
    by_cosine = int(numpy.nan_to_num(cosines, nan=-numpy.inf).argmin())
    by_ratio = int(numpy.nan_to_num(abs(ratios - 1), nan=numpy.inf).argmax())
    return {
        "gradient_cosine": finite(whole_cosine[0]),
        "gradient_norm_ratio": finite(whole_ratio[0]),
        "worst_cosine": finite(cosines[by_cosine]),
        "worst_cosine_layer": str(names[by_cosine]),
        "worst_norm_ratio": finite(ratios[by_ratio]),
        "worst_norm_ratio_layer": str(names[by_ratio]),
        "layers": len(reference),
        "layers_judged": len(names),
    }


def update_error(
    subject: ParitySubject, optimizer: Optimizer, start: Arrays, end: Arrays, gradients: Arrays, passed: int
) -> tuple[float, str]:
    """Return how far a step's change of the weights is from what a plain optimiser makes of the same gradients.

    Args:
        subject: that took the step; it says how its weights are rounded.
        optimizer: of the protocol; it goes one step on.
        start, end: the weights before and after the step, by name.
        gradients: those of the trained parameters; all others must stay.
        passed: steps of the schedule before this one.

    Returns:
        The worst parameter's error, as a share of the change expected and of the weights' resolution, and its name;
        elements whose gradient is nearly nothing are passed over.
    """
    looked = {name: _few(array) for name, array in start.items()}
    with numpy.errstate(over="ignore", invalid="ignore"):  # what overflows is an error that is not finite
        few = {name: _few(array) for name, array in gradients.items()}
        moved, errors = optimizer.step(looked, few, passed), {}
        least = LEAST_ELEMENT * _root_mean_square(few)
        for name, before in looked.items():
            expected = subject.rounded(name, moved[name]) if name in moved else before
            change, error = expected - before, _few(end[name]) - expected
            if name in moved:  # one unit in the last place is rounding; what is not finite is judged
                error = error[~((abs(few[name]) < least) | (abs(error) <= subject.resolution * abs(before)))]
            scale = _norm(change) + subject.resolution * _norm(before)
            errors[name] = _norm(error) / scale if error.any() else 0.0
    worst = max(errors, key=lambda name: errors[name] if math.isfinite(errors[name]) else math.inf)
    return errors[worst], worst


def statistics_error(statistics: Arrays, reference: Arrays, before: Arrays) -> tuple[float, str]:
    """Return the worst error of moving statistics after a step, and whose it is.

    Errors are shares of a statistic's change, size and, of a mean, deviation.

    Args:
        statistics, reference, before: by name; a network whose batch norms are folded away has none.
    """
    errors = {}
    for name, array in statistics.items():
        # A mask of attention holds infinities, which are alike or not, but no distance apart.
        judged = numpy.isfinite(reference[name]) | (array != reference[name])
        right, former = reference[name][judged], before[name][judged]
        with numpy.errstate(invalid="ignore"):
            change, error = _norm(right - former), _norm(array[judged] - right)
        scale = change + 0.1 * _norm(right) + OF_DEVIATION * _deviation(name, reference)
        errors[name] = error / scale if error else 0.0
    worst = max(errors, key=lambda name: errors[name] if math.isfinite(errors[name]) else math.inf, default="")
    return errors.get(worst, 0.0), worst


def _deviation(mean: str, statistics: Arrays) -> float:
    """Return the norm of the deviations that belong to moving means of this name; of other statistics 0."""
    for kind, other in VARIANCES.items():
        variances = statistics.get(mean.removesuffix(kind) + other) if mean.endswith(kind) else None
        if variances is not None:
            return float(variances.sum().clip(0) ** 0.5)
    return 0.0


def finite(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def _few(array: numpy.ndarray) -> numpy.ndarray:
    """Return elements of an array, at most LOOKED_AT, spread evenly over it."""
    return array.ravel()[:: -(-array.size // LOOKED_AT) or 1]


def _root_mean_square(arrays: Arrays) -> float:
    squares = sum(_norm(array) ** 2 for array in arrays.values())
    return (squares / max(1, sum(array.size for array in arrays.values()))) ** 0.5


def _norm(array: numpy.ndarray) -> float:
    return float(numpy.linalg.norm(array))


def _products(gradient: numpy.ndarray, reference: numpy.ndarray) -> tuple[float, float, float]:
    """Return the inner product of two gradients, and each one's with itself."""
    one, other = numpy.broadcast_to(gradient, reference.shape).ravel(), reference.ravel()
    return float(one @ other), float(one @ one), float(other @ other)


def _near(products: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return cosines and norm ratios of rows of `_products`; two that are zero agree."""
    both, one, other = products.T
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cosines, ratios = both / numpy.sqrt(one * other), numpy.sqrt(one / other)
    zero = (one == 0) & (other == 0)
    return numpy.where(zero, 1.0, cosines), numpy.where(zero, 1.0, ratios)
