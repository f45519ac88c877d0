"""Predictions held against measurements, and those that nobody has measured: hollow and dashed."""

import pandas
from matplotlib.axes import Axes

from benchbook import figures
from benchbook.predictions import OTHER, PREDICTED, SAME, calibrated
from benchbook.predictions.speeds import HERE

LOOKS = {OTHER: ("o", "accelerator"), SAME: ("s", "published"), calibrated.BASIS: ("D", "cpu")}
WORDS = {
    OTHER: "on a network that the machine never ran",
    SAME: "on one it ran at another setting",
    calibrated.BASIS: "from its calibration",
}
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MOST = 40  # lines that a chart of what nobody measured has room for


def draw_held_out(axes: Axes, predicted: pandas.DataFrame, judged: pandas.DataFrame) -> None:
    """Draw predicted over measured speeds with 90 % intervals; on the line at 1 a prediction is right.

    Args:
        axes: where to draw.
        predicted: from `predictions.table`.
        judged: from `predictions.errors`, for the title.
    """
    held = predicted[predicted["measured"].notna()]
    for basis, (marker, name) in LOOKS.items():
        some = held[held["basis"] == basis]
        if some.empty:
            continue
        value, low, high = ((some[column] / some["measured"]).astype(float) for column in ("predicted", "low", "high"))
        look = {"color": figures.COLOURS[name], "markerfacecolor": "none", "markersize": 4, "linewidth": 0.7}
        bars = axes.errorbar(some["measured"], value, yerr=[value - low, high - value], fmt=marker, label=basis, **look)
        bars.lines[2][0].set_linestyle("--")
    axes.axhline(1, color=figures.COLOURS["line"], linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="measured: samples a second, or runs a second")
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_ylabel("predicted over measured, the measurement hidden")
    axes.grid(visible=True)
    if len(held):
        axes.legend(fontsize=7, title="predicted from", title_fontsize=7, loc="lower right")
    axes.set_title(title(judged))


def title(judged: pandas.DataFrame) -> str:
    """Return how far off predictions are of what was measured, in a sentence with its numbers."""
    lines = judged[(judged["num_pairs"] > 0)].drop_duplicates("rule").set_index("rule")
    parts = [
        f"{lines.loc[basis, 'median_error']:.0%} {words} (median of {lines.loc[basis, 'num_pairs']})"
        for basis, words in WORDS.items()
        if basis in lines.index
    ]
    return "Predictions are off by\n" + ",\n".join(parts) if parts else "Predictions: nothing to judge them by"


def shown(predicted: pandas.DataFrame) -> pandas.DataFrame:
    """Return what nobody measured and a chart has room for, grouped by work, the articles' works first."""
    found = predicted[(predicted["source"] == PREDICTED) & predicted["predicted"].notna()]
    order = found.assign(here=found["publication"].fillna(HERE) == HERE)
    return order.sort_values(["here", "work", "predicted"]).head(MOST).reset_index(drop=True)


def draw_unmeasured(axes: Axes, predicted: pandas.DataFrame) -> None:
    """Draw what nobody measured, by work, as hollow intervals with dashed edges that start at no axis.

    Args:
        axes: where to draw.
        predicted: from `predictions.table`.
    """
    order = shown(predicted)
    place, places = 0, []
    for _, group in order.groupby("work", sort=False):
        first = group.iloc[0]
        heading = first["work"].partition(" (")[0] + (" (measured here)" if first["here"] else " (the article's)")
        axes.text(0.01, place, heading, fontsize=7, style="italic", va="center", transform=axes.get_yaxis_transform())
        for line in group.to_dict("records"):
            place += 1
            places.append(place)
            shade = figures.COLOURS[LOOKS[line["basis"]][1]]
            look = {"facecolor": "none", "edgecolor": shade, "linestyle": "--", "linewidth": 0.8}
            axes.barh(place, line["high"] - line["low"], 0.6, left=line["low"], **look)
            axes.plot(line["predicted"], place, "d", color=shade, markerfacecolor="white", markersize=5)
        place += 1
    axes.set_yticks(
        places,
        [line["machine"] if pandas.notna(line["machine"]) else line["processor"] for line in order.to_dict("records")],
        fontsize=7,
    )
    axes.set_ylim(max(place, 1) - 0.4, -0.6)
    if len(order):
        axes.set_xlim(0.8 * order["low"].min(), 1.25 * order["high"].max())
    axes.set(xscale="log", xlabel="PREDICTED, never measured: samples a second, 90 % interval")
    axes.grid(visible=True, axis="x")
    axes.set_title(unmeasured_title(predicted))


def unmeasured_title(predicted: pandas.DataFrame) -> str:
    """Return how many speeds are predicted that nobody measured, how wide, and how many are refused."""
    found = predicted[(predicted["source"] == PREDICTED) & predicted["predicted"].notna()]
    refused = predicted.loc[predicted["reason"].notna(), "processor"].str.split(", ").str.len().sum()
    if found.empty:
        return f"No speed is predicted; {refused:.0f} refused: too little to go on"
    width = float((found["high"] / found["predicted"]).astype(float).median())
    drawn = f", {MOST} of them drawn" if len(found) > MOST else ""
    ending = f"predicted to a factor of {width:.1f}; {refused:.0f} more refused"
    return f"{len(found)} speeds that nobody measured{drawn}:\n{ending}"
