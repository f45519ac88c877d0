"""Pages of executed notebooks, with code and outputs, but without scripts or anything that a browser would fetch."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchbook.machine import layout
from benchbook.running import kernel

SHOWN = ("text/html", "text/markdown", "text/plain", "image/png", "image/jpeg")
# The allowed tags of a notebook's outputs; all others are dropped, so that no output runs or loads anything.
TAGS = (
    "a b blockquote br code div em h1 h2 h3 h4 h5 h6 hr i li ol p pre span strong sub sup table tbody td th thead tr ul"
)
CODE = ("script", "style")
ATTRIBUTES = {"*": ["class", "id"], "a": ["href", "title"], "td": ["colspan", "rowspan"], "th": ["colspan", "rowspan"]}
# Parts that scroll sideways must be reachable by keyboard; the corner cell of a pandas table is not a header.
REACHABLE = {f'<div class="output_{kind}': f'<div tabindex="0" class="output_{kind}' for kind in ("html", "png")}
REACHABLE |= {"<pre>": '<pre tabindex="0">', "<th></th>": "<td></td>"}


def newest(runs: Path) -> list[Path]:
    """Return the newest executed notebook of each machine, study and point.

    Notebooks that were not made by a run on this computer are left out.
    """
    own = kernel.recorded(sorted(runs.glob("*/*/*/*.ipynb")))  # run ids begin with their time
    return list({path.parent: path for path in own}.values())


def pages(notebooks: Iterable[Path]) -> Iterator[dict[str, str]]:
    """Yield the page of each notebook: its file name, machine, study and point, title and body.

    Machine and point are empty for a notebook that does not belong to a run. A notebook that cannot be read, for
    example after its run was killed, has no page.

    Args:
        notebooks: paths of executed notebooks; those of runs are `<machine>/<study>/<point>/<run>.ipynb`.
    """
    for path in notebooks:
        try:
            heading, body = _body(path)
        except (ValueError, KeyError):  # an incomplete file is not JSON, or lacks parts of a notebook
            continue
        is_run = re.match(r"\d{8}T", path.stem)  # its name begins with a time, not with a notebook's number
        point = dict(zip(("machine", "study", "point"), path.parts[-4:-1], strict=True)) if is_run else {}
        head = {"file": _file_name(path, point), "title": " · ".join(point.values()) or heading, "body": body}
        yield head | {"machine": "", "study": heading, "point": ""} | point


def _file_name(path: Path, point: dict) -> str:
    """Return a plain file name of letters, digits and dashes; a hash keeps different points apart."""
    if not point:
        return f"{path.stem}.html"
    name = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join(point.values())).strip("-_")[:100]
    return f"{name}-{hashlib.sha256('/'.join(point.values()).encode()).hexdigest()[:8]}.html".lstrip("-")


@functools.cache
def _exporter():
    from nbconvert import HTMLExporter  # the import takes a second, and a report may have no notebooks

    # "basic" is only the body of a page; other templates fetch MathJax, require.js and mermaid.
    bare = {"exclude_input_prompt": True, "exclude_output_prompt": True}
    return HTMLExporter(template_name="basic", sanitize_html=True, filters={"clean_html": _clean}, **bare)


def _body(path: Path) -> tuple[str, str]:
    """Return a notebook's first heading, or the name of its file, and the notebook as HTML.

    Raises:
        ValueError, KeyError: the file is not a notebook.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    first = heading = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            titles = [line.lstrip("# ") for line in cell.source.splitlines() if line.startswith("#")]
            heading = titles[-1] if titles else heading
            first = first or next(iter(titles), "")
        if cell.cell_type == "code":
            # stderr has progress bars and start messages of libraries; an error is another kind of output.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            for output in cell.outputs:
                if "data" in output:
                    output["data"] = {kind: value for kind, value in output["data"].items() if kind in SHOWN}
                    alt = {"alt": f"Figure drawn by the code above, under: {heading}"}
                    output["metadata"] |= {kind: alt for kind in output["data"] if kind.startswith("image/")}
    body, _ = _exporter().from_notebook_node(notebook)
    # Pages are published, so they must not name the project's folder or the home folder.
    for old, new in (REACHABLE | {str(layout.root()): "benchbook", str(Path.home()): "~"}).items():
        body = body.replace(old, new)
    return first or path.stem, body


def _clean(markup) -> str:
    """Return markup with only TAGS and ATTRIBUTES; scripts and styles are dropped with their content."""
    from bleach import Cleaner
    from bleach.html5lib_shim import Filter

    class WithoutCode(Filter):
        def __iter__(self):
            inside = ""
            for token in super().__iter__():
                opens = token["type"] == "StartTag" and token["name"] in CODE
                if not inside and opens:
                    inside = token["name"]
                elif not inside:
                    yield token
                elif token["type"] == "EndTag" and token["name"] == inside:
                    inside = ""

    allowed = [*TAGS.split(), *CODE]  # else the cleaner would pass the content of CODE on as text
    return Cleaner(tags=allowed, attributes=ATTRIBUTES, strip=True, filters=[WithoutCode]).clean(str(markup))
