"""Charts of the ResNet-50 study: rates by batch, several devices, dollars for a million images, and for an accuracy."""

from collections.abc import Iterator

import pandas
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from benchbook.judging import wording
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.studies import figures
from benchbook.studies.resnet50_cost import money, tables
from benchbook.studies.study import Drawing, Evidence

PERCENT = PercentFormatter(1, decimals=0)
UNITS = {"hours": "hours", "dollars": "US dollars"}
LABELS = {"hours": "hours of training", "dollars": "US dollars"}
MARKERS = {1: "o", 2: "s", 4: "D", 8: "^"}  # by number of devices


def rates(evidence: Evidence) -> Drawing:
    """Draw images a second over the batch, and the share of the ceiling."""
    table = tables.points(evidence)
    figure, (left, right) = figures.canvas(4.8, 14.0, panels=2)
    _draw_rates(left, table, evidence.names)
    _draw_shares(right, table)
    if len(table):
        figure.legend(loc="outside right center", fontsize=7)
    shows = "Images a second over the batch, and the share of the ceiling"
    return Drawing.titled(figure, table, shows, tables={"resnet50-largest": tables.batches(table)})


def scaling(evidence: Evidence) -> Drawing:
    """Draw, for each point of several devices, the share of the ideal speed."""
    table = tables.scaling(tables.points(evidence))
    figure, axes = figures.canvas(1.6 + 0.6 * max(1, len(table)), 9.0)
    shares = table["efficiency"].astype(float)
    several = "processes" if (table["device"] == "cpu").all() else "devices"
    reached = (
        f"Several {several} reach {wording.span(shares, wording.percent)} of the ideal speed" if len(shares) else ""
    )
    figures.draw_bars(
        axes,
        table,
        "efficiency",
        name=lambda line: f"{_label(line, evidence.names)}\nbatch {line['batch_size']}, {line['kind']}",
        text=lambda line: f"{line['efficiency']:.0%} ({line['ratio']:.2f}x of one)",
    )
    axes.set_xlabel("of n devices' ideal; processes on one CPU: of one process with all its cores")
    axes.set_title(reached or "Scaling: no point of several devices yet")
    axes.margins(x=0.35)
    axes.axvline(1, color=figures.COLOURS["published"], linewidth=1)
    axes.xaxis.set_major_formatter(PERCENT)
    return Drawing.titled(figure, table, "Bars of the share of the ideal speed")


def costs(evidence: Evidence) -> Drawing:
    """Draw dollars for a million images; published rates in grey."""
    table = money.costs(evidence)
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, len(table)), 9.0)
    figures.draw_bars(
        axes,
        table,
        "per_million",
        name=lambda line: _offer(line, evidence.names),
        least_first=True,
        text=lambda line: f"{line['per_million']:.3g} USD ({line['rate_per_dollar']:,.0f} images/s per USD/h)",
    )
    axes.set(xlabel="US dollars for a million training images, evaluation left out", title=costs_title(table))
    axes.margins(x=0.55)
    more = {"resnet50-break-even": money.break_even(evidence)}
    return Drawing.titled(figure, table, "Bars of dollars for a million training images", tables=more)


def accuracy(evidence: Evidence) -> Drawing:
    """Draw accuracy over hours and over dollars, every run's raw curve; what an article printed in grey."""
    table = money.curves(evidence)
    figure, (left, right) = figures.canvas(4.2, 12.0, panels=2, sharey=True)
    _draw_accuracy(left, table, "hours", evidence.names)
    _draw_accuracy(right, table, "dollars", evidence.names)
    more = {"resnet50-to-target": money.to_target(table)}
    return Drawing.titled(figure, table, "Test accuracy over hours and over dollars", tables=more)


def rates_title(table: pandas.DataFrame) -> str:
    """Return what the chart of rates shows, in a sentence with its numbers."""
    measured = tables.trained(table[table["source"] == "measured"])
    if measured.empty:
        return "ResNet-50: nothing measured here yet"
    best = measured.loc[measured["images_per_second"].idxmax()].to_dict()
    how = f"{naming.device_word(best['device'])}, batch {best['batch_size']:,}"
    return f"ResNet-50 trains up to {wording.number(best['images_per_second'])} images a second ({how})"


def costs_title(table: pandas.DataFrame) -> str:
    """Return what the chart of money shows, in a sentence with its numbers."""
    if table.empty:
        return "A million images: no price to reckon with"
    measured = table[table["source"] == "measured"]
    shown = measured if len(measured) else table
    cost = f"{wording.span(shown['per_million'])} US dollars"
    return f"A million images cost {cost}" + ("" if len(measured) else " at published speeds and prices")


def _draw_rates(axes: Axes, table: pandas.DataFrame, names: Names) -> None:
    """Draw images a second by batch, a line for each setting; a cross at the foot where a point failed."""
    for line, group in _series(figures.of_few_machines(axes, table)):
        label = f"{_label(line, names)}{figures.num_windows(group)}\n{figures.view(line)}"
        figures.draw_points(axes, group, "batch_size", "images_per_second", _style(line) | {"label": label})
    axes.set(xlabel="images in a step, all devices together", ylabel="images a second, training")
    if table["images_per_second"].notna().any():
        axes.set_yscale("log")
    _set_batches(axes, table)
    axes.set_title(rates_title(table))


def _draw_shares(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw the share of the measured ceiling by batch; points of sessions without a calibration have none."""
    share = table["efficiency"] / table["images_per_second"]
    bounded = table.assign(low=share * table["low"], high=share * table["high"])
    bounded = bounded[bounded["efficiency"].notna()]
    for line, group in _series(figures.of_few_machines(axes, bounded)):
        figures.draw_points(axes, group, "batch_size", "efficiency", _style(line))
    axes.yaxis.set_major_formatter(PERCENT)
    axes.set(xlabel="images in a step", ylabel="share of matrix products, same session")
    axes.set_ylim(bottom=0)
    _set_batches(axes, table)
    shares = wording.span(bounded["efficiency"], wording.percent) if len(bounded) else ""
    axes.set_title(f"That is {shares} of matrix products" if shares else "Ceiling: not calibrated yet")


def _draw_accuracy(axes: Axes, table: pandas.DataFrame, column: str, names: Names) -> None:
    """Draw accuracy over a column of `money.curves`: hours or dollars."""
    table = table[table[column].notna()]
    for _, curve in table.groupby(["source", "machine", "run_id", "repeat"], sort=True):
        run = curve.iloc[0].to_dict()
        across, accuracies = (curve[name].astype(float) for name in (column, "accuracy"))
        axes.plot(across, accuracies, "o-", color=_shade(run), label=_label(run, names))
    axes.yaxis.set_major_formatter(PERCENT)
    axes.set(xlabel=LABELS[column], ylabel="test accuracy, top 1", ylim=(0, 1))
    axes.grid(visible=True)
    title = f"Accuracy by {column}: nothing yet"
    if len(table):
        axes.set_xscale("log")
        axes.legend(fontsize=7)
        line = table.sort_values("accuracy").iloc[-1]
        published = "" if line["source"] == "measured" else ", published"
        cost = f"{wording.number(line[column])} {UNITS[column]}"
        title = f"An accuracy of {100 * line['accuracy']:.1f} % takes {cost}{published}"
    axes.set_title(title)


def _series(table: pandas.DataFrame) -> Iterator[tuple[dict, pandas.DataFrame]]:
    """Yield the description and the points of each line of a chart by batch."""
    for _, group in table.groupby([*tables.ALIKE, "device_count"], dropna=False, sort=True):
        yield group.iloc[0].to_dict(), group.sort_values("batch_size")


def _set_batches(axes: Axes, table: pandas.DataFrame) -> None:
    """Have a tick for each batch on an axis of powers of two."""
    sizes = sorted({int(size) for size in table["batch_size"].dropna()})
    if sizes:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        axes.xaxis.minorticks_off()
    axes.grid(visible=True)


def _style(line: dict) -> dict[str, str]:
    """Return a line's colour, marker (how many devices) and dash (the variant)."""
    marker = MARKERS.get(line["device_count"], "*")
    return {"color": _shade(line), "fmt": marker + ("--" if str(line["variant"]).startswith("tuned") else "-")}


def _shade(line: dict) -> str:
    return figures.colour(line["device"]) if line["source"] == "measured" else figures.COLOURS["published"]


def _label(line: dict, names: Names) -> str:
    count = line["device_count"]
    processes = f"{count} processes" if line["device"] == "cpu" and pandas.notna(count) and count > 1 else None
    parts = [names.place(line), processes, line["variant"], line.get("framework")]
    parts += [line.get("precision"), naming.dataset(line["dataset"])]
    return ", ".join(part for part in parts if isinstance(part, str))


def _offer(line: dict, names: Names) -> str:
    """Return which machine trains what, and below it at which price."""
    source = "" if line["source"] == "measured" else f", {line['source']}"
    price = f"{line['kind'].replace('_', ' ')}, {line['per_hour']:.3g} USD an hour"
    return f"{names.place(line)}, {line['variant']}, {naming.dataset(line['dataset'])}{source}\n{price}"
