"""The headline table: the rate and the time of an epoch on each machine."""

from collections.abc import Mapping

import numpy
import pandas

from benchbook.judging import statistics, verdicts
from benchbook.record import articles
from benchbook.rows import records
from benchbook.studies.study import Evidence, Study

COLUMNS = ["machine", "chip", "source", "study", "variant", "device", "device_count", "dataset", "images_per_second"]
COLUMNS += ["low", "high", "image_size", "interval", "num_windows", "verdict", "seconds_per_epoch", "status"]
LINE = ["machine", "study", "variant", "device", "source"]
OWN = ["image_size", "batch_size", "framework"]  # the columns of a study's own setting
NUMBERS = ["images_per_second", "low", "high", "seconds_per_epoch"]


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
        Columns: COLUMNS and of. source is measured or published; of is a
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
