"""What the segmentation study says: milliseconds an image, masks, minutes without a pause."""

from benchbook import figures, sustained
from benchbook.studies.segmentation_scaling import charts, scaling, scaling_charts
from benchbook.study import Chart, Drawing, Evidence, Rule, Study


def image_times(evidence: Evidence) -> Drawing:
    """Draw milliseconds an image."""
    table = charts.image_times(evidence.rows, evidence.conditions)
    figure, axes = figures.canvas(1.4 + 0.5 * len(table), 9.0)
    charts.draw_image_times(axes, table)
    title = charts.image_times_title(table)
    pairs = scaling.pairs(evidence.rows)
    guesses = {"scaling-guesses": scaling_charts.extrapolations(table, pairs)}
    finding = f"{title}. {scaling_charts.title(pairs)}"
    return Drawing(figure, table, f"Bars of milliseconds an image. {title}.", finding, guesses)


def masks(evidence: Evidence) -> Drawing:
    """Draw masks over images, before training and after, of the point whose masks fit best."""
    kept = charts.masks(evidence.folder) if evidence.folder else []
    overlaps = charts.overlaps(kept)
    tables = {"segmentation-overlaps": overlaps}
    if not kept:
        return Drawing(None, overlaps, "", tables=tables)
    best = charts.best(kept)
    figure, panels = figures.canvas(4.6, panels=4, nrows=2)
    charts.draw_masks(panels, best)
    alt = f"Masks drawn over images of triangles. {charts.masks_title(best)}."
    return Drawing(figure, overlaps, alt, tables=tables)


def minutes(evidence: Evidence) -> Drawing:
    """Draw the rate over minutes without a pause."""
    windows = sustained.windows(evidence.measured)
    ends = sustained.first_and_last(windows)
    figure, axes = figures.canvas(4.0)
    charts.draw_sustained(axes, windows, ends)
    title = charts.sustained_title(ends)
    return Drawing(figure, ends, f"Images a second over minutes. {title}.", title)


STUDY = Study(
    name="segmentation_scaling",
    title="Segmentation",
    article="Takashi Shirakawa, 2021",
    charts=(
        Chart(
            "segmentation-times",
            "Milliseconds an image",
            "The article's figures came from code that was not released: they are grey, and compared with nothing.",
            image_times,
        ),
        Chart(
            "segmentation-masks",
            "Masks over images, before training and after",
            "The first validation images of the newest run of each machine and point, as its manifest keeps them; the"
            " best point is drawn.",
            masks,
        ),
        Chart(
            "sustained",
            "Minutes without a pause",
            "The first minute and the last: a machine without a fan is not what its first seconds say.",
            minutes,
        ),
    ),
    published=(Rule("accelerator_seconds_per_image", "seconds", "device != 'cpu' and samples == 1"),),
)
