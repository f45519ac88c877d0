"""What calibration says: what each device can do at most, and how much of it training reaches."""

from benchbook import figures, roofline
from benchbook.studies.calibrate import charts
from benchbook.study import Chart, Drawing, Evidence, Study


def ceilings(evidence: Evidence) -> Drawing:
    """Draw the best rates of each device's last calibration."""
    table = charts.latest(roofline.ceilings(evidence.measured))
    figure, (left, right) = figures.canvas(1.6 + 0.45 * len(table), 12.0, panels=2)
    charts.draw_arithmetic(left, table)
    charts.draw_memory(right, table)
    title = charts.arithmetic_title(table)
    return Drawing(figure, table, f"Bars of FLOP/s by precision, and of bytes a second. {title}.", title)


def efficiency(evidence: Evidence) -> Drawing:
    """Draw the share of the ceiling that training reaches."""
    table = charts.efficiency_table(roofline.efficiency(evidence.summary, evidence.measured))
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, table["efficiency"].count()))
    charts.draw_efficiency(axes, table)
    title = charts.efficiency_title(table)
    return Drawing(figure, table, f"Bars of the share of the measured ceiling. {title}.", title)


STUDY = Study(
    name="calibrate",
    title="Calibration",
    charts=(
        Chart(
            "ceilings",
            "What can each device do at most?",
            "Measured, not read from a data sheet: the last calibration of each device.",
            ceilings,
        ),
        Chart(
            "efficiency",
            "How much of the ceiling does training reach?",
            "Multiplications and additions of a training step, counted from the network, over what the same device"
            " multiplied in the same session and precision.",
            efficiency,
        ),
    ),
)
