"""Frameworks side by side on one chip: the same network, data and batch, trained by each that was measured there.

Apple's GPU is reached by torch as mps, by TensorFlow and by MLX as metal: it is one chip. Architecture, padding,
constants and optimiser are the same in every framework of a study, which is what makes these ratios fair.
"""

import pandas

from benchbook.judging import confirmation, intervals
from benchbook.judging.intervals import Interval
from benchbook.studies.study import Evidence, longest

# Parameters in which two points must agree to be the same work; those that a study lacks are alike.
SAME = ("precision", "data_resident", "trainable", "weights", "learning_rate", "width", "device_count")
ALIKE = ["machine", "study", "view", "processor", "dataset", "batch_size", "image_size", *SAME]
FREE = ["precision", "data_resident"]  # what a search may choose, so that tuned points need not agree in it
COLUMNS = ["machine", "study", "variant", "processor", "framework", "framework_version", "device", "precision"]
COLUMNS += ["dataset", "batch_size", "image_size", *SAME[1:], "images_per_second", "ratio", "low", "high", "interval"]
COLUMNS += ["verdict"]
READ = ["machine", "study", "variant", "device", "framework", "framework_version", "dataset", "batch_size"]
READ += ["image_size", "settings", "samples_per_second", "low", "high", "interval", "num_samples", "verdict"]


def table(evidence: Evidence) -> pandas.DataFrame:
    """Return a line for each framework that trained the same work on the same chip as another one did.

    Reference and controlled points are compared at the same precision, tuned ones as the best of each framework. Wrong
    and failed points are left out.

    Returns:
        Columns COLUMNS, the fastest of a work first: processor is CPU or accelerator, ratio the rate over that of the
        fastest framework with its bounds and their kind (of the fastest itself 1, without bounds).
    """
    points = evidence.summary
    points = points[(points["status"] == "ok") & points["samples_per_second"].notna()]  # a wrong one is not ok
    kept = dict.fromkeys(name for name in (*READ, *SAME) if name in points)
    points = points[list(kept)]  # a table of few columns is divided much faster
    stated = {name: [settings.get(name) for settings in points["settings"]] for name in SAME if name not in points}
    points = points.assign(
        **stated,
        processor=["CPU" if kind == "cpu" else "accelerator" for kind in points["device"]],
        view=points["variant"].where(~points["variant"].isin(confirmation.TUNED_NAMES), confirmation.TUNED),
    )
    is_tuned = points["view"] == confirmation.TUNED
    agreeing = [f"same_{name}" if name in FREE else name for name in ALIKE]
    points = points.assign(**{f"same_{name}": points[name].mask(is_tuned) for name in FREE})
    points = longest(points, [*agreeing, "framework"])
    several = points.groupby(agreeing, dropna=False)["framework"].transform("nunique") > 1
    divided = points[several].groupby(agreeing, dropna=False, sort=True)
    lines = [line for _, group in divided for line in _compared(group)]
    return pandas.DataFrame(lines, columns=COLUMNS)


def _compared(group: pandas.DataFrame) -> list[dict]:
    """Return the lines of one work, each rate over the fastest."""
    first, *others = group.sort_values("samples_per_second", ascending=False).to_dict("records")
    lines = [first | {"ratio": 1.0, "low": None, "high": None, "interval": None}]
    for line in others:
        ratio = intervals.divide(Interval.of(line, "samples_per_second"), Interval.of(first, "samples_per_second"))
        lines.append(line | {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "interval": ratio.kind})
    return [line | {"images_per_second": line["samples_per_second"]} for line in lines]
