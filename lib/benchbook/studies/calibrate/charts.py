"""Charts of calibration: what a device can do at most, and how much of it training uses."""

import pandas
from matplotlib.axes import Axes

from benchbook import figures

ORDER = ("fp64", "fp32", "tf32", "bf16", "fp16")
MEMORY = {"copy": "memory copy", "host_to_device": "host to device", "device_to_host": "device to host"}
EFFICIENCY = ["machine", "device", "study", "point", "variant", "framework", "precision", "dataset", "batch_size"]


def latest(ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return the ceilings of each device's last session; a session's name begins with its time.

    Args:
        ceilings: from `roofline.ceilings`.
    """
    last = ceilings.groupby(["machine", "device", "framework"])["session"].transform("max")
    return ceilings[ceilings["session"] == last].reset_index(drop=True)


def draw_arithmetic(axes: Axes, ceilings: pandas.DataFrame) -> None:
    """Draw the best rate of matrix products by precision, with the range over windows."""
    found = ceilings[ceilings["model"] == "matmul"]
    rank = found["precision"].map(ORDER.index)
    order = found.assign(rank=rank).sort_values(["machine", "device", "framework", "rank"])
    _bars(axes, order, [line["precision"] for line in order.to_dict("records")], "FLOP/s")
    axes.set_xlabel("matrix products, FLOP/s")
    axes.set_title(arithmetic_title(ceilings))


def arithmetic_title(ceilings: pandas.DataFrame) -> str:
    """Return what the arithmetic chart shows, in a sentence with its numbers."""
    found = ceilings[ceilings["model"] == "matmul"]
    if found.empty:
        return "Peak arithmetic: nothing calibrated yet"
    best = found.loc[found["rate"].astype(float).idxmax()]
    return f"Up to {_amount(best['rate'])}FLOP/s ({best['device']}, {best['framework']}, {best['precision']})"


def draw_memory(axes: Axes, ceilings: pandas.DataFrame) -> None:
    """Draw the bandwidth of a large copy and of the transfers, with the range over windows."""
    order = ceilings[ceilings["model"].isin(list(MEMORY))]
    order = order.sort_values(["machine", "device", "framework", "model"])
    _bars(axes, order, [MEMORY[line["model"]] for line in order.to_dict("records")], "B/s")
    axes.set_xlabel("bytes read and written a second; transfers: bytes moved")
    copies = ceilings.loc[ceilings["model"] == "copy", "rate"]
    axes.set_title(f"Memory copies {_amount(copies.max())}B/s" if len(copies) else "Memory: nothing calibrated yet")


def efficiency_table(efficiency: pandas.DataFrame) -> pandas.DataFrame:
    """Return what is shown of `roofline.efficiency`; its bounds are those of the rate, against the ceiling's median."""
    columns = [*EFFICIENCY, "flops_per_second", "ceiling", "efficiency"]
    rates = efficiency.reindex(columns=["samples_per_second", "low", "high"]).astype(float)
    share = efficiency.reindex(columns=["efficiency"]).astype(float)["efficiency"] / rates["samples_per_second"]
    bounded = efficiency.assign(low=share * rates["low"], high=share * rates["high"])
    return bounded.reindex(columns=[*columns, "low", "high", "num_windows", "verdict", "status"])


def draw_efficiency(axes: Axes, efficiency: pandas.DataFrame) -> None:
    """Draw the share of the ceiling that each trained point reached; points of sessions without one are left out."""
    known = efficiency[efficiency["efficiency"].notna()]
    names = [f"{line['machine']}\n{line['point'].rpartition('-')[0]}" for line in known.to_dict("records")]
    figures.draw_bars(axes, known, "efficiency", names, lambda line: f"{line['efficiency']:.1%}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.margins(x=0.2)
    axes.set_xlabel("FLOP/s of training over FLOP/s of matrix products, same device, precision and session")
    axes.set_title(efficiency_title(efficiency))


def efficiency_title(efficiency: pandas.DataFrame) -> str:
    """Return what the efficiency chart shows, in a sentence with its numbers."""
    known = efficiency["efficiency"].dropna()
    if known.empty:
        return "Efficiency: no point was calibrated in its own session"
    return f"Training reaches {figures.span(known, '.1%')} of the ceiling measured in its session"


def _bars(axes: Axes, order: pandas.DataFrame, names: list[str], unit: str) -> None:
    """Draw one bar per line with its range, amount and label."""
    labels = [
        f"{line['machine']}\n{line['device']}, {line['framework']}, {name}"
        for line, name in zip(order.to_dict("records"), names, strict=True)
    ]
    figures.draw_bars(axes, order, "rate", labels, lambda line: f"{_amount(line['rate'])}{unit}")
    axes.xaxis.set_major_formatter(lambda value, _: _amount(value))
    axes.margins(x=0.35)


def _amount(value: float) -> str:
    """Return a number with a decimal prefix: 5.9e10 is `59 G`."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "
