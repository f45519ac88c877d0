"""Take a workload's own steps beside float64 on the CPU, and write a row for each."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import pandas

from benchbook.frameworks.plain import Plain
from benchbook.frameworks.workload import ParitySubject, ParityWorkload, Workload
from benchbook.judging.parity import Verdict, tolerance_of, verdict
from benchbook.machine.libraries import FRAMEWORKS
from benchbook.measuring import runs
from benchbook.measuring.parity import reference
from benchbook.measuring.parity.nearness import compare, finite, statistics_error, update_error
from benchbook.measuring.parity.reference import Start, Step
from benchbook.measuring.runs import Run
from benchbook.rows import records

FEWEST_UPDATES = 3  # steps of the optimiser: a missing momentum shows in the second
DIFFERENTIATED = 3  # steps whose gradients are compared


def check(
    workload: Workload | ParityWorkload,
    record: Run,
    num_steps: int = 20,
    precision: str = "",
    kept: Path | None = None,
) -> Verdict:
    """Compare a workload's own training with float64 from its present weights, which stay as they are.

    Args:
        workload: what is to be trained.
        record: the run that takes the rows.
        num_steps: steps to compare; 0 compares nothing.
        precision: a key of `TOLERANCES`; empty is the workload's own.
        kept: a folder that keeps the reference's path, for other checks from the same weights.

    Returns:
        What the rows say.
    """
    record.describe(**workload.description())
    return verdict(measure(workload, record, num_steps, precision or workload.description()["precision"], kept))


def measure(
    workload: ParityWorkload, record: Run, num_steps: int, precision: str, kept: Path | None = None
) -> pandas.DataFrame:
    """Take the workload's own steps and those of the reference, and append a row for each.

    The step is the one that is timed: scaler, compiler, optimiser and the loader's batches, cut to few images. It is
    taken from the reference's weights each time, so that loss, gradients and moving statistics can be held to a strict
    tolerance; the optimiser goes on, and its updates are held against a plain one that is given the same gradients. At
    least FEWEST_UPDATES are looked at: where fewer steps were asked for, the reference's come again.

    Args:
        workload: what is to be trained.
        record: the run that takes the rows.
        num_steps: steps of the reference; 0 compares nothing.
        precision: a key of `TOLERANCES`.
        kept: see `check`.

    Returns:
        The rows. `loss` is the workload's on its own path; settings hold step, reference_loss, same_weights_loss (the
        workload's at the reference's weights), update_error, statistics_error and, in the first rows, what `compare`
        returns; a row holds the worst of what was repeated. The first holds labels_checked and labels_wrong. A
        number that is not finite ends the comparison in a row of status `diverged`, and an operation that the device
        lacks in one of status `unsupported`.

    Raises:
        ValueError: an unknown precision, or a negative number of steps.
    """
    tolerance_of(precision)
    if num_steps < 0:
        raise ValueError(f"num_steps {num_steps}; allowed: 0 or more")
    first = len(records.read(record.path)) if record.path.exists() else 0
    with record.during("parity"):
        try:
            if num_steps:
                with workload.compared(precision) as subject:
                    framework = workload.device.framework
                    framework = FRAMEWORKS[framework].reference or framework
                    _compare(subject, framework, record, precision, num_steps, kept)
        except NotImplementedError as error:
            record.append(precision=precision, status="unsupported", message=runs.anonymous(str(error))[:2000])
    rows = records.read(record.path) if record.path.exists() else pandas.DataFrame(columns=records.COLUMNS)
    return rows.iloc[first:]


def _compare(
    subject: ParitySubject, framework: str, record: Run, precision: str, num_steps: int, kept: Path | None
) -> None:
    plain = subject.plain
    whole = subject.batches(num_steps)
    labels = _count_labels(subject, plain, whole)
    batches = [_cut(plain, batch, place) for place, batch in enumerate(whole)]
    hosted = [subject.to_host(batch) for batch in batches]
    path = reference.follow(Start.of(framework, plain, subject.weights(), subject.statistics(), hosted), kept)
    own_losses = _own_path(subject, path(0).weights, batches) if num_steps > 1 else []
    subject.restart()
    optimizer, least_share, lines = plain.make_optimizer(), plain.coarser * tolerance_of(precision).least_share, []
    for number in range(max(num_steps, FEWEST_UPDATES)):
        place = number % num_steps
        line = _step(subject, optimizer, batches[place], path(place), number < DIFFERENTIATED, least_share)
        if number >= num_steps:
            lines[place] = _worse(lines[place], line)
            continue
        loss = own_losses[number] if own_losses else line["same_weights_loss"]
        lines.append(line | {"step": number + 1, "loss": loss} | (labels if number == 0 else {}))
        if num_steps >= FEWEST_UPDATES:
            _append(record, precision, lines[-1], len(batches[place][0]))
        if not _is_finite(lines[-1]):
            break
    for line, batch in zip(lines, batches, strict=False) if num_steps < FEWEST_UPDATES else ():
        _append(record, precision, line, len(batch[0]))


def _step(
    subject: ParitySubject, optimizer, batch: tuple, right: Step, differentiated: bool, least_share: float
) -> dict:
    """Take a step from the reference's weights, and return how near it comes."""
    subject.load(right.weights, right.statistics)
    start, passed = subject.weights(), subject.num_passed
    loss, gradients = subject.step(batch)
    trained = {name: gradients[name] for name in right.gradients if name in gradients}
    error, layer = update_error(subject, optimizer, start, subject.weights(), trained, passed)
    line = {"reference_loss": finite(right.loss), "same_weights_loss": finite(loss), "update_error": finite(error)}
    line |= {"update_layer": layer}
    statistics, buffer = statistics_error(subject.statistics(), right.next_statistics, right.statistics)
    line |= {"statistics_error": finite(statistics), "statistics_layer": buffer} if buffer else {}
    return line | (compare(trained, right.gradients, least_share) if differentiated else {})


def _own_path(subject: ParitySubject, weights: dict, batches: Sequence[tuple]) -> list[float]:
    """Return the losses of the workload's own steps, one after the other."""
    subject.restart()
    subject.load(weights, {})
    return [subject.step(batch, differentiated=False)[0] for batch in batches]


def _cut(plain: Plain, batch: tuple, place: int) -> tuple:
    """Return the first images of a batch, with noise where the study injects it."""
    cut = tuple(part[: plain.batch_size] for part in batch)
    return plain.noise(cut, place) if plain.noise else cut


def _count_labels(subject: ParitySubject, plain: Plain, batches: Sequence[tuple]) -> dict[str, int]:
    """Return how many labels of the loader's batches were looked up in the data set, and how many are not its own."""
    if plain.labels is None:
        return {"labels_checked": 0, "labels_wrong": 0}
    fits = numpy.concatenate([plain.labels(subject.to_host(batch), place) for place, batch in enumerate(batches)])
    return {"labels_checked": len(fits), "labels_wrong": int((~fits).sum())}


def _worse(line: dict, again: dict) -> dict:
    """Return what was compared twice, each figure the worse of both."""
    farther: dict[str, Callable[[float], float]] = {
        "update_error": float,
        "statistics_error": float,
        "gradient_cosine": lambda value: -value,
        "worst_cosine": lambda value: -value,
        "gradient_norm_ratio": lambda value: abs(value - 1),
        "worst_norm_ratio": lambda value: abs(value - 1),
        "same_weights_loss": lambda value: abs(value - line["reference_loss"]),
    }
    names = {"update_error": "update_layer", "statistics_error": "statistics_layer"}
    names |= {name: f"{name}_layer" for name in ("worst_cosine", "worst_norm_ratio")}
    worse = dict(line)
    for name, distance in farther.items():
        if name not in again or line.get(name) is None:
            continue
        if again[name] is None or distance(again[name]) > distance(line[name]):
            worse |= {key: again[key] for key in (name, names.get(name, name))}
    return worse


def _is_finite(line: dict) -> bool:
    return None not in line.values() and math.isfinite(line["loss"])


def _append(record: Run, precision: str, line: dict, samples: int) -> None:
    settings = record.settings_with(**{name: value for name, value in line.items() if name != "loss"})
    status = "ok" if _is_finite(line) else "diverged"
    record.append(precision=precision, samples=samples, loss=line["loss"], settings=settings, status=status)
