"""What of a large table a figure shows, so that it can still be read; the table beside the figure holds everything."""

import pandas
from matplotlib.axes import Axes

MOST_BARS = 30
MOST_MACHINES = 8  # whose lines a chart of lines tells apart
TALLEST = 18.0  # inches, room for as many bars


def shown(table: pandas.DataFrame, column: str, *, least_first: bool = False) -> pandas.DataFrame:
    """Return the lines of a table that bars are drawn of, in the table's order: all, or of many the best.

    Args:
        table: published lines have `source`, and stand before measured ones; a line without a value comes last.
        column: what the bars show.
        least_first: whether less is better.
    """
    if len(table) <= MOST_BARS:
        return table
    is_measured = _is_measured(table)
    ranked = pandas.DataFrame({"is_measured": is_measured, "value": table[column].astype(float)}).reset_index(drop=True)
    ranked = ranked.sort_values(["is_measured", "value"], ascending=[True, least_first], kind="stable")
    return table.iloc[sorted(ranked.index[:MOST_BARS])]


def of_few_machines(axes: Axes, table: pandas.DataFrame) -> pandas.DataFrame:
    """Return what of a table lines are drawn of: what was published, and the machines that come first in it.

    Args:
        axes: where to say how many machines are drawn, if those are not all.
        table: with column machine, and source where it has published lines.
    """
    is_measured = _is_measured(table)
    machines = table.loc[is_measured, "machine"].drop_duplicates()
    if len(machines) <= MOST_MACHINES:
        return table
    _say(axes, f"{MOST_MACHINES} of {len(machines)} machines are drawn, the first; the table has all")
    return table[~is_measured | table["machine"].isin(machines[:MOST_MACHINES])]


def say_left_out(axes: Axes, drawn: pandas.DataFrame, table: pandas.DataFrame, rule: str) -> None:
    """Write into a chart how many of a table's lines are drawn and by what rule, where that is not all of them."""
    if len(drawn) < len(table):
        _say(axes, f"{len(drawn)} of {len(table)} are drawn, {rule}; the table has all")


def _is_measured(table: pandas.DataFrame) -> pandas.Series:
    if "source" not in table:
        return pandas.Series(True, table.index)
    return table["source"].isin(["measured"]) | table["source"].isna()


def _say(axes: Axes, text: str) -> None:
    axes.text(0.99, 0.01, text, ha="right", va="bottom", fontsize=8, style="italic", transform=axes.transAxes)
