"""Curves of training: what several runs of one point measured at the same place."""

import pandas


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
    return (
        rows.groupby(key, dropna=False, sort=True)
        .agg(
            **{measure: (measure, "median"), "low": (measure, "min"), "high": (measure, "max")},
            **further,
            num_runs=("run_id", "nunique"),
        )
        .reset_index()
    )


def middles(windows: pandas.DataFrame, key: list[str]) -> pandas.Series:
    """Return how many images were seen at the middle of each window.

    Args:
        windows: in the order measured, with samples.
        key: whose windows follow on each other, such as those of a run.
    """
    return (windows.groupby(key)["samples"].cumsum() - windows["samples"] / 2).astype(float)


def worst(statuses: pandas.Series) -> str:
    """Return how windows at one place of a curve ended: diverged if one of them did."""
    return "diverged" if (statuses == "diverged").any() else "ok"
