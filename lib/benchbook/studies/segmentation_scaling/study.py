"""Results of the segmentation study: milliseconds an image, masks, minutes without a pause."""

import functools
import operator
from pathlib import Path

import numpy
import pandas

from benchbook.judging import intervals, statistics, wording
from benchbook.judging.intervals import Interval
from benchbook.record import estimate
from benchbook.rows import manifests
from benchbook.rows.points import setting
from benchbook.studies import datasets, figures, quantities
from benchbook.studies import tables as shared
from benchbook.studies.charts import Bars, Points
from benchbook.studies.findings import Sentence
from benchbook.studies.segmentation_scaling import masks as encoded
from benchbook.studies.segmentation_scaling.plan import ARTICLE_SIZE
from benchbook.studies.study import Chart, Drawing, Evidence, Study, cached, most_samples

NAME = "segmentation_scaling"
NUM_IMAGES = 100_000  # the article printed their hours
OTHER_CODE = "other code, not comparable"
SMALLER = "a smaller network"
BATCH_SIZE = 16  # the article's
RELEASED = "of the article's released network, not of its own code"
MOST_PIXELS = 10**9  # larger sets of images are not drawn again for the report; the article's 500 have 131 million
STAGES = {"start": "before training", "end": "after training"}  # when masks are saved


@cached
def image_times(evidence: Evidence) -> pandas.DataFrame:
    """Return the milliseconds of training per image, of each measured point and of the published ones.

    Returns:
        Columns: machine, chip, device, framework, variant, source, precision, compiled, dataset, batch_size,
        image_size, width, sustained_minutes, ms_per_image (missing if the point failed), low, high, interval,
        num_windows, verdict, hours (for 100,000 images), peak_gibibytes, iou (after the last epoch), status, message,
        note, point.
    """
    printed = shared.with_bounds(evidence.printed(NAME, "samples == 1"), "seconds").assign(note=OTHER_CODE, point=None)
    points = shared.with_settings(evidence.points(NAME), ["width", "sustained_minutes"])
    rates = points[["samples_per_second", "high", "low"]].astype(float)
    times = 1 / rates.where(rates > 0).set_axis(["seconds", "low", "high"], axis=1)
    points = points.assign(**times, iou=points["accuracy"], peak_gibibytes=points["peak_memory_bytes"] / 2**30)
    whole = points["image_size"].eq(ARTICLE_SIZE).fillna(False) & points["width"].eq(1)
    points = points.assign(note=whole.map({True: "", False: SMALLER}))
    columns = ["machine", "chip", "device", "framework", "variant", "source", "precision", "compiled", "dataset"]
    columns += ["batch_size", "image_size", "width", "sustained_minutes", "seconds", *shared.MEASURED]
    columns += ["hours", "peak_gibibytes", "iou", "status", "message", "note", "point"]
    table = shared.with_printed(points, printed, columns, ["machine", "point", "device"])
    seconds = table["seconds"].astype(float)
    table[["seconds", "low", "high"]] *= 1000
    hours = [estimate.run_hours(1, NUM_IMAGES, 1 / time) if time > 0 else numpy.nan for time in seconds]
    return table.assign(hours=hours).rename(columns={"seconds": "ms_per_image"})


def claimed(evidence: Evidence) -> list[dict]:
    """Return the seconds per image of each kind of processor, and an accelerator's watts, for claims.

    They are those of the article's released network at its size and batch, in TensorFlow and float32.
    """
    points, values = shared.with_settings(evidence.points(NAME), ["width", "sustained_minutes"]), []
    own = "framework == 'tensorflow' and variant == 'reference' and precision == 'fp32' and status == 'ok'"
    own += f" and image_size == {ARTICLE_SIZE} and batch_size == {BATCH_SIZE} and width == 1"
    points = points.query(f"{own} and samples_per_second > 0").fillna({"sustained_minutes": 0})
    points = most_samples(points[points["sustained_minutes"].eq(0)], ["machine", "device"])
    for point in points.assign(source="measured").to_dict("records"):
        processor = "cpu" if point["device"] == "cpu" else "accelerator"
        rate = Interval.from_row(point, "samples_per_second")
        times = {"seconds": 1 / rate.value, "low": 1 / rate.high, "high": 1 / rate.low}
        seconds = quantities.between(point | times, f"{processor}_seconds_per_image", "seconds")
        values.append(seconds | {"note": "; ".join(filter(None, (RELEASED, seconds.get("note"))))})
        if processor == "accelerator" and point["energy_per_sample"] > 0:
            joules = Interval.from_row(point, *statistics.ENERGY_COLUMNS)
            watts = intervals.combine(operator.mul, joules, rate)
            bounds = {"watts": watts.value, "low": watts.low, "high": watts.high, "interval": watts.kind}
            read = f"{point['energy_method']}, {point['energy_boundary']}"
            values.append(quantities.between(point | bounds, "watts", "watts") | {"note": read})
    return values


def saved_masks(folder: Path) -> list[dict]:
    """Return the saved masks of the newest run of each machine and point.

    Args:
        folder: measured rows and their manifests.

    Returns:
        Dictionaries: machine, point, images (uint8, shape (n, side, side)), truth, start, end (lists of bool masks).
        The images are generated again from the manifest's parameters, and subsampled like the masks.
    """
    newest, decoded = {}, []
    for path, manifest in manifests.files(folder, f"{NAME}/*/{manifests.FILES}"):
        if (manifest.get("masks") or {}).get("end") and manifest.get("parameters"):
            newest[path.parts[-4], path.parts[-2]] = manifest
    for (machine, point), manifest in sorted(newest.items()):
        given = manifest["parameters"]
        try:
            if given["num_images"] * given["image_size"] ** 2 > MOST_PIXELS:
                continue
            stages = {stage: [encoded.decode(text) for text in manifest["masks"][stage]] for stage in STAGES}
            side = len(stages["end"][0])
            images, truth = _test_images(given["num_images"], len(stages["end"]), given["image_size"], side)
        except (KeyError, TypeError, ValueError, ZeroDivisionError):  # a manifest whose masks fit no images
            continue
        decoded.append({"machine": machine, "point": point, "images": images, "truth": list(truth), **stages})
    return decoded


def overlaps(saved: list[dict]) -> pandas.DataFrame:
    """Return how well each mask of `saved_masks` overlaps its triangle, before training and after.

    Returns:
        Columns: machine, point, image (number), start, end (IoU).
    """
    lines = [
        {"machine": point["machine"], "point": point["point"], "image": number}
        | {stage: iou(point[stage][number], truth) for stage in STAGES}
        for point in saved
        for number, truth in enumerate(point["truth"])
    ]
    return pandas.DataFrame(lines, columns=["machine", "point", "image", *STAGES])


def iou(mask: numpy.ndarray, truth: numpy.ndarray) -> float:
    """Return the intersection over union of two bool masks; 1 if both are empty."""
    union = (mask | truth).sum()
    return float((mask & truth).sum() / union) if union else 1.0


def draw_masks(evidence: Evidence) -> Drawing:
    """Draw the masks before training and after over the images, for the point with the best masks."""
    saved = saved_masks(evidence.folder) if evidence.folder else []
    table = overlaps(saved)
    more = {"segmentation-overlaps": table}
    if not saved:
        return Drawing(None, table, "", tables=more)
    best = max(saved, key=lambda point: overlaps([point])["end"].mean())
    count = len(best["images"])
    rows, columns = (2, count) if count > 2 else (count, 2)  # for few images, the two masks are side by side
    figure, panels = figures.canvas(0.6 + 2.2 * rows, panels=columns, nrows=rows, squeeze=False)
    for row, stage in zip(panels if count > 2 else panels.T, STAGES, strict=True):
        for axes, image, truth, mask in zip(row, best["images"], best["truth"], best[stage], strict=False):
            axes.imshow(image, cmap="gray", vmin=0, vmax=255)
            if mask.any() and not mask.all():
                axes.contour(mask, levels=[0.5], colors=figures.MACHINES[1], linewidths=1.5)
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(f"{STAGES[stage]}: IoU {iou(mask, truth):.2f}", fontsize=8)
    start, end = overlaps([best])[list(STAGES)].mean()
    title = f"Masks overlap the triangles by {start:.2f} before training and by {end:.2f} after (IoU)"
    panels[0, 0].set_title(title)
    figure.supxlabel(f"{evidence.names.machine(best['machine'])}, {setting(best['point'])}", fontsize=7)
    return Drawing(figure, table, "Masks drawn over images of triangles", tables=more)


@functools.lru_cache(maxsize=8)  # most machines run the same points
def _test_images(num_images: int, num_test: int, image_size: int, side: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the test images and their masks, subsampled to `side` pixels a side like saved masks."""
    data, every = datasets.triangles(num_images, num_test, image_size), slice(None, None, image_size // side)
    return data.test_images[:, every, every].copy(), data.test_labels[:, every, every].astype(bool)


RUN = ["machine", "point"]
TIME = Sentence(
    f"An image of {ARTICLE_SIZE} pixels takes {{value}} to train on {{place}}",
    f"The article's network at {ARTICLE_SIZE} pixels was not measured here yet",
    "ms_per_image",
    lambda time: wording.duration(time / 1e3),
    "least",
    "note == ''",
)
STUDY = Study(
    name=NAME,
    title="Segmentation",
    article="Takashi Shirakawa, 2021",
    claim="segmentation-hours",
    charts=(
        Bars(
            "segmentation-times",
            table=image_times,
            title=TIME,
            label=("framework", "variant", "precision", "compiled", "batch_size", "sustained_minutes"),
            usual={"precision": "fp32"},
            lines=lambda table, evidence: table[table["note"] != OTHER_CODE],
            alike=("dataset", "image_size", "width"),
            text="{ms_per_image:,.0f} ms",
            xlabel="milliseconds an image, training",
        ),
        Chart("segmentation-masks", draw_masks),
        Points(
            "sustained",
            table=lambda evidence: statistics.first_and_last(statistics.sustained(evidence.measured)),
            lines=lambda ends, evidence: statistics.sustained(evidence.measured).merge(ends[[*RUN, "change"]], on=RUN),
            title=Sentence(
                "The last minute had {value} of the first minute's rate",
                "",
                "change",
                lambda change: wording.percent(1 + change),
                "least",
            ),
            x="minutes",
            column="samples_per_second",
            by=["machine", "point"],
            label=("framework", "variant"),
            xlabel="minutes of training without a pause",
            ylabel="images a second",
            from_zero=True,
        ),
    ),
    quantities=claimed,
)
