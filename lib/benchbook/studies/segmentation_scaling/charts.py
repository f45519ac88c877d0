"""Tables and charts of the segmentation study: ms an image, masks, minutes without a pause."""

from pathlib import Path

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import articles, datasets, estimate, figures, manifests, verdicts
from benchbook.studies.segmentation_scaling import masks as encoded
from benchbook.studies.segmentation_scaling.network import ARTICLE_SIZE
from benchbook.studies.segmentation_scaling.scaling_charts import NUM_IMAGES

NAME = "segmentation_scaling"
OTHER_CODE = "other code, not comparable"
SMALLER = "a smaller network"
BYTES_PER_GIBIBYTE = 2**30
SHADES = {"start": "#56B4E9", "end": "#D55E00"}

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "precision", "compiled", "dataset"]
_KEPT += ["batch_size", "image_size"]
_MEASURES = ["width", "sustained_minutes", "ms_per_image", "low", "high", "num_windows", "verdict", "hours"]
_MEASURES += ["peak_gibibytes", "iou", "status", "message", "note", "point"]


def image_times(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return milliseconds for an image in training, of each measured point and of what was published.

    Args:
        rows: measured and published ones.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, framework, variant, source, precision, compiled, dataset, batch_size,
        image_size, width, sustained_minutes, ms_per_image, low, high, num_windows, verdict, hours (for 100,000
        images), peak_gibibytes, iou, status, message, note, point. Of a point that failed the time is missing; the IoU
        is that after the last epoch.
    """
    study = rows[rows["study"] == NAME]
    printed = study[(study["source"] != "measured") & (study["samples"] == 1)]
    lines = [_printed(row) for row in printed.to_dict("records")]
    measured = study[study["source"] == "measured"]
    peaks = measured.groupby(["machine", "point"])["peak_memory_bytes"].max()
    lines += [_point(point, peaks) for point in verdicts.summarise(measured, conditions).to_dict("records")]
    table = pandas.DataFrame(lines, columns=[*_KEPT, *_MEASURES])
    rates = 1000 / table["ms_per_image"].astype(float)
    table["hours"] = [estimate.run_hours(1, NUM_IMAGES, rate) if rate > 0 else numpy.nan for rate in rates]
    order = ["printed", "source", "machine", "image_size", "variant", "device", "framework", "batch_size"]
    table = table.assign(printed=table["source"] != "measured").sort_values(order, kind="stable")
    return table.drop(columns="printed").reset_index(drop=True)


def masks(folder: Path) -> list[dict]:
    """Return the masks that measured runs kept, of the newest run of each machine and point.

    Args:
        folder: of measured rows and their manifests.

    Returns:
        Dictionaries: machine, point, images (uint8, shape (n, side, side)), truth, start, end (lists of bool masks).
    """
    found = {}
    for path, manifest in manifests.files(folder, f"{NAME}/*/{manifests.FILES}").items():
        kept, parameters = manifest.get("masks"), manifest.get("parameters")
        if kept and kept["end"] and parameters:
            found[path.parts[-4], path.parts[-2]] = parameters, kept
    return [_masks(machine, point, *both) for (machine, point), both in sorted(found.items())]


def overlaps(found: list[dict]) -> pandas.DataFrame:
    """Return how well each kept mask meets its triangle, before training and after.

    Args:
        found: from `masks`.

    Returns:
        Columns: machine, point, image (number), start, end (IoU).
    """
    lines = [
        {"machine": each["machine"], "point": each["point"], "image": number}
        | {name: overlap(each[name][number], truth) for name in ("start", "end")}
        for each in found
        for number, truth in enumerate(each["truth"])
    ]
    return pandas.DataFrame(lines, columns=["machine", "point", "image", "start", "end"])


def best(found: list[dict]) -> dict:
    """Return, of several points' masks, those that meet the triangles best after training."""
    return max(found, key=lambda each: overlaps([each])["end"].mean())


def draw_image_times(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw milliseconds an image; the article's in grey, marked as of other code."""

    def text(line: dict) -> str:
        return ", ".join(part for part in (f"{line['ms_per_image']:,.0f} ms", line["note"]) if part)

    figures.draw_bars(axes, table, "ms_per_image", [_label(line) for line in table.to_dict("records")], text)
    axes.set_xlabel("milliseconds an image, training")
    axes.margins(x=0.45)
    axes.set_title(image_times_title(table))


def draw_sustained(axes: Axes, windows: pandas.DataFrame, ends: pandas.DataFrame) -> None:
    """Draw images a second over minutes, with the rates of the first and the last minute as lines.

    Args:
        axes: to draw on.
        windows: from `sustained.windows`.
        ends: from `sustained.first_and_last`.
    """
    for line in ends.to_dict("records"):
        run = windows[(windows["machine"] == line["machine"]) & (windows["point"] == line["point"])]
        colour = figures.colour(line["device"])
        axes.plot(
            run["minutes"],
            run["samples_per_second"].astype(float),
            ".-",
            color=colour,
            label=f"{_where(line)}, n={len(run)}",
        )
        axes.plot([0, line["stretch"]], [line["first"]] * 2, color=figures.COLOURS["line"], linewidth=3)
        axes.plot([line["minutes"] - line["stretch"], line["minutes"]], [line["last"]] * 2, color="black", linewidth=3)
    axes.set(xlabel="minutes of training without a pause", ylabel="images a second")
    axes.set_ylim(0, 1.15 * windows["samples_per_second"].max() if len(ends) else 1)
    axes.grid(visible=True)
    axes.legend(fontsize=8, loc="lower right") if len(ends) else None
    axes.set_title(sustained_title(ends))


def draw_masks(panels: numpy.ndarray, found: dict) -> None:
    """Draw a network's masks over the test images, before training in the first line of panels, after it in the second.

    Args:
        panels: axes, shape (2, n); those without an image stay empty.
        found: one of `masks`.
    """
    for axes in panels.flat:
        axes.axis("off")
    for line, name in zip(panels, ("start", "end"), strict=True):
        for axes, image, truth, mask in zip(line, found["images"], found["truth"], found[name], strict=False):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255)
            tint = numpy.zeros((*mask.shape, 4))
            tint[mask] = (*_rgb(SHADES[name]), 0.65)
            axes.imshow(tint)
            axes.axis("on")
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(f"{name}: IoU {overlap(mask, truth):.2f}", fontsize=8)
    panels[0, 0].set_title(masks_title(found))
    panels[0, 0].figure.supxlabel(f"{found['machine']}, {found['point']}", fontsize=7)


def image_times_title(table: pandas.DataFrame) -> str:
    """Return what the chart of times shows, in a sentence with its numbers."""
    measured = table[(table["note"] == "") & table["ms_per_image"].notna() & table["status"].eq("ok")]
    if measured.empty:
        return f"ms an image: not measured here yet at {ARTICLE_SIZE} px and full width"
    fastest = measured.sort_values("ms_per_image").iloc[0]
    return f"{fastest['ms_per_image']:,.0f} ms an image at best ({fastest['machine']}: {_where(fastest)})"


def sustained_title(ends: pandas.DataFrame) -> str:
    """Return what minutes without a pause changed."""
    if ends.empty:
        return "Minutes without a pause: not measured here yet"
    worst = ends.sort_values("change").iloc[0]
    return (
        f"{worst['first']:.3g} images/s at first, {worst['last']:.3g} at the end of {worst['minutes']:.3g} minutes"
        f" ({worst['change']:+.1%})"
    )


def masks_title(found: dict) -> str:
    """Return what the pictures of masks show."""
    start, end = overlaps([found])[["start", "end"]].mean()
    return f"Masks at 0.5: IoU {start:.2f} before training, {end:.2f} after"


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say, in a sentence with its numbers."""
    line = image_times(rows).iloc[0]
    if pandas.isna(line["ms_per_image"]):
        return f"This run measured nothing ({line['status']})."
    memory = f"; {line['peak_gibibytes']:.1f} GiB at most" if pandas.notna(line["peak_gibibytes"]) else ""
    iou = f"; validation IoU {line['iou']:.3f}" if pandas.notna(line["iou"]) else ""
    return (
        f"This run ({_where(line)}, batch {line['batch_size']:.0f}, {line['image_size']:.0f} px) took a median of"
        f" {line['ms_per_image']:,.0f} ms an image over {line['num_windows']} windows: {line['hours']:,.1f} hours for"
        f" {NUM_IMAGES:,}{memory}{iou}."
    )


def overlap(mask: numpy.ndarray, truth: numpy.ndarray) -> float:
    """Return the intersection over union of two bool masks; of two empty ones 1."""
    union = (mask | truth).sum()
    return float((mask & truth).sum() / union) if union else 1.0


def _point(point: dict, peaks: pandas.Series) -> dict:
    rates = [point[name] for name in ("samples_per_second", "high", "low")]
    times = [1000 / rate if pandas.notna(rate) and rate > 0 else None for rate in rates]
    peak, told = peaks[point["machine"], point["point"]], point["settings"]
    article = point["image_size"] == ARTICLE_SIZE and told.get("width") == 1
    return {
        **{name: point[name] for name in _KEPT if name in point},
        **dict(zip(("ms_per_image", "low", "high"), times, strict=True)),
        **{name: point[name] for name in ("num_windows", "verdict", "status", "message", "point")},
        "source": "measured",
        **{name: told.get(name) for name in ("width", "sustained_minutes")},
        "peak_gibibytes": peak / BYTES_PER_GIBIBYTE if pandas.notna(peak) else None,
        "iou": point["accuracy"],
        "note": "" if article else SMALLER,
    }


def _printed(row: dict) -> dict:
    low, high = articles.bounds(row, "seconds")
    times = {"ms_per_image": row["seconds"] * 1000, "low": low * 1000, "high": high * 1000}
    return {name: row[name] for name in [*_KEPT, "status", "message"]} | times | {"note": OTHER_CODE}


def _masks(machine: str, point: str, parameters: dict, kept: dict) -> dict:
    found = {name: [encoded.decode(text) for text in kept[name]] for name in ("start", "end")}
    side = len(found["end"][0])
    data = datasets.triangles(parameters["num_images"], len(found["end"]), parameters["image_size"])
    thin = slice(None, None, parameters["image_size"] // side)
    images, truth = data.test_images[:, thin, thin], data.test_labels[:, thin, thin].astype(bool)
    return {"machine": machine, "point": point, "images": images, "truth": list(truth), **found}


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def _where(line: dict) -> str:
    compiled = ", XLA" if line.get("compiled") is True and line["framework"] == "tensorflow" else ""
    return f"{line['framework']}, {line['device']}, {line['variant']}{compiled}"


def _label(line: dict) -> str:
    if line["source"] != "measured":
        return f"{line['machine']}, {line['source']}\n{line['device']}, 512 px"
    width = "" if pandas.isna(line["width"]) or line["width"] == 1 else f", width {line['width']:g}"
    minutes = line["sustained_minutes"]
    long = f", {minutes:g} min" if pandas.notna(minutes) and minutes else ""
    return f"{line['machine']}\n{_where(line)}{figures.size(line)}{width}{long}"
