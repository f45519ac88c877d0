"""How fast a machine that was not measured trains, with an interval, and how far off such predictions are.

A machine with a calibration is predicted from it (`calibrated`), any other from the works that it shares with others
(`pairs`). Where a prediction is judged, the machine's own speed on that work is hidden from it and from its interval;
what else is hidden is told by the basis.
"""

from benchbook.predictions import calibrated
from benchbook.predictions.judged import errors, sentence
from benchbook.predictions.pairs import OTHER, SAME, Pairs
from benchbook.predictions.prediction import LEVEL, PREDICTED, Prediction, TooLittle
from benchbook.predictions.tables import table

__all__ = [
    "LEVEL",
    "OTHER",
    "PREDICTED",
    "SAME",
    "Pairs",
    "Prediction",
    "TooLittle",
    "calibrated",
    "errors",
    "sentence",
    "table",
]
