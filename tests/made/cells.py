"""Write notebooks, and run their code cells in this process: what a kernel does, without
starting one for each.

`python tests/made/cells.py points.json FRAMEWORK` runs those points of a file that compute with a
framework, and `python tests/made/cells.py aggregate` merges all rows. Rows and figures go to
BENCHBOOK_OUTPUTS.
"""

import dataclasses
import functools
import json
import sys
from pathlib import Path

import matplotlib
import nbformat
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot
from traitlets.config import Config

from benchbook.machine import context, layout
from benchbook.running.profiles import Point
from benchbook.studies.experiments import notebook
from benchbook.studies.experiments.measurement import Measurement
from benchbook.studies.experiments.parameters import nested


def write_notebook(path: Path, title: str, *sources: str) -> Path:
    """Write a notebook of a title and cells of code, the first with the tag `parameters`; return
    its path."""
    cells = [nbformat.v4.new_markdown_cell(title), *map(nbformat.v4.new_code_cell, sources)]
    cells[1].metadata["tags"] = ["parameters"]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def run_cells(notebook: Path, parameters: dict) -> None:
    """Run all code cells of a notebook with these parameters; an exception ends it, as it does
    in a kernel."""
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}), user_ns={})
    for cell in layout.cells(notebook):
        if cell["cell_type"] != "code":
            continue
        shell.run_cell(cell["source"]).raise_error()
        if "parameters" in cell["metadata"].get("tags", []):
            shell.push(parameters)
        for number in pyplot.get_fignums():  # a kernel shows them after the cell
            pyplot.figure(number).canvas.draw()
        pyplot.close("all")


def write_points(path: Path, chosen: list[Point]) -> None:
    """Write points to a file that this module runs as a script."""
    path.write_text(json.dumps([dataclasses.asdict(point) for point in chosen]))


def main() -> None:
    matplotlib.use("agg")
    context.change(session="cells")
    if sys.argv[1] == "aggregate":
        run_cells(layout.notebook("aggregate"), {})
        return
    notebook.Measurement = functools.partial(
        Measurement, in_kernel=True
    )  # saves the start of each process
    for point in (Point(**each) for each in json.loads(Path(sys.argv[1]).read_text())):
        if point.framework == sys.argv[2]:
            print(point.study, point.name, flush=True)
            run_cells(layout.notebook(point.study), nested(point.study, point.parameters))


if __name__ == "__main__":
    main()
