"""Several devices that train one network together: each has a copy and a part of every batch, gradients are averaged.

The engines are the frameworks' own: torchrun with gloo or NCCL, and keras.distribution on JAX, in one process.
"""

from benchbook.frameworks.devices import Group, make_room, several
from benchbook.measuring.parallel.launch import Job, RankFailed, measure

__all__ = ["Group", "Job", "RankFailed", "make_room", "measure", "several"]
