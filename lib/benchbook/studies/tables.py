"""What the tables of several studies are made with: settings as columns, ratios of two points, curves over runs."""

import pandas

from benchbook.judging import intervals, verdicts
from benchbook.judging.intervals import Interval
from benchbook.record import articles
from benchbook.studies.study import longest


def with_settings(rows: pandas.DataFrame, names: list[str]) -> pandas.DataFrame:
    """Return rows, or lines of a summary, with these settings as columns; None where a line lacks one."""
    return rows.assign(**{name: [settings.get(name) for settings in rows["settings"]] for name in names})


def with_bounds(printed: pandas.DataFrame, column: str) -> pandas.DataFrame:
    """Return published rows with low and high: the rounding of a printed figure."""
    known = printed[printed[column].notna()].to_dict("records")
    bounds = pandas.DataFrame([articles.bounds(row, column) for row in known], printed.index[printed[column].notna()])
    return printed.assign(**bounds.reindex(columns=[0, 1]).set_axis(["low", "high"], axis=1).astype(float))


def beside_printed(
    measured: pandas.DataFrame, printed: pandas.DataFrame, columns: list[str], alike: list[str]
) -> pandas.DataFrame:
    """Return measured points with the published rows next to them; of points that are alike the longest counts.

    Args:
        measured: lines of a summary.
        printed: published rows.
        columns: of the table; what a line lacks is missing.
        alike: columns in which points have to differ to be kept, see `study.longest`.
    """
    lines = [*printed.to_dict("records"), *measured.assign(source="measured").to_dict("records")]
    table = pandas.DataFrame(lines, columns=list(dict.fromkeys([*columns, "num_samples"])))
    return longest(table, alike)[columns].reset_index(drop=True)


def ratio(line: dict, base: dict, column: str, combine=intervals.divide) -> dict:
    """Return how a figure of one line compares with that of another.

    Args:
        line, base: with the column, its low, high and interval, num_windows and verdict.
        column: of the figures.
        combine: how, such as `intervals.divide`.

    Returns:
        ratio, low, high, interval (its kind), num_windows (the smaller number), verdict (the worse one).
    """
    value = combine(Interval.from_row(line, column), Interval.from_row(base, column))
    return {
        "ratio": value.value,
        "low": value.low,
        "high": value.high,
        "interval": value.kind,
        "num_windows": min(line["num_windows"], base["num_windows"]),
        "verdict": verdicts.worse(line["verdict"], base["verdict"]),
    }


def over_runs(rows: pandas.DataFrame, key: list[str], measure: str, **further: tuple) -> pandas.DataFrame:
    """Return the median of a measure over runs, at each place of each curve.

    Args:
        rows: with the columns of the key, run_id and the measure.
        key: what names a curve, and the place on it.
        measure: such as loss.
        further: aggregations by column name, as `DataFrameGroupBy.agg` takes them.

    Returns:
        Columns: the key, the measure, low and high (least and most of the runs), those of `further`, num_runs.
    """
    measures = {measure: (measure, "median"), "low": (measure, "min"), "high": (measure, "max")}
    runs = rows.groupby(key, dropna=False, sort=True)
    return runs.agg(**measures, **further, num_runs=("run_id", "nunique")).reset_index()


def middles(windows: pandas.DataFrame, key: list[str]) -> pandas.Series:
    """Return how many images were seen at the middle of each window.

    Args:
        windows: in the order measured, with samples.
        key: whose windows follow each other, such as those of a run.
    """
    return (windows.groupby(key)["samples"].cumsum() - windows["samples"] / 2).astype(float)


def worst(statuses: pandas.Series) -> str:
    """Return how windows at one place of a curve ended: diverged if one of them did."""
    return "diverged" if (statuses == "diverged").any() else "ok"
