"""The static site: it lays out figures and tables that the aggregation wrote, and computes nothing."""

import csv
import functools
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import jinja2

from benchbook import studies
from benchbook.machine import layout
from benchbook.record import articles
from benchbook.report import answer_pages, answering, citing, claim_pages, claims_chart, executed, tables
from benchbook.report.answers import reading as answers
from benchbook.report.answers.from_rows import rows_of
from benchbook.report.citing import Published
from benchbook.rows import reading
from benchbook.running import kernel
from benchbook.studies.prediction_charts import CHARTS as PREDICTIONS
from benchbook.studies.study import Chart, Study

# What a spreadsheet takes for a formula: https://owasp.org/www-community/attacks/CSV_Injection
FORMULA = re.compile(r"[=+\-@\t\r]")
AGGREGATED = "90_aggregate.ipynb"  # the aggregation as it ran, in the report's folder


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


def left_out(aggregated: Path) -> list[str]:
    """Return what an executed aggregation printed on files that it left out, and on columns it does not know."""
    said = [
        line for cell in layout.cells(aggregated) for output in cell.get("outputs", ()) for line in _printed(output)
    ]
    return [line for line in said if line.startswith((reading.LEFT_OUT, reading.NOT_USED, reading.KEPT))]


def _printed(output: dict) -> list[str]:
    return "".join(output.get("text", "")).splitlines()


def write_pages(figures: Path, folder: Path, notebooks: Iterable[Path] = ()) -> Path:
    """Write the report's pages into a folder, with a copy of every file they show.

    There are index.html, points.html, one for each notebook, and, of marks, one for each task and machine.

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
    runs = [page for page in pages if page["machine"]]
    links = {rows_of(page["machine"], page["study"], page["point"]): f"notebooks/{page['file']}" for page in runs}
    _copy(figures, folder / "files")
    called, printed = tables.names(figures / "machine-names.csv"), functools.cache(articles.rows)
    lines = tables.lines(figures / "summary.csv")
    lines = [line | {"called": called.get(line["machine"])} for line in lines]
    sections = [_section(figures, study, lines, printed) for study in studies.every().values()]
    content = {
        "sections": [section for section in sections if section],
        "predictions": _figures(figures, "", PREDICTIONS, lines, printed),
        "claims": _figures(figures, "", [claims_chart.CHART], lines, printed),
        "tables": {name: tables.table(figures / f"{name}.csv", name, called) for name in tables.COLUMNS},
        "counts": _counts(figures / "claims.csv"),
        "failures": [line for line in lines if line.get("status") not in (None, "ok")],
        "measured": citing.measured(lines),
        "citation": citing.report(lines),
        "pages": [page | {"called": called.get(page["machine"], page["machine"])} for page in pages],
        "dataset": answer_pages.dataset(citing.project(), citing.report(lines)),
        "answer": answering.content(answering.FIRST, every, links) if every else None,
    }
    if every:
        answer_pages.write(every, folder, environment, content["citation"], links)
    claim_pages.write(figures / "claims.csv", folder / "claims", environment)
    for name in ("points", "index"):
        path = folder / f"{name}.html"
        path.write_text(environment.get_template(path.name).render(content), encoding="utf-8")
    return path


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
    """Return DataTables as itables ships it, what the file calls its main class, and the licence that goes with it."""
    package = importlib.metadata.distribution("itables")
    code = Path(package.locate_file("itables/html/dt_bundle.js")).read_text(encoding="utf-8")
    return {
        "code": code,
        "class": re.search(r"export\{[^}]*?([\w$]+) as default", code)[1],
        "licence": package.read_text("licenses/LICENSE"),
    }


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
            csv.writer(copy, lineterminator="\n").writerows([[_harmless(cell) for cell in line] for line in lines])


def _harmless(cell: str) -> str:
    return cell if not FORMULA.match(cell) or tables.is_number(cell) else f"'{cell}"


def _section(folder: Path, study: Study, lines: list[dict], printed: Published) -> dict:
    """Return a study's finding, the numbers behind it, and its figures under the question that its notebook asks."""
    shown = _figures(folder, study.name, study.charts, lines, printed)
    findings = {line["study"]: line for line in tables.lines(folder / "findings.csv")}
    own = findings.get(study.name, {})
    said = {name: own.get(name) or "" for name in ("finding", "basis")}
    return {"study": study.name, "name": study.title, "title": study.question} | said | shown if shown else {}


def _figures(
    folder: Path, study: str, charts: Iterable[Chart], lines: list[dict], printed: Published
) -> dict[str, list[dict]]:
    """Return the figures that were written, those that nobody measured apart; nothing where there are none."""
    drawn = []
    for name in (chart.name for chart in charts if (folder / f"{chart.name}.json").exists()):
        page = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        table = tables.read(folder / f"{name}.csv")
        drawn.append({"name": name} | page | citing.figure(name, page["title"], study, table, lines, printed))
    parts = {"figures": [one for one in drawn if not one["empty"]], "missing": [one for one in drawn if one["empty"]]}
    return parts if drawn else {}


def _counts(path: Path) -> dict[str, dict[str, int]]:
    """Return how many claims ended in which verdict, by where their numbers are from."""
    counts = {"published": Counter(), "counted": Counter(), "measured": Counter()}
    for line in tables.lines(path):
        kind = next((kind for kind in ("measured", "counted") if kind in line["source"]), "published")
        counts[kind][line["verdict"]] += 1
    return {kind: dict(verdicts) for kind, verdicts in counts.items()}
