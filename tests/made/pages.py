"""Executed notebooks to show, and a report read back as a browser would that runs no script."""

import json
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import nbformat
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ADDRESSES = (
    "href",
    "src",
    "srcset",
    "action",
    "data",
)  # attributes that a browser fetches or opens
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def write_notebook(path: Path, *outputs, text="# Title", source="print(1)", **metadata) -> Path:
    """Write an executed notebook with a cell of text and a cell of code with these outputs;
    return its path."""
    cells = [
        new_markdown_cell(text, id="text"),
        new_code_cell(source, id="code", outputs=list(outputs), metadata=metadata),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


def html_output(markup):
    return new_output("display_data", {"text/html": markup, "text/plain": "plain"})


def read(index: Path) -> SimpleNamespace:
    """Return a site's folder, and its pages by name."""
    soups = {
        path.relative_to(index.parent).as_posix(): soup(path)
        for path in index.parent.rglob("*.html")
    }
    return SimpleNamespace(folder=index.parent, pages=soups)


def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def marks_of(report: Path) -> list[dict]:
    """Return the marks that a report's start page loads."""
    script = (report / "_static" / "marks.js").read_text(encoding="utf-8")
    loaded = json.loads(script.removeprefix("window.benchbook = ").removesuffix(";\n"))
    columns, lines = loaded["marks"].values()
    return [
        dict(zip(columns, map(loaded["values"].__getitem__, line), strict=True)) for line in lines
    ]


def links(page: BeautifulSoup) -> list[str]:
    return [tag[name] for tag in page.find_all(True) for name in ADDRESSES if name in tag.attrs]


def dead_links(site: SimpleNamespace) -> list[str]:
    """Return what Sphinx warned of, and the links of a site's pages to files that it lacks."""
    log = (site.folder.parent / "figures" / "sphinx.log").read_text().splitlines()
    found = [line for line in log if "/source/" in line]  # of pages, not of a second build
    for name, page in site.pages.items():
        own = [link for link in links(page) if not urlsplit(link).scheme and "{" not in link]
        folder = (site.folder / name).parent
        found += [
            f"{name}: {link}"
            for link in own
            if not (folder / unquote(urlsplit(link).path)).exists()
        ]
    return found
