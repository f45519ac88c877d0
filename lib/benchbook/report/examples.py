"""Executed examples of the notebooks, in outputs/examples, for readers who run nothing: `make
examples`.

A study's notebook runs as in JupyterLab, with its loop and Explore, and measures this computer
for about a minute; its rows are not kept. The aggregation shows the rows in outputs/runs.
"""

import base64
import io
import sys
from datetime import UTC, datetime
from pathlib import Path

import nbformat
from PIL import Image

from benchbook import studies
from benchbook.machine import identity, layout, temporary
from benchbook.record import naming
from benchbook.report import cleaning, site, tables
from benchbook.running import kernel
from benchbook.studies.charts import figures
from benchbook.studies.experiments.parameters import nested, plan_of

HEAD = """# The notebooks, as executed

Each ran as in JupyterLab, on the computer that its pictures name, for about a minute; `All machines` merges the rows of
outputs/runs. `make examples` writes this folder.
"""
COLOURS = 32  # of a picture, for GitHub shows no large notebook; charts have few
AMOUNT = {"num_processes": 2, "num_windows": 3}  # of each example, unless its plan says otherwise


def write(study: str) -> Path:
    """Execute a study's notebook, write it without this computer's folders into
    outputs/examples; return its path."""
    source = layout.notebook(study)
    target = layout.root() / "outputs" / "examples" / source.name
    with temporary.folder() as folder:
        given, attended, executed = {}, {}, folder / source.name
        if study in studies.names():  # see `notebook.is_attended`
            attended = {"JPY_SESSION_NAME": "example", "BENCHBOOK_OUTPUTS": str(folder)}
            given = nested(study, AMOUNT | plan_of(study).EXAMPLE)
        with temporary.variables(**attended):
            kernel.execute(source, executed, given)
        notebook = cleaning.read(executed)
    this = identity.identify()
    name = naming.computer(naming.chip_name(this.chip), this.physical_cores)
    made = {"machine": str(name), "day": f"{datetime.now(UTC):%Y-%m-%d}"}
    notebook.metadata = {**notebook.metadata, site.MADE: made}
    for output in _shown(notebook.cells, "image/png"):
        output.data["image/png"] = _fewer_colours(output.data["image/png"])
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
    target.parent.mkdir(exist_ok=True)
    target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return target


def index(folder: Path) -> None:
    """Write README.md of a folder with executed notebooks: each question, answer, and the
    answer's largest picture."""
    lines = [HEAD]
    for path in sorted(folder.glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        answers = site.answering(cells)
        drawn = _shown(answers, "image/png") or _shown(cells, "image/png")
        largest = max(drawn, key=lambda output: len(output.data["image/png"]))
        picture = folder / "pictures" / f"{path.stem}.png"
        picture.parent.mkdir(exist_ok=True)
        picture.write_bytes(base64.b64decode(largest.data["image/png"]))
        question, alt = layout.question(layout.study(path)), largest.metadata["image/png"]["alt"]
        said = "".join(map(site.sentence, _shown(answers, "text/markdown")))
        answer = f"**{tables.markdown(said)}**\n\n" if said else ""
        lines.append(f"## [{question}]({path.name})\n\n{answer}![{alt}](pictures/{picture.name})\n")
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _shown(cells: list, kind: str) -> list:
    """Return the outputs of cells that have a kind of data."""
    return [output for output in site.outputs(cells) if kind in output.get("data", {})]


def _fewer_colours(picture: str) -> str:
    """Return a PNG, in base64, with COLOURS colours."""
    image = Image.open(io.BytesIO(base64.b64decode(picture)))
    return base64.b64encode(figures.as_png(image, COLOURS)).decode()


if __name__ == "__main__":
    for name in sys.argv[1:] or layout.notebooks():
        print(write(name).relative_to(layout.root()), flush=True)
    index(layout.root() / "outputs" / "examples")
