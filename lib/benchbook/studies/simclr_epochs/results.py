"""What the SimCLR study says: minutes an epoch, the input's share, accuracy, which precisions and compilers work."""

from benchbook import figures, quantities
from benchbook.studies.simclr_epochs import charts, matrix
from benchbook.study import Chart, Drawing, Evidence, Rule, Study

ACCELERATOR = "device != 'cpu' and reading.isna() and batch_size == 128 and epochs == {}"


def epochs(evidence: Evidence) -> Drawing:
    """Draw the minutes of one epoch and its evaluation."""
    table = charts.epoch_minutes(evidence.rows, evidence.conditions)
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, len(table)))
    charts.draw_epochs(axes, table)
    title = charts.epochs_title(table)
    return Drawing(figure, table, f"Bars of minutes for one epoch and its evaluation. {title}.", title)


def input_shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input."""
    table = charts.input_shares(evidence.measured, evidence.conditions)
    figure, axes = figures.canvas(1.6 + 0.9 * max(1, len(table)))
    charts.draw_input_shares(axes, table)
    return Drawing(figure, table, f"Bars of the share of training time that is input. {axes.get_title(loc='left')}.")


def accuracies(evidence: Evidence) -> Drawing:
    """Draw nearest-neighbour accuracy over epochs."""
    table = charts.accuracies(evidence.rows)
    figure, axes = figures.canvas(4.0)
    charts.draw_accuracies(axes, table)
    title = charts.accuracies_title(table)
    return Drawing(figure, table, f"Nearest-neighbour accuracy over epochs trained. {title}.", title)


def support(evidence: Evidence) -> Drawing:
    """Draw which precisions work, with and without the compiler, and what they gain."""
    table = matrix.matrix(evidence.measured)
    figure, axes = figures.canvas(1.4 + 0.6 * max(1, matrix.num_lines(table)))
    matrix.draw(axes, table)
    title = matrix.title(table)
    return Drawing(figure, table, f"A field for each precision, device and compiler. {title}.", title)


def measured_quantities(evidence: Evidence) -> list[dict]:
    """Return the seconds of the article's epoch, and what an accelerator refused."""
    cells = matrix.matrix(evidence.measured)
    cells = cells[(cells["study"] == STUDY.name) & (cells["device"] != "cpu")].assign(source="measured")
    events = [
        quantities.exact(device_cells.iloc[0].to_dict(), name, value)
        for _, device_cells in cells.groupby(["machine", "device"], sort=True)
        for name, value in matrix.events(device_cells).items()
    ]
    return charts.quantities(evidence.measured).to_dict("records") + events


def epoch_seconds(evidence: Evidence) -> dict[tuple[str, str], float]:
    """Return the seconds of one epoch with its nearest-neighbour evaluation, by machine and point."""
    table = charts.epoch_minutes(evidence.measured)
    return dict(zip(zip(table["machine"], table["point"], strict=True), table["minutes"] * 60, strict=True))


STUDY = Study(
    name="simclr_epochs",
    title="SimCLR",
    article="Lightly, 2023",
    charts=(
        Chart(
            "simclr-epochs",
            "Minutes for one epoch",
            "Training and the nearest-neighbour evaluation, each scaled to the article's images.",
            epochs,
        ),
        Chart(
            "simclr-input-share",
            "How much of a step is input?",
            "Making two views of every image, on the host or on the device: what the same steps on ready views would"
            " save.",
            input_shares,
        ),
        Chart("simclr-accuracy", "What does it learn?", "", accuracies),
        Chart(
            "support",
            "Which precisions work, and do they pay?",
            "The same steps from the same weights, on views that lie on the device, beside fp32 without the compiler.",
            support,
        ),
    ),
    published=(
        Rule("cpu_epoch_seconds", "seconds", "device == 'cpu' and epochs == 1"),
        Rule("cpu_two_epochs_seconds", "seconds", "device == 'cpu' and epochs == 2"),
        Rule("accelerator_epoch_seconds", "seconds", ACCELERATOR.format(1)),
        Rule("accelerator_two_epochs_seconds", "seconds", ACCELERATOR.format(2)),
        Rule("accelerator_200_epochs_seconds", "seconds", ACCELERATOR.format(200)),
        Rule("knn_accuracy", "accuracy", ACCELERATOR.format(200)),
        Rule("peak_memory_bytes", "peak_memory_bytes", ACCELERATOR.format(200)),
    ),
    quantities=measured_quantities,
    epoch_seconds=epoch_seconds,
)
