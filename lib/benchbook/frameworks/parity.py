"""The interface of what is compared with float64, for every framework; see `benchbook.measuring.parity`."""

import itertools
from typing import Any

import numpy

from benchbook.frameworks.plain import Arrays

MOST_HALVINGS = 60  # of a loss's scale until a step is taken


class ParitySubject:
    """A workload that takes the steps it is timed with, one at a time, for each to be looked at.

    Nothing in it is random: dropout is off, and noise comes with the batch. Arrays are NumPy's in float64, by names
    that are the same in every precision. Each framework has a subclass.

    Args:
        workload: its dropout is off, and the caller turns it on again afterwards.

    Attributes:
        plain: what the steps are compared with.
        num_passed: steps of the schedule before the next one.
        resolution: how far numbers of about 1 lie apart where weights are kept.
    """

    resolution: float

    def __init__(self, workload: Any) -> None:
        self.workload, self.plain = workload, workload.plain
        self.fresh = workload.snapshot()
        self.restart()

    def restart(self) -> None:
        """Go back to the weights, the optimiser and the random state that the workload came with."""
        self.workload.restore(self.fresh)
        self.workload.pass_steps(self.plain.steps_passed)
        self.num_passed = self.plain.steps_passed

    def batches(self, count: int) -> list[tuple]:
        """Return the first batches of training as the loader delivers them, past an epoch's end those of the next."""
        epochs = itertools.count(self.workload.epoch)
        stream = itertools.chain.from_iterable(self.workload.batches(epoch) for epoch in epochs)
        return [tuple(self.gather(part) for part in batch) for batch in itertools.islice(stream, count)]

    def gather(self, part: Any) -> Any:
        """Return a part of a loader's batch in one piece, though several devices may hold their shares of it."""
        return part

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy has it: what is not whole in float64."""
        raise NotImplementedError

    def weights(self) -> Arrays:
        """Return every parameter, trainable or not."""
        raise NotImplementedError

    def statistics(self) -> Arrays:
        """Return the moving statistics of batch norms."""
        raise NotImplementedError

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics, rounded to what the workload keeps."""
        raise NotImplementedError

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, Arrays]:
        """Train on one batch; return its mean loss and, if they are wanted, every parameter's gradients.

        A scaled optimiser leaves out a step whose gradients overflow, and halves its scale; the same batch comes again.
        """
        before = self.statistics()
        for _ in range(MOST_HALVINGS):
            loss, gradients, taken = self.attempt(batch, differentiated)
            if taken:
                break
            self.load({}, before)
        return loss, gradients

    def attempt(self, batch: tuple, differentiated: bool) -> tuple[float, Arrays, bool]:
        """Try a step; return what `step` does, and whether the optimiser took it. Count it in `num_passed`."""
        raise NotImplementedError

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers as the parameter of this name keeps them."""
        raise NotImplementedError
