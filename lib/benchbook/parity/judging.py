"""What parity rows say: tolerances, the verdict on a run, and the step at which two paths part.

Each step is taken in two ways. On its own path a device goes on from its own weights; rounding alone lets a right
device leave the path of float64 where training is chaotic (MNIST with Adadelta at learning rate 1, 20 steps, 20 seeds:
beyond the tolerance in float32 from 11, in bfloat16 from all). So the strict tolerance is for the loss at the
reference's own weights, step by step, and for the first step of the path; the rest of the path may not run away.
"""

import math
from dataclasses import dataclass

import pandas

from benchbook import statistics


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
    """

    loss: float
    cosine: float
    norm_ratio: float
    layer_cosine: float
    layer_norm_ratio: float
    least_share: float


_SINGLE = Tolerance(1e-3, 0.999, 0.02, 0.999, 0.02, 1e-6)
_TENSOR_FLOAT = Tolerance(1e-2, 0.99, 0.05, 0.95, 0.05, 1e-4)
_HALF = Tolerance(3e-2, 0.98, 0.10, 0.90, 0.05, 1e-3)
TOLERANCES = {"fp32": _SINGLE, "tf32": _TENSOR_FLOAT} | dict.fromkeys(("bf16", "fp16", "amp_bf16", "amp_fp16"), _HALF)
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
class Verdict:
    """Whether a device computes what float64 does.

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
    numbers = {name: [_number(settings.get(name)) for settings in taken["settings"]] for name in names}
    taken = taken.assign(**{name: pandas.Series(values, dtype=float) for name, values in numbers.items()})
    right = taken["reference_loss"]
    error = (taken["loss"].astype(float) - right).abs() / right.abs()
    same = (taken["same_weights_loss"] - right).abs() / right.abs()
    tolerance = taken["precision"].map(lambda precision: tolerance_of(precision).loss, na_action="ignore").astype(float)
    apart = ~(error <= tolerance)
    return taken.assign(loss_error=error, same_weights_error=same, tolerance=tolerance, apart=apart)


def verdict(rows: pandas.DataFrame) -> Verdict:
    """Judge the parity rows of one run in one precision.

    Args:
        rows: rows of one run; those of other phases are passed over.

    Raises:
        ValueError: rows of more than one run or precision.
    """
    return judge(steps(rows))


def judge(compared: pandas.DataFrame) -> Verdict:
    """Judge one run in one precision, as `verdict` does, from its lines of `steps`."""
    kinds = compared[["run_id", "precision"]].drop_duplicates()
    if len(kinds) > 1:
        raise ValueError(f"{len(kinds)} runs or precisions; allowed: 1")
    if compared.empty:
        return Verdict(False, "not checked", 0)
    num_steps = int(compared["step"].notna().sum())
    broken = compared[compared["status"] != "ok"]
    if len(broken):
        line = broken.iloc[0]
        where = f" at step {line['step']:.0f}" if pandas.notna(line["step"]) else ""
        return Verdict(False, f"{line['status']}{where}", num_steps)
    complaints = _complaints(compared)
    return Verdict(not complaints, "; ".join(complaints) or _praise(compared), num_steps)


def verdicts(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per machine, study, device, precision and framework version.

    A point's last session counts; of several runs the worst speaks.

    Returns:
        Columns: machine, study, device, precision, framework, framework_version, model, dataset, num_runs, num_steps
        (the fewest of any run), passed, reason, parted_at (see `first_parting`).
    """
    measured = rows[(rows["source"] == "measured") & (rows["phase"] == "parity")]
    key = ["machine", "study", "device", "precision", "framework", "framework_version", "model", "dataset"]
    lines = []
    for values, group in steps(statistics.newest(measured)).groupby(key, dropna=False, sort=True):
        judged = [(judge(run), _first_apart(run)) for _, run in group.groupby("run_id", sort=True)]
        worst, parted_at = min(judged, key=lambda pair: pair[0].passed)
        fewest = min(verdict.num_steps for verdict, _ in judged)
        line = dict(zip(key, values, strict=True)) | {"num_runs": len(judged), "num_steps": fewest}
        lines.append(line | {"passed": worst.passed, "reason": worst.reason, "parted_at": parted_at})
    return pandas.DataFrame(lines, columns=[*key, "num_runs", "num_steps", "passed", "reason", "parted_at"])


def first_parting(rows: pandas.DataFrame) -> int | None:
    """Return the first step, from 1, where a device's own path is beyond the tolerance of the loss, or None."""
    return _first_apart(steps(rows))


def _first_apart(compared: pandas.DataFrame) -> int | None:
    apart = compared.loc[compared["apart"] & compared["step"].notna(), "step"]
    return int(apart.min()) if len(apart) else None


def _complaints(compared: pandas.DataFrame) -> list[str]:
    """Return what is beyond its tolerance."""
    first, allowed = compared["settings"].iloc[0], tolerance_of(compared["precision"].iloc[0])
    checks = [
        (first.get("gradient_cosine"), allowed.cosine, None, "gradient"),
        (first.get("worst_cosine"), allowed.layer_cosine, None, first.get("worst_cosine_layer")),
        (first.get("gradient_norm_ratio"), None, allowed.norm_ratio, "gradient"),
        (first.get("worst_norm_ratio"), None, allowed.layer_norm_ratio, first.get("worst_norm_ratio_layer")),
    ]
    complaints = _loss_complaints(compared, allowed)
    for value, least, distance, name in checks:
        if value is None:
            complaints.append("no gradient was compared")
        elif least is not None and value < least:
            complaints.append(f"{name}: cosine {value:.4f}, under {least:g}")
        elif distance is not None and abs(value - 1) > distance:
            complaints.append(f"{name}: norm {value:.3f} of the reference's, over {distance:.0%} off")
    return list(dict.fromkeys(complaints))


def _loss_complaints(compared: pandas.DataFrame, allowed: Tolerance) -> list[str]:
    """Return what is wrong with the losses: at the same weights, after one own step, and on the whole own path."""
    lines = compared[["same_weights_error", "step", "loss_error"]].to_dict("records")
    complaints = [
        f"loss off by {line['same_weights_error']:.2g} at step {line['step']:.0f}, from the same weights"
        for line in lines
        if not line["same_weights_error"] <= allowed.loss
    ][:1]
    if len(lines) > 1 and not lines[1]["loss_error"] <= allowed.loss:
        complaints.append(f"loss off by {lines[1]['loss_error']:.2g} after one step of its own")
    drift = abs(compared["loss"].astype(float).mean() / compared["reference_loss"].mean() - 1)
    return complaints if drift <= PATH else [*complaints, f"own path off by {drift:.2g} on average"]


def _praise(compared: pandas.DataFrame) -> str:
    """Return the worst figures of a comparison that kept all tolerances."""
    first = compared["settings"].iloc[0]
    off = max(abs(first["worst_norm_ratio"] - 1), abs(first["gradient_norm_ratio"] - 1))
    return (
        f"loss off by at most {compared['same_weights_error'].max():.1g}, a layer's gradient by {off:.1g} of its norm"
    )


def _number(value) -> float:
    return math.nan if value is None else float(value)
