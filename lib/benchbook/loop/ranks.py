"""What the processes that train one network tell each other while their loop is measured."""

import os
import platform
from typing import Any

from benchbook.frameworks import devices
from benchbook.machine import context

# The longest waits for other ranks: at the first step, at the end of a loop, and between.
FIRST_SECONDS, END_SECONDS, USUAL_SECONDS = 120.0, 60.0, 600.0


class Ranks:
    """The ranks of a loop, found when they first exchange values: of torch's process group, or
    this process alone.

    Attributes:
        name: of the loop, the same in each rank.
        count: of the ranks.
        speaks: whether this rank prints.
    """

    def __init__(self, name: str) -> None:
        self.name, self.count, self.speaks, self._exchanges = name, 1, True, 0

    def exchange(self, steps: int, *values: Any, seconds: float = USUAL_SECONDS) -> list[tuple]:
        """Return each value as a tuple over the ranks.

        Args:
            steps: that this rank has taken.
            values: that JSON can hold.
            seconds: the longest wait.

        Raises:
            ValueError: the ranks have taken unequal steps, or one does not answer.
        """
        own = [platform.node(), os.getpid(), steps, *values]
        tables = [
            each.gather(f"{self.name}/{self._exchanges}", own, seconds)
            for each in devices.imported()
        ]
        table = max(tables, key=len, default=[own])
        if len(table) < self.count:
            raise ValueError(
                f"the group of {self.count} ranks is gone; allowed: rate() before it is destroyed"
            )
        self._exchanges, self.count, self.speaks = (
            self._exchanges + 1,
            len(table),
            table[0][:2] == own[:2],
        )
        if self.count > 1:
            here = tuple(process for node, process, *_ in table if node == own[0])
            context.change(ranks=here)
        if len(taken := {row[2] for row in table}) > 1:
            raise ValueError(
                f"ranks took {' and '.join(map(str, sorted(taken)))} steps; allowed: as many in each"
            )
        return list(zip(*(row[3:] for row in table), strict=True))
