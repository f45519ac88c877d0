"""What calibration says: what each device can do at most, and how much of it training reaches."""

import pandas

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine.precisions import PRECISIONS
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import ceilings as best_rates
from benchbook.rows.points import point_title
from benchbook.studies.charts import Bars, plot
from benchbook.studies.study import Chart, Evidence, Study

ORDER = tuple(name for name, precision in PRECISIONS.items() if not precision.autocast)
MEMORY = {"copy": "memory copy", "host_to_device": "host to device", "device_to_host": "device to host"}
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def ceilings(evidence: Evidence) -> pandas.DataFrame:
    """Return `rows.ceilings` of each device's last session; a session's name begins with its time."""
    every = evidence.ceilings
    last = every.groupby(["machine", "device", "framework"])["session"].transform("max")
    return every[every["session"] == last].reset_index(drop=True)


def efficiency(evidence: Evidence) -> pandas.DataFrame:
    """Return the share of its session's ceiling that each trained point reached.

    Returns:
        Columns: machine, device, study, point, variant, framework, precision, dataset, batch_size, flops_per_second,
        ceiling, efficiency, low, high (the bounds of the point's rate, over the ceiling's median), interval (their
        kind), num_windows, verdict, status.
    """
    table = best_rates.efficiency(evidence.summary, evidence.ceilings)
    share = table["efficiency"] / table["samples_per_second"]
    columns = ["machine", "device", "study", "point", "variant", "framework", "precision", "dataset", "batch_size"]
    columns += ["flops_per_second", "ceiling", "efficiency", "low", "high", "interval", "num_windows", "verdict"]
    return table.assign(low=share * table["low"], high=share * table["high"])[[*columns, "status"]]


def finding(evidence: Evidence) -> str:
    """Return the most that a device reached on matrix products, and what training reaches of it."""
    best = _fastest_products(ceilings(evidence))
    if best is None:
        return "No device was calibrated here yet."
    place = evidence.names.in_sentence(best)
    first = f"Matrix products reach {amount(best['rate'])}FLOP/s in {best['precision']} on {place}"
    reached = efficiency(evidence)["efficiency"].dropna()
    if reached.empty:
        return f"{first}. No training was compared with it."
    return f"{first}. Training reaches {wording.span(reached, wording.percent)} of its own session's ceiling."


def amount(value: float) -> str:
    """Return a number with a decimal prefix: 5.9e10 is `59 G`."""
    factor, prefix = next((pair for pair in PREFIXES if value >= pair[0]), (1, ""))
    return f"{value / factor:.3g} {prefix}"


def _fastest_products(table: pandas.DataFrame) -> dict | None:
    products = table[table["model"] == "matmul"].reset_index(drop=True)
    return None if products.empty else products.loc[products["rate"].astype(float).idxmax()].to_dict()


def _products(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    products = table[table["model"] == "matmul"]
    products = products.assign(way=products["precision"], rank=products["precision"].map(ORDER.index))
    return products.sort_values(["machine", "device", "framework", "rank"])


def _moved(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    moved = table[table["model"].isin(list(MEMORY))]
    moved = moved.assign(way=moved["model"].map(MEMORY))
    return moved.sort_values(["machine", "device", "framework", "model"])


def _arithmetic_title(table: pandas.DataFrame, names: Names) -> str:
    best = _fastest_products(table)
    if best is None:
        return "Peak arithmetic: nothing calibrated yet"
    how = f"{naming.device_word(best['device'])}, {best['framework']}, {best['precision']}"
    return f"Matrix products reach {amount(best['rate'])}FLOP/s ({how})"


def _memory_title(table: pandas.DataFrame, names: Names) -> str:
    copies = table.loc[table["model"] == "copy", "rate"]
    return f"Memory copies {amount(copies.max())}B/s" if len(copies) else "Memory: nothing calibrated yet"


def _efficiency_title(table: pandas.DataFrame, names: Names) -> str:
    reached = table["efficiency"].dropna()
    if reached.empty:
        return "Efficiency: no point was calibrated in its own session"
    return f"Training reaches {wording.span(reached, wording.percent)} of what matrix products reach"


def _rates(unit: str, **panel) -> Bars:
    """Return bars of rates in a unit, such as FLOP/s."""
    return Bars(
        column="rate",
        label=lambda line, names: f"{names.place(line)}\n{line['framework']}, {line['way']}",
        text=lambda line: f"{amount(line['rate'])}{unit}",
        margin=0.35,
        formatter=lambda value, place: amount(value),
        **panel,
    )


def _trained_label(line: dict, names: Names) -> str:
    return f"{names.machine(line['machine'])}\n{studies.title(line['study'])}, {point_title(line['point'])}"


STUDY = Study(
    name="calibrate",
    title="Calibration",
    finding=finding,
    charts=(
        Chart(
            "ceilings",
            "What can each device do at most?",
            "Measured, not read from a data sheet: the last calibration of each device.",
            plot(
                ceilings,
                _rates("FLOP/s", lines=_products, title=_arithmetic_title, xlabel="matrix products, FLOP/s"),
                _rates(
                    "B/s",
                    lines=_moved,
                    title=_memory_title,
                    xlabel="bytes read and written a second; transfers: bytes moved",
                ),
                shows="Bars of FLOP/s by precision, and of bytes a second",
                width=12.0,
            ),
        ),
        Chart(
            "efficiency",
            "How much of the ceiling does training reach?",
            "Multiplications and additions of a training step, counted from the network, over what the same device"
            " multiplied in the same session and precision.",
            plot(
                efficiency,
                Bars(
                    column="efficiency",
                    lines=lambda table, evidence: table[table["efficiency"].notna()],
                    label=_trained_label,
                    text="{efficiency:.1%}",
                    percent=True,
                    xlabel="FLOP/s of training over FLOP/s of matrix products, same device, precision and session",
                    title=_efficiency_title,
                ),
                shows="Bars of the share of the measured ceiling",
            ),
        ),
    ),
)
