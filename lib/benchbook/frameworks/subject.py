"""What a workload needs in every framework to take its timed steps one at a time, each to be looked at."""

import itertools
from typing import Any

MOST_HALVINGS = 60  # of a loss's scale until a step is taken


class Subject:
    """What the subjects of all frameworks share; see `benchbook.frameworks.workload.ParitySubject`.

    Args:
        workload: its dropout is off, and whoever made this puts it back afterwards.
    """

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
        return [self._gathered(batch) for batch in itertools.islice(stream, count)]

    def _gathered(self, batch: tuple) -> tuple:
        """Return a loader's batch with each of its parts in one piece."""
        return tuple(batch)
