"""The graph: one job per point. `make study` starts it; what a job does is in benchbook.execute.

Rows are never declared as outputs, because Snakemake deletes what a failed job declared; `done` is written
last, by a point that has ended, in a failure row or not.
"""

import json
import sys
from dataclasses import asdict

from benchbook import machine, profiles

MACHINE = machine.identify(config.get("machine", "")).name
POINTS = profiles.read(config.get("profile", "quick"), config.get("studies", "all"), config.get("device", "all"))


rule all:
    input:
        [f"runs/{MACHINE}/{point.study}/{point.name}/done" for point in POINTS],


for position, point in enumerate(POINTS):

    rule:
        name:
            f"point_{position}"
        output:
            f"runs/{MACHINE}/{point.study}/{point.name}/done",
        params:
            point=json.dumps(asdict(point), sort_keys=True),
        priority: len(POINTS) - position  # the profile's order: points to be compared stand side by side
        resources:
            device=1,
        shell:
            "{sys.executable:q} -m benchbook.execute {params.point:q} {output:q} --machine {MACHINE:q}"
