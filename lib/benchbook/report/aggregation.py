"""The rows of all machines, merged with the published rows, and the files that the report shows."""

import gc
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas

from benchbook import studies
from benchbook.judging import statistics, wording
from benchbook.machine import condition, layout, sessions, temporary
from benchbook.record import articles
from benchbook.report import claim_outcomes, closing, costs, machines, pages, tables
from benchbook.rows import crosschecks, manifests, records
from benchbook.rows import files as reading
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.checks import CHECKS
from benchbook.studies.results import answers
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.results.tables import is_measured

MOST_ANSWERS = 8  # of a study, under its question


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
        found = machines.table(self.evidence.rows, self.manifests)
        return found.sort_values(
            "machine", key=lambda names: ~names.isin(self.evidence.yours), kind="stable"
        )

    @cached_property
    def findings(self) -> dict[str, str]:
        """Return the answer of each study by its name, in Markdown; see `closing.sentences`."""
        found = {
            name: closing.sentences(self.evidence, study, dated=True)
            for name, study in studies.every().items()
        }
        return {name: tables.markdown(" ".join(said)) for name, said in found.items()}

    @cached_property
    def answers(self) -> dict[str, str]:
        """Return the answers of each study's best machines, with their days, by the study's
        name, as a list in Markdown."""
        found = {}
        for name, study in studies.every().items():
            own = answers.of_machines(study, self.evidence)
            lines = [f"- {tables.markdown(str(each))} {each.day}" for each in own[:MOST_ANSWERS]]
            if len(own) > MOST_ANSWERS:
                lines.append(f"- {len(own) - MOST_ANSWERS} more, in the figure")
            found[name] = "\n".join(lines)
        return found

    @cached_property
    def yours(self) -> dict[str, str]:
        """Return the answer of the reader's own machines to each study's question, if they
        measured it, in Markdown; without any the answers of all machines, after whose they are."""
        rows, names = self.evidence.rows, self.evidence.yours
        own = rows[rows["source"].ne("measured") | rows["machine"].isin(names)]
        own = replace(self.evidence, rows=own, own_first=True) if names else self.evidence
        every = studies.every().values()
        found = {study.question: answers.of_study(study, own) for study in every}
        found = {
            question: tables.markdown(answer.dated)
            for question, answer in found.items()
            if answer and is_measured(answer.line)
        }
        if names or not found:
            return found
        measured, name_of = self.evidence.measured, self.evidence.names.machine
        machines = list(map(name_of, sorted(set(measured["machine"]))))
        days = statistics.days(measured)
        more = [f"{len(machines) - 3} more"] if len(machines) > 3 else []
        whose = wording.joined([*machines[:3], *more])
        whose += f", measured {' to '.join(dict.fromkeys(days[:1] + days[-1:]))}"
        first = "Nothing was measured in this checkout on this computer yet."
        return {first: tables.markdown(f"The answers below are of {whose}.")} | found

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
        return costs.table(self.evidence, self.evidence.yours, memory)

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
            files |= {f"{name}.svg": figures.as_svg(drawing.figure)} if drawing.figure else {}
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.naming(path):
                path.write_text(text, encoding="utf-8", newline="")


def merge(runs: Path) -> Aggregation:
    """Merge the rows of all machines with the published rows, and make everything of them.

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
    unread: list[str] = []
    described = manifests.read_all(runs, unread.append)
    rows, errors, mine = records.gather(runs, unread.append), {}, sessions.own()

    def make(names: list[str]) -> Aggregation:
        said, own = [*unread], rows[rows["machine"].isin(names)]
        known = {run: described[run] for run in own["run_id"].unique() if run in described}
        measured = CHECKS.consistent(own, known, said.append)
        measured = crosschecks.by_owner(measured, known, mine)
        yours = frozenset(measured.loc[measured["session"].isin(mine), "machine"])
        every = pandas.concat([measured, articles.rows()], ignore_index=True)
        evidence = Evidence(every, condition.samples(known), runs, yours=yours)
        for name, error in errors.items():
            reason = f"it ends the report ({type(error).__name__}: {error})"
            said.append(f"left out: machine {name}: {reason}")
        traces = ["".join(traceback.format_exception(error)) for error in errors.values()]
        merged = Aggregation(evidence, known, said, traces)
        _ = merged.drawings, merged.findings, merged.pages  # and what they are made from
        return merged

    names = rows["machine"].unique().tolist()
    gc.disable()  # its search for cycles takes an eighth of the time
    try:
        return make(names)
    except reading.unexpected():
        make([])  # raises if the fault is in no machine
        find_faults(make, names, errors)
        if not errors:
            raise
        return make([name for name in names if name not in errors])
    finally:
        gc.enable()


def find_faults(
    make: Callable[[list[str]], object], names: list[str], errors: dict[str, Exception]
) -> None:
    """Add the errors of the machines with which `make` raises, given that it does for these names.

    They are split in halves until each is alone: of hundreds a few are at fault.
    """
    half = len(names) // 2
    for part in (names[:half], names[half:]):
        try:
            make(part)
        except Exception as error:
            if len(part) > 1:
                find_faults(make, part, errors)
            else:
                errors[part[0]] = error
