"""Draw the README's figure from the published rows alone: `make picture`."""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from benchbook import figures, layout, records
from benchbook.figures import mnist


def draw(path: Path) -> None:
    """Write the figure as SVG; the same rows give the same picture."""
    epochs = mnist.epoch_seconds(records.read(layout.published() / "mnist_speedup.csv"))
    ratios = mnist.speedups(epochs)["speedup"]
    with figures.style():
        figure = Figure(figsize=(8.0, 3.0))
        axes = figure.subplots()
        mnist.draw_epochs(axes, epochs)
        axes.set_title(f"Published: the GPU's MNIST epoch is {ratios.min():.2f} to {ratios.max():.2f} times as fast")
        figure.legends.clear()  # all bars are of one kind here
        figure.savefig(path, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else layout.root() / ".github" / "mnist-epochs.svg")
