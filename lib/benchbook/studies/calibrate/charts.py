"""Charts of calibration: what a device can do at most, and how much of it training uses."""

import pandas
from matplotlib.axes import Axes

from benchbook import figures
from benchbook.studies.calibrate import tables
from benchbook.study import Drawing, Evidence


def ceilings(evidence: Evidence) -> Drawing:
    """Draw the best rates of each device's last calibration: arithmetic by precision, and memory."""
    table = tables.ceilings(evidence)
    figure, (left, right) = figures.canvas(1.6 + 0.45 * len(table), 12.0, panels=2)
    place = ["machine", "device", "framework"]
    products = table[table["model"] == "matmul"]
    products = products.assign(way=products["precision"], rank=products["precision"].map(tables.ORDER.index))
    _draw_rates(left, products.sort_values([*place, "rank"]), "FLOP/s", arithmetic_title(table))
    left.set_xlabel("matrix products, FLOP/s")
    moved = table[table["model"].isin(list(tables.MEMORY))]
    moved = moved.assign(way=moved["model"].map(tables.MEMORY)).sort_values([*place, "model"])
    _draw_rates(right, moved, "B/s", memory_title(table))
    right.set_xlabel("bytes read and written a second; transfers: bytes moved")
    return Drawing.titled(figure, table, "Bars of FLOP/s by precision, and of bytes a second")


def arithmetic_title(table: pandas.DataFrame) -> str:
    """Return what the arithmetic chart shows, in a sentence with its numbers."""
    products = table[table["model"] == "matmul"]
    if products.empty:
        return "Peak arithmetic: nothing calibrated yet"
    best = products.loc[products["rate"].astype(float).idxmax()]
    return f"Up to {amount(best['rate'])}FLOP/s ({best['device']}, {best['framework']}, {best['precision']})"


def memory_title(table: pandas.DataFrame) -> str:
    """Return how fast memory was copied at best."""
    copies = table.loc[table["model"] == "copy", "rate"]
    return f"Memory copies {amount(copies.max())}B/s" if len(copies) else "Memory: nothing calibrated yet"


def efficiency(evidence: Evidence) -> Drawing:
    """Draw the share of the ceiling that training reaches; points of sessions without a ceiling are left out."""
    table = tables.efficiency(evidence)
    reached = table[table["efficiency"].notna()]
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, len(reached)))
    figures.draw_bars(axes, reached, "efficiency", name=_name_trained, text=lambda line: f"{line['efficiency']:.1%}")
    axes.set_xlabel("FLOP/s of training over FLOP/s of matrix products, same device, precision and session")
    axes.set_title(efficiency_title(table))
    axes.xaxis.set_major_formatter("{x:.0%}")
    return Drawing.titled(figure, table, "Bars of the share of the measured ceiling")


def efficiency_title(table: pandas.DataFrame) -> str:
    """Return what the efficiency chart shows, in a sentence with its numbers."""
    reached = table["efficiency"].dropna()
    if reached.empty:
        return "Efficiency: no point was calibrated in its own session"
    return f"Training reaches {figures.span(reached, '.1%')} of the ceiling measured in its session"


def amount(value: float) -> str:
    """Return a number with a decimal prefix: 5.9e10 is `59 G`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def _draw_rates(axes: Axes, rates: pandas.DataFrame, unit: str, title: str) -> None:
    """Draw one bar per rate with its range and amount, named by its device, framework and way."""
    figures.draw_bars(axes, rates, "rate", name=_name_rate, text=lambda line: f"{amount(line['rate'])}{unit}")
    axes.set_title(title)
    axes.margins(x=0.35)
    axes.xaxis.set_major_formatter(lambda value, _: amount(value))


def _name_rate(line: dict) -> str:
    return f"{line['machine']}\n{line['device']}, {line['framework']}, {line['way']}"


def _name_trained(line: dict) -> str:
    return f"{line['machine']}\n{line['point'].rpartition('-')[0]}"
