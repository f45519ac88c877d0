"""The static site: it lays out figures and tables that the aggregation wrote, and computes nothing."""

import csv
import html
import importlib.metadata
import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

import jinja2
from filelock import FileLock

from benchbook import studies
from benchbook.judging import wording
from benchbook.machine import layout, temporary
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
MATRIX = "simclr_epochs"  # the study that tries precisions and compilers
BAR = {name: f"{name.lower()}.html" for name in ("Studies", "Claims", "Machines", "Method")}
BAR = {"Answers": "index.html"} | BAR
SHARED = ("style.css", "answer.js", "copy.js", "tables.js", "favicon.svg")  # files that several pages load
OPEN = (claims.NOT_MEASURED, claims.NOT_RECOMPUTED, claims.NOT_COMPARABLE)  # verdicts that leave a claim undecided


def write() -> Path:
    """Run the aggregation notebook over all rows, and write the pages; return the first one's path.

    Where another process writes a report of the same rows, this waits for it.

    Raises:
        RuntimeError: the notebook failed; the message ends with what it printed last.
        TimeoutError: another report was still being written after LOCK_SECONDS.
    """
    outputs = layout.outputs()
    (outputs / "report").mkdir(parents=True, exist_ok=True)
    aggregated = outputs / "report" / AGGREGATED
    # The matrices are small: further threads of the linear algebra wait for one another, busily, six times as long.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with FileLock(outputs / ".report.lock", timeout=LOCK_SECONDS), temporary.folder() as sockets:
        try:
            kernel.execute(layout.notebook("aggregate"), aggregated, {}, sockets)
        except Exception as error:
            said = str(error)[-2000:] if os.environ.get("BENCHBOOK_DEBUG") else last_line(str(error))
            raise RuntimeError(f"the aggregation failed: {said}") from error
        return write_pages(outputs / "figures", outputs / "report", [*executed.newest(outputs / "runs"), aggregated])


def left_out(figures: Path) -> list[str]:
    """Return the aggregation's lines about files and runs that were left out, and about unknown columns."""
    return [line["fault"] for line in tables.lines(figures / "left-out.csv")]


def write_pages(figures: Path, folder: Path, notebooks: Iterable[Path] = ()) -> Path:
    """Write the report's pages into a folder, with a copy of every file they show; pages of before are deleted.

    Args:
        figures: what the aggregation wrote. The first page has the marks of the first task, where it wrote marks.
        folder: the site's folder.
        notebooks: executed ones; one that cannot be read has no page.

    Returns:
        The path of index.html.
    """
    site = Site(folder)
    called, pages = tables.names(figures / "machine-names.csv"), []
    for own in executed.pages(notebooks):
        site.write(f"notebooks/{own['file']}", "notebook.html", "Method", title=own["title"], body=own.pop("body"))
        pages.append(own | {"called": called.get(own["machine"], own["machine"])})
    every, refused = answers.load(figures)
    links = {
        rows_of(own["machine"], own["study"], own["point"]): f"notebooks/{own['file']}"
        for own in pages
        if own["machine"]
    }
    _copy(figures, folder / "files")
    lines = [line | {"called": called.get(line["machine"])} for line in tables.lines(figures / "summary.csv")]
    shown = {name: tables.table(figures / f"{name}.csv", name, called) for name in tables.COLUMNS}
    claims = tables.lines(figures / "claim-outcomes.csv")
    places, citation = answers.machines(every), citing.report(lines)
    content = {
        "tables": shown,
        "failures": [
            line | {"title": f"{studies.title(line['study'])}: {setting(line['point'])}"}
            for line in lines
            if line.get("status") not in (None, "ok")
        ],
        "measured": citing.counts(lines),
    }
    for task in TASKS if every else ():
        events = [claim for claim in claims if claim["study"] == MATRIX and claim["published"] == "that it happens"]
        works = {"table": shown["support"], "claims": events} if task.study == MATRIX else None
        answer = answers.content(task, every, refused)
        site.write(task.address, "answer.html", "Answers", answer=answer, works=works, links=links)
    if not every:
        site.write("index.html", "answer.html", "Answers", answer=None, works=None)
    site.write(
        "studies.html", "studies.html", "Studies", **content, sections=_sections(figures, lines),
        predictions=_figures(figures, "", PREDICTIONS, lines),
    )  # fmt: skip
    outcomes = {each: [claim for claim in claims if claim["outcome"] == each] for each in claim_outcomes.OUTCOMES}
    grouped = [(outcome, own) for outcome, own in outcomes.items() if own]
    holds = Counter(claim["holds"] for claim in claims)
    site.write("claims.html", "claims.html", "Claims", claims=grouped, means=claim_outcomes.MEANS, arithmetic=holds)
    site.write("machines.html", "machines.html", "Machines", **content, places=places)
    site.write("points.html", "points.html", "Machines", **content, left_out=left_out(figures))
    site.write("method.html", "method.html", "Method", pages=pages, citation=citation, answers=every)
    for place in places:
        site.write(place["file"], "machine.html", "Machines", families=FAMILIES, tasks=BY_KEY, links=links, **place)
    write_claims(figures / "claims.csv", claims, site, called)
    _write_data(every, folder / "data", citation)
    site.finish()
    return folder / "index.html"


class Site:
    """The folder of the pages; every page has the bar, and its address where the site's is in BENCHBOOK_ADDRESS."""

    def __init__(self, folder: Path):
        """Take a folder, which is made if need be."""
        self.folder = folder
        self.address = os.environ.get("BENCHBOOK_ADDRESS", "").rstrip("/")
        self.environment = _environment()
        self.paths = []

    def render(self, path: str, template: str, section: str, **content) -> str:
        """Return a page, given its path from the folder, its template and the bar's part that it belongs to."""
        root = "../" * path.count("/")
        shared = {"root": root, "path": path, "section": section, "root_page": path == "index.html"}
        return self.environment.get_template(template).render(shared | {"address": self.address} | content)

    def write(self, path: str, template: str, section: str, **content) -> None:
        """Write a page; see `render`."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(self.render(path, template, section, **content), encoding="utf-8")
        self.paths.append(path)

    def finish(self) -> None:
        """Write what pages share, the page of missing addresses and, where the address is known, the map.

        Pages that were not written are deleted.
        """
        package = importlib.metadata.distribution("itables")  # DataTables as it ships it, to stand in a data URL
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
    """Write a page for each published claim, at an address that stays: what was claimed, and what was found.

    Args:
        judged: the CSV of `claims.table`; without the file there are no pages.
        outcomes: lines of `claim_outcomes.table`.
        site: to write to.
        called: what machines are called, by id.
    """
    printed = {claim["id"]: claim for claim in outcomes}
    lines = sorted(tables.lines(judged), key=lambda line: line["id"])
    for name, group in itertools.groupby(lines, key=lambda line: line["id"]):
        path, own = f"claims/{layout.check_name(name, 'claim')}.html", list(group)
        claim = {"article": "", "link": "", "unit": ""} | own[0] | printed.get(name, {})
        site.write(path, "claim.html", "Claims", claim=claim, lines=own, called=called, open=OPEN)


def _sections(figures: Path, lines: list[dict]) -> list[dict]:
    """Return each study that has figures, with its finding."""
    findings = {line["study"]: line for line in tables.lines(figures / "findings.csv")}
    sections = []
    for study in studies.every().values():
        if shown := _figures(figures, study.name, study.charts, lines):
            said = {"finding": "", "basis": ""} | findings.get(study.name, {})
            sections.append(
                said | {"study": study.name, "name": study.title, "title": study.question, "figures": shown}
            )
    return sections


def _write_data(every: list[Mark], folder: Path, citation: str) -> None:
    """Write the marks as data, with their schema, licence and citation; nothing without marks."""
    shutil.rmtree(folder, ignore_errors=True)
    if not every:
        return
    table = answers.lines(every)
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
    """Return the templates' environment; whatever comes from rows is escaped."""
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
    """Copy the figures' files again; text that a spreadsheet would run as a formula begins with an apostrophe."""
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


def _figures(folder: Path, study: str, charts: Iterable[Chart], lines: list[dict]) -> list[dict]:
    """Return the figures that were written."""
    drawn = []
    for name in (chart.name for chart in charts if (folder / f"{chart.name}.json").exists()):
        described = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        table = tables.read(folder / f"{name}.csv")
        drawn.append({"name": name} | described | citing.figure(name, described["title"], study, table, lines))
    return drawn
