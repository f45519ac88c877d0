"""The graph: one job per kernel of a point. `make study` starts it; what a job does is in benchbook.execute.

Rows are never declared as outputs, because Snakemake deletes what a failed job declared; `done` is written
last, by the last kernel of a point, ended in a failure row or not. The points come from a file that the session wrote:
this process lives as long as the kernels, and to ask a framework for its devices would take them from the kernels.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchbook import profiles

MACHINE = config["machine"]
POINTS = profiles.read_points(Path(config["points"]))
KERNELS = profiles.rounds(POINTS)


def end_of(point, kernel):
    """Return the file that says that a kernel of a point has ended."""
    name = "done" if kernel == point.num_kernels else f"kernel_{kernel}_done"
    return f"runs/{MACHINE}/{point.study}/{point.name}/{name}"


rule all:
    input:
        [end_of(point, point.num_kernels) for point in POINTS],


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
            "{sys.executable:q} -m benchbook.execute {params.point:q} {output:q} --machine {MACHINE:q}"
            " --kernel {params.kernel}"
