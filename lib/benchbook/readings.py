"""What a notebook says of its own run, in sentences with the numbers of its rows."""

import pandas

from benchbook import confirmation, energy, findings, statistics, world
from benchbook.study import Drawing, Evidence, Study


def training(rows: pandas.DataFrame) -> str:
    """Return how fast a run trained, how long it waited for input, how well it ended and what energy it took.

    Args:
        rows: of one run.
    """
    point = statistics.summarise(rows).iloc[0]
    named = [confirmation.name(point), *(point[name] for name in ("framework", "device", "precision", "dataset"))]
    run = f"This run ({', '.join(word for word in named if pandas.notna(word))})"
    if not point["num_windows"]:
        return f"{run} measured no window: {point['status'].replace('_', ' ')}."
    rate = f"{point['samples_per_second']:,.4g} images a second over {point['num_windows']} windows"
    waited = point["input_share_waited"]
    waiting = f" and waited for input in {waited:.1%} of the time" if pandas.notna(waited) else ""
    accuracy = f"; test accuracy {point['accuracy']:.1%}" if pandas.notna(point["accuracy"]) else ""
    spread = f"(MAD {point['spread']:.1%})"
    return f"{run} trained on a median of {rate} {spread}{waiting}{accuracy}. {energy.sentence(point)}."


def closing(evidence: Evidence, study: Study) -> tuple[str, Drawing]:
    """Return what a notebook ends with: what its study says of this machine, and the machine among others.

    Args:
        evidence: what this machine measured, beside what was printed.
        study: the notebook's.
    """
    return findings.finding(study, evidence), world.draw(evidence, study)
