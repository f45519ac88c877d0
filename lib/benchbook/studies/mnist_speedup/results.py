"""What the MNIST study says: seconds for an epoch, the accelerator's speed-up, the input's share, a step's cost."""

from benchbook import figures
from benchbook.studies.mnist_speedup import charts
from benchbook.study import Chart, Drawing, Evidence, Study


def epochs(evidence: Evidence) -> Drawing:
    """Draw the seconds of what the article timed."""
    table = charts.epoch_seconds(evidence.rows, evidence.conditions)
    figure, axes = figures.canvas(1.6 + 0.5 * len(table))
    charts.draw_epochs(axes, table)
    title = charts.epochs_title(table)
    alt = f"Bars of seconds for data set-up, one training epoch and the test. {title}."
    return Drawing(figure, table, alt, title)


def speedups(evidence: Evidence) -> Drawing:
    """Draw how many times as fast as its CPU an accelerator is."""
    table = charts.speedups(charts.epoch_seconds(evidence.rows, evidence.conditions))
    figure, axes = figures.canvas(1.4 + 0.5 * len(table))
    charts.draw_speedups(axes, table)
    title = charts.speedups_title(table)
    return Drawing(figure, table, f"Bars of CPU seconds over accelerator seconds. {title}.", title)


def input_shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input."""
    table = charts.input_shares(evidence.measured, evidence.conditions)
    figure, axes = figures.canvas(1.6 + 0.9 * max(1, len(table)))
    charts.draw_input_shares(axes, table)
    return Drawing(figure, table, f"Bars of the share of training time that is input. {axes.get_title(loc='left')}.")


def step_times(evidence: Evidence) -> Drawing:
    """Draw the time of a step by batch size."""
    table = charts.step_times(evidence.measured, evidence.conditions)
    figure, axes = figures.canvas(4.0)
    charts.draw_step_times(axes, table)
    return Drawing(figure, table, f"Step time over batch size with a fitted line. {axes.get_title(loc='left')}.")


def epoch_seconds(evidence: Evidence) -> dict[tuple[str, str], float]:
    """Return the seconds of set-up, one epoch and the test, by machine and point."""
    table = charts.epoch_seconds(evidence.measured)
    return dict(zip(zip(table["machine"], table["point"], strict=True), table["seconds"], strict=True))


STUDY = Study(
    name="mnist_speedup",
    title="MNIST",
    article="Chinese PyTorch blog post, 2022",
    charts=(
        Chart("mnist-epochs", "Seconds for one epoch", "", epochs),
        Chart(
            "mnist-speedup",
            "Speed-up of the accelerator over its CPU",
            "First with the article's loaders, then with equal ones: what remains is the chip.",
            speedups,
        ),
        Chart(
            "mnist-input-share",
            "How much of a step is input?",
            "The host's wait may overlap device work; the share saved is 1 - resident step / loop step, at the"
            " article's batch size.",
            input_shares,
        ),
        Chart(
            "mnist-step-time",
            "What does a step cost before the first image?",
            "A line through the resident step's time at several batch sizes: its start is what every step pays"
            " (launching), its slope what every image pays (arithmetic). Neither can be negative.",
            step_times,
        ),
    ),
    quantities=lambda evidence: charts.quantities(evidence.rows).to_dict("records"),
    epoch_seconds=epoch_seconds,
)
