"""The headline table: time and energy of training on each machine. And the frameworks of one chip compared.

PyTorch calls Apple's GPU mps, TensorFlow and MLX call it metal: it is one chip. Architecture, padding, constants and
optimiser are the same in every framework of a study, so ratios between frameworks are fair.
"""

from collections.abc import Mapping

import numpy
import pandas

from benchbook.judging import confirmation, intervals, statistics, verdicts
from benchbook.judging.intervals import Interval
from benchbook.record import articles
from benchbook.rows import records
from benchbook.studies.study import Evidence, Study, most_samples

COLUMNS = ["machine", "chip", "source", "study", "variant", "device", "device_count", "dataset", "images_per_second"]
COLUMNS += ["low", "high", "image_size", "interval", "num_windows", "verdict", "seconds_per_epoch", "joules_per_image"]
COLUMNS += ["energy_boundary", "status"]
LINE = ["machine", "study", "variant", "device", "source"]
OWN = ["image_size", "batch_size", "framework"]  # the columns of a study's own setting
# Parameters that must be equal in two points with the same work; a parameter that a study lacks is equal.
SAME = ("precision", "data_resident", "trainable", "weights", "learning_rate", "width", "device_count")
ALIKE = ["machine", "study", "view", "processor", "dataset", "batch_size", "image_size", *SAME]
FREE = ["precision", "data_resident"]  # tuned points may differ in these, because a search chooses them
FRAMEWORK_COLUMNS = ["machine", "study", "variant", "processor", "framework", "framework_version", "device"]
FRAMEWORK_COLUMNS += ["precision", "dataset", "batch_size", "image_size", *SAME[1:], "images_per_second", "ratio"]
FRAMEWORK_COLUMNS += ["low", "high", "interval", "verdict"]
READ = ["machine", "study", "variant", "device", "framework", "framework_version", "dataset", "batch_size"]
READ += ["image_size", "settings", "samples_per_second", "low", "high", "interval", "num_samples", "verdict"]
READ += ["session"]
NUMBERS = ["images_per_second", "low", "high", "seconds_per_epoch", "joules_per_image"]


def table(evidence: Evidence, studies: Mapping[str, Study]) -> pandas.DataFrame:
    """Return one line per machine, study, variant and device; measured lines are first.

    If there are several points, a line shows the first in this ranking:
    1. points that trained before points that failed;
    2. the study's own setting (the batch size, framework and image size of most of its published rows);
    3. the study's own data set;
    4. points that are not unproven, then points that are not unstable;
    5. the fastest measured point, or the first published one.
    A published machine has a line if a rate or a time of training was printed; its bounds are the rounding.

    An epoch has as many images as the article's; without a published number, epochs have no time. An epoch's time
    includes what the article timed: set-up and test for MNIST, the nearest-neighbour evaluation at the article's batch
    size for SimCLR; training alone for other studies. A published epoch includes what its article counted.

    Args:
        evidence: measured and published rows of all studies.
        studies: the studies of the table, by name.

    Returns:
        Columns: COLUMNS and of. source is measured or published; energy_boundary belongs to joules_per_image; of is a
        dictionary, the line of the summary or the published row that the line shows.
    """
    own = _own_settings(evidence.rows)
    own = own[own.index.isin(list(studies))]
    seconds = epoch_seconds(evidence, studies)
    points = evidence.summary.to_dict("records")
    keyed = ((tuple(point[name] for name in statistics.POINT_KEY), point) for point in points)
    measured = [_point(point, seconds[key]) for key, point in keyed if key in seconds]
    published = evidence.published
    printed = published[published["source"].eq("published") & published["study"].isin(own.index)]
    lines = pandas.DataFrame(
        [*measured, *map(_printed, printed.to_dict("records"))], columns=[*COLUMNS, *OWN[1:], "of"]
    )
    has_speed = lines[["images_per_second", "seconds_per_epoch"]].notna().any(axis=1)
    lines = lines[lines["source"].eq("measured") | has_speed]
    lines = lines.astype(dict.fromkeys(NUMBERS, float))
    best = _rank(lines, own).drop_duplicates(LINE)
    return best.sort_values(["source", "study", "machine", "variant", "device"], ignore_index=True)[[*COLUMNS, "of"]]


def _own_settings(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return each study's own setting and data set: the values of most of its published rows."""
    printed = rows[rows["source"] == "published"]
    columns = [*OWN, "dataset", "dataset_samples"]
    return printed.groupby("study")[columns].agg(lambda values: next(iter(values.dropna().mode()), None))


def _rank(lines: pandas.DataFrame, own: pandas.DataFrame) -> pandas.DataFrame:
    """Return the lines sorted by the ranking of `table`."""
    theirs = own[[*OWN, "dataset"]].reindex(lines["study"]).set_axis(lines.index)
    same = pandas.DataFrame({name: (lines[name] == theirs[name]) | theirs[name].isna() for name in theirs})
    keys = {
        "failed": ~lines["status"].isin(records.TRAINED),
        "other_setting": ~same[OWN].fillna(False).astype(bool).all(axis=1),
        "other_data": ~same["dataset"].fillna(False).astype(bool),
        "unproven": lines["verdict"].map(verdicts.is_unproven),
        "unstable": lines["verdict"].map(verdicts.is_unstable),
        "slowness": -lines["images_per_second"].where(lines["source"] == "measured", 0),
    }
    ranked = lines.assign(**keys).sort_values(list(keys), kind="stable", na_position="last")
    return ranked.drop(columns=list(keys))


def epoch_seconds(evidence: Evidence, studies: Mapping[str, Study]) -> dict[tuple[str, str, str], float]:
    """Return the seconds of an epoch for each measured point of these studies; `table` says what an epoch includes.

    Keys are values of `statistics.POINT_KEY`; the time is NaN if the study's article has no epoch.
    """
    images = _own_settings(evidence.rows)["dataset_samples"]
    images = images[images.index.isin(list(studies))]
    timed = {name: studies[name].epoch_seconds(evidence) for name in images.index if studies[name].epoch_seconds}
    seconds = {}
    for point in evidence.summary[evidence.summary["study"].isin(images.index)].to_dict("records"):
        study, count = point["study"], images[point["study"]]
        own = count / point["samples_per_second"] if pandas.notna(count) else numpy.nan
        own = timed[study].get((point["machine"], point["point"]), numpy.nan) if study in timed else own
        seconds[tuple(point[name] for name in statistics.POINT_KEY)] = own
    return seconds


def _point(point: dict, epoch_seconds: float) -> dict:
    trained = point["status"] in records.TRAINED
    rate = point["samples_per_second"] if trained else numpy.nan
    kept = ("machine", "chip", "study", "variant", "device", "device_count", "dataset")
    kept += ("interval", "num_windows", "verdict", "status")
    return {
        **{name: point[name] for name in (*kept, *OWN)},
        **{name: point[name] if trained else numpy.nan for name in ("low", "high")},
        "source": "measured",
        "images_per_second": rate,
        "seconds_per_epoch": epoch_seconds if trained else numpy.nan,
        "joules_per_image": point["energy_per_sample"] if trained else numpy.nan,
        "energy_boundary": point["energy_boundary"] if trained else None,
        "of": point,
    }


def _printed(row: dict) -> dict:
    """Return the line of a published row: a training rate, a training time, or a total time that includes epochs."""
    kept = ("machine", "chip", "source", "study", "variant", "device", "device_count", "dataset", "status", *OWN)
    line = {name: row[name] for name in kept} | {"of": row}
    if row["phase"] == "train" and pandas.notna(row["samples_per_second"]):
        low, high = articles.bounds(row, "samples_per_second")
        line |= {"images_per_second": row["samples_per_second"], "low": low, "high": high}
    elif row["phase"] == "train" and pandas.notna(row["seconds"]) and pandas.notna(row["samples"]):
        low, high = articles.bounds(row, "seconds")
        rates = {"images_per_second": row["seconds"], "low": high, "high": low}
        line |= {name: row["samples"] / seconds for name, seconds in rates.items()}
    elif row["phase"] == "total" and pandas.notna(row["seconds"]):
        epochs = row["settings"].get("epochs", row["epoch"])
        line |= {"seconds_per_epoch": row["seconds"] / epochs if pandas.notna(epochs) else numpy.nan}
    if "images_per_second" in line and pandas.notna(row["dataset_samples"]):
        line |= {"seconds_per_epoch": row["dataset_samples"] / line["images_per_second"]}
    return line


def frameworks(evidence: Evidence) -> pandas.DataFrame:
    """Return a line for each framework, if several frameworks trained the same work on the same chip.

    Reference and controlled points are compared at the same precision; of tuned points, the best of each framework is
    compared. Wrong and failed points are left out.

    Returns:
        Columns FRAMEWORK_COLUMNS, the fastest framework of each work first. processor is CPU or accelerator; ratio is
        the rate divided by that of the fastest framework, with low, high and interval (the fastest has 1, without
        bounds).
    """
    points = evidence.summary
    points = points[(points["status"] == "ok") & points["samples_per_second"].notna()]
    kept = dict.fromkeys(name for name in (*READ, *SAME) if name in points)
    points = points[list(kept)]  # grouping a table of few columns is much faster
    stated = {name: [settings.get(name) for settings in points["settings"]] for name in SAME if name not in points}
    points = points.assign(
        **stated,
        processor=["CPU" if kind == "cpu" else "accelerator" for kind in points["device"]],
        view=points["variant"].where(~points["variant"].isin(confirmation.TUNED_NAMES), confirmation.TUNED),
    )
    is_tuned = points["view"] == confirmation.TUNED
    agreeing = [f"same_{name}" if name in FREE else name for name in ALIKE]
    points = points.assign(**{f"same_{name}": points[name].mask(is_tuned) for name in FREE})
    points = most_samples(points, [*agreeing, "framework"])
    several = points.groupby(agreeing, dropna=False)["framework"].transform("nunique") > 1
    divided = points[several].groupby(agreeing, dropna=False, sort=True)
    lines = [line for _, group in divided for line in _compared(group)]
    return pandas.DataFrame(lines, columns=FRAMEWORK_COLUMNS)


def _compared(group: pandas.DataFrame) -> list[dict]:
    """Return the lines of one work, with each rate divided by the fastest."""
    first, *others = group.sort_values("samples_per_second", ascending=False).to_dict("records")
    lines = [first | {"ratio": 1.0, "low": None, "high": None, "interval": None}]
    for line in others:
        ratio = intervals.divide(*(Interval.from_row(each, "samples_per_second") for each in (line, first)))
        lines.append(line | {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "interval": ratio.kind})
    return [line | {"images_per_second": line["samples_per_second"]} for line in lines]
