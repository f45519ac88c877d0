"""The interface of a workload in the comparison with float64, for every framework; see
`benchbook.measuring.parity`."""

import itertools
from typing import Any

import numpy

from benchbook.frameworks.plain import Arrays

MOST_HALVINGS = 60  # of the loss scale, until the optimiser takes a step


class ParitySubject:
    """A workload that takes the steps that are timed, one at a time.

    Nothing in it is random: dropout is off, and noise comes with the batch. Arrays are NumPy's
    in float64; a parameter has the same name in every precision. Each framework has a subclass.

    Args:
        workload: its dropout is off; the caller turns it on again.

    Attributes:
        plain: the reference's parts.
        schedule_step: the schedule's next step.
        resolution: the distance of neighbouring numbers near 1 in the type of the weights.
    """

    resolution: float

    def __init__(self, workload: Any) -> None:
        self.workload, self.plain = workload, workload.plain
        self.fresh = workload.snapshot()
        self.restart()

    def restart(self) -> None:
        """Go back to the workload's first state, at the schedule's first compared step."""
        self.workload.restore(self.fresh)
        self.workload.advance_schedule(self.plain.schedule_start)
        self.schedule_step = self.plain.schedule_start

    def batches(self, count: int) -> list[tuple]:
        """Return the first batches of training as the loader delivers them, over as many epochs
        as necessary."""
        epochs = itertools.count(self.workload.epoch)
        stream = itertools.chain.from_iterable(self.workload.batches(epoch) for epoch in epochs)
        return [*itertools.islice(stream, count)]

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy arrays; numbers that are not integers are float64."""
        raise NotImplementedError

    def weights(self) -> Arrays:
        """Return every parameter, trainable or not."""
        raise NotImplementedError

    def statistics(self) -> Arrays:
        """Return the moving statistics of batch norms."""
        raise NotImplementedError

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Set weights and moving statistics, rounded to the workload's types."""
        raise NotImplementedError

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, Arrays]:
        """Train on one batch; return its mean loss and, if `differentiated`, the gradients of
        every parameter.

        An optimiser with a scaled loss skips a step whose gradients overflow and halves the
        scale: the batch is tried again.
        """
        before = self.statistics()
        for _ in range(MOST_HALVINGS):
            loss, gradients, taken = self.attempt(batch, differentiated)
            if taken:
                break
            self.load({}, before)
        return loss, gradients

    def attempt(self, batch: tuple, differentiated: bool) -> tuple[float, Arrays, bool]:
        """Try a step and update `schedule_step`; return loss, gradients, and whether the
        optimiser took the step."""
        raise NotImplementedError

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers rounded to the type of the parameter of this name."""
        raise NotImplementedError
