"""What a device can do at most, measured: arithmetic, memory, transfers, launches; and how much its starts differ.

Ceilings are rows of phase `calibrate`, of the same device in the same session as the training that is held against
them.
"""

from benchbook.measuring.roofline.measuring import (
    Budget,
    matrix_sizes,
    measure_arithmetic,
    measure_idle,
    measure_launches,
    measure_memory,
    precisions,
)
from benchbook.measuring.roofline.starts import deviation, measure_starts
from benchbook.measuring.roofline.synchronization import NotSynchronized, check_synchronize
from benchbook.rows.ceilings import ceilings, efficiency

__all__ = [
    "Budget",
    "NotSynchronized",
    "ceilings",
    "check_synchronize",
    "deviation",
    "efficiency",
    "matrix_sizes",
    "measure_arithmetic",
    "measure_idle",
    "measure_launches",
    "measure_memory",
    "measure_starts",
    "precisions",
]
