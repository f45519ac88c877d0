"""What the MobileNetV2 study says: images a second, joules an image, what is learnt, and what breaks."""

from benchbook import figures
from benchbook.studies.mobilenetv2_energy import charts, tables
from benchbook.study import Chart, Drawing, Evidence, Rule, Study


def settings(evidence: Evidence) -> Drawing:
    """Draw images a second and joules an image of every setting."""
    table = tables.settings(evidence.rows, evidence.conditions)
    figure, panels = figures.canvas(1.8 + 0.42 * len(table), 12.0, panels=2, sharey=True)
    charts.draw_rates(panels[0], table)
    charts.draw_joules(panels[1], table)
    joules = charts.joules_title(table)
    alt = f"Bars of images a second and of joules an image. {charts.rates_title(table)}. {joules}."
    return Drawing(figure, table, alt, joules)


def losses(evidence: Evidence) -> Drawing:
    """Draw the loss over images seen, and judge whether the frozen network converges."""
    table = tables.curves(evidence.measured)
    figure, axes = figures.canvas(max(4, 1 + 0.17 * charts.num_curves(table)), 12.0)
    charts.draw_losses(axes, table)
    title, judged = charts.losses_title(table), tables.convergence(evidence.measured)
    alt = f"Loss over images seen, with test accuracies. {title}."
    return Drawing(figure, table, alt, title, {"mobilenetv2-convergence": judged})


STUDY = Study(
    name="mobilenetv2_energy",
    title="MobileNetV2",
    article="Chris Van Pelt, Weights & Biases, 2021",
    charts=(
        Chart(
            "mobilenetv2-settings",
            "Images a second and joules an image",
            "Every setting, framework beside framework; a cross where it failed, and the published ones in grey.",
            settings,
        ),
        Chart(
            "mobilenetv2-loss",
            "What does it learn, and does the frozen network converge?",
            "The rule stands in the reason's words; random weights frozen in place say nothing of convergence and are"
            " not judged.",
            losses,
        ),
    ),
    published=(Rule("crashed_over_196", None, "status == 'crashed' and image_size_over == 196"),),
    quantities=lambda evidence: tables.quantities(evidence.measured),
)
