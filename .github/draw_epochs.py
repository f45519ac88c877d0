"""Draw the README's figure from the published rows alone: `make picture`."""

import sys
from pathlib import Path

from benchbook.machine import layout
from benchbook.rows import records
from benchbook.studies import figures
from benchbook.studies.mnist_speedup import study
from benchbook.studies.study import Evidence


def draw(path: Path) -> None:
    """Write the figure as SVG; the same rows give the same picture."""
    evidence = Evidence(records.read(layout.published() / "mnist_speedup.csv"))
    ratios = study.speedups(study.epochs(evidence))["speedup"]
    with figures.style():
        figure = study.STUDY.charts[0].make(evidence).figure
        figure.set_size_inches(8.0, 3.0)
        title = f"Published: the GPU's MNIST epoch is {ratios.min():.2f} to {ratios.max():.2f} times as fast"
        figure.axes[0].set_title(title)
        figure.legends.clear()  # all bars are of one kind here
        figure.savefig(path, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else layout.root() / ".github" / "mnist-epochs.svg")
