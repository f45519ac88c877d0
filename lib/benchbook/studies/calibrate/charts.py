"""Charts of calibration: what a device can do at most, and how much of it training uses."""

from collections.abc import Callable

import pandas
from matplotlib.axes import Axes

from benchbook import studies
from benchbook.judging import wording
from benchbook.record import naming
from benchbook.rows.points import point_title
from benchbook.studies import figures
from benchbook.studies.calibrate import tables
from benchbook.studies.study import Drawing, Evidence


def ceilings(evidence: Evidence) -> Drawing:
    """Draw the best rates of each device's last calibration: arithmetic by precision, and memory."""
    table = tables.ceilings(evidence)
    figure, (left, right) = figures.canvas(1.6 + 0.45 * len(table), 12.0, panels=2)
    place = ["machine", "device", "framework"]
    products = table[table["model"] == "matmul"]
    products = products.assign(way=products["precision"], rank=products["precision"].map(tables.ORDER.index))
    name = _naming(evidence)
    _draw_rates(left, products.sort_values([*place, "rank"]), "FLOP/s", arithmetic_title(table), name)
    left.set_xlabel("matrix products, FLOP/s")
    moved = table[table["model"].isin(list(tables.MEMORY))]
    moved = moved.assign(way=moved["model"].map(tables.MEMORY)).sort_values([*place, "model"])
    _draw_rates(right, moved, "B/s", memory_title(table), name)
    right.set_xlabel("bytes read and written a second; transfers: bytes moved")
    return Drawing.titled(figure, table, "Bars of FLOP/s by precision, and of bytes a second")


def arithmetic_title(table: pandas.DataFrame) -> str:
    """Return what the arithmetic chart shows, in a sentence with its numbers."""
    products = table[table["model"] == "matmul"]
    if products.empty:
        return "Peak arithmetic: nothing calibrated yet"
    best = products.loc[products["rate"].astype(float).idxmax()]
    how = f"{naming.device_word(best['device'])}, {best['framework']}, {best['precision']}"
    return f"Matrix products reach {amount(best['rate'])}FLOP/s ({how})"


def memory_title(table: pandas.DataFrame) -> str:
    """Return how fast memory was copied at best."""
    copies = table.loc[table["model"] == "copy", "rate"]
    return f"Memory copies {amount(copies.max())}B/s" if len(copies) else "Memory: nothing calibrated yet"


def efficiency(evidence: Evidence) -> Drawing:
    """Draw the share of the ceiling that training reaches; points of sessions without a ceiling are left out."""
    table = tables.efficiency(evidence)
    reached = table[table["efficiency"].notna()]
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, len(reached)))
    figures.draw_bars(
        axes, reached, "efficiency", name=_naming_trained(evidence), text=lambda line: f"{line['efficiency']:.1%}"
    )
    axes.set_xlabel("FLOP/s of training over FLOP/s of matrix products, same device, precision and session")
    axes.set_title(efficiency_title(table))
    axes.xaxis.set_major_formatter("{x:.0%}")
    return Drawing.titled(figure, table, "Bars of the share of the measured ceiling")


def efficiency_title(table: pandas.DataFrame) -> str:
    """Return what the efficiency chart shows, in a sentence with its numbers."""
    reached = table["efficiency"].dropna()
    if reached.empty:
        return "Efficiency: no point was calibrated in its own session"
    return f"Training reaches {wording.span(reached, wording.percent)} of what matrix products reach"


def amount(value: float) -> str:
    """Return a number with a decimal prefix: 5.9e10 is `59 G`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def _amount_at(value: float, _: int) -> str:
    """Return what an axis says at a value, whichever its place among the ticks."""
    return amount(value)


def _draw_rates(axes: Axes, rates: pandas.DataFrame, unit: str, title: str, name: Callable[[dict], str]) -> None:
    """Draw one bar per rate with its range and amount."""
    figures.draw_bars(axes, rates, "rate", name=name, text=lambda line: f"{amount(line['rate'])}{unit}")
    axes.set_title(title)
    axes.margins(x=0.35)
    axes.xaxis.set_major_formatter(_amount_at)


def _naming(evidence: Evidence) -> Callable[[dict], str]:
    """Return what names a rate: its machine and device, framework and way."""
    return lambda line: f"{evidence.names.place(line)}\n{line['framework']}, {line['way']}"


def _naming_trained(evidence: Evidence) -> Callable[[dict], str]:
    """Return what names a trained point: its machine, its study, and its own name without the hash."""

    def name(line: dict) -> str:
        point = point_title(line["point"])
        return f"{evidence.names.machine(line['machine'])}\n{studies.title(line['study'])}, {point}"

    return name
