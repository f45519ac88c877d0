"""Charts of predictions: how far off they are, and what they say of machines that nobody measured."""

from benchbook import figures, predictions
from benchbook.figures import predictions as drawn
from benchbook.studies.segmentation_scaling import scaling, scaling_charts
from benchbook.study import Chart, Drawing, Evidence


def guesses(evidence: Evidence) -> Drawing:
    """Draw the ratios that GPU cores suggest over those that were measured."""
    table = scaling.pairs(evidence.rows)
    figure, axes = figures.canvas(5.0)
    scaling_charts.draw(axes, table)
    title = scaling_charts.title(table)
    return Drawing(figure, table, f"Predicted ratios of speed over measured ones. {title}.", title)


def forecasts(evidence: Evidence) -> Drawing:
    """Draw predictions of hidden measurements, and of machines that nobody measured."""
    table = predictions.table(evidence.rows, evidence.summary)
    errors = predictions.errors(table, scaling.pairs(evidence.rows))
    figure, (left, right) = figures.canvas(3 + 0.16 * len(drawn.shown(table)), 14.0, panels=2)
    drawn.draw_held_out(left, table, errors)
    drawn.draw_unmeasured(right, table)
    alt = "Predicted speeds over measured ones, and hollow, dashed intervals of speeds that nobody measured. "
    alt += f"{drawn.title(errors)}. {drawn.unmeasured_title(table)}."
    return Drawing(figure, table, " ".join(alt.split()), predictions.sentence(errors), {"prediction-errors": errors})


CHARTS = (
    Chart(
        "predictions",
        "How fast is a machine that was not measured?",
        "From its calibration where it has one and three other machines were measured on the same work; otherwise from"
        " the works that it shares with others. On the left each prediction is held against a measurement that was"
        " hidden from it, once with the same network at another batch or image size known, and once with nothing known"
        " of that network. On the right is what nobody measured. Every interval is one of 90 %; where there is too"
        " little to go on, the table says why.",
        forecasts,
    ),
    Chart(
        "scaling",
        "Can a bigger chip be guessed?",
        "Dividing by GPU cores, held against every pair of chips of one generation that trained the same work; and a"
        " power of the cores, fitted on the other publications' pairs, with its 95 % prediction interval.",
        guesses,
    ),
)
