"""The rows of all machines, merged with the published rows, and the files that the report shows."""

import gc
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas

from benchbook import studies
from benchbook.judging import verdicts
from benchbook.machine import condition, identity, layout
from benchbook.record import articles
from benchbook.report import claim_outcomes, closing, costs, machines, pages, tables
from benchbook.rows import crosschecks
from benchbook.rows import files as reading
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.results import findings
from benchbook.studies.results.evidence import Evidence


@dataclass(frozen=True)
class Aggregation:
    """The tables and charts of all rows that may be published; each is made once.

    Attributes:
        evidence: the measured rows of all machines, and the published rows.
        manifests: the manifests of the measured runs, by run id.
        left_out: a sentence for each file, run and machine that was left out, and for each
        unknown column.
        errors: the traceback of each machine that was left out.
    """

    evidence: Evidence
    manifests: dict[str, dict]
    left_out: list[str]
    errors: list[str] = field(default_factory=list)

    @cached_property
    def machines(self) -> pandas.DataFrame:
        """Return a line for each machine that measured, the reader's own first; see
        `machines.table`."""
        found = machines.table(self.evidence.measured, self.manifests)
        return found.sort_values(
            "machine", key=lambda names: ~names.isin(self.evidence.yours), kind="stable"
        )

    @cached_property
    def findings(self) -> dict[str, str]:
        """Return the finding of each study by its name, in Markdown; see `findings.finding`."""
        found = {
            name: findings.finding(study, self.evidence) for name, study in studies.every().items()
        }
        return {name: tables.markdown(" ".join(said)) for name, said in found.items()}

    @cached_property
    def yours(self) -> dict[str, str]:
        """Return the answer of the reader's own machines to each study's question, if they
        measured it, in Markdown."""
        rows, names = self.evidence.rows, self.evidence.yours
        if not names:
            return {}
        own = rows[rows["source"].ne("measured") | rows["machine"].isin(names)]
        own = replace(self.evidence, rows=own, own_first=True)
        found = {study.question: closing.headline(own, study) for study in studies.every().values()}
        return {question: tables.markdown(said) for question, said in found.items() if said}

    @cached_property
    def claims(self) -> pandas.DataFrame:
        """Return the outcome of each claim; see `claim_outcomes.table`."""
        return claim_outcomes.table(claim_outcomes.judged(self.evidence), self.evidence.names)

    @cached_property
    def drawings(self) -> dict[str, Drawing]:
        """Return the drawn charts of the studies, by name."""
        every = studies.every().values()
        return {
            chart.name: chart.draw(self.evidence, study.name)
            for study in every
            for chart in study.charts
        }

    @cached_property
    def costs(self) -> pandas.DataFrame:
        """Return the costs of all tasks; see `costs.table`."""
        memory = self.machines.set_index("machine")["memory_gib"].dropna().to_dict()
        this, machines = (
            identity.fingerprint(),
            self.evidence.measured.groupby("run_id")["machine"].first(),
        )
        kinds = {
            run: (manifest.get("machine") or {}).get("fingerprint")
            for run, manifest in self.manifests.items()
        }
        here = {name for run, name in machines.items() if kinds.get(run) == this}
        return costs.table(self.evidence, here, memory)

    @cached_property
    def pages(self) -> dict[str, str]:
        """Return the files that the site shows next to the notebooks, by name; see
        `pages.files`."""
        return pages.files(self)

    def write(self, folder: Path) -> None:
        """Write the tables of all charts as CSV, what the site shows next to the notebooks, and
        a log of errors."""
        files = self.pages | {"errors.log": "\n".join(self.errors)}
        for name, drawing in self.drawings.items():
            drawn = {name: drawing.table} | drawing.tables
            files |= {
                f"{table_name}.csv": tables.as_csv(table) for table_name, table in drawn.items()
            }
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")


def without_faults(
    evidence: Evidence, manifests: dict[str, dict], left_out: list[str]
) -> Aggregation:
    """Return the aggregation with everything made, without the machines with which that raises;
    see `Aggregation`."""
    rows, errors = evidence.rows, {}

    def made(wanted: Collection[str]) -> Aggregation:
        own = rows[(rows["source"] != "measured") | rows["machine"].isin(wanted)]
        merged = Aggregation(
            replace(evidence, rows=own), manifests, left_out, list(errors.values())
        )
        _ = (
            merged.drawings,
            merged.findings,
            merged.pages,
        )  # what they are made from is made as well
        return merged

    machines = evidence.measured["machine"].unique()
    try:
        return made(machines)
    except reading.unexpected as error:
        whole = error
    for machine in machines:
        try:
            made([machine])
        except Exception as error:
            errors[machine] = "".join(traceback.format_exception(error))
            left_out.append(
                f"left out: machine {machine}: it ends the report ({type(error).__name__}: {error})"
            )
    if not errors:  # the fault is in no machine
        raise whole
    return made(set(machines) - set(errors))


def merge(runs: Path) -> Aggregation:
    """Merge the rows of all machines with the published rows.

    A file that breaks the schema is left out, and so is a run that contradicts itself, another
    run or its manifest, and a machine of which no report can be made.

    Args:
        runs: the folder of all machines' rows; this project's own may be missing.

    Raises:
        ValueError: it is not a folder.
    """
    if not runs.is_dir() and runs != layout.outputs() / "runs":
        raise ValueError(
            f"runs_folder {str(runs)!r} is not a folder; allowed: a folder of machines' rows"
        )
    left_out = []
    measured, described = crosschecks.read(runs, left_out.append)
    measured = machines.separate_kinds(measured, described)
    conditions = condition.samples(described)
    rows = pandas.concat(
        [verdicts.counting(measured, conditions), articles.rows()], ignore_index=True
    )
    yours = frozenset(path.name for path in layout.states().glob("*/")) & set(measured["machine"])
    gc.disable()  # its search for cycles takes an eighth of the time
    try:
        return without_faults(Evidence(rows, conditions, runs, yours=yours), described, left_out)
    finally:
        gc.enable()
