"""Judge parity rows: tolerances, the verdict on a run, and the step at which two paths diverge.

Each step is taken in two ways. On its own path a device continues from its own weights. If
training is chaotic, rounding alone makes a correct device leave the path of float64: MNIST with
Adadelta at learning rate 1, in 20 steps from 20 seeds, left the tolerance from 11 seeds in
float32 and from all in bfloat16. So the strict tolerance applies to each step's loss at the
reference's weights, and to the first step of the path. The rest of the path only must not
diverge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from benchbook.judging import statistics
from benchbook.machine.precisions import PRECISIONS

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Tolerance:
    """How far a device may be from float64.

    Attributes:
        loss: relative error of any step's loss at the same weights, and of the loss after one
        own step.
        cosine: least cosine of the first step's gradient, all layers together.
        norm_ratio: distance from 1 of that gradient's norm over the reference's. layer_cosine,
        layer_norm_ratio: the same for the worst single parameter tensor. The whole gradient
        hides an
            error in one layer, so a layer's norm may be off by at most 5 %, half of the 10 %
            that must be found. Its direction may be off by more than the whole's: if rounding
            decides a ReLU or a maximum, a small bias turns (among 80 correct MNIST networks in
            bfloat16, the worst cosine was 0.944).
        least_share: a tensor whose gradient has a smaller share of the whole norm, on both
        sides, is not judged alone:
            its gradient is mostly rounding (the bias before a batch norm has no gradient at all).
        update: error of a parameter's change, relative to the change that a plain optimiser
        makes of the same
            gradients. Without momentum, the second step would be off by half.
        statistics: the same for batch norms' moving statistics.
        whole_update: the same for the last parameters' change by a whole batch, relative to that
        of the reference's
            gradients. Rounding turns some of Adam's steps around; half of a batch turns a
            quarter, an error of 1.
    """

    loss: float
    cosine: float
    norm_ratio: float
    layer_cosine: float
    layer_norm_ratio: float
    least_share: float
    update: float
    statistics: float
    whole_update: float = 0.6


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
# The tolerance of later steps' gradients, as a multiple of the first step's: later gradients are
# small, and faults that begin after the first step (accumulated or stale gradients) are off by far
# more.
LATER_STEP_FACTOR = 4
# A smaller loss counts as this share of the first loss. A network that has memorised a few images
# has losses of 1e-5, which rounding disturbs: a correct ResNet-50 in float32 was off by 0.3 % of
# such a loss, and by less than a millionth in every step before.
LEAST_LOSS = 0.01
NO_GRADIENT = "no gradient was compared"
MEAN_LOSS_ERROR = 0.25  # relative, of a device's own path


@dataclass(frozen=True)
class Agreement:
    """The verdict on whether a device computes the same as float64.

    Attributes:
        passed: whether every tolerance was met.
        reason: the worst errors if it passed, else the faults.
        num_steps: steps compared.
    """

    passed: bool
    reason: str
    num_steps: int


def steps(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the parity rows with their settings as columns.

    Args:
        rows: any rows.

    Returns:
        The rows' columns, and step (from 1), reference_loss, same_weights_loss, loss_error
        (relative, on the device's own path), tolerance (of the loss), apart (whether loss_error
        exceeds it or is not finite).
    """
    taken = rows[rows["phase"] == "parity"].reset_index(drop=True)
    names = ("step", "reference_loss", "same_weights_loss")
    taken = statistics.with_settings(taken, names).astype(dict.fromkeys(names, float))
    reference = taken["reference_loss"]
    error = (taken["loss"].astype(float) - reference).abs() / reference.abs()
    losses = {name: tolerance.loss for name, tolerance in TOLERANCES.items()}
    tolerance = taken["precision"].map(losses).astype(float)
    apart = ~(error <= tolerance)
    return taken.assign(loss_error=error, tolerance=tolerance, apart=apart)


def verdict(rows: pandas.DataFrame) -> Agreement:
    """Judge the parity rows of one run in one precision.

    Args:
        rows: rows of one run; other phases are ignored.
    """
    return next(judge_each(steps(rows), ["run_id"]), (None, Agreement(False, "not checked", 0)))[1]


def judge_each(compared: pandas.DataFrame, key: list[str]) -> Iterator[tuple[tuple, Agreement]]:
    """Judge many runs, each in one precision.

    Args:
        compared: lines of `steps`.
        key: columns that identify a run.

    Yields:
        The values of the key, sorted, each with its verdict.
    """
    divided = statistics.group_arrays(
        compared, key, _NUMBERS, ["status", "precision", "settings", "message"]
    )
    for values, lines in sorted(divided, key=lambda pair: pair[0]):
        num_steps = int((~numpy.isnan(lines["step"])).sum())
        broken = numpy.flatnonzero(lines["status"] != "ok")
        if len(broken):
            status, step, message = (
                lines[name][broken[0]] for name in ("status", "step", "message")
            )
            where = "" if numpy.isnan(step) else f" at step {step:.0f}"
            reason = f"{status}{where}" + (f": {message}" if isinstance(message, str) else "")
            yield values, Agreement(False, reason, num_steps)
        else:
            faults = _faults(lines)
            yield (
                values,
                Agreement(not faults, "; ".join(faults) or _worst_errors(lines), num_steps),
            )


_NUMBERS = ["step", "loss", "reference_loss", "same_weights_loss", "loss_error"]
_Lines = Mapping[str, numpy.ndarray]  # of one run, by column


def verdicts(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per machine, study, device, precision and framework version; the worst of
    several runs counts.

    Args:
        rows: measured rows, of one session of each point.

    Returns:
        Columns: machine, study, device, precision, framework, framework_version, model, dataset,
        num_runs, num_steps (the fewest of any run), passed, reason, parted_at (the first step,
        from 1, at which the loss on the own path exceeds the tolerance; missing if none does).
    """
    import pandas

    key = [
        "machine",
        "study",
        "device",
        "precision",
        "framework",
        "framework_version",
        "model",
        "dataset",
    ]
    compared = steps(rows)
    lines = []
    for values, own in compared.groupby(key, dropna=False, sort=True):
        judged = list(judge_each(own, ["run_id"]))
        (run_id,), worst = min(judged, key=lambda pair: pair[1].passed)
        num_steps = min(verdict.num_steps for _, verdict in judged)
        apart = own.loc[own["apart"] & own["run_id"].eq(run_id), "step"].dropna()
        parted_at = int(apart.min()) if len(apart) else None
        lines.append((*values, len(judged), num_steps, worst.passed, worst.reason, parted_at))
    return pandas.DataFrame(
        lines, columns=[*key, "num_runs", "num_steps", "passed", "reason", "parted_at"]
    )


def _faults(lines: _Lines) -> list[str]:
    """Return the errors beyond their tolerance: losses, labels, gradients, and weights after a
    step."""
    import pandas

    first, allowed = lines["settings"][0], TOLERANCES[lines["precision"][0]]
    errors, own = _errors_at_same_weights(lines), lines["loss_error"]
    faults = [
        f"loss off by {errors[place]:.2g} at step {lines['step'][place]:.0f}, from the same weights"
        for place in numpy.flatnonzero(~(errors <= allowed.loss))[:1]
    ]
    if len(own) > 1 and not own[1] <= allowed.loss:
        faults.append(f"loss off by {own[1]:.2g} after one step of its own")
    whole, reference = (number(first, name) for name in ("whole_loss", "whole_reference_loss"))
    if whole is not None and not abs(whole - reference) <= allowed.loss * abs(reference):
        faults.append(f"loss of a whole batch {whole:.4g} instead of {reference:.4g}")
    error = abs(
        pandas.Series(lines["loss"]).mean() / pandas.Series(lines["reference_loss"]).mean() - 1
    )
    if not error <= MEAN_LOSS_ERROR:
        faults.append(f"own path off by {error:.2g} on average")
    if wrong := number(first, "labels_wrong"):
        faults.append(f"{wrong} of {first.get('labels_checked')} labels are not the data set's")
    for place, settings in enumerate(lines["settings"]):
        faults += _step_faults(settings, allowed, LATER_STEP_FACTOR if place else 1)
    return list(dict.fromkeys(faults if WHOLE in first else [*faults, NO_GRADIENT]))


def _step_faults(settings: dict, allowed: Tolerance, times: float) -> Iterator[str]:
    """Yield the errors of a step: gradients beyond `times` their tolerance, weights and
    statistics beyond theirs.

    Older rows have no errors of weights and moving statistics.
    """
    cosines = {WHOLE: allowed.cosine, "worst_cosine": allowed.layer_cosine}
    ratios = {
        "gradient_norm_ratio": allowed.norm_ratio,
        "worst_norm_ratio": allowed.layer_norm_ratio,
    }
    if WHOLE in settings and any(number(settings, name) is None for name in (*cosines, *ratios)):
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
        "whole_update": "step on a whole batch {:.2g} of its length off the reference's",
    }.items():
        error = number(settings, f"{name}_error")
        if error is not None and not error <= getattr(allowed, name):
            yield f"{_layer(settings, name)}: {text.format(error)}"


def number(settings: dict, name: str) -> float | None:
    """Return a number from a row's settings; None if the value is not a number, since settings
    may hold anything."""
    value = settings.get(name)
    return value if isinstance(value, (int, float)) else None


def _layer(settings: dict, name: str) -> str:
    """Return the layer of a figure; a figure of the whole network names none."""
    return str(settings.get(f"{name}_layer", "gradient"))


def _errors_at_same_weights(lines: _Lines) -> numpy.ndarray:
    """Return each step's relative error of the loss; a loss near zero counts as a share of the
    first loss."""
    reference = lines["reference_loss"]
    return abs(lines["same_weights_loss"] - reference) / numpy.maximum(
        abs(reference), LEAST_LOSS * abs(reference[0])
    )


def _worst_errors(lines: _Lines) -> str:
    """Return the worst errors of a comparison that met all tolerances."""
    first = lines["settings"][0]
    off = max(abs(first["worst_norm_ratio"] - 1), abs(first["gradient_norm_ratio"] - 1))
    errors = [
        error
        for settings in lines["settings"]
        if (error := number(settings, "update_error")) is not None
    ]
    loss = numpy.max(_errors_at_same_weights(lines))
    changes = f" and of a change of weights {max(errors):.1g}" if errors else ""
    return f"relative error of the loss at most {loss:.1g}, of a gradient's norm {off:.1g}{changes}"
