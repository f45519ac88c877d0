"""The graph: one job per kernel of a point. `make study` starts it; what a job does is in benchbook.running.job.

Rows are never declared as outputs, because Snakemake deletes what a failed job declared; `done` is written
last, by the last kernel of a point, ended in a failure row or not. The points come from a file that the session wrote:
this process lives as long as the kernels, and to ask a framework for its devices would take them from the kernels.

On a cluster a job is what is compared with one another, and runs this same graph on its node; see
benchbook.running.cluster.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchbook.running import cluster, groups, profiles

MACHINE, STATE, TEMPORARY = config["machine"], config["state"], config["temporary"]
GROUPS = groups.read_groups(Path(config["groups"])) if "groups" in config else []
POINTS = profiles.read_points(Path(config["points"])) if "points" in config else []
KERNELS = profiles.rounds(POINTS)
cluster.end_with_launcher(config)
if GROUPS:
    os.environ["TMPDIR"] = TEMPORARY  # jobs outlive this process and the folder of its own


def end_of(point, kernel):
    """Return the file that says that a kernel of a point has ended."""
    name = "done" if kernel == point.num_kernels else f"kernel_{kernel}_done"
    return f"{STATE}/{point.study}/{point.name}/{name}"


rule all:
    input:
        [end_of(point, point.num_kernels) for point in POINTS],
        [f"{STATE}/{group.name}/done" for group in GROUPS],


for position, (point, kernel) in enumerate(KERNELS):

    rule:
        name:
            f"kernel_{position}"
        input:
            [end_of(point, kernel - 1)] if kernel > 1 else [],
        output:
            end_of(point, kernel),
        params:
            point=json.dumps(asdict(point), sort_keys=True),
            kernel=kernel,
        priority: len(KERNELS) - position  # points to be compared take turns
        resources:
            device=1,
        shell:
            "TMPDIR={TEMPORARY:q} {sys.executable:q} -m benchbook.running.job {params.point:q} {output:q}"
            " --machine {MACHINE:q} --kernel {params.kernel}"


for group in GROUPS:

    rule:
        name:
            group.name
        output:
            f"{STATE}/{group.name}/done",
        params:
            group=json.dumps(asdict(group), sort_keys=True),
        resources:
            **groups.resources(group, config),
        shell:
            "{sys.executable:q} -m benchbook.running.cluster {params.group:q} {output:q} --machine {MACHINE:q}"
