"""The static site: it lays out figures and tables that the aggregation wrote, and computes nothing."""

import csv
import functools
import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import jinja2

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.record import articles, claims
from benchbook.report import answers, citing, claims_chart, executed, tables
from benchbook.report.answers import page
from benchbook.report.answers.from_rows import rows_of
from benchbook.report.answers.marks import Mark
from benchbook.report.answers.tasks import TASKS
from benchbook.report.citing import Published
from benchbook.running import kernel
from benchbook.studies.predictions import CHARTS as PREDICTIONS
from benchbook.studies.study import Chart

AGGREGATED = "90_aggregate.ipynb"  # the aggregation as it ran, in the report's folder
LICENCE = "MIT; published figures and prices belong to the sources that each line names"
NOBODY = (claims.NOT_MEASURED, claims.NOT_RECOMPUTED, claims.NOT_COMPARABLE)  # verdicts that decide nothing


def write() -> Path:
    """Run the aggregation notebook over all rows, and write the pages; return the first one's path.

    Raises:
        RuntimeError: the notebook failed; the message ends with what it printed last.
    """
    outputs = layout.outputs()
    aggregated = outputs / "report" / AGGREGATED
    aggregated.parent.mkdir(parents=True, exist_ok=True)
    command = kernel.command(layout.notebook("aggregate"), aggregated)
    # Its matrices are small: further threads of the linear algebra wait for one another, busily, six times as long.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **quiet) as aggregation:
        try:
            notebooks = itertools.chain(executed.newest(outputs / "runs"), _wait(aggregation, aggregated))
            return write_pages(outputs / "figures", outputs / "report", notebooks)
        except BaseException:
            aggregation.kill()
            raise


def _wait(aggregation: subprocess.Popen, aggregated: Path) -> Iterator[Path]:
    """Yield the aggregation as it ran, once it has ended; meanwhile other notebooks become pages.

    Raises:
        RuntimeError: it failed.
    """
    _, errors = aggregation.communicate()
    if aggregation.returncode:
        raise RuntimeError(f"the aggregation failed:\n{errors[-2000:]}")
    yield aggregated


def left_out(figures: Path) -> list[str]:
    """Return what the aggregation wrote on files and runs that it left out, and on columns it does not know."""
    return [line["fault"] for line in tables.lines(figures / "left-out.csv")]


def write_pages(figures: Path, folder: Path, notebooks: Iterable[Path] = ()) -> Path:
    """Write the report's pages into a folder, with a copy of every file they show.

    There are index.html, points.html, one for each claim and notebook, and, of marks, one for each task and machine.

    Args:
        figures: what the aggregation wrote; read when all notebooks have their pages. The first page begins with the
            marks of the first task, where it wrote marks.
        folder: the site's folder.
        notebooks: executed ones; one that cannot be read has no page.

    Returns:
        The path of index.html.
    """
    environment = _environment()
    pages = executed.write(notebooks, folder / "notebooks", environment.get_template("notebook.html"))
    every = answers.load(figures)
    links = {
        rows_of(own["machine"], own["study"], own["point"]): f"notebooks/{own['file']}"
        for own in pages
        if own["machine"]
    }
    _copy(figures, folder / "files")
    called, printed = tables.names(figures / "machine-names.csv"), functools.cache(articles.rows)
    lines = [line | {"called": called.get(line["machine"])} for line in tables.lines(figures / "summary.csv")]
    findings = {line["study"]: line for line in tables.lines(figures / "findings.csv")}
    sections = []
    for study in studies.every().values():
        if shown := _figures(figures, study.name, study.charts, lines, printed):
            said = {name: findings.get(study.name, {}).get(name) or "" for name in ("finding", "basis")}
            sections.append({"study": study.name, "name": study.title, "title": study.question} | said | shown)
    citation = citing.report(lines)
    content = {
        "sections": sections,
        "predictions": _figures(figures, "", PREDICTIONS, lines, printed),
        "claims": _figures(figures, "", [claims_chart.CHART], lines, printed),
        "tables": {name: tables.table(figures / f"{name}.csv", name, called) for name in tables.COLUMNS},
        "counts": _counts(figures / "claims.csv"),
        "failures": [line for line in lines if line.get("status") not in (None, "ok")],
        "left_out": left_out(figures),
        "measured": citing.measured(lines),
        "citation": citation,
        "pages": [own | {"called": called.get(own["machine"], own["machine"])} for own in pages],
        "dataset": _dataset(citing.project(), citation),
        "answer": page.content(page.FIRST, every, environment, links) if every else None,
    }
    texts = {name: environment.get_template(name).render(content) for name in ("points.html", "index.html")}
    if every:
        template = environment.get_template("task.html")
        others = {page.address(task): page.content(task, every, environment, links) for task in TASKS[1:]}
        texts |= {name: template.render(answer=answer) for name, answer in others.items()}
        _write_data(every, folder / "data", citation)
        _replace(folder / "machines", page.machines(every, environment))
    write_claims(figures / "claims.csv", folder / "claims", environment)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "index.html"


def write_claims(judged: Path, folder: Path, environment: jinja2.Environment) -> None:
    """Write a page for each published claim, at an address that stays: what was claimed, and what was found.

    Args:
        judged: the CSV of `claims.table`; without the file there are no pages.
        folder: of the pages.
        environment: of the templates.
    """
    folder.mkdir(parents=True, exist_ok=True)
    template, pages = environment.get_template("claim.html"), {}
    printed = claims.read(layout.published() / "claims.csv").set_index("id")["article"].to_dict()
    lines = sorted(tables.lines(judged), key=lambda line: line["id"])
    for name, own in itertools.groupby(lines, key=lambda line: line["id"]):
        shown = []
        for line in own:
            low, high, value = (tables.text(line.get(column)) for column in ("low", "high", "value"))
            bounds = f" ({low} to {high})" if low != high else ""
            shown.append(
                line
                | {"reason": wording.sentence(line.get("reason") or ""), "shown": value and f"{value}{bounds}"}
                | {"decides": line["verdict"] not in NOBODY, "article": printed.get(name, "")}
            )
        pages[f"{layout.check_name(name, 'claim')}.html"] = template.render(claim=shown[0], lines=shown)
    _replace(folder, pages)


def _replace(folder: Path, pages: dict[str, str]) -> None:
    """Write pages into a folder; those that it had of before, and that have no successor, are deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.html"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def _write_data(every: list[Mark], folder: Path, citation: str) -> None:
    """Write the marks as data, with their schema, licence and citation."""
    table = answers.lines(every)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "LICENCE.txt": f"{LICENCE}.\n\nCite: {citation}\n",
        "answers.csv": answers.as_csv(table),
        "answers.json": answers.as_json(table, LICENCE, citation),
        "answers.schema.json": json.dumps(answers.schema(), indent=1) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _dataset(project: dict, citation: str) -> dict:
    """Return what search engines for data read of the answers: https://schema.org/Dataset."""
    kinds = {"csv": "text/csv", "json": "application/json"}
    return {
        "@context": "https://schema.org",
        "@type": "Dataset",
        "name": project["title"],
        "description": "What training a network takes on many machines: measured, published and predicted.",
        "license": "https://spdx.org/licenses/MIT.html",
        "citation": citation,
        "creator": [{"@type": "Organization", "name": author["name"]} for author in project["authors"]],
        "version": project["version"],
        "variableMeasured": [f"{task.short}: seconds, joules and US dollars" for task in TASKS],
        "distribution": [
            {"@type": "DataDownload", "encodingFormat": kind, "contentUrl": f"data/answers.{ending}"}
            for ending, kind in kinds.items()
        ],
    }


def _environment() -> jinja2.Environment:
    """Return the templates' environment; whatever comes from rows is escaped."""
    templates = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"library": _library(), "project": citing.project()}
    return environment


def _library() -> dict[str, str]:
    """Return DataTables as itables ships it, to stand in a data URL, and the licence that goes with it."""
    package = importlib.metadata.distribution("itables")
    code = Path(package.locate_file("itables/html/dt_bundle.js")).read_text(encoding="utf-8")
    return {"code": quote(code, safe=" !$&'()*+,-./:;=?@[]^_`{|}~"), "licence": package.read_text("licenses/LICENSE")}


def _copy(figures: Path, files: Path) -> None:
    """Copy the figures' files anew; text that a spreadsheet would run as a formula begins with an apostrophe."""
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    for file in (path for path in figures.iterdir() if path.is_file()):
        if file.suffix != ".csv":
            shutil.copyfile(file, files / file.name)
            continue
        with file.open(newline="", encoding="utf-8") as source, (files / file.name).open("w", newline="") as copy:
            lines = csv.reader(source)
            csv.writer(copy, lineterminator="\n").writerows(
                [[tables.harmless(cell) for cell in line] for line in lines]
            )


def _figures(
    folder: Path, study: str, charts: Iterable[Chart], lines: list[dict], printed: Published
) -> dict[str, list[dict]]:
    """Return the figures that were written, those that nobody measured apart; nothing where there are none."""
    drawn = []
    for name in (chart.name for chart in charts if (folder / f"{chart.name}.json").exists()):
        described = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        table = tables.read(folder / f"{name}.csv")
        drawn.append({"name": name} | described | citing.figure(name, described["title"], study, table, lines, printed))
    parts = {"figures": [one for one in drawn if not one["empty"]], "missing": [one for one in drawn if one["empty"]]}
    return parts if drawn else {}


def _counts(path: Path) -> dict[str, dict[str, int]]:
    """Return how many claims ended in which verdict, by where their numbers are from."""
    counts = {"published": Counter(), "counted": Counter(), "measured": Counter()}
    for line in tables.lines(path):
        kind = next((kind for kind in ("measured", "counted") if kind in line["source"]), "published")
        counts[kind][line["verdict"]] += 1
    return {kind: dict(verdicts) for kind, verdicts in counts.items()}
