"""Executed notebooks as pages may show them: no script, no path of this computer, nothing from
another host."""

import re
from pathlib import Path

import nbformat
import nh3
from markdown_it import MarkdownIt

from benchbook.machine import layout
from benchbook.report import tables

# Tags and attributes of a notebook's outputs; all others are dropped, so that no output runs or
# loads anything.
TAGS = (
    "a b blockquote br code details div em h1 h2 h3 h4 h5 h6 hr i li ol p pre small span strong sub summary sup"
    " table tbody td th thead tr ul"
)
ATTRIBUTES = {"a": {"href", "title"}, "td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}}
PICTURES = ("image/png", "image/jpeg")
# Markdown cells are plain CommonMark: MyST's directives could read files of this computer.
SETTINGS = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
    "myst": {"commonmark_only": True},
    "orphan": True,  # the page of a point is in no table of contents
}
# A table scrolls by itself and is reached by keyboard; the corner cell of a pandas table is no
# header.
SCROLLING = '<div class="wide" role="region" tabindex="0" aria-label="{label}">{markup}</div>'


def read(path: Path) -> nbformat.NotebookNode:
    """Return an executed notebook, rebuilt from what a page may show.

    Raises:
        ValueError: the file is no notebook.
    """
    text = path.read_text(encoding="utf-8")
    folders = {str(layout.root()): "benchbook", str(Path.home()): "~"}
    for folder, name in folders.items():
        text = (
            text.replace(folder, name) if folder != "/" else text
        )  # the home folder of some containers
    cells, heading = [], path.stem
    try:
        for cell in nbformat.reads(text, as_version=4).cells:
            if cell.cell_type == "markdown":
                headings = [
                    line.lstrip("# ") for line in cell.source.splitlines() if line[:1] == "#"
                ]
                heading = [heading, *headings][-1]
                cells.append(
                    nbformat.v4.new_markdown_cell(_plain_markdown(cell.source), id=str(len(cells)))
                )
            elif cell.cell_type == "code":
                outputs = [shown for output in cell.outputs if (shown := _output(output, heading))]
                own = {
                    "outputs": outputs,
                    "metadata": {"tags": list(cell.metadata.get("tags", []))},
                }
                cells.append(nbformat.v4.new_code_cell(cell.source, id=str(len(cells)), **own))
    except (
        AttributeError,
        KeyError,
        TypeError,
        nbformat.ValidationError,
    ) as error:  # JSON, but no notebook
        raise ValueError(f"{path.name} is no notebook ({type(error).__name__})") from error
    return nbformat.v4.new_notebook(cells=cells, metadata=SETTINGS)


def markup(text: str, label: str) -> str:
    """Return HTML with only TAGS and ATTRIBUTES; scripts and styles are dropped with their content.

    Args:
        text: HTML of any origin.
        label: what a table in it is called to those who cannot see it.
    """
    cleaned = nh3.clean(
        text, tags=set(TAGS.split()), attributes=ATTRIBUTES, url_schemes={"http", "https"}
    )
    cleaned = re.sub(r"<th></th>", "<td></td>", cleaned)
    return (
        SCROLLING.format(label=nh3.escape(label), markup=cleaned)
        if "<table" in cleaned
        else cleaned
    )


def _output(output: nbformat.NotebookNode, heading: str) -> nbformat.NotebookNode | None:
    """Return the richest harmless form of an output; None for what pages do not show."""
    new, kind = nbformat.v4.new_output, output.output_type
    if kind == "stream":  # stderr has progress bars and start messages of libraries
        written = re.sub(
            r"[^\n]*\r(?!\n)", "", str(output.text)
        )  # of a progress bar, its last state
        return new("stream", text=written) if output.name == "stdout" else None
    if kind == "error":
        return new("stream", text=f"{output.ename}: {output.evalue}\n")
    data, metadata = output.get("data", {}), output.get("metadata", {})
    picture = next((kind for kind in PICTURES if kind in data), None)
    if picture:
        own = {"alt": f"Picture under: {heading}", "table": ""} | metadata.get(picture, {})
        own = {name: str(own[name]) for name in ("alt", "table")}
        return new("display_data", {picture: data[picture]}, metadata={picture: own})
    if "text/markdown" in data:
        said = metadata.get("text/markdown", {}).get("sentence")
        own = {"text/markdown": {"sentence": str(said)}} if said else {}
        text = _plain_markdown(data["text/markdown"])
        return new("display_data", {"text/markdown": text}, metadata=own)
    if "text/html" in data:
        return new(
            "display_data", {"text/html": markup(data["text/html"], f"Table under: {heading}")}
        )
    return new("stream", text=f"{data['text/plain']}\n") if "text/plain" in data else None


def _plain_markdown(source: str) -> str:
    """Return Markdown whose tags are text and whose pictures are links; pages need no `DOLLAR`."""
    source = source.replace(tables.DOLLAR, r"\$")
    tokens = MarkdownIt("commonmark").parse(source)
    tokens += [child for token in tokens for child in token.children or ()]
    if not any(token.type == "image" or token.type.startswith("html_") for token in tokens):
        return source
    return re.sub(r"!(?=\[)", "", source.replace("<", "&lt;"))
