"""Judge parity rows: tolerances, the verdict on a run, and the step at which two paths part.

Each step is taken in two ways. On its own path a device goes on from its own weights; rounding alone lets a right
device leave the path of float64 where training is chaotic (MNIST with Adadelta at learning rate 1, 20 steps, 20 seeds:
beyond the tolerance in float32 from 11, in bfloat16 from all). So the strict tolerance is for the loss at the
reference's own weights, step by step, and for the first step of the path; the rest of the path may not run away.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy
import pandas

from benchbook.judging import statistics
from benchbook.machine.precisions import PRECISIONS


@dataclass(frozen=True)
class Tolerance:
    """How far a device may be from float64.

    Attributes:
        loss: relative error of any step's loss at the same weights, and of the loss after one own step.
        cosine: least cosine of the first step's gradient, all layers together.
        norm_ratio: distance from 1 of that gradient's norm over the reference's.
        layer_cosine, layer_norm_ratio: the same for the worst single parameter tensor. An error in one layer
            hides in the whole, so a layer's norm may be off by half of the 10 % that has to be found, at most.
            Its direction may be off by more than the whole's: where rounding decides a ReLU or a maximum, a
            small bias turns (of 80 right MNIST networks in bfloat16, the worst had a cosine of 0.944).
        least_share: a tensor whose gradient is a smaller part of the whole norm, on both sides, is not judged
            alone: what little it holds is rounding (the bias before a batch norm has no gradient at all).
        update: how far a parameter's change may be from what a plain optimiser makes of the same gradients, as a share
            of that change. A missing momentum is off by half of it in the second step.
        statistics: the same for batch norms' moving statistics.
    """

    loss: float
    cosine: float
    norm_ratio: float
    layer_cosine: float
    layer_norm_ratio: float
    least_share: float
    update: float
    statistics: float


TOLERANCES_OF_FAMILIES = {
    "fp32": Tolerance(1e-3, 0.999, 0.02, 0.999, 0.02, 1e-6, 3e-3, 0.01),
    "tf32": Tolerance(1e-2, 0.99, 0.05, 0.95, 0.05, 1e-4, 3e-3, 0.05),
    "half": Tolerance(3e-2, 0.98, 0.10, 0.90, 0.05, 1e-3, 0.01, 0.2),
}
TOLERANCES = {
    name: TOLERANCES_OF_FAMILIES[precision.family]
    for name, precision in PRECISIONS.items()
    if precision.family in TOLERANCES_OF_FAMILIES
}
WHOLE = "gradient_cosine"  # in the settings of steps whose gradients were compared
# How many times as far off as the first step's the gradients of later ones may be: they are compared where they are
# small, and what goes wrong after the first step (gradients that add up, or are those of before) is off by far more.
LATER_STEP_FACTOR = 4
# Of the first loss. A network that has learnt few images by heart has losses of 1e-5, and their logarithm is what is
# exact: a right ResNet-50 in float32 was off by 0.3 % of such a loss, and no step before it by a millionth.
LEAST_LOSS = 0.01
NO_GRADIENT = "no gradient was compared"
AUDITED_SHARE = 1 / 8  # of an epoch that the audit reads after the windows
REPEATED_SHARE = 0.1  # of these images may be there twice
TRAINED_SHARE = 0.02  # of test images may be among them
EVALUATION_ERROR = 1e-3  # of a loss, by rounding; dropout and batch norms in training mode are off by more
PATH = 0.25  # how far the mean loss of a device's own path may be from the reference's, relative to it


def tolerance_of(precision: str) -> Tolerance:
    """Return the tolerance of a precision.

    Raises:
        ValueError: an unknown precision.
    """
    if precision not in TOLERANCES:
        raise ValueError(f"precision {precision!r}; allowed: {', '.join(TOLERANCES)}")
    return TOLERANCES[precision]


@dataclass(frozen=True)
class Agreement:
    """The verdict on whether a device computes the same as float64.

    Attributes:
        passed: whether every tolerance was kept.
        reason: the worst figures, or what was broken.
        num_steps: steps compared.
    """

    passed: bool
    reason: str
    num_steps: int


def steps(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the parity rows with what their settings say as columns.

    Args:
        rows: any rows.

    Returns:
        The rows' columns, and step (from 1), reference_loss, same_weights_loss, loss_error (relative, on the device's
        own path), same_weights_error, tolerance (of both), apart (whether loss_error is beyond it or not finite).
    """
    taken = rows[rows["phase"] == "parity"].reset_index(drop=True)
    names = ("step", "reference_loss", "same_weights_loss")
    numbers = {name: [settings.get(name) for settings in taken["settings"]] for name in names}
    taken = taken.assign(**{name: pandas.Series(values, dtype=float) for name, values in numbers.items()})
    right = taken["reference_loss"]
    error = (taken["loss"].astype(float) - right).abs() / right.abs()
    same = (taken["same_weights_loss"] - right).abs() / right.abs()
    tolerance = taken["precision"].map(lambda precision: tolerance_of(precision).loss, na_action="ignore").astype(float)
    apart = ~(error <= tolerance)
    return taken.assign(loss_error=error, same_weights_error=same, tolerance=tolerance, apart=apart)


def verdict(rows: pandas.DataFrame) -> Agreement:
    """Judge the parity rows of one run in one precision.

    Args:
        rows: rows of one run; those of other phases are passed over.

    Raises:
        ValueError: rows of more than one run or precision.
    """
    compared = steps(rows)
    kinds = compared[["run_id", "precision"]].drop_duplicates()
    if len(kinds) > 1:
        raise ValueError(f"{len(kinds)} runs or precisions; allowed: 1")
    return next(judge_each(compared, ["run_id"]), (None, Agreement(False, "not checked", 0)))[1]


def judge_each(compared: pandas.DataFrame, key: list[str]) -> Iterator[tuple[tuple, Agreement]]:
    """Judge many runs, each in one precision.

    Args:
        compared: lines of `steps`.
        key: columns in which the lines of one run agree, and those of two runs do not.

    Yields:
        The values of the key, and the verdict; in the order of these values.
    """
    divided = statistics.divide(compared, key, _NUMBERS, ["status", "precision", "settings", "message"])
    for values, lines in sorted(divided, key=lambda pair: pair[0]):
        num_steps = len(set(lines["step"][~numpy.isnan(lines["step"])]))  # the first again, after the windows
        broken = numpy.flatnonzero(lines["status"] != "ok")
        if len(broken):
            status, step, message = (lines[name][broken[0]] for name in ("status", "step", "message"))
            where = "" if numpy.isnan(step) else f" at step {step:.0f}"
            reason = f"{status}{where}" + (f": {message}" if isinstance(message, str) else "")
            yield values, Agreement(False, reason, num_steps)
        else:
            complaints = _complaints(lines)
            yield values, Agreement(not complaints, "; ".join(complaints) or _praise(lines), num_steps)


_NUMBERS = ["step", "loss", "reference_loss", "same_weights_loss", "loss_error"]
_Lines = Mapping[str, numpy.ndarray]  # of one run, by column


def verdicts(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per machine, study, device, precision and framework version.

    A point's last session counts; of several runs the worst speaks.

    Returns:
        Columns: machine, study, device, precision, framework, framework_version, model, dataset, num_runs, num_steps
        (the fewest of any run), passed, reason, parted_at (the first step, from 1, where the own path is
        beyond the tolerance of the loss; none: missing).
    """
    measured = rows[(rows["source"] == "measured") & (rows["phase"] == "parity")]
    key = ["machine", "study", "device", "precision", "framework", "framework_version", "model", "dataset"]
    compared = steps(statistics.newest(measured))
    compared = compared.assign(group=compared.groupby(key, dropna=False, sort=True).ngroup())
    heads = compared.drop_duplicates("group").set_index("group")[key].to_dict("index")
    apart = compared[compared["apart"] & compared["step"].notna()]
    partings = apart.groupby(["group", "run_id"])["step"].min().astype(int).to_dict()
    lines = []
    for group, runs in itertools.groupby(judge_each(compared, ["group", "run_id"]), key=lambda pair: pair[0][0]):
        judged = list(runs)
        (_, run_id), worst = min(judged, key=lambda pair: pair[1].passed)
        line = heads[group] | {"num_runs": len(judged), "num_steps": min(verdict.num_steps for _, verdict in judged)}
        line |= {"passed": worst.passed, "reason": worst.reason, "parted_at": partings.get((group, run_id))}
        lines.append(line)
    return pandas.DataFrame(lines, columns=[*key, "num_runs", "num_steps", "passed", "reason", "parted_at"])


def _complaints(lines: _Lines) -> list[str]:
    """Return the errors beyond their tolerance: losses, labels, gradients, and weights after a step."""
    first, allowed = lines["settings"][0], tolerance_of(lines["precision"][0])
    errors, own = _errors_at_same_weights(lines), lines["loss_error"]
    complaints = [
        f"loss off by {errors[place]:.2g} at step {lines['step'][place]:.0f}, from the same weights"
        for place in numpy.flatnonzero(~(errors <= allowed.loss))[:1]
    ]
    if len(own) > 1 and not own[1] <= allowed.loss:
        complaints.append(f"loss off by {own[1]:.2g} after one step of its own")
    drift = abs(pandas.Series(lines["loss"]).mean() / pandas.Series(lines["reference_loss"]).mean() - 1)
    if not drift <= PATH:
        complaints.append(f"own path off by {drift:.2g} on average")
    if wrong := _value(first, "labels_wrong"):
        complaints.append(f"{wrong} of {first.get('labels_checked')} labels are not the data set's")
    for place, settings in enumerate(lines["settings"]):
        complaints += _step_complaints(settings, allowed, LATER_STEP_FACTOR if place else 1)
    return list(dict.fromkeys(complaints if WHOLE in first else [*complaints, NO_GRADIENT]))


def _step_complaints(settings: dict, allowed: Tolerance, times: float) -> Iterator[str]:
    """Yield the errors of a step's gradients, weights and statistics beyond `times` their tolerance.

    Older rows have no errors of weights and moving statistics.
    """
    cosines = {WHOLE: allowed.cosine, "worst_cosine": allowed.layer_cosine}
    ratios = {"gradient_norm_ratio": allowed.norm_ratio, "worst_norm_ratio": allowed.layer_norm_ratio}
    if WHOLE in settings and any(_value(settings, name) is None for name in (*cosines, *ratios)):
        yield NO_GRADIENT
    elif WHOLE in settings:
        for name, least in cosines.items():
            bound = 1 - times * (1 - least)
            if not settings[name] >= bound:
                yield f"{_layer(settings, name)}: cosine {settings[name]:.4f}, under {bound:g}"
        for name, most in ratios.items():
            if not abs(settings[name] - 1) <= times * most:
                far = f"norm {settings[name]:.3f} of the reference's, over {times * most:.0%} off"
                yield f"{_layer(settings, name)}: {far}"
    for name, text in {
        "update": "step {:.2g} of its length off the optimiser's",
        "statistics": "moving statistics off by {:.2g}",
    }.items():
        error = _value(settings, f"{name}_error")
        if error is not None and not error <= getattr(allowed, name):
            yield f"{_layer(settings, name)}: {text.format(error)}"


def work_fault(settings: dict, dataset: str, dataset_samples: int, batch_size: int) -> str:
    """Return the faults of a timed loop's work, from the counts of its audit; empty without counts.

    Args:
        settings: of a parity row.
        dataset, dataset_samples, batch_size: of the run, 0 where they are not known; `synthetic` is one batch.
    """
    names = ("samples", "images", "distinct", "epoch", "tests", "trained_tests", "unused", "odd_batches")
    count = {name: _value(settings, f"audited_{name}") or 0 for name in names}
    error = _value(settings, "evaluation_error") or 0.0
    one_batch = dataset == "synthetic"
    faults = {
        f"{count['samples']:,} samples counted in {count['images']:,} images": count["samples"] != count["images"],
        f"{count['odd_batches']} batches are not of batch_size": count["odd_batches"],
        f"{count['distinct']:,} of {count['images']:,} images are distinct": not one_batch
        and count["distinct"] < (1 - REPEATED_SHARE) * count["images"],
        f"an epoch has {count['epoch']:,} of {dataset_samples} images": not one_batch
        and 0 < count["epoch"] <= dataset_samples - batch_size,
        "a part of each batch is not trained on": count["unused"],
        f"{count['trained_tests']:,} of {count['tests']:,} test images are training images": not one_batch
        and count["trained_tests"] > TRAINED_SHARE * count["tests"],
        f"evaluation in training mode (loss off by {error:.2g})": error > EVALUATION_ERROR,
    }
    return "; ".join(text for text, is_so in faults.items() if is_so)


def _value(settings: dict, name: str) -> float | None:
    """Return a number from a row's settings, which may hold anything; None if it is not a number."""
    value = settings.get(name)
    return value if isinstance(value, (int, float)) else None


def _layer(settings: dict, name: str) -> str:
    """Return the layer that a figure belongs to; figures of the whole network name no layer."""
    return str(settings.get(f"{name}_layer", "gradient"))


def _errors_at_same_weights(lines: _Lines) -> numpy.ndarray:
    """Return each step's relative error of the loss; a loss near zero is compared with the first loss."""
    right = lines["reference_loss"]
    return abs(lines["same_weights_loss"] - right) / numpy.maximum(abs(right), LEAST_LOSS * abs(right[0]))


def _praise(lines: _Lines) -> str:
    """Return the worst figures of a comparison that kept all tolerances."""
    first = lines["settings"][0]
    off = max(abs(first["worst_norm_ratio"] - 1), abs(first["gradient_norm_ratio"] - 1))
    errors = [error for settings in lines["settings"] if (error := _value(settings, "update_error")) is not None]
    loss = numpy.max(_errors_at_same_weights(lines))
    return f"largest relative errors: loss {loss:.1g}, norm of a layer's gradient {off:.1g}" + (
        f", step of its weights {max(errors):.1g}" if errors else ""
    )
