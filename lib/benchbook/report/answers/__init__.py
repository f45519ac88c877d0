"""What would it cost? Tasks that a reader chooses from, and what each machine takes for them: time, money, energy.

The aggregation gathers the marks of all tasks and saves them; the report loads them.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pandas

from benchbook.machine import identity
from benchbook.report.answers import from_record, from_rows
from benchbook.report.answers.marks import Mark
from benchbook.report.answers.tasks import TASKS
from benchbook.rows import manifests
from benchbook.studies.study import Evidence

FILE = "answers.json"


def gather(evidence: Evidence, headlines: pandas.DataFrame, here: str) -> list[Mark]:
    """Return the marks of all tasks, the shortest time of each task first.

    Args:
        evidence: measured and published rows.
        headlines: from `headline.table`.
        here: the name of this machine in rows.
    """
    worked_out = from_record.read()
    marks = list(from_rows.of_studies(evidence, headlines, here, worked_out["chips"]))
    marks += from_rows.of_own_networks(evidence, here, worked_out)
    marks += from_record.of_record(worked_out, marks)
    order = [each.key for each in TASKS]
    return sorted(marks, key=lambda mark: (order.index(mark.task), mark.seconds, mark.name, mark.family))


def save(marks: Iterable[Mark], folder: Path) -> None:
    """Write marks into a folder, where the report reads them: what the aggregation has read need not be read again."""
    lines = [json.dumps(asdict(mark), default=lambda number: number.item()) for mark in marks]
    (folder / FILE).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def load(folder: Path) -> list[Mark]:
    """Return the marks that `save` wrote into a folder; none where it wrote none."""
    if not (folder / FILE).exists():
        return []
    lines = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return [Mark(**line | {name: tuple(line[name]) for name in ("sources", "operations")}) for line in lines]


def here(folder: Path) -> str:
    """Return this machine's name in the rows of a folder: its own, else that of a machine of its very kind."""
    this = identity.identify()
    if (folder / this.name).is_dir():
        return this.name
    for own in sorted(path for path in folder.glob("*") if path.is_dir()):
        manifest = next(own.rglob(manifests.FILES), None)
        described = json.loads(manifest.read_text(encoding="utf-8")).get("machine") if manifest else None
        if (described or {}).get("fingerprint") == this.fingerprint:
            return own.name
    return this.name
