"""Parts of the tables of several studies: settings as columns, ratios of two points, curves over
runs."""

from typing import Any

import pandas

from benchbook.judging import intervals, statistics, verdicts
from benchbook.judging.intervals import Interval
from benchbook.record import articles, prices
from benchbook.studies.results.evidence import Evidence

MEASURED = [
    "low",
    "high",
    "interval",
    "num_windows",
    "verdict",
]  # columns next to each measured value

PUBLISHED, PREDICTED = "published", "predicted"  # kinds of bounds, next to those of `intervals`


def is_measured(line: dict) -> bool:
    """Return whether a table's line was measured; a line without a source was."""
    source = line.get("source")
    return source == "measured" or pandas.isna(source)


def are_measured(table: pandas.DataFrame) -> pandas.Series:
    """Return whether each line of a table was measured, see `is_measured`."""
    return pandas.Series(map(is_measured, table.to_dict("records")), table.index, dtype=bool)


def machines_of(lines: pandas.DataFrame) -> pandas.Series:
    """Return the machine of each line, by its place; several for a line of like machines, see
    `plots.pooled`."""
    return (
        lines.get("pooled", lines["machine"])
        .astype(object)
        .fillna(lines["machine"].astype(object))
        .explode()
    )


def bounds_kind(line: dict) -> str:
    """Return the kind of a line's bounds, an interval, a range, PUBLISHED or PREDICTED."""
    if not is_measured(line):
        return PREDICTED if line["source"] == PREDICTED else PUBLISHED
    return intervals.INTERVAL if line.get("interval") == intervals.INTERVAL else intervals.RANGE


def with_bounds(printed: pandas.DataFrame, column: str) -> pandas.DataFrame:
    """Return published rows with low and high, the bounds of a printed figure's rounding."""
    known = printed[printed[column].notna()].to_dict("records")
    bounds = pandas.DataFrame(
        [articles.bounds(row, column) for row in known], printed.index[printed[column].notna()]
    )
    return printed.assign(
        **bounds.reindex(columns=[0, 1]).set_axis(["low", "high"], axis=1).astype(float)
    )


def with_printed(
    measured: pandas.DataFrame, printed: pandas.DataFrame, columns: list[str], alike: list[str]
) -> pandas.DataFrame:
    """Return one table of published rows and measured points, one of each group of points; see
    `statistics.speaking`.

    Args:
        measured: lines of a summary.
        printed: published rows.
        columns: of the table; a value is missing where a line lacks the column.
        alike: columns in which points of one group agree.
    """
    lines = [*printed.to_dict("records"), *measured.assign(source="measured").to_dict("records")]
    table = pandas.DataFrame(
        lines, columns=list(dict.fromkeys([*columns, "interval", "started_at"]))
    )
    return statistics.speaking(table, alike)[columns].reset_index(drop=True)


def ratio(line: dict, base: dict, column: str) -> dict:
    """Return the ratio of a measured value of one line to that of another.

    Args:
        line, base: with the column and those of MEASURED.
        column: of the values.

    Returns:
        ratio, low, high, interval (the kind of bounds), num_windows (the smaller number),
        verdict (the worse one).
    """
    value = intervals.divide(Interval.from_row(line, column), Interval.from_row(base, column))
    return value.columns("ratio") | {
        "num_windows": min(line["num_windows"], base["num_windows"]),
        "verdict": verdicts.worse(line["verdict"], base["verdict"]),
    }


def inverse(lines: pandas.DataFrame | dict, column: str, name: str, work: Any = 1.0) -> dict:
    """Return what so much work takes at rates with bounds, or the rates from what it takes.

    Args:
        lines: a table or a line of it, with the column, low and high.
        column: of the values.
        name: of the result.
        work: as much for all lines, or each line's own.

    Returns:
        By name: the result, low and high; the bounds have changed places.
    """
    ends = {name: column, "low": "high", "high": "low"}
    return {end: work / lines[other] for end, other in ends.items()}


def over_runs(rows: pandas.DataFrame, key: list[str], measure: str) -> pandas.DataFrame:
    """Return the median of a measure over runs, at each place of each curve.

    Args:
        rows: with the columns of the key, run_id, the measure, and optionally status.
        key: columns that identify a curve and the place on it.
        measure: such as loss.

    Returns:
        Columns: the key, the measure, low and high (minimum and maximum over runs), status
        (diverged if one of the runs diverged), num_runs.
    """
    measures = {measure: (measure, "median"), "low": (measure, "min"), "high": (measure, "max")}
    if "status" in rows:
        measures["status"] = (
            "status",
            lambda statuses: "diverged" if (statuses == "diverged").any() else "ok",
        )
    runs = rows.groupby(key, dropna=False, sort=True)
    return runs.agg(**measures, num_runs=("run_id", "nunique")).reset_index()


def images_seen(windows: pandas.DataFrame, key: list[str]) -> pandas.Series:
    """Return the number of images seen by the middle of each window.

    Args:
        windows: with samples, in the order in which they were measured.
        key: columns that identify a sequence of windows, such as a run.
    """
    return (windows.groupby(key)["samples"].cumsum() - windows["samples"] / 2).astype(float)


def evaluations(evidence: Evidence, study: str, measure: str) -> list[dict]:
    """Return the evaluations that have a measure, with the steps, hours, joules and dollars of
    training before each.

    A sum over training windows is missing if a window lacks the value. Dollars are hours at the
    price that the run states, else at the machine's on-demand price.
    """
    newest, rows, listed = evidence.counting(study), [], prices.on_demand(evidence.prices)
    tested = newest.loc[newest["phase"].eq("evaluate") & newest[measure].notna(), "run_id"]
    newest = newest[newest["run_id"].isin(tested)]
    for (_, _, machine), run in newest.groupby(["run_id", "repeat", "machine"], sort=True):
        trains = run["phase"].eq("train") & run["seconds"].notna()
        sums = (
            run[["seconds", "energy_joules", "steps"]]
            .astype(float)
            .where(trains, 0)
            .cumsum(skipna=False)
        )
        per_hour = prices.price_of_hour(
            machine, run["settings"].iloc[0].get("price_per_hour"), listed
        )
        hours = sums["seconds"] / 3600
        spent = {
            "steps": sums["steps"],
            "hours": hours,
            "joules": sums["energy_joules"],
            "dollars": hours * per_hour,
        }
        rows += run.assign(**spent)[run["phase"].eq("evaluate") & run[measure].notna()].to_dict(
            "records"
        )
    return rows


def to_target(
    curves: pandas.DataFrame, measure: str, ends: list[str], *, least: bool = False
) -> pandas.DataFrame:
    """Return when each run first met its target; missing for a run that did not, because curves
    are not extrapolated.

    Args:
        curves: with run_id, repeat, target, the measure and the columns of `ends`.
        measure: compared with the target; its best value becomes a column, such as best_loss.
        ends: columns of the effort so far, such as steps and minutes; the first one orders the
        curve.
        least: whether less is better.
    """
    run = ["run_id", "repeat"]
    best = curves.groupby(run)[measure].agg("min" if least else "max").rename(f"best_{measure}")
    met = curves[
        curves[measure] <= curves["target"] if least else curves[measure] >= curves["target"]
    ]
    met = met.sort_values(ends[0]).drop_duplicates(run).set_index(run)[ends]
    runs = (
        curves.drop(columns=[measure, *ends])
        .drop_duplicates(run)
        .sort_values(run, ignore_index=True)
    )
    return runs.join(best, on=run).join(met, on=run)
