"""The site: the aggregation and the studies' notebooks as executed, the documents, all points and data."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import jinja2

from benchbook.machine import layout
from benchbook.measuring.failures import last_line
from benchbook.running import execute, kernel

LOCK_SECONDS = 600.0  # a report of many rows takes a minute
AGGREGATED = "90_aggregate.ipynb"
NEEDED = ("sphinx", "myst_nb", "furo", "nh3")
HERE = Path(__file__).parent
# The one inline script of furo's pages. A page's policy names its hash; a test compares it with the pages.
INLINE = '\n      document.body.dataset.theme = localStorage.getItem("theme") || "auto";\n    '
HASH = base64.b64encode(hashlib.sha256(INLINE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; script-src 'self' file: 'sha256-{HASH}'; style-src 'self' file: 'unsafe-inline';"
    " img-src 'self' file: data:; base-uri 'none'; form-action 'self' file:"
)
OWN_FILES = (".buildinfo", "objects.inv", "reports", ".doctrees")  # of Sphinx and MyST-NB
# https://www.sphinx-doc.org/en/master/usage/configuration.html
SETTINGS = {
    "project": "benchbook",
    "html_title": "benchbook",
    "extensions": ["myst_nb"],
    "html_theme": "furo",
    "html_static_path": ["_static"],
    "html_css_files": ["page.css"],
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_search_summary": False,  # it fetches pages, which no browser does in a folder
    "html_show_copyright": False,
    "html_permalinks_icon": "#",
    "html_domain_indices": False,
    "html_use_index": False,
    "nb_execution_mode": "off",
    "nb_ipywidgets_js": {},
    "myst_heading_anchors": 3,
    "show_warning_types": False,
}


def write() -> Path:
    """Run the aggregation notebook over all rows, write the site, and return the path of its first page.

    If another process is writing a report of the same rows, this waits for it. Without Sphinx, the path is that of the
    executed notebook.

    Raises:
        RuntimeError: the notebook failed; the message ends with the last line of its error.
        TimeoutError: another process was still writing a report after LOCK_SECONDS.
    """
    outputs = layout.outputs()
    executed = kernel.executed() / AGGREGATED
    executed.parent.mkdir(parents=True, exist_ok=True)
    # The matrices are small: with more threads the linear algebra takes six times as long, because threads busy-wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    lock = execute.acquire(outputs / ".report.lock", LOCK_SECONDS)
    with lock, tempfile.TemporaryDirectory(prefix="benchbook-", ignore_cleanup_errors=True) as sockets:
        try:
            kernel.execute(layout.notebook("aggregate"), executed, {}, Path(sockets))
        except Exception as error:
            message = str(error)[-2000:] if os.environ.get("BENCHBOOK_DEBUG") else last_line(str(error))
            raise RuntimeError(f"the aggregation failed: {message}") from error
        if missing():
            return executed
        return build(outputs / "figures", outputs / "report", notebooks())


def missing() -> list[str]:
    """Return the packages that the site needs and that are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def notebooks() -> dict[str, Path]:
    """Return the notebooks to show by study: executed on this computer, else the committed examples."""
    folders = (kernel.executed(), layout.root() / "outputs" / "examples")
    found = {}
    for study, source in layout.notebooks().items():
        paths = [folder / source.name for folder in folders if (folder / source.name).exists()]
        found |= {study: paths[0]} if paths else {}
    return found


def left_out(figures: Path) -> list[str]:
    """Return the aggregation's sentences about files and runs that were left out, and about unknown columns."""
    path = figures / "left-out.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def build(figures: Path, folder: Path, executed: Mapping[str, Path]) -> Path:
    """Write the site, in place of an older one, and return the path of its first page.

    Args:
        figures: the folder that the aggregation wrote.
        folder: the site's folder.
        executed: executed notebooks by study; one that cannot be read is named on the page of what was left out.
    """
    with tempfile.TemporaryDirectory(prefix="benchbook-") as temporary:
        source, built = Path(temporary, "source"), Path(temporary, "site")
        shutil.copytree(figures / "pages", source)
        shown, faults, alts = _notebooks(executed, source)
        _documents(source)
        _static(source / "_static", figures / "marks.js")
        page = environment().get_template("left-out.html").render(lines=[*left_out(figures), *faults])
        (source / "left-out.html").write_text(page, encoding="utf-8")
        text = environment(autoescape=False).get_template("index.md").render(shown=shown)
        (source / "index.md").write_text(text, encoding="utf-8")
        for name, title in PAGES.items():
            text = f"# {title}\n\n```{{raw}} html\n:file: {name}.html\n```\n"
            (source / f"{name}.md").write_text(text, encoding="utf-8")
        _run_sphinx(source, built, figures / "data", alts)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(built, folder, ignore=shutil.ignore_patterns(*OWN_FILES))
    return folder / "index.html"


PAGES = {"points": "All points", "left-out": "What was left out"}


def _notebooks(executed: Mapping[str, Path], source: Path) -> tuple[list[str], list[str], dict[str, str]]:
    """Write the notebooks that can be read.

    Returns:
        Their studies, a sentence about each notebook that cannot be read, and the alternative texts of all pictures, by
        the digest that names a picture's file.
    """
    import nbformat

    from benchbook.report import cleaning

    shown, faults, alts = [], [], {}
    for study, path in executed.items():
        try:
            notebook = cleaning.read(path)
            alts |= cleaning.alternatives(notebook)
            nbformat.write(notebook, source / f"{study}.ipynb")
            shown.append(study)
        except (ValueError, OSError) as error:
            faults.append(f"The notebook {path.name} cannot be shown: {last_line(str(error))}")
    return shown, faults, alts


def _documents(source: Path) -> None:
    """Copy the documents and the README's words; a link to a file that is no page becomes its text."""
    (source / "docs").mkdir(exist_ok=True)
    readme = layout.root() / "README.md"
    for path in [*(layout.root() / "docs").glob("*.md"), *([readme] if readme.exists() else [])]:
        text, name = path.read_text(encoding="utf-8"), path.name
        if path == readme:
            text, name = re.search(r"^#(# Words\n.*?)^## ", text, re.DOTALL | re.MULTILINE)[1], "words.md"
        text = re.sub(r"\[([^]]*)\]\((?!https?:|#|[\w-]+\.md)[^)]*\)", r"\1", text)
        (source / "docs" / name).write_text(text, encoding="utf-8")


def _static(folder: Path, marks: Path) -> None:
    """Copy scripts and style, and write DataTables, from the package itables, as a script that runs from a folder."""
    folder.mkdir()
    for path in (marks, *(HERE / "templates" / name for name in ("page.css", "start.js", "points.js"))):
        shutil.copy(path, folder)
    package = importlib.metadata.distribution("itables")
    module = Path(package.locate_file("itables/html/dt_bundle.js")).read_text(encoding="utf-8")
    # A browser imports no module from a folder: what the module exports becomes a name of the window.
    code, exported = re.subn(r"export\s*\{[^}]*?(\w+)\s+as\s+default[^}]*\};?", r"window.DataTable=\1;", module)
    assert exported == 1, "the module of itables exports DataTables in another way"
    licence = (package.read_text("licenses/LICENSE") or "").replace("*/", "")
    (folder / "datatables.js").write_text(f"/*\n{licence}*/\n(()=>{{{code}\n}})();\n", encoding="utf-8")
    shutil.copy(package.locate_file("itables/html/dt_bundle.css"), folder / "datatables.css")


def _run_sphinx(source: Path, built: Path, data: Path, alts: Mapping[str, str]) -> None:
    from docutils import nodes
    from sphinx.application import Sphinx

    def describe(app, doctree) -> None:
        """Give pictures of outputs their own texts (MyST-NB has one for a whole cell), and headings a level."""
        for picture in doctree.findall(nodes.image):
            picture["alt"] = alts.get(Path(picture["uri"]).stem, "")
        for heading in doctree.findall(nodes.rubric):
            heading["heading-level"] = 3

    address = os.environ.get("BENCHBOOK_ADDRESS", "")
    settings = SETTINGS | {"html_extra_path": [str(data)] if data.exists() else [], "html_baseurl": address}
    doctrees = built.parent / "doctrees"
    app = Sphinx(source, None, built, doctrees, "html", settings, status=None, warning=io.StringIO())
    app.connect("doctree-read", describe)
    app.connect("html-page-context", _add_policy, priority=900)  # after furo's
    app.build()


def _add_policy(app, page: str, template: str, context: dict, doctree) -> None:
    """Add to a page what a browser may load for it: nothing of another host."""
    tag = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    context["metatags"] = tag + (context.get("metatags") or "")
    level = 'role="heading" aria-level="2"'  # which Sphinx leaves out
    context["furo_navigation_tree"] = context.get("furo_navigation_tree", "").replace('role="heading"', level)


def environment(autoescape: bool = True) -> jinja2.Environment:
    """Return the templates' environment."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    return jinja2.Environment(loader=loader, autoescape=autoescape, trim_blocks=True, undefined=jinja2.StrictUndefined)
