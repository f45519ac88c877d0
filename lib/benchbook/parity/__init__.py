"""The same steps on a device in its precision and on the CPU in float64: fast but wrong is wrong.

`measure` writes rows; `verdict` judges them later and is never stored. Weights and batches are the same on both
sides, dropout is off, and noise is drawn on the CPU beforehand.
"""

from benchbook.parity.judging import TOLERANCES, Tolerance, Verdict, first_parting, steps, verdict, verdicts
from benchbook.parity.measuring import check, compare, measure

__all__ = [
    "TOLERANCES",
    "Tolerance",
    "Verdict",
    "check",
    "compare",
    "first_parting",
    "measure",
    "steps",
    "verdict",
    "verdicts",
]
