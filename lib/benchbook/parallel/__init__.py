"""Several devices that train one network together: each has a copy and a part of every batch, gradients are averaged.

The engines are the frameworks' own: torchrun with gloo or NCCL here; Keras's are in `workloads.keras`.
"""

from benchbook.parallel.group import Group
from benchbook.parallel.launch import Job, RankFailed, measure

__all__ = ["Group", "Job", "RankFailed", "measure"]
