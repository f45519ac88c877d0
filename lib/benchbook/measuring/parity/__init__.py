"""The steps that are timed beside those of a plain network in float64 on the CPU: fast but wrong is wrong.

`check` writes rows; `verdict` judges them later and is never stored. Weights and batches are the same on both
sides, dropout is off, and noise is drawn on the CPU beforehand. Nothing else is shared: see `reference`.
"""

from benchbook.judging.parity import TOLERANCES, Verdict, steps, verdict, verdicts
from benchbook.measuring.parity.measuring import check
from benchbook.measuring.parity.nearness import compare

__all__ = [
    "TOLERANCES",
    "Verdict",
    "check",
    "compare",
    "steps",
    "verdict",
    "verdicts",
]
