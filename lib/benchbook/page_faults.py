"""Memory that training steps ask the operating system for anew, since it was given back before: what it costs a point.

The C library decides when what was freed goes back. Linux's glibc learns that from what was freed before, so that the
same step asks anew for nothing, or for tens of megabytes. Each page of those costs a minor page fault when it is first
written to. The faults are counted and not the system's CPU time: TensorFlow's threads take that by waiting, too.
"""

from collections.abc import Mapping

import pandas

from benchbook import wording

# CPU time of a page fault, about. The system's CPU time over the faults of torch's windows is 1.2 to 2 microseconds on
# a virtual machine; without a hypervisor it is less. What the caches then lack comes on top.
FAULT_SECONDS = 1e-6
MATTERS = 0.05  # of a step's time, as for spread and drift


def share_of_step(points: Mapping | pandas.DataFrame) -> float | pandas.Series:
    """Return the part of a step's time for which page faults occupy one core, about; NaN where none were counted.

    Args:
        points: a summary or a line of it, with page_faults_per_step and seconds_per_step.
    """
    return points["page_faults_per_step"] * FAULT_SECONDS / points["seconds_per_step"]


def matter(points: Mapping | pandas.DataFrame) -> bool | pandas.Series:
    """Return whether page faults take a part of a step's time that changes its rate; see `share_of_step`."""
    return share_of_step(points) > MATTERS


def sentence(point: Mapping) -> str:
    """Return what a reader of a point's rate should know of its page faults; nothing where they hardly matter.

    Args:
        point: see `share_of_step`.
    """
    if not matter(point):
        return ""
    return (
        f"Each step asked for memory anew that had been given back ({point['page_faults_per_step']:,.0f} page faults):"
        f" about {wording.percent(share_of_step(point))} of its time on one core, which depends on what the process"
        " ran before"
    )
