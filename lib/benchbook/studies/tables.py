"""What the tables of several studies are made with: settings as columns, ratios of two points, curves over runs."""

import pandas

from benchbook.judging import intervals, verdicts
from benchbook.judging.intervals import Interval
from benchbook.record import articles, estimate
from benchbook.studies.study import Evidence, longest

MEASURED = ["low", "high", "interval", "num_windows", "verdict"]  # columns of a figure that was measured


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


def ratio(line: dict, base: dict, column: str) -> dict:
    """Return how a figure of one line compares with that of another.

    Args:
        line, base: with the column, its low, high and interval, num_windows and verdict.
        column: of the figures.

    Returns:
        ratio, low, high, interval (its kind), num_windows (the smaller number), verdict (the worse one).
    """
    value = intervals.divide(Interval.from_row(line, column), Interval.from_row(base, column))
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
        rows: with the columns of the key, run_id and the measure, and status where that counts.
        key: what names a curve, and the place on it.
        measure: such as loss.
        further: aggregations by column name, as `DataFrameGroupBy.agg` takes them.

    Returns:
        Columns: the key, the measure, low and high (least and most of the runs), those of `further`, status (diverged
        if one of the runs did), num_runs.
    """
    measures = {measure: (measure, "median"), "low": (measure, "min"), "high": (measure, "max")}
    if "status" in rows:
        further["status"] = "status", lambda statuses: "diverged" if (statuses == "diverged").any() else "ok"
    runs = rows.groupby(key, dropna=False, sort=True)
    return runs.agg(**measures, **further, num_runs=("run_id", "nunique")).reset_index()


def middles(windows: pandas.DataFrame, key: list[str]) -> pandas.Series:
    """Return how many images were seen at the middle of each window.

    Args:
        windows: in the order measured, with samples.
        key: whose windows follow each other, such as those of a run.
    """
    return (windows.groupby(key)["samples"].cumsum() - windows["samples"] / 2).astype(float)


def tested(evidence: Evidence, study: str, measure: str) -> list[dict]:
    """Return the evaluations that have a measure, with the steps, hours, joules and dollars of the training before.

    Sums over training windows are missing if a window lacks one; dollars are hours at the run's stated price, or at the
    machine's price on demand.
    """
    rows, listed = [], estimate.on_demand(evidence.prices)
    for (_, _, machine), run in evidence.newest(study).groupby(["run_id", "repeat", "machine"], sort=True):
        trains = run["phase"].eq("train") & run["seconds"].notna()
        sums = run[["seconds", "energy_joules", "steps"]].astype(float).where(trains, 0).cumsum(skipna=False)
        per_hour = estimate.price_of_hour(machine, run["settings"].iloc[0].get("price_per_hour"), listed)
        hours = sums["seconds"] / 3600
        spent = {"steps": sums["steps"], "hours": hours, "joules": sums["energy_joules"], "dollars": hours * per_hour}
        rows += run.assign(**spent)[run["phase"].eq("evaluate") & run[measure].notna()].to_dict("records")
    return rows


def to_target(curves: pandas.DataFrame, measure: str, ends: list[str], *, least: bool = False) -> pandas.DataFrame:
    """Return when each run first met its target; what was not met is missing, never continued.

    Args:
        curves: with run_id, repeat, target and what follows.
        measure: that is compared with the target; its best one becomes a column, such as best_loss.
        ends: columns that say when, the first in the order of the curve.
        least: whether less is better.
    """
    run = ["run_id", "repeat"]
    best = curves.groupby(run)[measure].agg("min" if least else "max").rename(f"best_{measure}")
    met = curves[curves[measure] <= curves["target"] if least else curves[measure] >= curves["target"]]
    met = met.sort_values(ends[0]).drop_duplicates(run).set_index(run)[ends]
    runs = curves.drop(columns=[measure, *ends]).drop_duplicates(run).sort_values(run, ignore_index=True)
    return runs.join(best, on=run).join(met, on=run)
