"""The rows of all machines, merged with the published rows, and the files that the report shows."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas

from benchbook import studies
from benchbook.judging import verdicts
from benchbook.machine import condition, identity, layout
from benchbook.record import articles
from benchbook.report import claim_outcomes, costs, machines, pages
from benchbook.rows import crosschecks, manifests, records
from benchbook.studies import findings, predictions
from benchbook.studies.study import Drawing, Evidence


@dataclass(frozen=True)
class Aggregation:
    """The tables and charts of all rows that may be published; each is made once.

    Attributes:
        evidence: the measured rows of all machines, and the published rows.
        manifests: the manifests of the measured runs, by run id.
        left_out: a sentence for each file and run that was left out, and for each unknown column.
    """

    evidence: Evidence
    manifests: dict[str, dict]
    left_out: list[str]

    @cached_property
    def machines(self) -> pandas.DataFrame:
        """Return a line for each machine that measured; see `machines.table`."""
        return machines.table(self.evidence.measured, self.manifests)

    @cached_property
    def findings(self) -> dict[str, str]:
        """Return the finding of each study by its name; see `findings.finding`."""
        return {name: findings.finding(study, self.evidence) for name, study in studies.every().items()}

    @cached_property
    def claims(self) -> pandas.DataFrame:
        """Return the outcome of each claim; see `claim_outcomes.table`."""
        return claim_outcomes.table(claim_outcomes.judged(self.evidence), self.evidence.names)

    @cached_property
    def drawings(self) -> dict[str, Drawing]:
        """Return the drawn charts of the studies and of the predictions, by name."""
        charts = [chart for study in studies.every().values() for chart in study.charts]
        return {chart.name: chart.draw(self.evidence) for chart in [*charts, *predictions.CHARTS]}

    @cached_property
    def costs(self) -> pandas.DataFrame:
        """Return the costs of all tasks; see `costs.table`."""
        memory = self.machines.set_index("machine")["memory_gib"].dropna().to_dict()
        this, machines = identity.fingerprint(), self.evidence.measured.groupby("run_id")["machine"].first()
        kinds = {run: (manifest.get("machine") or {}).get("fingerprint") for run, manifest in self.manifests.items()}
        here = {name for run, name in machines.items() if kinds.get(run) == this}
        return costs.table(self.evidence, here, memory)

    def write(self, folder: Path) -> None:
        """Write the tables of all charts as CSV with all digits, and what the site shows next to the notebooks."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, drawing in self.drawings.items():
            for table_name, table in ({name: drawing.table} | drawing.tables).items():
                records.as_text(table).to_csv(folder / f"{table_name}.csv", index=False, lineterminator="\n")
        pages.write(self, folder)


def merge(runs: Path) -> Aggregation:
    """Merge the rows of all machines with the published rows.

    A file that breaks the schema is left out, and so is a run that contradicts itself, another run or its manifest.

    Args:
        runs: the folder of all machines' rows; this project's own may be missing.

    Raises:
        ValueError: it is not a folder.
    """
    if not runs.is_dir() and runs != layout.outputs() / "runs":
        raise ValueError(f"runs_folder {str(runs)!r} is not a folder; allowed: a folder of machines' rows")
    left_out = []
    described = manifests.read_all(runs, left_out.append)
    measured = records.gather(records.find(runs), left_out.append)
    measured = crosschecks.consistent(measured, described, left_out.append)
    measured = machines.separate_kinds(measured, described)
    conditions = condition.samples(described)
    rows = pandas.concat([verdicts.counting(measured, conditions), articles.rows()], ignore_index=True)
    return Aggregation(Evidence(rows, conditions, runs), described, left_out)
