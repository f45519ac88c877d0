"""What calibration says: what each device can do at most, and how much of it training reaches."""

from benchbook.judging import wording
from benchbook.studies.calibrate import charts, tables
from benchbook.studies.study import Chart, Evidence, Study


def finding(evidence: Evidence) -> str:
    """Return the most that a device reached on matrix products, and what training reaches of it."""
    rates = tables.ceilings(evidence)
    products = rates[rates["model"] == "matmul"].reset_index(drop=True)
    if products.empty:
        return "No device was calibrated here yet."
    best = products.loc[products["rate"].astype(float).idxmax()].to_dict()
    place = evidence.names.in_sentence(best)
    first = f"Matrix products reach {charts.amount(best['rate'])}FLOP/s in {best['precision']} on {place}"
    reached = tables.efficiency(evidence)["efficiency"].dropna()
    shares = wording.span(reached, wording.percent) if len(reached) else ""
    second = f"Training reaches {shares} of its own session's ceiling" if shares else "No training was held against it"
    return f"{first}. {second}."


STUDY = Study(
    name="calibrate",
    title="Calibration",
    finding=finding,
    charts=(
        Chart(
            "ceilings",
            "What can each device do at most?",
            "Measured, not read from a data sheet: the last calibration of each device.",
            charts.ceilings,
        ),
        Chart(
            "efficiency",
            "How much of the ceiling does training reach?",
            "Multiplications and additions of a training step, counted from the network, over what the same device"
            " multiplied in the same session and precision.",
            charts.efficiency,
        ),
    ),
)
