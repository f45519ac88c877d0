"""Which of several devices a process has."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """The devices that train one network together, each on its part of every batch.

    Attributes:
        rank: which of them this process has.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1
