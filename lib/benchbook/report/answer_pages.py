"""Writing the answer's pages: one a task, one a machine, and the same numbers as data."""

import json
from itertools import groupby
from pathlib import Path

import jinja2

from benchbook.judging.wording import duration
from benchbook.report import answering
from benchbook.report.answers import export
from benchbook.report.answers.marks import Mark
from benchbook.report.answers.tasks import TASKS, task

DATA = "data"
LICENCE = "MIT; published figures and prices belong to the sources that each line names"


def write(
    every: list[Mark], folder: Path, environment: jinja2.Environment, citation: str, links: dict[str, str]
) -> None:
    """Write a page for each task and machine, and the data, into the report's folder.

    Args:
        every: the marks of all tasks.
        folder: of the report.
        environment: of the templates.
        citation: of the report.
        links: the page of the notebook that ran, by a mark's source.
    """
    _write_tasks(every, folder, environment, links)
    _write_machines(every, folder / "machines", environment)
    table, data = export.lines(every), folder / DATA
    data.mkdir(parents=True, exist_ok=True)
    (data / "LICENCE.txt").write_text(f"{LICENCE}.\n\nCite: {citation}\n", encoding="utf-8")
    (data / "answers.csv").write_text(export.as_csv(table), encoding="utf-8")
    (data / "answers.json").write_text(export.as_json(table, LICENCE, citation), encoding="utf-8")
    (data / "answers.schema.json").write_text(json.dumps(export.schema(), indent=1) + "\n", encoding="utf-8")


def dataset(project: dict, citation: str) -> str:
    """Return what search engines for data read of the answers: https://schema.org/Dataset, as JSON-LD.

    Args:
        project: from `citing.project`.
        citation: of the report.
    """
    kinds = {"csv": "text/csv", "json": "application/json"}
    files = [
        {"@type": "DataDownload", "encodingFormat": kind, "contentUrl": f"{DATA}/answers.{ending}"}
        for ending, kind in kinds.items()
    ]
    names = [f"{each.short}: seconds, joules and US dollars" for each in TASKS]
    described = {
        "@context": "https://schema.org",
        "@type": "Dataset",
        "name": project["title"],
        "description": "What training a network takes on many machines: measured, published and predicted.",
        "license": "https://spdx.org/licenses/MIT.html",
        "citation": citation,
        "creator": [{"@type": "Organization", "name": author["name"]} for author in project["authors"]],
        "version": project["version"],
        "variableMeasured": names,
        "distribution": files,
    }
    return json.dumps(described, ensure_ascii=False).replace("<", "\\u003c")


def _write_tasks(every: list[Mark], folder: Path, environment: jinja2.Environment, links: dict[str, str]) -> None:
    template = environment.get_template("task.html")
    for each in TASKS:
        page = template.render(answer=answering.content(each, every, links))
        (folder / answering.address(each)).write_text(page, encoding="utf-8")


def _write_machines(every: list[Mark], folder: Path, environment: jinja2.Environment) -> None:
    """Write a page for each machine, with all that is known of it; pages of before that no mark has are deleted."""
    template = environment.get_template("machine.html")
    folder.mkdir(parents=True, exist_ok=True)
    pages = set()
    by_place = sorted(every, key=lambda mark: mark.place)
    for place, own in groupby(by_place, key=lambda mark: mark.place):
        own = sorted(own, key=lambda mark: [each.key for each in TASKS].index(mark.task))
        lines = [
            {"id": answering.identifier(mark), "mark": mark, "task": task(mark.task), "time": duration(mark.seconds)}
            | {"range": f"{duration(mark.low)} to {duration(mark.high)}" if mark.low else ""}
            for mark in own
        ]
        path = folder / f"{answering.slug(place)}.html"
        path.write_text(template.render(place=place, name=own[0].machine, lines=lines), encoding="utf-8")
        pages.add(path)
    for path in set(folder.glob("*.html")) - pages:
        path.unlink()
