"""Charts of predictions: how far off they are, and what they say of works and chips that nobody put together."""

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from benchbook.judging import wording
from benchbook.record import chips
from benchbook.record import model as judged
from benchbook.record.forecast import of_the_record
from benchbook.studies import figures, prediction_tables
from benchbook.studies.study import Chart, Drawing, Evidence, once

LOOKS = {judged.CHIP: "accelerator", judged.BOTH: "cpu"}
SHADES = ("accelerator", "cpu", "published")  # of makers of chips, names of figures.COLOURS


@once
def core_pairs(evidence: Evidence) -> pandas.DataFrame:
    """Return the pairs of chips of one architecture that trained the same work in one publication.

    Returns:
        Columns: vendor, publication, setting, chip, chip_larger, core_ratio and speed_ratio (the chip with more cores
        over the other). A chip that is sold in several sizes counts as the largest, unless the publication names one.
    """
    lines = prediction_tables.learn(evidence).model.observations
    lines = lines.merge(chips.table()[["architecture", "cores"]].dropna(), left_on="chip", right_index=True)
    alike = ["vendor", "architecture", "publication", "setting", "batch_size"]
    rates = lines.groupby([*alike, "chip", "cores"], as_index=False)["rate"].median()
    pairs = rates.merge(rates, on=alike, suffixes=("", "_larger"))
    pairs = pairs[pairs["cores"] < pairs["cores_larger"]]
    pairs = pairs.assign(
        core_ratio=pairs["cores_larger"] / pairs["cores"], speed_ratio=pairs["rate_larger"] / pairs["rate"]
    )
    columns = ["vendor", "publication", "setting", "chip", "chip_larger", "core_ratio", "speed_ratio"]
    return pairs[columns].reset_index(drop=True)


def cores_title(pairs: pandas.DataFrame) -> str:
    """Return how far the rule of cores is off at the median, by maker of chips; `pairs` is from `core_pairs`."""
    errors = numpy.log(pairs["core_ratio"] / pairs["speed_ratio"]).abs().groupby(pairs["vendor"])
    factors = numpy.exp(errors.median())
    parts = [f"{factors[vendor]:.1f} ({vendor}, {count} pairs)" for vendor, count in errors.size().items()]
    return f"Dividing a time by GPU cores is off by a factor of {wording.joined(parts)}"


def cores(evidence: Evidence) -> Drawing:
    """Draw the ratio of speeds over the ratio of cores; on the line the rule of cores is right."""
    pairs = core_pairs(evidence)
    figure, axes = figures.canvas(4.5)
    for (vendor, group), shade in zip(pairs.groupby("vendor"), SHADES, strict=False):
        look = {"color": figures.COLOURS[shade], "alpha": 0.6, "label": vendor}
        axes.plot(group["core_ratio"], group["speed_ratio"], "o", **look)
    ends = [1.0, pairs["core_ratio"].max()]
    axes.plot(ends, ends, color=figures.COLOURS["line"], label="the rule of cores")
    axes.set(xscale="log", yscale="log", title=cores_title(pairs))
    axes.set(xlabel="GPU cores, larger chip over smaller", ylabel="speed, larger chip over smaller")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.legend(fontsize=8)
    return Drawing.titled(figure, pairs, "Ratios of speed over ratios of GPU cores")


def forecasts(evidence: Evidence) -> Drawing:
    """Draw how far predictions and plain rules are off, and what is predicted of our studies."""
    forecaster, published = prediction_tables.learn(evidence), of_the_record()
    errors = judged.errors(published.model.observations, published.published)
    predicted = prediction_tables.predictions(forecaster)
    drawn = predicted[predicted["predicted"].notna()]
    figure, (left, right) = figures.canvas(3 + 0.16 * len(drawn), 14.0, panels=2)
    draw_errors(left, errors)
    draw_forecasts(right, drawn)
    alt = (
        "Median errors of predictions and of plain rules, and hollow, dashed intervals of rates that nobody measured. "
    )
    alt += f"{error_title(errors)}. {forecast_title(predicted)}."
    return Drawing(figure, predicted, " ".join(alt.split()), {"prediction-errors": errors})


def draw_errors(axes: Axes, errors: pandas.DataFrame) -> None:
    """Draw the median error of what is published beside those of plain rules, on the same rates of the record."""
    shown = errors[errors["group"].eq(judged.RECORD) & errors["situation"].isin(list(LOOKS))]
    rules = list(dict.fromkeys(shown["rule"]))
    for place, (situation, colour) in enumerate(LOOKS.items()):
        own = shown[shown["situation"] == situation].set_index("rule").reindex(rules)
        at = [number + 0.38 * place for number in range(len(rules))]
        axes.barh(at, own["median_error"], 0.36, color=figures.COLOURS[colour], label=situation)
        for height, error, pairs in zip(at, own["median_error"], own["pairs"], strict=True):
            axes.annotate(f" {error:.0%} of {pairs:.0f}", (error, height), va="center", fontsize=7)
    axes.set_yticks([number + 0.19 for number in range(len(rules))], rules)
    axes.invert_yaxis()
    axes.set(xlabel="median error, with the printed rate hidden", xlim=(0, 1.25 * shown["median_error"].max()))
    axes.legend(fontsize=7, loc="lower right")
    axes.set_title(error_title(errors))


def error_title(errors: pandas.DataFrame) -> str:
    """Return how far off predictions are of the record's rates, in a sentence with its numbers."""
    own = errors[errors["group"].eq(judged.RECORD) & errors["rule"].eq(judged.MODEL)].set_index("situation")
    chip, both = own.loc[judged.CHIP], own.loc[judged.BOTH]
    return (
        f"The speed of a hidden chip is predicted to within {chip['median_error']:.0%} at the median,\n"
        f"to within {both['median_error']:.0%} where its publication is hidden as well"
    )


def draw_forecasts(axes: Axes, drawn: pandas.DataFrame) -> None:
    """Draw what nobody measured, by work, as hollow intervals with dashed edges that start at no axis."""
    place, places, shade = 0, [], figures.COLOURS["accelerator"]
    for work, group in drawn.groupby("work", sort=False):
        axes.text(0.01, place, work, fontsize=7, style="italic", va="center", transform=axes.get_yaxis_transform())
        for line in group.to_dict("records"):
            place += 1
            places.append(place)
            look = {"facecolor": "none", "edgecolor": shade, "linestyle": "--", "linewidth": 0.8}
            axes.barh(place, line["high"] - line["low"], 0.6, left=line["low"], **look)
            axes.plot(line["predicted"], place, "d", color=shade, markerfacecolor="white")
        place += 1
    axes.set_yticks(places, drawn["chip"].tolist(), fontsize=7)
    axes.set_ylim(max(place, 1) - 0.4, -0.6)
    if len(drawn):
        axes.set_xlim(0.8 * drawn["low"].min(), 1.25 * drawn["high"].max())
    axes.set(xscale="log", xlabel="PREDICTED, never measured: images a second, 90 % interval")
    axes.grid(visible=True, axis="x")
    axes.set_title(forecast_title(drawn))


def forecast_title(predicted: pandas.DataFrame) -> str:
    """Return how many rates of our studies are predicted, and how wide."""
    drawn = predicted[predicted["predicted"].notna()]
    if drawn.empty:
        return "No rate of our studies is predicted"
    width = float((drawn["high"] / drawn["predicted"]).median())
    return f"{len(drawn)} speeds that nobody measured are predicted to within a factor of {width:.1f}"


CHARTS = (
    Chart(
        "predictions",
        "How fast is a machine that was not measured?",
        "From the public record: the chip's printed figures, the work's operations, and what publications measured. On"
        " the left each printed rate is predicted with its chip hidden, and with its publication hidden as well, beside"
        " plain rules on the same rates. On the right are our studies on chips that did not run them: there the error"
        " of an unknown publication holds. Every interval is one of 90 %; what is too unlike the record is refused.",
        forecasts,
    ),
    Chart(
        "scaling",
        "Can a bigger chip be guessed?",
        "Each dot is two chips of one architecture that trained the same work in one publication. On the line, speed"
        " grows as the cores do, as the segmentation article assumed.",
        cores,
    ),
)
