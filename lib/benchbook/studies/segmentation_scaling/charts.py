"""Charts of the segmentation study: milliseconds an image, masks, minutes without a pause."""

from collections.abc import Callable

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from benchbook.judging import sustained, wording
from benchbook.record.naming import Names
from benchbook.rows.points import point_title
from benchbook.studies import figures
from benchbook.studies.segmentation_scaling import tables
from benchbook.studies.segmentation_scaling.network import ARTICLE_SIZE
from benchbook.studies.segmentation_scaling.tables import STAGES, setting
from benchbook.studies.study import Drawing, Evidence

SHADES = {"start": "evaluate", "end": "accelerator"}  # names of figures.COLOURS
OPACITY = 0.65  # of a mask over its image


def times(evidence: Evidence) -> Drawing:
    """Draw milliseconds an image; the article's in grey, marked as of other code."""
    table = tables.image_times(evidence)
    figure, axes = figures.canvas(1.4 + 0.5 * len(table), 9.0)
    title = times_title(table, evidence.names)
    figures.draw_bars(
        axes,
        table,
        "ms_per_image",
        name=_naming(evidence.names),
        least_first=True,
        text=lambda time: ", ".join(part for part in (f"{time['ms_per_image']:,.0f} ms", time["note"]) if part),
    )
    axes.set(xlabel="milliseconds an image, training", title=title)
    axes.margins(x=0.45)
    return Drawing(figure, table, f"Bars of milliseconds an image. {title}.")


def masks(evidence: Evidence) -> Drawing:
    """Draw masks over images, before training and after, of the point whose masks fit best."""
    kept = tables.kept_masks(evidence.folder) if evidence.folder else []
    overlaps = tables.overlaps(kept)
    more = {"segmentation-overlaps": overlaps}
    if not kept:
        return Drawing(None, overlaps, "", tables=more)
    best = tables.best(kept)
    figure, panels = figures.canvas(4.6, panels=4, nrows=2)
    draw_masks(panels, best)
    panels[0, 0].set_title(masks_title(best))
    figure.supxlabel(f"{evidence.names.machine(best['machine'])}, {point_title(best['point'])}", fontsize=7)
    return Drawing.titled(figure, overlaps, "Masks drawn over images of triangles", tables=more)


def minutes(evidence: Evidence) -> Drawing:
    """Draw the rate over minutes without a pause."""
    windows = sustained.windows(evidence.measured)
    ends = sustained.first_and_last(windows)
    figure, axes = figures.canvas(4.0)
    for run in figures.of_few_machines(axes, ends).to_dict("records"):
        _draw_run(axes, windows, run)
    axes.set(xlabel="minutes of training without a pause", ylabel="images a second")
    axes.set_ylim(0, 1.15 * windows["samples_per_second"].max() if len(ends) else 1)
    axes.grid(visible=True)
    if len(ends):
        axes.legend(fontsize=8, loc="lower right")
    axes.set_title(minutes_title(ends))
    return Drawing.titled(figure, ends, "Images a second over minutes")


def draw_masks(panels: numpy.ndarray, point: dict) -> None:
    """Draw a network's masks over the test images, before training in the first line of panels, after it in the second.

    Args:
        panels: axes, shape (2, n); those without an image stay empty.
        point: one of `tables.kept_masks`.
    """
    for axes in panels.flat:
        axes.axis("off")
    for line, stage in zip(panels, STAGES, strict=True):
        shade = to_rgba(figures.COLOURS[SHADES[stage]], OPACITY)
        for axes, image, truth, mask in zip(line, point["images"], point["truth"], point[stage], strict=False):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255)
            axes.imshow(mask[..., None] * numpy.array(shade))
            axes.axis("on")
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(f"{stage}: IoU {tables.overlap(mask, truth):.2f}", fontsize=8)


def times_title(table: pandas.DataFrame, names: Names) -> str:
    """Return what the chart of times shows, in a sentence with its numbers."""
    measured = table[(table["note"] == "") & table["ms_per_image"].notna() & table["status"].eq("ok")]
    if measured.empty:
        return f"The article's network at {ARTICLE_SIZE} px was not measured here yet"
    fastest = measured.sort_values("ms_per_image").iloc[0].to_dict()
    return f"An image takes {wording.duration(fastest['ms_per_image'] / 1e3)} to train on {names.in_sentence(fastest)}"


def minutes_title(ends: pandas.DataFrame) -> str:
    """Return what minutes without a pause changed, of `sustained.first_and_last`."""
    if ends.empty:
        return "Minutes without a pause: not measured here yet"
    worst = ends.sort_values("change").iloc[0]
    change = f"{wording.percent(abs(worst['change']))} {'slower' if worst['change'] < 0 else 'faster'}"
    return f"The last minute of {wording.number(worst['minutes'])} was {change} than the first"


def masks_title(point: dict) -> str:
    """Return what the pictures of a point's masks show."""
    start, end = tables.overlaps([point])[list(STAGES)].mean()
    return f"Masks overlap the triangles by {start:.2f} before training and by {end:.2f} after (IoU)"


def _draw_run(axes: Axes, windows: pandas.DataFrame, run: dict) -> None:
    """Draw a run's windows, with the rates of its first and its last minute as lines."""
    own = windows[(windows["machine"] == run["machine"]) & (windows["point"] == run["point"])]
    label, rates = f"{setting(run)}, n={len(own)}", own["samples_per_second"].astype(float)
    axes.plot(own["minutes"], rates, ".-", color=figures.colour(run["device"]), label=label)
    axes.plot([0, run["stretch"]], [run["first"]] * 2, color=figures.COLOURS["line"], linewidth=3)
    axes.plot([run["minutes"] - run["stretch"], run["minutes"]], [run["last"]] * 2, color="black", linewidth=3)


def _naming(names: Names) -> Callable[[dict], str]:
    """Return what names a time's bar: its machine and device, and below it how it was run."""

    def name(time: dict) -> str:
        if time["source"] != "measured":
            return f"{names.place(time)}\n{time['source']}, {ARTICLE_SIZE} px"
        width = "" if pandas.isna(time["width"]) or time["width"] == 1 else f", width {time['width']:g}"
        minutes = time["sustained_minutes"]
        length = f", {minutes:g} min" if pandas.notna(minutes) and minutes else ""
        return f"{names.place(time)}\n{setting(time)}{figures.size(time)}{width}{length}"

    return name
