"""The site: the aggregation and the studies' notebooks as executed, the documents, all points
and data."""

import functools
import html
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchbook.judging import statistics
from benchbook.machine import identity, layout, sessions, temporary
from benchbook.measuring.failures import last_line
from benchbook.report import tables
from benchbook.running import execute, kernel

LOCK_SECONDS = 600.0  # a report of many rows takes a minute
AGGREGATED = "90_aggregate.ipynb"
ANSWER = "answer"  # the tag of the cell that shows it
MADE = "made"  # in the metadata of an example: the machine that executed it, and the day
NEEDED = ("sphinx", "myst_nb", "furo", "nh3")
WRITTEN = ".written"  # the list of the files that a report wrote
NO_SHARES: dict[str, str] = {}
HERE = Path(__file__).parent
# The policy names the digest of the one inline script of furo's pages; a test compares it with the
# pages.
POLICY = (
    "default-src 'none'; script-src 'self' file: 'sha256-ySvT2PEZeueHGC1y2crNuNTfphBynFPP7i+U21fEgX0=';"
    " style-src 'self' file: 'unsafe-inline'; img-src 'self' file: data:; base-uri 'none'; form-action 'self' file:"
)


def write() -> Path:
    """Run the aggregation notebook over all rows, write the site, and return the path of its
    first page.

    If another process is writing a report of the same rows, this waits for it. Without Sphinx,
    the path is that of the executed notebook.

    Raises:
        RuntimeError: the notebook failed; the message ends with the last line of its error.
        TimeoutError: another process was still writing a report after LOCK_SECONDS.
    """
    outputs = layout.outputs()
    executed = kernel.executed() / AGGREGATED
    executed.parent.mkdir(parents=True, exist_ok=True)
    # The matrices are small: with more threads the linear algebra takes six times as long, because
    # threads busy-wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with execute.acquire(outputs / ".report.lock", LOCK_SECONDS):
        try:
            kernel.execute(layout.notebook("aggregate"), executed, {})
        except Exception as error:
            message = (
                str(error)[-2000:] if os.environ.get("BENCHBOOK_DEBUG") else last_line(str(error))
            )
            raise RuntimeError(f"the aggregation failed: {message}") from error
        if missing():
            return executed
        return build(outputs / "figures", outputs / "report", notebooks())


def missing() -> list[str]:
    """Return the packages that the site needs and that are not installed."""
    return layout.missing(*NEEDED)


def notebooks() -> list[Path]:
    """Return the notebooks to show: those executed on this computer, and the committed examples
    of the others."""
    folders = (layout.root() / "outputs" / "examples", kernel.executed())
    return list({path.name: path for folder in folders for path in folder.glob("*.ipynb")}.values())


def left_out(figures: Path) -> list[str]:
    """Return the aggregation's sentences about files and runs that were left out, and about
    unknown columns."""
    path = figures / "left-out.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def build(figures: Path, folder: Path, executed: Iterable[Path]) -> Path:
    """Write the site, in place of an older one, and return the path of its first page.

    Args:
        figures: the folder that the aggregation wrote.
        folder: the site's folder.
        executed: executed notebooks; the page of one that cannot be read says why.
    """
    from sphinx.application import Sphinx

    with replacing(folder) as place:
        source, built = place / "source", place / "site"
        shutil.copytree(figures / "pages", source)
        pages = "index.md points.md _static/page.css _static/start.js _static/points.js"
        for name in pages.split():
            shutil.copy(HERE / "templates" / Path(name).name, source / name)
        charts = [path for path in figures.iterdir() if path.suffix in (".csv", ".svg")]
        shares = json.loads((figures / "shares.json").read_text(encoding="utf-8"))
        for path in executed:
            study = layout.study(path)
            _write_notebook(path, source, study, [chart.name for chart in charts], shares)
        (source / "docs").mkdir()
        for path in (layout.root() / "docs").glob("*.md"):
            text = path.read_text(
                encoding="utf-8"
            )  # a link to a file that is no page becomes its text
            text = re.sub(r"\[([^]]*)\]\((?!https?:|#|[\w-]+\.md)[^)]*\)", r"\1", text)
            (source / "docs" / path.name).write_text(text, encoding="utf-8")
        settings = yaml.safe_load((HERE / "templates" / "sphinx.yaml").read_text(encoding="utf-8"))
        settings |= {"html_extra_path": list(map(str, [figures / "data", *charts]))}
        settings |= {"html_last_updated_fmt": f"%Y-%m-%d by {identity.version()}"}
        trees = place / "doctrees"
        with (figures / "sphinx.log").open("w", encoding="utf-8") as log:
            app = Sphinx(source, None, built, trees, "html", settings, status=None, warning=log)
            app.connect("html-page-context", _add_policy, priority=900)  # after furo's
            app.build()
    return folder / "index.html"


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose `site` then takes the place of a report as a whole.

    Raises:
        FileExistsError: a file that no report wrote has the name of one of this report.
    """
    folder = folder.resolve()
    settle = functools.partial(_settle, folder)
    with temporary.folder(folder.parent, f".{folder.name}-", settle) as place:
        yield place
        new = place / "site"
        written = [path.relative_to(new).as_posix() for path in _files(new)]
        (new / WRITTEN).write_text("\n".join([*written, WRITTEN]), encoding="utf-8")
        for path in _of_others(folder):
            if (new / path.relative_to(folder)).exists():
                raise FileExistsError(f"{path} was not written by a report; move or remove it")
        if folder.exists():
            folder.rename(place / "old")
        new.rename(folder)


def _settle(folder: Path, place: Path) -> None:
    """Return what is another's in the report of before, which is in `place`; remove the rest.

    If the process was killed before the new report was in its place, the old one returns to it.
    """
    old = place / "old"
    if old.exists() and not folder.exists():
        old.rename(folder)
    for path in _of_others(old):
        target = folder / path.relative_to(old)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    if old.exists():
        old.rename(place / "replaced")
    temporary.remove(place)


def _of_others(report: Path) -> list[Path]:
    """Return the files in a report's folder that no report wrote."""
    listed = report / WRITTEN
    written = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else ()
    written = {report / name for name in written}
    return [path for path in _files(report) if path not in written]


def _files(folder: Path) -> list[Path]:
    """Return what is below a folder: files, links and empty folders."""
    every = sorted(folder.rglob("*"))
    return [
        each for each in every if each.is_symlink() or not each.is_dir() or not any(each.iterdir())
    ]


def _write_notebook(
    executed: Path,
    source: Path,
    study: str,
    charts: Collection[str] = (),
    shares: Mapping[str, str] = NO_SHARES,
) -> str:
    """Write what a page may show of a notebook, or why it shows nothing, into the folder that
    Sphinx reads.

    The notebooks of a study's other points are written next to its page, which links to them. A
    figure links to those of its files that are among `charts`. The answer ends with the share of
    its point, if it is among `shares`.

    Returns:
        The first sentence of its answer; empty without one.
    """
    import nbformat

    from benchbook.report import cleaning

    source.mkdir(parents=True, exist_ok=True)
    try:
        notebook = cleaning.read(executed)
    except (ValueError, OSError) as error:
        text = f"# {executed.name}\n\nThis notebook cannot be shown ({type(error).__name__}).\n"
        (source / executed.with_suffix(".md").name).write_text(text, encoding="utf-8")
        return ""
    answer = _put_answer_first(notebook)
    session, shown = kernel.shown(executed)
    share = shares.get(f"{session} {study} {shown}")
    if answer and share:  # the calibration may follow the point
        spoken = next(each for each in outputs(notebook.cells) if sentence(each))
        spoken.data["text/markdown"] += f"\n\n{tables.markdown(share)}"
    if whose := _whose(executed, session, study):
        title, _, rest = notebook.cells[0].source.partition("\n")
        notebook.cells[0].source = f"{title}\n\n*{whose}*\n{rest}"
    others = (executed.parent / "points" / study).glob("*.ipynb")
    if others := sorted(path for path in others if path.stem != shown):
        lines = ["## Other points", ""]
        for path in others:
            said = _write_notebook(path, source / "points" / study, study)
            lines.append(f"- [{path.stem}](points/{study}/{path.stem}.html): {said}")
        notebook.cells.append(nbformat.v4.new_markdown_cell("\n".join(lines), id="points"))
    _caption(notebook, charts)
    nbformat.write(notebook, source / executed.name)
    return answer


def _caption(notebook, charts: Collection[str]) -> None:
    """Give each figure its text, and the note below it links to its files among `charts`."""
    link = ""  # of the figure above
    for output in outputs(notebook.cells):
        note = output.get("data", {}).get("text/html", "")
        if note.startswith("<small>"):
            output.data = {"text/html": f'<p class="note">{note} {link}</p>'}
        for kind, own in output.get("metadata", {}).items():
            if kind == "text/markdown":
                continue
            # MyST-NB has one text for all pictures of a cell.
            alt, data, name = html.escape(own["alt"]), html.escape(output.data[kind]), own["table"]
            files = {f"{name}.csv": "Numbers of all machines (CSV)", f"{name}.svg": "figure (SVG)"}
            link = ", ".join(
                f'<a href="{file}" download>{words}</a>'
                for file, words in files.items()
                if file in charts
            )
            output.data = {
                "text/html": f'<div class="chart" tabindex="0"><img alt="{alt}" src="data:{kind};base64,{data}"></div>'
            }


def _whose(executed: Path, session: str, study: str) -> str:
    """Return the first words of a study's page that was executed elsewhere: on which machine, and
    when; empty for a page of this checkout and computer."""
    if executed.parent == layout.root() / "outputs" / "examples":
        made = json.loads(executed.read_text(encoding="utf-8"))["metadata"].get(MADE, {})
        machine = tables.markdown(made.get("machine", "another computer"))
        first, day = f"An example, executed on {machine}", made.get("day")
    else:
        first, day = "Executed on another computer", statistics.day(session)
        if not session or session in sessions.own():
            return ""
    first += f", on {day}" if day else ""
    return f"{first}; `make study STUDIES={study}` makes yours."


def _put_answer_first(notebook) -> str:
    """Move the answer, words, figure and note, from its cell to below the title; return its
    first sentence.

    A heading in the cell above moves with it.
    """
    import nbformat

    found = [
        (cell, place)
        for cell in answering(notebook.cells)
        for place, one in enumerate(cell.outputs)
        if "text/markdown" in one.get("data", {})
    ]
    if not found:
        return ""
    cell, place = found[0]  # printed lines come before
    above = notebook.cells.index(cell) - 1
    heads = [notebook.cells.pop(above)] if notebook.cells[above].source.startswith("## ") else []
    title, _, rest = notebook.cells[0].source.partition("\n")
    hidden = {"outputs": cell.outputs[place : place + 3], "metadata": {"tags": ["remove-input"]}}
    del cell.outputs[place : place + 3]
    notebook.cells[:1] = [
        nbformat.v4.new_markdown_cell(title, id="title"),
        *heads,
        nbformat.v4.new_code_cell("# the answer", id="answer", **hidden),
        nbformat.v4.new_markdown_cell(rest, id="question"),
    ]
    return tables.markdown(sentence(hidden["outputs"][0]))


def sentence(output) -> str:
    """Return the first sentence of an answer; empty for another output."""
    return output.metadata.get("text/markdown", {}).get("sentence", "")


def outputs(cells: list) -> Iterator:
    """Yield the outputs of cells."""
    return (output for cell in cells for output in cell.get("outputs", ()))


def answering(cells: list) -> list:
    """Return the cells of a notebook whose outputs are its answer."""
    return [cell for cell in cells if ANSWER in cell.metadata.get("tags", ())]


def _add_policy(app, page: str, template: str, context: dict, doctree) -> None:
    """Add to a page what a browser may load for it: nothing of another host."""
    tag = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    context["metatags"] = tag + (context.get("metatags") or "")
    level = 'role="heading" aria-level="2"'  # which Sphinx leaves out
    context["body"] = context.get("body", "").replace(
        'class="table-wrapper', 'tabindex="0" class="table-wrapper'
    )
    context["furo_navigation_tree"] = context.get("furo_navigation_tree", "").replace(
        'role="heading"', level
    )
