"""The graph: one job per point. `make study` starts it; the rules live in benchbook.execute.

Rows are never declared as outputs, because Snakemake deletes what a failed job declared; `done` is written
last, by a point that has ended, in a failure row or not.
"""

import json
import sys
from dataclasses import asdict

from benchbook import machine, profiles

MACHINE = machine.identify(config.get("machine", "")).name
CHOICE = config.get("profile", "quick"), config.get("studies", "all"), config.get("device", "all")
POINTS = {(point.study, point.name): point for point in profiles.read(*CHOICE)}


rule all:
    input:
        [f"runs/{MACHINE}/{study}/{name}/done" for study, name in POINTS],


rule point:
    output:
        f"runs/{MACHINE}/{{study}}/{{name}}/done",
    params:
        point=lambda wildcards: json.dumps(asdict(POINTS[wildcards.study, wildcards.name]), sort_keys=True),
    resources:
        device=1,
    shell:
        "{sys.executable:q} -m benchbook.execute {params.point:q} {output:q} --machine {MACHINE:q}"
