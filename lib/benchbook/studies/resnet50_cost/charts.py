"""Charts of the ResNet-50 study; `figures.resnet50_tables` makes what they draw."""

import pandas
from matplotlib.axes import Axes

from benchbook import figures
from benchbook.studies.resnet50_cost.tables import ALIKE


def draw_rates(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw images a second by batch, a line for each setting; a cross at the foot where a point failed."""
    for line, group in _series(table):
        label = f"{_label(line)}{figures.num_windows(group)}\n{figures.view(line)}"
        style = {"color": _shade(line), "label": label, "fmt": _format(line)}
        figures.draw_points(axes, group, "batch_size", "images_per_second", style)
    axes.set(xlabel="images in a step, all devices together", ylabel="images a second, training")
    if table["images_per_second"].notna().any():
        axes.set_yscale("log")
    _by_batch(axes, table)
    axes.set_title(rates_title(table))


def draw_efficiency(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw the share of the measured ceiling by batch; points of sessions without a calibration have none."""
    share = table["efficiency"] / table["images_per_second"]
    bounded = table.assign(low=share * table["low"], high=share * table["high"])
    for line, group in _series(bounded[bounded["efficiency"].notna()]):
        style = {"color": _shade(line), "fmt": _format(line)}
        figures.draw_points(axes, group, "batch_size", "efficiency", style)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set(xlabel="images in a step", ylabel="share of matrix products, same session")
    axes.set_ylim(bottom=0)
    _by_batch(axes, table)
    known = table["efficiency"].dropna()
    axes.set_title(
        f"{figures.span(known, '.0%')} of the measured ceiling" if len(known) else "Ceiling: not calibrated yet"
    )


def draw_scaling(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw, for each point of several devices, the share of the ideal speed."""
    labels = [f"{_label(line)}\nbatch {line['batch_size']}, {line['kind']}" for line in table.to_dict("records")]
    figures.draw_bars(
        axes, table, "efficiency", labels, lambda line: f"{line['efficiency']:.0%} ({line['ratio']:.2f}x of one)"
    )
    axes.axvline(1, color=figures.COLOURS["published"], linewidth=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("of n devices' ideal; processes on one CPU: of one process with all its cores")
    axes.margins(x=0.35)
    known = table["efficiency"].astype(float).dropna()
    axes.set_title(
        f"Several devices reach {figures.span(known, '.0%')} of the ideal"
        if len(known)
        else "Scaling: no point of several devices yet"
    )


def draw_money(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw dollars for a million images; published rates in grey."""

    def text(line: dict) -> str:
        return f"{line['per_million']:.3g} USD ({line['rate_per_dollar']:,.0f} images/s per USD/h)"

    labels = [
        f"{line['machine']}, {line['variant']}, {line['dataset']}{_printed(line)}\n"
        f"{line['kind'].replace('_', ' ')}, {line['per_hour']:.3g} USD an hour"
        for line in table.to_dict("records")
    ]
    figures.draw_bars(axes, table, "per_million", labels, text)
    axes.set_xlabel("US dollars for a million training images, evaluation left out")
    axes.margins(x=0.55)
    axes.set_title(money_title(table))


def draw_accuracy(axes: Axes, found: pandas.DataFrame, column: str) -> None:
    """Draw accuracy over hours or dollars, every run's raw curve; what an article printed in grey.

    Args:
        axes: where to draw.
        found: from `curves`.
        column: hours or dollars.
    """
    known = found[found[column].notna()]
    for _, curve in known.groupby(["source", "machine", "run_id", "repeat"], sort=True):
        line = curve.iloc[0].to_dict()
        axes.plot(
            curve[column].astype(float), curve["accuracy"].astype(float), "o-", color=_shade(line), label=_label(line)
        )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set(xlabel={"hours": "hours of training", "dollars": "US dollars"}[column], ylabel="test accuracy, top 1")
    axes.set_ylim(0, 1)
    axes.grid(visible=True)
    if len(known):
        axes.set_xscale("log")
        axes.legend(fontsize=7)
    best = known.sort_values("accuracy").iloc[-1].to_dict() if len(known) else None
    axes.set_title(f"Accuracy by {column}: " + ("nothing yet" if best is None else _best(best, column)))


def rates_title(table: pandas.DataFrame) -> str:
    """Return what the chart of rates shows, in a sentence with its numbers."""
    known = table[(table["source"] == "measured") & table["images_per_second"].notna() & table["status"].eq("ok")]
    if known.empty:
        return "ResNet-50: nothing measured here yet"
    best = known.loc[known["images_per_second"].idxmax()].to_dict()
    tried = "a batch" if best["batch_size"] == 1 else f"batch {best['batch_size']:,}"
    return f"Up to {best['images_per_second']:,.3g} images/s ({best['variant']}, {best['device']}, {tried})"


def money_title(table: pandas.DataFrame) -> str:
    """Return what the chart of money shows, in a sentence with its numbers."""
    if table.empty:
        return "A million images: no price is known"
    parts = [
        f"{source} {figures.span(group['per_million'], '.3g')} USD"
        for source, group in table.assign(source=table["source"].replace({"secondary": "published"})).groupby("source")
    ]
    return "A million images: " + "; ".join(parts)


def _series(table: pandas.DataFrame):
    """Yield the description and the points of each line of a chart by batch."""
    for _, group in table.groupby([*ALIKE, "device_count"], dropna=False, sort=True):
        yield group.iloc[0].to_dict(), group.sort_values("batch_size")


def _by_batch(axes: Axes, table: pandas.DataFrame) -> None:
    sizes = sorted({int(size) for size in table["batch_size"].dropna()})
    if sizes:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        axes.xaxis.minorticks_off()
    axes.grid(visible=True)


def _shade(line: dict) -> str:
    return figures.colour(line["device"]) if line["source"] == "measured" else figures.COLOURS["published"]


def _format(line: dict) -> str:
    """Return marker and dash: the marker tells how many devices, the dash the variant."""
    marker = {1: "o", 2: "s", 4: "D", 8: "^"}.get(line["device_count"], "*")
    return marker + ("--" if line["variant"] == "tuned" else "-")


def _label(line: dict) -> str:
    parts = [line["machine"], f"{line['device_count']} x {line['device']}", line["variant"], line.get("framework")]
    parts += [line.get("precision"), line["dataset"]]
    return ", ".join(part for part in parts if isinstance(part, str))


def _printed(line: dict) -> str:
    return "" if line["source"] == "measured" else f", {line['source']}"


def _best(line: dict, column: str) -> str:
    amount = f"{line[column]:.3g} {'h' if column == 'hours' else 'USD'}"
    return f"{line['accuracy']:.1%} for {amount} ({line['source']})"
