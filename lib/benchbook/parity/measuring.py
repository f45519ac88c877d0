"""Take the same steps on a device and on the CPU in float64, and write a row for each."""

import math
from collections.abc import Callable, Sequence

import numpy
import pandas

from benchbook import devices, records, runs
from benchbook.devices import Device
from benchbook.parity.judging import Tolerance, Verdict, tolerance_of, verdict
from benchbook.runs import Run
from benchbook.workload import ParitySubject, ParityWorkload, Workload

NOTHING = 1e-12  # of the whole gradient's norm, in float64: rounding of rounding
ROUNDING = 100  # times the least share that is judged, where the reference has nothing
SAME_WEIGHTS = 1e-2  # of their norm: more than rounding to bfloat16 makes


def check(workload: Workload | ParityWorkload, record: Run, num_steps: int = 20, precision: str = "") -> Verdict:
    """Compare a workload's own network with float64 at its present weights, which stay as they are.

    Args:
        workload: what is to be trained.
        record: the run that takes the rows.
        num_steps: steps to compare; 0 compares nothing.
        precision: a key of `TOLERANCES`; empty is the workload's own.

    Returns:
        What the rows say.
    """
    record.describe(**workload.description())
    precision = precision or workload.description()["precision"]
    batches = workload.parity_batches(num_steps)
    return verdict(measure(workload.parity_subject, batches, record, workload.device, precision, num_steps))


def measure(
    make_subject: Callable[[Device, str], ParitySubject],
    batches: Sequence,
    record: Run,
    device: Device,
    precision: str,
    num_steps: int = 20,
) -> pandas.DataFrame:
    """Take the same steps on the device and in float64 on the CPU, and append a row for each.

    Args:
        make_subject: from a device and a precision to the network there; it has the same weights each time.
        batches: on the host, at least as many as steps.
        record: the run that takes the rows.
        device: what is to be checked.
        precision: a key of `TOLERANCES`.
        num_steps: steps to compare.

    Returns:
        The rows. `loss` is the device's on its own path; settings hold step, reference_loss, same_weights_loss (the
        device's at the reference's weights) and, in the first row, what `compare` returns. A number that is not
        finite ends the comparison in a row of status `diverged`, and an operation that the device lacks in one of
        status `unsupported`.

    Raises:
        ValueError: an unknown precision, too few batches, or subjects that begin with different weights.
    """
    tolerance = tolerance_of(precision)
    if not 0 <= num_steps <= len(batches):
        raise ValueError(f"num_steps {num_steps}; allowed: 0 to {len(batches)}, the number of batches")
    first = len(records.read(record.path)) if record.path.exists() else 0
    with record.during("parity"):
        try:
            _compare_steps(make_subject, batches[:num_steps], record, device, precision, tolerance)
        except NotImplementedError as error:
            record.append(precision=precision, status="unsupported", message=runs.anonymous(str(error))[:2000])
    rows = records.read(record.path) if record.path.exists() else pandas.DataFrame(columns=records.COLUMNS)
    return rows.iloc[first:]


def compare(gradients: dict, reference: dict, least_share: float = 0.0) -> dict:
    """Return how near gradients are to the reference's, as a whole and in the worst layer.

    Args:
        gradients, reference: arrays by parameter name.
        least_share: see `Tolerance`.

    Returns:
        gradient_cosine and gradient_norm_ratio of the whole; worst_cosine and worst_norm_ratio (the farthest from
        1) with the names of their tensors, worst_cosine_layer and worst_norm_ratio_layer; layers and
        layers_judged, their numbers. A number that is not finite is None.

    Raises:
        ValueError: the names differ.
    """
    if gradients.keys() != reference.keys():
        raise ValueError(f"parameters {', '.join(gradients)}; allowed: {', '.join(reference)}, as the reference has")
    products = numpy.array([_products(gradients[name], reference[name]) for name in reference])
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
        "gradient_cosine": _finite(whole_cosine[0]),
        "gradient_norm_ratio": _finite(whole_ratio[0]),
        "worst_cosine": _finite(cosines[by_cosine]),
        "worst_cosine_layer": str(names[by_cosine]),
        "worst_norm_ratio": _finite(ratios[by_ratio]),
        "worst_norm_ratio_layer": str(names[by_ratio]),
        "layers": len(reference),
        "layers_judged": len(names),
    }


def _compare_steps(
    make_subject: Callable[[Device, str], ParitySubject],
    batches: Sequence,
    record: Run,
    device: Device,
    precision: str,
    tolerance: Tolerance,
) -> None:
    if not batches:
        return
    reference = make_subject(devices.pick("cpu", device.framework), "fp64")
    follower = make_subject(device, precision)
    _check_same_weights(follower.parameters(), reference.parameters())
    subject = make_subject(device, precision) if len(batches) > 1 else None  # one step is compared before its update
    for step, batch in enumerate(batches, start=1):
        follower.load(reference.parameters())
        same_weights_loss, gradients = follower.gradients(batch)
        nearness = {}
        if step == 1:
            loss, (reference_loss, expected) = same_weights_loss, reference.gradients(batch)
            nearness = compare(gradients, expected, tolerance.least_share)
        if len(batches) > 1:  # with one, the losses are known already: nothing was updated, and no step follows
            loss, reference_loss = subject.step(batch), reference.step(batch)
        nearness |= {"reference_loss": _finite(reference_loss), "same_weights_loss": _finite(same_weights_loss)}
        settings = record.settings_with(**nearness, step=step)
        status = "ok" if None not in nearness.values() and math.isfinite(loss) else "diverged"
        record.append(precision=precision, samples=len(batch[0]), loss=loss, settings=settings, status=status)
        if status == "diverged":
            return


def _check_same_weights(weights: dict, reference: dict) -> None:
    for name, expected in reference.items():
        if numpy.linalg.norm(weights[name] - expected) > SAME_WEIGHTS * numpy.linalg.norm(expected):
            raise ValueError(f"{name} begins with other weights than its reference; allowed: the same")


def _products(gradient: numpy.ndarray, reference: numpy.ndarray) -> tuple[float, float, float]:
    """Return the inner product of two gradients, and each one's with itself."""
    one, other = gradient.ravel(), reference.ravel()
    return float(one @ other), float(one @ one), float(other @ other)


def _near(products: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return cosines and norm ratios of rows of `_products`; two that are zero agree."""
    both, one, other = products.T
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cosines, ratios = both / numpy.sqrt(one * other), numpy.sqrt(one / other)
    zero = (one == 0) & (other == 0)
    return numpy.where(zero, 1.0, cosines), numpy.where(zero, 1.0, ratios)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
