"""The static site: it lays out the figures and tables that the aggregation wrote, and computes nothing."""

import csv
import html
import importlib.metadata
import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from urllib.parse import quote

import jinja2
from filelock import FileLock

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine import layout
from benchbook.measuring.failures import last_line
from benchbook.record import claims
from benchbook.report import answers, citing, claim_outcomes, executed, tables
from benchbook.report.answers.from_rows import rows_of
from benchbook.report.answers.marks import BY_KEY, FAMILIES, TASKS, Mark
from benchbook.rows.points import setting
from benchbook.running import kernel
from benchbook.studies.predictions import CHARTS as PREDICTIONS
from benchbook.studies.study import Chart

LOCK_SECONDS = 600.0  # a report of many rows takes a minute
AGGREGATED = "90_aggregate.ipynb"  # the aggregation as it ran, in the report's folder
LICENCE = "MIT; published figures and prices belong to the sources that each line names"
MATRIX = "simclr_epochs"  # the study that tries every precision and compiler
BAR = {name: f"{name.lower()}.html" for name in ("Studies", "Claims", "Machines", "Method")}
BAR = {"Answers": "index.html"} | BAR
SHARED = ("style.css", "answer.js", "copy.js", "tables.js", "favicon.svg")  # files that several pages load
OPEN = (claims.NOT_MEASURED, claims.NOT_RECOMPUTED, claims.NOT_COMPARABLE)  # verdicts that decide nothing


def write() -> Path:
    """Run the aggregation notebook over all rows, write the pages, and return the path of index.html.

    If another process is writing a report of the same rows, this waits for it.

    Raises:
        RuntimeError: the notebook failed; the message ends with the last line of its error.
        TimeoutError: another process was still writing a report after LOCK_SECONDS.
    """
    outputs = layout.outputs()
    (outputs / "report").mkdir(parents=True, exist_ok=True)
    aggregated = outputs / "report" / AGGREGATED
    # The matrices are small: with more threads the linear algebra takes six times as long, because threads busy-wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    lock = FileLock(outputs / ".report.lock", timeout=LOCK_SECONDS)
    with lock, tempfile.TemporaryDirectory(prefix="benchbook-", ignore_cleanup_errors=True) as sockets:
        try:
            kernel.execute(layout.notebook("aggregate"), aggregated, {}, Path(sockets))
        except Exception as error:
            message = str(error)[-2000:] if os.environ.get("BENCHBOOK_DEBUG") else last_line(str(error))
            raise RuntimeError(f"the aggregation failed: {message}") from error
        return write_pages(outputs / "figures", outputs / "report", [*executed.newest(outputs / "runs"), aggregated])


def left_out(figures: Path) -> list[str]:
    """Return the aggregation's sentences about files and runs that were left out, and about unknown columns."""
    return [line["fault"] for line in tables.lines(figures / "left-out.csv")]


def write_pages(figures: Path, folder: Path, notebooks: Iterable[Path] = ()) -> Path:
    """Write the report's pages into a folder, with a copy of every file that they show; older pages are deleted.

    Args:
        figures: the folder that the aggregation wrote.
        folder: the site's folder.
        notebooks: executed notebooks; one that cannot be read has no page.

    Returns:
        The path of index.html.
    """
    site = Site(folder)
    called, pages = tables.names(figures / "machine-names.csv"), []
    for own in executed.pages(notebooks):
        site.write(f"notebooks/{own['file']}", "notebook.html", "Method", title=own["title"], body=own.pop("body"))
        pages.append(own | {"called": called.get(own["machine"], own["machine"])})
    marks, refused = answers.load(figures)
    links = {
        rows_of(own["machine"], own["study"], own["point"]): f"notebooks/{own['file']}"
        for own in pages
        if own["machine"]
    }
    _copy(figures, folder / "files")
    lines = [line | {"called": called.get(line["machine"])} for line in tables.lines(figures / "summary.csv")]
    shown = {name: tables.table(figures / f"{name}.csv", name, called) for name in tables.COLUMNS}
    outcomes = tables.lines(figures / "claim-outcomes.csv")
    places, citation = answers.machines(marks), citing.report(lines)
    content = {
        "tables": shown,
        "failures": [
            line | {"title": f"{studies.title(line['study'])}: {setting(line['point'])}"}
            for line in lines
            if line.get("status") not in (None, "ok")
        ],
        "measured": citing.counts(lines),
    }
    events = [claim for claim in outcomes if claim["study"] == MATRIX and claim["published"] == claims.EVENT]
    for task in TASKS if marks else ():
        works = {"table": shown["support"], "claims": events} if task.study == MATRIX else None
        answer = answers.content(task, marks, refused)
        site.write(task.address, "answer.html", "Answers", answer=answer, works=works, links=links)
    if not marks:
        site.write("index.html", "answer.html", "Answers", answer=None, works=None)
    site.write(
        "studies.html", "studies.html", "Studies", **content, sections=_sections(figures, lines),
        predictions=_figures(figures, "", PREDICTIONS, lines),
    )  # fmt: skip
    # The lines are sorted by outcome.
    grouped = [(outcome, list(own)) for outcome, own in itertools.groupby(outcomes, itemgetter("outcome"))]
    holds = Counter(claim["holds"] for claim in outcomes)
    site.write("claims.html", "claims.html", "Claims", claims=grouped, means=claim_outcomes.MEANS, arithmetic=holds)
    site.write("machines.html", "machines.html", "Machines", **content, places=places)
    site.write("points.html", "points.html", "Machines", **content, left_out=left_out(figures))
    site.write("method.html", "method.html", "Method", pages=pages, citation=citation, answers=marks)
    for place in places:
        site.write(place["file"], "machine.html", "Machines", families=FAMILIES, tasks=BY_KEY, links=links, **place)
    write_claims(figures / "claims.csv", outcomes, site, called)
    _write_data(marks, folder / "data", citation)
    site.finish()
    return folder / "index.html"


class Site:
    """The folder of the pages. Pages have the navigation bar, and their URL if BENCHBOOK_ADDRESS is the site's URL."""

    def __init__(self, folder: Path):
        """Take a folder, which may not exist yet."""
        self.folder = folder
        self.address = os.environ.get("BENCHBOOK_ADDRESS", "").rstrip("/")
        self.environment = _environment()
        self.paths = []

    def render(self, path: str, template: str, section: str, **content) -> str:
        """Return a page.

        Args:
            path: of the page in the site's folder.
            template: its name.
            section: the entry of the navigation bar that the page belongs to.
            content: variables of the template.
        """
        root = "../" * path.count("/")
        shared = {"root": root, "path": path, "section": section, "root_page": path == "index.html"}
        return self.environment.get_template(template).render(shared | {"address": self.address} | content)

    def write(self, path: str, template: str, section: str, **content) -> None:
        """Write a page; see `render`."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(self.render(path, template, section, **content), encoding="utf-8")
        self.paths.append(path)

    def finish(self) -> None:
        """Write the shared files, 404.html and, if the site's URL is known, the sitemap; delete older pages."""
        package = importlib.metadata.distribution("itables")  # has DataTables, which becomes a data URL
        code = Path(package.locate_file("itables/html/dt_bundle.js")).read_text(encoding="utf-8")
        library = {"code": quote(code, safe=" !$&'()*+,-./:;=?@[]^_`{|}~")}
        library["licence"] = package.read_text("licenses/LICENSE")
        for name in SHARED:
            text = self.environment.get_template(name).render(library=library)
            (self.folder / name).write_text(text, encoding="utf-8")
        root = f"{self.address}/" if self.address else ""
        text = self.render("404.html", "missing.html", "", root=root, address="")
        (self.folder / "404.html").write_text(text, encoding="utf-8")
        for path in self.folder.rglob("*.html"):
            if path.relative_to(self.folder).as_posix() not in (*self.paths, "404.html"):
                path.unlink()
        (self.folder / "sitemap.xml").unlink(missing_ok=True)
        if self.address:
            lines = [f"<url><loc>{html.escape(f'{self.address}/{quote(path)}')}</loc></url>" for path in self.paths]
            head = ['<?xml version="1.0" encoding="UTF-8"?>']
            head += ['<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">']
            (self.folder / "sitemap.xml").write_text("\n".join([*head, *lines, "</urlset>\n"]), encoding="utf-8")


def write_claims(judged: Path, outcomes: list[dict], site: Site, called: Mapping[str, str]) -> None:
    """Write a page for each published claim and its results; the address of the page never changes.

    Args:
        judged: the CSV of `claims.table`; without the file there are no pages.
        outcomes: lines of `claim_outcomes.table`.
        site: the site to write to.
        called: names of machines by id.
    """
    printed = {claim["id"]: claim for claim in outcomes}
    lines = sorted(tables.lines(judged), key=itemgetter("id"))
    for name, group in itertools.groupby(lines, itemgetter("id")):
        path, own = f"claims/{layout.check_name(name, 'claim')}.html", list(group)
        claim = {"article": "", "link": "", "unit": ""} | own[0] | printed.get(name, {})
        site.write(path, "claim.html", "Claims", claim=claim, lines=own, called=called, open=OPEN)


def _sections(figures: Path, lines: list[dict]) -> list[dict]:
    """Return the sections of all studies that have figures."""
    findings = {line["study"]: line for line in tables.lines(figures / "findings.csv")}
    sections = []
    for study in studies.every().values():
        if shown := _figures(figures, study.name, study.charts, lines):
            section = {"study": study.name, "name": study.title, "title": study.question, "figures": shown}
            sections.append({"finding": "", "basis": ""} | findings.get(study.name, {}) | section)
    return sections


def _write_data(marks: list[Mark], folder: Path, citation: str) -> None:
    """Write the marks as data, with their schema, licence and citation; nothing without marks."""
    shutil.rmtree(folder, ignore_errors=True)
    if not marks:
        return
    table = answers.lines(marks)
    folder.mkdir(parents=True)
    texts = {
        "LICENCE.txt": f"{LICENCE}.\n\nCite: {citation}\n",
        "answers.csv": answers.as_csv(table),
        "answers.json": answers.as_json(table, LICENCE, citation),
        "answers.schema.json": json.dumps(answers.schema(), indent=1) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _environment() -> jinja2.Environment:
    """Return the templates' environment; it escapes all text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"project": citing.project(), "bar": BAR}
    environment.filters |= {name: getattr(wording, name) for name in ("duration", "number", "price", "sentence")}
    environment.filters["text"] = tables.text
    return environment


def _copy(figures: Path, files: Path) -> None:
    """Replace the copies of the figures' files; in CSV files an apostrophe is put before text that is a formula."""
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(parents=True)
    for file in (path for path in figures.iterdir() if path.is_file()):
        if file.suffix != ".csv":
            shutil.copyfile(file, files / file.name)
            continue
        with file.open(newline="", encoding="utf-8") as source, (files / file.name).open("w", newline="") as copy:
            lines = csv.reader(source)
            csv.writer(copy, lineterminator="\n").writerows(map(tables.harmless, line) for line in lines)


def _figures(folder: Path, study: str, charts: Iterable[Chart], lines: list[dict]) -> list[dict]:
    """Return the charts that the aggregation drew, each with its description, conditions and citation."""
    drawn = []
    for name in (chart.name for chart in charts if (folder / f"{chart.name}.json").exists()):
        described = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        table = tables.read(folder / f"{name}.csv")
        drawn.append({"name": name} | described | citing.figure(name, described["title"], study, table, lines))
    return drawn
