"""Compare the timed steps with those of a plain network in float64 on the CPU.

`check` writes rows; `benchbook.judging.agreement` judges them, and its verdict is never stored.
Weights and batches are the same on both sides, dropout is off, and noise is drawn on the CPU
beforehand. Nothing else is shared: see `float64`.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy

from benchbook.frameworks.plain import Arrays, Optimizer, Plain
from benchbook.frameworks.subject import ParitySubject
from benchbook.frameworks.workload import Workload
from benchbook.judging.agreement import TOLERANCES, Agreement, verdict
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.measuring import failures, float64
from benchbook.measuring.float64 import Step
from benchbook.measuring.writer import Run

FEWEST_UPDATES = 3  # steps of the optimiser: a missing momentum shows in the second
DIFFERENTIATED = 3  # steps whose gradients are compared
# The values of a comparison without any error; the farther from them, the worse.
IDEAL = {"update_error": 0, "statistics_error": 0}
IDEAL |= dict.fromkeys(
    ("gradient_cosine", "worst_cosine", "gradient_norm_ratio", "worst_norm_ratio"), 1
)
NOTHING = 1e-12  # of the whole gradient's norm, in float64: rounding of rounding
ROUNDING = 100  # times the least share that is judged, if the reference has no gradient
# A mean that should be zero, as behind a convolution of images with zero mean, is rounding alone.
# So its error is relative to the channel's deviation, by which a batch norm divides it.
VARIANCES = {"running_mean": "running_var", "moving_mean": "moving_variance"}
DEVIATION_SHARE = 0.01
# Of the root mean square of a network's gradients. Adam makes a whole step of a gradient that is
# rounding alone, such as that of an offset before a batch norm; a framework that differentiates
# twice rounds differently each time.
LEAST_ELEMENT = 1e-4
ROUNDINGS = 4  # of a step's change: momentum has the precision of the weights
ROUNDING_OF_LOSS = 1e-9  # relative, in float64, by the order in which threads add
REPEATS = 8  # of a step that failed
LEAST_NORMALISED = 8  # values: with fewer, a batch norm's gradient is mostly rounding
EPSILON = 2.0**-24  # float32's rounding, relative; it hides smaller losses of a softmax
# Why a comparison that failed proves nothing.
NO_LOSS = "the loss or its gradient is 0, so that there is nothing to compare"
CHANGES_WEIGHTS = "the network changes its own weights in a forward pass"
RANDOM = (
    "a repeated step has another loss: the network draws at random in training, other than by "
    "dropout and stochastic depth, which are off, or keeps a state outside its float buffers"
)
DISCONTINUOUS = "float32's rounding alone changes its loss or gradients: it is discontinuous"
MOST_ELEMENTS = 2**16  # of a parameter are compared: optimisers treat each element by itself


def check(workload: Workload, record: Run, num_steps: int) -> Agreement:
    """Compare a workload's training with float64 from its present weights, which stay unchanged.

    The step is the timed one, with scaler, compiler, optimiser and the loader's batches, cut to
    a few images. Each step starts from the reference's weights, so that loss, gradients and
    moving statistics can have a strict tolerance. The optimiser continues from step to step; its
    updates are compared with those of a plain one for the same gradients. At least
    FEWEST_UPDATES updates are compared: if fewer steps were requested, the reference's steps are
    repeated.

    The first batch is also compared whole, if it is larger than its compared part: a step could
    leave out what exceeds that. Its loss and the change of the last parameters are compared with
    those of the plain network in float32.

    Each step is a row. `loss` is the workload's on its own path. Settings hold step,
    reference_loss, same_weights_loss (the workload's at the reference's weights), update_error,
    statistics_error and, in the first rows, the results of `compare`; the first row also holds
    labels_checked, labels_wrong and the results of `_compare_whole`. A row of a repeated step
    holds the worst values. A number that is not finite ends the comparison with status
    `diverged`, an operation that the device lacks, or a network for which a difference proves
    nothing, with status `unsupported`.

    Args:
        workload: what is to be trained.
        record: the run that stores the rows.
        num_steps: steps of the reference; 0 compares nothing.

    Returns:
        The verdict on the rows.
    """
    record.describe(**workload.description())
    precision = workload.description()["precision"]
    first = len(record.rows())
    with record.during("parity"):
        try:
            if num_steps:
                with workload.compared() as subject:
                    lines = _compare_steps(subject, workload, record, precision, num_steps)
                for line in lines:
                    record.append(**line)
        except NotImplementedError as error:
            record.append(
                precision=precision,
                status="unsupported",
                message=failures.anonymous(str(error))[:2000],
            )
    return verdict(record.rows().iloc[first:])


def _compare_steps(
    subject: ParitySubject, workload: Workload, record: Run, precision: str, num_steps: int
) -> list[dict]:
    """Return the rows of a comparison.

    Raises:
        NotImplementedError: the reference cannot be computed, or its steps cannot be repeated.
    """
    plain, whole = subject.plain, subject.batches(num_steps)
    labelled = enumerate(whole) if plain.labels else ()
    looked_up = [plain.labels(subject.to_host(batch), place) for place, batch in labelled]
    fits = numpy.concatenate([numpy.ones(0, bool), *looked_up])
    counts = {"labels_checked": len(fits), "labels_wrong": int((~fits).sum())}
    if plain.noise:
        whole = [plain.noise(batch, place) for place, batch in enumerate(whole)]
    batches = [tuple(part[: plain.batch_size] for part in batch) for batch in whole]
    samples = [min(plain.batch_size, workload.num_samples(batch)) for batch in whole]
    rest = whole[0] if samples[0] < workload.num_samples(whole[0]) else ()
    on_host = [subject.to_host(batch) for batch in batches]
    framework = _framework(workload)
    start = plain, subject.weights(), subject.statistics(), on_host
    reference = float64.follow(framework, *start, subject.to_host(rest) if rest else ())
    first, own_losses = next(reference), []  # the latter on the workload's own path
    if not first.loss or not any(part.any() for part in first.gradients.values()):
        raise NotImplementedError(NO_LOSS)
    if rest:
        subject.restart()
        counts |= {"whole_samples": workload.num_samples(rest)} | _compare_whole(
            subject, rest, first
        )
    if num_steps > 1:
        subject.restart()
        subject.load(first.weights, {})
        own_losses = [subject.step(batch, differentiated=False)[0] for batch in batches]
    subject.restart()
    optimizer, lines, failed = plain.make_optimizer(), [], None
    least_share = TOLERANCES[precision].least_share
    expected = itertools.chain([first], reference)
    if num_steps < FEWEST_UPDATES:
        expected = itertools.cycle(expected)
    for number, step in zip(range(max(num_steps, FEWEST_UPDATES)), expected, strict=False):
        place = number % num_steps
        line = _compare_step(
            subject, optimizer, batches[place], step, number < DIFFERENTIATED, least_share
        )
        if number < num_steps:
            loss = own_losses[number] if own_losses else line["same_weights_loss"]
            line |= {"step": number + 1, "loss": loss}
            lines.append(line if number else line | counts)
        else:
            lines[place] = _worse(lines[place], line)
        rows, judged = _judged(record, precision, lines, samples)
        if not judged.passed and failed is None:
            failed = step, on_host[place]
        if not _is_finite(lines[place]):
            break
    reason = failed and not judged.passed and _doubt(framework, plain, record, precision, *failed)
    if reason:
        raise NotImplementedError(reason)
    return rows


def _doubt(
    framework: str,
    plain: Plain,
    record: Run,
    precision: str,
    step: Step,
    batch: tuple,
) -> str:
    """Return why a comparison that failed at a step proves nothing; empty: the step is wrong."""
    make = functools.partial(float64.maker(framework), plain, step.weights, step.statistics)
    network, given = make(), plain.inputs(batch)
    before = network.weights()
    loss, *_ = network.differentiate(*given)
    after = network.weights()
    if abs(step.loss) < EPSILON:
        return NO_LOSS
    if not all(numpy.array_equal(before[name], after[name], equal_nan=True) for name in before):
        return CHANGES_WEIGHTS
    if network.fewest_normalised < LEAST_NORMALISED:
        return f"a batch norm over {network.fewest_normalised} values, under {LEAST_NORMALISED}"
    for _ in range(REPEATS):
        network.load(step.weights, step.statistics)
        if abs(network.differentiate(*given)[0] - loss) > ROUNDING_OF_LOSS * abs(loss):
            return RANDOM
    rounded, random, moved = make(dtype="float32"), numpy.random.default_rng(0), {}
    for _ in range(REPEATS):
        loss, gradients, _ = rounded.differentiate(*given)
        loss = loss / len(batch[0]) if plain.loss_is_sum else loss
        line = {"step": 1, "reference_loss": step.loss, "same_weights_loss": loss, "loss": loss}
        least_share = TOLERANCES[precision].least_share
        line |= compare(plain.clipped(gradients), step.gradients, least_share)
        if not _judged(record, precision, [line], [0])[1].passed:
            return DISCONTINUOUS
        for name, each in step.weights.items():
            moved[name] = each * (1 + EPSILON * random.choice((-1, 1), each.shape))
        rounded.load(moved, step.statistics)
    return ""


def last_losses(workload: Workload) -> dict:
    """Return the loss of the last window's batch and that of the plain network in float32, both
    from the weights after the windows, which stay unchanged.

    A step can go wrong after the compared ones: another precision, half of a batch, stale inputs.

    Returns:
        last_loss and last_reference_loss; nothing if the network may draw at random, or if the
        plain one cannot compute it.
    """
    try:
        with workload.compared() as subject:
            plain, batch = subject.plain, workload.last_batch
            if plain.may_be_random:
                return {}
            batch = plain.noise(batch, 0) if plain.noise else batch
            make = float64.maker(_framework(workload))
            start = functools.partial(make, plain, subject.weights(), subject.statistics())
            with float64.naming_refusals():
                reference, _ = float64.of_batch(start, plain, subject.to_host(batch))
            loss, _ = subject.step(batch, differentiated=False)
    except NotImplementedError:
        return {}
    given = {"last_loss": loss, "last_reference_loss": reference}
    return {} if reference is None else {name: _finite(each) for name, each in given.items()}


def _framework(workload: Workload) -> str:
    """Return the framework of a workload's plain network."""
    return FRAMEWORKS[workload.device.framework].reference or workload.device.framework


def _compare_whole(subject: ParitySubject, batch: tuple, expected: Step) -> dict:
    """Take a step on a whole batch from the reference's weights, and return its losses and the
    error of its change.

    The change of the last parameters tells parts of a batch apart, which may have nearly the
    same loss.
    """
    if expected.whole_loss is None:
        return {}
    subject.load(expected.weights, expected.statistics)
    before, passed = subject.weights(), subject.schedule_step
    loss, _ = subject.step(batch, differentiated=False)
    after, last = subject.weights(), expected.last_gradients
    last = {name: last[name] for name in last if name in before}
    start, end = ({name: weights[name] for name in last} for weights in (before, after))
    error, layer = update_error(subject, subject.plain.make_optimizer(), start, end, last, passed)
    losses = {"whole_loss": _finite(loss), "whole_reference_loss": _finite(expected.whole_loss)}
    return losses | {"whole_update_error": _finite(error), "whole_update_layer": layer}


def _compare_step(
    subject: ParitySubject,
    optimizer: Optimizer,
    batch: tuple,
    expected: Step,
    differentiated: bool,
    least_share: float,
) -> dict:
    """Take a step from the reference's weights, and return its errors."""
    subject.load(expected.weights, expected.statistics)
    start, passed = subject.weights(), subject.schedule_step
    loss, gradients = subject.step(batch)
    trained = {name: gradients[name] for name in expected.gradients if name in gradients}
    error, layer = update_error(subject, optimizer, start, subject.weights(), trained, passed)
    line = {"reference_loss": _finite(expected.loss), "same_weights_loss": _finite(loss)}
    line |= {"update_error": _finite(error), "update_layer": layer}
    statistics, buffer = statistics_error(
        subject.statistics(), expected.next_statistics, expected.statistics
    )
    line |= {"statistics_error": _finite(statistics), "statistics_layer": buffer} if buffer else {}
    if not differentiated:
        return line
    return line | compare(trained, expected.gradients, least_share)


def _worse(line: dict, again: dict) -> dict:
    """Return the worse of each figure from two comparisons."""
    worse = dict(line)
    for name, ideal in (IDEAL | {"same_weights_loss": line["reference_loss"]}).items():
        if name not in again or line.get(name) is None:
            continue
        if again[name] is None or abs(again[name] - ideal) > abs(line[name] - ideal):
            layer = f"{name.removesuffix('_error')}_layer"
            worse |= {key: again[key] for key in (name, layer) if key in again}
    return worse


def _is_finite(line: dict) -> bool:
    return None not in line.values() and math.isfinite(line["loss"])


def _judged(
    record: Run, precision: str, lines: list[dict], samples: list[int]
) -> tuple[list[dict], Agreement]:
    import pandas

    rows = [_row(record, precision, *each) for each in zip(lines, samples, strict=False)]
    return rows, verdict(pandas.DataFrame(rows).assign(run_id="", phase="parity", message=""))


def _row(record: Run, precision: str, line: dict, samples: int) -> dict:
    settings = record.settings_with(
        **{name: value for name, value in line.items() if name != "loss"}
    )
    status = "ok" if _is_finite(line) else "diverged"
    return {
        "precision": precision,
        "samples": samples,
        "loss": line["loss"],
        "settings": settings,
        "status": status,
    }


def compare(gradients: Arrays, reference: Arrays, least_share: float = 0.0) -> dict:
    """Return how close gradients are to the reference's, as a whole and in the worst layer.

    Args:
        gradients, reference: by parameter name; a missing gradient is zero.
        least_share: see `judging.agreement.Tolerance`.

    Returns:
        gradient_cosine and gradient_norm_ratio of the whole; worst_cosine and worst_norm_ratio
        (the farthest from 1), with the names of their tensors in worst_cosine_layer and
        worst_norm_ratio_layer; the counts layers and layers_judged. A number that is not finite
        is None.
    """
    products = numpy.array(
        [_products(gradients.get(name, numpy.zeros(1)), reference[name]) for name in reference]
    )
    shares = numpy.sqrt(
        products[:, 1:] / products[:, 1:].sum(axis=0).clip(min=numpy.finfo(float).tiny)
    )
    # If the reference has no gradient, as for the bias before a batch norm, the device's gradient
    # is rounding; in a small network it is a larger share of the whole. A share that is NaN is
    # judged.
    is_rounding = (shares[:, 1] < NOTHING) & (shares[:, 0] < ROUNDING * least_share)
    judged = ~((shares < least_share).all(axis=1) | is_rounding)
    judged |= not judged.any()
    cosines, ratios = _similarity(products[judged])
    names = numpy.array(list(reference))[judged]
    whole_cosine, whole_ratio = _similarity(products.sum(axis=0, keepdims=True))
    # A value that is not finite is the worst.
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


def update_error(
    subject: ParitySubject,
    optimizer: Optimizer,
    start: Arrays,
    end: Arrays,
    gradients: Arrays,
    passed: int,
) -> tuple[float, str]:
    """Return how far a step's change of the weights is from that of a plain optimiser with the
    same gradients.

    Args:
        subject: took the step, and rounds its weights.
        optimizer: of the protocol; it takes one step.
        start, end: the weights before and after the step, by name.
        gradients: of the trained parameters; all other parameters must stay unchanged.
        passed: steps of the schedule before this one.

    Returns:
        The worst parameter's error, relative to the expected change plus the weights'
        resolution, and its name. Elements whose gradient is nearly zero are ignored.
    """
    start = {name: _subsample(array) for name, array in start.items()}
    with numpy.errstate(
        over="ignore", invalid="ignore"
    ):  # an overflow is an error that is not finite
        gradients = {name: _subsample(array) for name, array in gradients.items()}
        moved, errors = optimizer.step(start, gradients, passed), {}
        squares = sum(_norm(part) ** 2 for part in gradients.values())
        least = (
            LEAST_ELEMENT * (squares / max(1, sum(part.size for part in gradients.values()))) ** 0.5
        )
        for name, before in start.items():
            expected = subject.rounded(name, moved[name]) if name in moved else before
            change, error = expected - before, _subsample(end[name]) - expected
            if (
                name in moved
            ):  # one unit in the last place is rounding; values that are not finite are judged
                rounding = subject.resolution * (abs(before) + ROUNDINGS * abs(change))
                error = error[~((abs(gradients[name]) < least) | (abs(error) <= rounding))]
            scale = _norm(change) + subject.resolution * _norm(before)
            errors[name] = _norm(error) / scale if error.any() else 0.0
    return _worst(errors)


def statistics_error(statistics: Arrays, reference: Arrays, before: Arrays) -> tuple[float, str]:
    """Return the worst error of moving statistics after a step, and the statistic's name.

    An error is relative to the sum of the statistic's change, 0.1 of its size and, for a mean,
    DEVIATION_SHARE of the standard deviation.

    Args:
        statistics, reference, before: by name; a network whose batch norms are folded away has
        none.
    """
    errors = {}
    for name, array in statistics.items():
        # Equal infinities, as in an attention mask, have no distance.
        judged = numpy.isfinite(reference[name]) | (array != reference[name])
        expected, former = reference[name][judged], before[name][judged]
        with numpy.errstate(invalid="ignore"):
            change, error = _norm(expected - former), _norm(array[judged] - expected)
        scale = change + 0.1 * _norm(expected) + DEVIATION_SHARE * _deviation(name, reference)
        errors[name] = error / scale if error else 0.0
    return _worst(errors)


def _worst(errors: dict[str, float]) -> tuple[float, str]:
    """Return the largest error and its name; an error that is not finite is the largest, and no
    errors are 0."""
    name = max(
        errors,
        key=lambda name: errors[name] if math.isfinite(errors[name]) else math.inf,
        default="",
    )
    return errors.get(name, 0.0), name


def _deviation(mean: str, statistics: Arrays) -> float:
    """Return the norm of the standard deviations that belong to the moving means of this name; 0
    for others."""
    for kind, other in VARIANCES.items():
        variances = statistics.get(mean.removesuffix(kind) + other) if mean.endswith(kind) else None
        if variances is not None:
            return float(variances.sum().clip(0) ** 0.5)
    return 0.0


def _finite(value: float) -> float | None:
    """Return a number, or None if it is not finite."""
    return float(value) if math.isfinite(value) else None


def _subsample(array: numpy.ndarray) -> numpy.ndarray:
    """Return at most MOST_ELEMENTS elements of an array, evenly spaced."""
    return array.ravel()[:: -(-array.size // MOST_ELEMENTS) or 1]


def _norm(array: numpy.ndarray) -> float:
    return float(numpy.linalg.norm(array))


def _products(gradient: numpy.ndarray, reference: numpy.ndarray) -> tuple[float, float, float]:
    """Return the inner product of two gradients, and that of each with itself."""
    one, other = numpy.broadcast_to(gradient, reference.shape).ravel(), reference.ravel()
    return float(one @ other), float(one @ one), float(other @ other)


def _similarity(products: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return cosines and norm ratios of rows of `_products`; two zero gradients agree."""
    both, one, other = products.T
    with numpy.errstate(divide="ignore", invalid="ignore", over="ignore"):
        cosines, ratios = both / numpy.sqrt(one * other), numpy.sqrt(one / other)
    zero = (one == 0) & (other == 0)
    return numpy.where(zero, 1.0, cosines), numpy.where(zero, 1.0, ratios)
