"""Which points are one job of a cluster, and what that job asks for."""

import itertools
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from benchbook.machine import layout
from benchbook.running.profiles import Point

CALIBRATION = "calibrate"  # the study whose ceilings the others are held against
MARGIN_MINUTES = 5  # of a job beside its kernels: Snakemake starts three times


@dataclass(frozen=True)
class Group:
    """Points that are compared with one another, and the calibration they are held against: one job.

    Attributes:
        name: the study's.
        points: as JSON holds them.
        gpus: that it asks for; 0: none of its points computes on one.
        minutes: the longest that its kernels may take together, and a margin.
    """

    name: str
    points: list[dict]
    gpus: int
    minutes: int

    def __post_init__(self) -> None:
        layout.check_name(self.name, "group")


def groups(points: list[Point]) -> list[Group]:
    """Return a group for each study, with the calibrations of its devices and frameworks; then those of no study."""
    ceilings = [point for point in points if point.study == CALIBRATION]
    others = [point for point in points if point.study != CALIBRATION]
    made, held = [], set()
    for name, members in itertools.groupby(others, key=lambda point: point.study):
        own = list(members)
        places = {_place(point) for point in own}
        calibrations = [point for point in ceilings if _place(point) in places]
        held |= {point.name for point in calibrations}
        made.append(_group(name, [*calibrations, *own]))
    left = [point for point in ceilings if point.name not in held]
    return [*made, _group(CALIBRATION, left)] if left else made


def _place(point: Point) -> tuple[str, str]:
    return point.parameters["device"], point.parameters.get("framework", "torch")


def _group(name: str, points: list[Point]) -> Group:
    gpus = [point.parameters.get("device_count", 1) for point in points if point.parameters["device"] == "cuda"]
    seconds = sum(point.num_kernels * point.time_limit_seconds for point in points)
    plain = [asdict(point) for point in points]
    return Group(name, plain, max(gpus, default=0), math.ceil(seconds / 60) + MARGIN_MINUTES)


def resources(group: Group, site: dict) -> dict[str, object]:
    """Return what a group's job asks for, as the Slurm executor of Snakemake names it.

    Source: https://snakemake.github.io/snakemake-plugin-catalog/plugins/executor/slurm.html

    Args:
        group: the job's.
        site: a Site as a mapping; what it lacks is left to the cluster.
    """
    asked = {
        "runtime": min(group.minutes, site.get("max_minutes") or group.minutes),
        "nodes": 1,
        "tasks": 1,
        "cpus_per_task": -1,  # all of a node that is this job's alone
        "mem_mb": 1024 * site.get("memory_gib", 0),  # 0: all, see SBATCH_MEM_PER_NODE in benchbook.running.cluster
        "slurm_extra": "--exclusive",
        "slurm_partition": site.get("partition"),
        "slurm_account": site.get("account"),
        "qos": site.get("qos"),
        "constraint": site.get("constraint"),
    }
    if group.gpus:
        kind = site.get("gpu_type")
        asked["gres"] = ":".join(["gpu", *([kind] if kind else []), str(group.gpus)])
        asked["tasks_per_gpu"] = 0  # one task a node, however many GPUs it has
    return {name: value for name, value in asked.items() if value not in (None, "")}


def read_groups(path: Path) -> list[Group]:
    """Return the groups of a file of JSON."""
    return [Group(**group) for group in json.loads(path.read_text())]
