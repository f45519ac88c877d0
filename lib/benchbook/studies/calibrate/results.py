"""What calibration says: what each device can do at most, and how much of it training reaches."""

from benchbook.studies.calibrate import charts
from benchbook.study import Chart, Study

STUDY = Study(
    name="calibrate",
    title="Calibration",
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
