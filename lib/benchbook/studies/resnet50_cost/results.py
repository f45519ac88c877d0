"""What the ResNet-50 study says: images a second by batch and device count, dollars, and what an accuracy costs."""

import pandas

from benchbook import estimate, figures, quantities
from benchbook.studies.resnet50_cost import charts, money, tables
from benchbook.study import Chart, Drawing, Evidence, Rule, Study

TARGET_ACCURACY = 0.757  # the article's
GLOBAL_BATCH_SIZE, NUM_DEVICES = 1024, 4  # of the article's claims about rates


def rates(evidence: Evidence) -> Drawing:
    """Draw images a second over the batch, and the share of the ceiling."""
    table, summary = tables.points(evidence.rows, evidence.conditions), evidence.summary
    swapping = summary[summary["verdict"].astype(str).str.contains("swap")]
    swapped = frozenset(zip(swapping["machine"], swapping["batch_size"], strict=True))
    figure, panels = figures.canvas(4.8, 14.0, panels=2)
    charts.draw_rates(panels[0], table)
    charts.draw_efficiency(panels[1], table)
    figure.legend(loc="outside right center", fontsize=7)
    title = charts.rates_title(table)
    alt = f"Images a second over the batch, and the share of the ceiling. {title}."
    return Drawing(figure, table, alt, title, {"resnet50-largest": tables.batches(table, swapped)})


def scaling(evidence: Evidence) -> Drawing:
    """Draw the share of the ideal speed that several devices reach."""
    table = tables.scaling(tables.points(evidence.rows, evidence.conditions))
    figure, axes = figures.canvas(1.6 + 0.6 * max(1, len(table)), 9.0)
    charts.draw_scaling(axes, table)
    return Drawing(figure, table, f"Bars of the share of the ideal speed. {axes.get_title(loc='left')}.")


def costs(evidence: Evidence) -> Drawing:
    """Draw dollars for a million images."""
    points = tables.points(evidence.rows, evidence.conditions)
    table = money.money(points, evidence.prices)
    figure, axes = figures.canvas(1.6 + 0.5 * max(1, len(table)), 9.0)
    charts.draw_money(axes, table)
    title = charts.money_title(table)
    break_even = money.break_even(points, evidence.prices)
    alt = f"Bars of dollars for a million training images. {title}."
    return Drawing(figure, table, alt, title, {"resnet50-break-even": break_even})


def accuracy(evidence: Evidence) -> Drawing:
    """Draw accuracy over hours and over dollars."""
    table = money.curves(evidence.rows, evidence.prices)
    figure, panels = figures.canvas(4.2, 12.0, panels=2, sharey=True)
    charts.draw_accuracy(panels[0], table, "hours")
    charts.draw_accuracy(panels[1], table, "dollars")
    alt = f"Test accuracy over hours and over dollars. {panels[0].get_title(loc='left')}."
    return Drawing(figure, table, alt, tables={"resnet50-to-target": money.to_target(table, TARGET_ACCURACY)})


def claimed(evidence: Evidence) -> list[dict]:
    """Return published accuracies with the epochs they took, and measured rates of the article's four devices."""
    return _accuracies(evidence.published) + _rates(evidence)


def _accuracies(printed: pandas.DataFrame) -> list[dict]:
    """Return each curve's best accuracy, the epoch that reached it, and the epoch that reached the target."""
    tested = printed[(printed["study"] == STUDY.name) & (printed["phase"] == "evaluate")]
    values = []
    for _, curve in tested.groupby("machine"):
        best = curve.sort_values("accuracy").iloc[-1].to_dict()
        epoch = estimate.epochs_to_accuracy(curve, TARGET_ACCURACY)
        values.append(quantities.printed(best, "best_accuracy", "accuracy"))
        for name, value in (("epochs_to_best", best["epoch"]), ("epochs_to_757", epoch)):
            values += [quantities.exact(best, name, value)] if value is not None else []
    return values


def _rates(evidence: Evidence) -> list[dict]:
    points = evidence.points(STUDY.name)
    alike = (points["device_count"] == NUM_DEVICES) & (points["batch_size"] == GLOBAL_BATCH_SIZE)
    points = points[alike.fillna(False) & (points["status"] == "ok") & points["samples_per_second"].notna()]
    names = {"synthetic": "synthetic_rate", "imagenet": "real_rate"}
    return [
        quantities.between(point | {"source": "measured"}, names[point["dataset"]], "samples_per_second")
        for point in points[points["dataset"].isin(list(names))].to_dict("records")
    ]


STUDY = Study(
    name="resnet50_cost",
    title="ResNet-50",
    article="RiseML, 2018",
    charts=(
        Chart(
            "resnet50-batches",
            "Images a second by batch, and the share of the ceiling",
            "A cross where memory did not hold the batch. The table names the largest batch that trained without the"
            " machine swapping, and the fastest.",
            rates,
        ),
        Chart(
            "resnet50-scaling",
            "Do several devices pay?",
            "Weak: as many images for each device as one had alone. Strong: the same batch, shared out.",
            scaling,
        ),
        Chart(
            "resnet50-money",
            "What does a million images cost?",
            "At every price there is: on demand, reserved, stated by the run, or the electricity of a machine that is"
            " paid for. Then the hours of training at which a purchase has paid, where a run states its price.",
            costs,
        ),
        Chart(
            "resnet50-accuracy",
            "What does an accuracy cost?",
            "Raw curves, never continued: the table says when each run first reached the article's 75.7 %, if it did.",
            accuracy,
        ),
    ),
    published=(
        Rule("synthetic_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 1024"),
        Rule("mxnet_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 768"),
        Rule("real_rate", "samples_per_second", "dataset == 'imagenet' and phase == 'train'"),
    ),
    quantities=claimed,
)
