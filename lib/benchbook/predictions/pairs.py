"""A speed from works that a processor shares with others.

Every other processor that did the work makes a guess for each further work that both did: its own speed, times how much
faster the one asked for was on that further work. The guesses over the works most like the one asked for count, and
their median is the prediction. Of three ways to join guesses (over the works most like it, over all, and least squares
of one effect a work and one a processor) this one was chosen by the rule of the smallest median error over all held-out
pairs, whatever their basis; least squares was no worse where only other networks were left.

Intervals are conformal: the 90 % quantile of the errors that such predictions make of pairs which were measured.
"""

import math

import numpy
import pandas

from benchbook.predictions.prediction import LEVEL, Prediction, TooLittle

FEWEST = 3  # guesses
FEWEST_ERRORS = 9  # the fewest that have a 90 % quantile
SAME = "published pairs, same network there"  # in the same publication: another batch, image size or framework
OTHER = "published pairs, other works"
# Starting a step takes longer than its arithmetic: such networks tell nothing of larger ones, nor larger ones of them.
# Seen, not foreseen: without this rule a published MLP put desktop GPUs below a laptop's on convolutions.
TINY = ("mlp", "lenet5", "mnist_cnn", "tiny_vgg", "vae")
REPEATED = ("framework", "image_size", "batch_size", "half")  # with the network, a work whoever published it


class Pairs:
    """Speeds as a table of processors and works, in logarithms."""

    def __init__(self, speeds: pandas.DataFrame):
        """Lay out the table.

        Args:
            speeds: from `speeds.table`.
        """
        self.lines = speeds.reset_index(drop=True)
        works = speeds.drop_duplicates("work").sort_values("work")
        self.works, self.processors = list(works["work"]), sorted(speeds["processor"].unique())
        self.rows = [self.processors.index(name) for name in speeds["processor"]]
        self.columns = [self.works.index(name) for name in speeds["work"]]
        self.grid = numpy.full((len(self.processors), len(self.works)), numpy.nan)
        self.grid[self.rows, self.columns] = numpy.log(speeds["speed"].astype(float))
        alike = {name: _alike(works[name]) for name in ("network", "publication", *REPEATED)}
        known = {name: both & works[name].notna().to_numpy() for name, both in alike.items()}
        tiny = works["network"].isin(TINY).to_numpy(bool)
        self._same_size = tiny[:, None] == tiny
        self._network, self._there = known["network"], known["network"] & known["publication"]
        self._repeats = numpy.logical_and.reduce([known["network"], *(alike[name] for name in REPEATED)])
        self._likeness = 8 * known["network"] + 4 * known["framework"] + 2 * known["publication"]
        self._likeness = self._likeness + known["network"] * (known["image_size"] - _batches_apart(works) / 100)
        self._errors = {}

    def predict(self, processor: str, work: str, blind: bool = False) -> Prediction:
        """Return how fast a processor does a work; what it is known to reach there, in any publication, is hidden.

        The interval comes from the errors of the other processors' predictions, made as if this one did not exist.

        Args:
            processor: one that did other works.
            work: one that other processors did.
            blind: hide all that the processor did with the work's network.

        Raises:
            TooLittle: fewer than three guesses, or too few errors for an interval.
            ValueError: a processor or a work of which no speed is known.
        """
        for name, known in ((processor, self.processors), (work, self.works)):
            if name not in known:
                raise ValueError(f"{name!r} is not known; allowed: {', '.join(map(repr, known)) or 'none yet'}")
        row, column = self.processors.index(processor), self.works.index(work)
        value, basis, num_guesses = self._guess(self.grid, row, column, blind)
        errors = self._errors_without(row)[basis]
        if len(errors) < FEWEST_ERRORS:
            raise TooLittle(f"{len(errors)} of the {FEWEST_ERRORS} errors of such predictions that an interval needs")
        reach = errors[math.ceil(LEVEL * (len(errors) + 1)) - 1]
        bounds = (math.exp(value + part) for part in (0, -reach, reach))
        return Prediction(*bounds, basis, num_guesses)

    def _errors_without(self, absent: int) -> dict[str, list[float]]:
        """Return, by basis, how far predictions are off in logarithms, sorted, in a world without one processor."""
        if absent not in self._errors:
            grid = self.grid.copy()
            grid[absent] = numpy.nan
            found = {SAME: [], OTHER: []}
            for row, column in zip(self.rows, self.columns, strict=True):
                for basis, blind in ((SAME, False), (OTHER, True)) if row != absent else ():
                    try:
                        value, reached, _ = self._guess(grid, row, column, blind)
                    except TooLittle:
                        continue
                    if reached == basis:
                        found[basis].append(abs(value - grid[row, column]))
            self._errors[absent] = {basis: sorted(errors) for basis, errors in found.items()}
        return self._errors[absent]

    def _guess(self, grid: numpy.ndarray, row: int, column: int, blind: bool) -> tuple[float, str, int]:
        """Return the median of the guesses over the works most like one, its basis and the number of guesses."""
        own = grid[row].copy()
        own[self._network[column] if blind else self._repeats[column]] = numpy.nan
        own[column] = numpy.nan
        own[~self._same_size[column]] = numpy.nan
        guesses = grid[:, [column]] + own - grid  # one for each other processor and further work
        guesses[row] = numpy.nan
        made = ~numpy.isnan(guesses)
        if made.sum() < FEWEST:
            raise TooLittle(f"{made.sum()} of the {FEWEST} guesses that it needs")
        likeness = numpy.broadcast_to(self._likeness[column], guesses.shape)
        used = made & (likeness >= numpy.sort(likeness[made])[-FEWEST])
        there = self._there[column][numpy.nonzero(used)[1]].all()
        return float(numpy.median(guesses[used])), SAME if there else OTHER, int(used.sum())


def _alike(values: pandas.Series) -> numpy.ndarray:
    """Return which works have the same value, shape (works, works); what is missing is alike."""
    codes = pandas.factorize(values)[0]
    return codes[:, None] == codes


def _batches_apart(works: pandas.DataFrame) -> numpy.ndarray:
    """Return how many doublings batches are apart, shape (works, works); 99 where one is not known."""
    sizes = numpy.log2(pandas.to_numeric(works["batch_size"], errors="coerce").to_numpy(float))
    return numpy.nan_to_num(abs(sizes[:, None] - sizes), nan=99.0)
