"""What every prediction has, and what it is when there is none."""

from dataclasses import dataclass

LEVEL = 0.90  # of every interval
PREDICTED = "predicted"  # the source of what nobody measured


class TooLittle(ValueError):
    """There is too little to go on to predict a speed."""


@dataclass(frozen=True)
class Prediction:
    """A speed that nobody measured, or that was hidden.

    Attributes:
        value, low, high: with a 90 % interval, in the unit of the work's speeds.
        basis: what it rests on.
        num_guesses: how many guesses, or other machines, it was made from.
    """

    value: float
    low: float
    high: float
    basis: str
    num_guesses: int
