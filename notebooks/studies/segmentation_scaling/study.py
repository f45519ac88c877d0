"""Results of the segmentation study: milliseconds an image, masks, minutes without a pause."""

import operator

import numpy
import pandas

from benchbook.judging import intervals, statistics, wording
from benchbook.judging.intervals import Interval
from benchbook.record import chips, pairs
from benchbook.rows import records
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.segmentation_scaling.plan import ARTICLE_SIZE, STAGES
from benchbook.studies.study import Study, Task

NAME = "segmentation_scaling"
NUM_IMAGES = 100_000  # the article printed their hours
OTHER_CODE = "other code"
BATCH_SIZE = 16  # the article's
RELEASED = "of the article's released network, not of its own code"
MASK_COLOUR = (1.0, 0.4, 0.0)
PARTS = ["cpu_total_mj", "gpu_mj", "ane_mj"]  # of Apple's chip, see `sensors.APPLE_PARTS`
CLOCKS = ["cpu_own_seconds", "elapsed_seconds"]


@cached
def image_times(evidence: Evidence) -> pandas.DataFrame:
    """Return the milliseconds of training per image, of each measured point and of the published
    ones.

    Returns:
        Columns: machine, chip, device, framework, variant, source, precision, compiled, dataset,
        batch_size, image_size, width, sustained_minutes, ms_per_image (missing if the point
        failed), low, high, interval, num_windows, verdict, hours (for 100,000 images),
        peak_gibibytes, iou (after the last epoch), status, message, note, point.
    """
    printed = shared.with_bounds(evidence.printed(NAME, samples=1), "seconds").assign(
        note=OTHER_CODE, point=None
    )
    points = statistics.with_settings(evidence.points(NAME), ["width", "sustained_minutes"])
    times = shared.inverse(points, "samples_per_second", "seconds")
    points = points.assign(
        **times, note="", iou=points["accuracy"], peak_gibibytes=points["peak_memory_bytes"] / 2**30
    )
    described = """machine chip device framework variant source precision compiled dataset
        batch_size image_size width sustained_minutes seconds"""
    columns = [*described.split(), *shared.MEASURED]
    columns += ["hours", "peak_gibibytes", "iou", "status", "message", "note", "point"]
    table = shared.with_printed(points, printed, columns, ["machine", "point", "device"])
    table["hours"] = NUM_IMAGES * table["seconds"].astype(float) / 3600
    table[["seconds", "low", "high"]] *= 1000
    return table.rename(columns={"seconds": "ms_per_image"})


def core_pairs() -> pandas.DataFrame:
    """Return the published pairs of chips of one architecture.

    Returns:
        Columns: publication, work, family, chip, chip_over (which has more cores), core_ratio
        and ratio (of the speeds). A chip sold in several sizes counts as the largest, unless the
        publication names the size.
    """
    known = chips.table()[["architecture", "cores"]].dropna()
    lines = pairs.table().join(known, on="chip").join(known.add_suffix("_over"), on="chip_over")
    lines = lines[
        lines["architecture"].eq(lines["architecture_over"])
        & lines["cores"].lt(lines["cores_over"])
    ]
    lines = lines.assign(core_ratio=lines["cores_over"] / lines["cores"])
    columns = ["publication", "work", "family", "chip", "chip_over", "core_ratio", "ratio"]
    return lines[columns].reset_index(drop=True)


def core_sentence(lines: pandas.DataFrame) -> str:
    """Return how well the number of cores predicts the speed of a larger chip, in a sentence;
    see `core_pairs`."""
    error = (lines["core_ratio"] / lines["ratio"] - 1).abs()
    return (
        f"In proportion to its cores, the speed of a larger chip is missed by {wording.percent(error.median())} (median"
        f" of {len(lines)} pairs of chips of one architecture that trained the same work in one publication); it is"
        f" within 10 % in {wording.percent(error.lt(0.1).mean())} of the pairs."
    )


def claimed(evidence: Evidence) -> list[dict]:
    """Return the seconds per image of each kind of processor, an accelerator's watts, and whether
    Apple's GPU works alone (gpu_alone), for claims.

    They are those of the article's released network at its size and batch, in TensorFlow and
    float32.
    """
    points, values = evidence.points(NAME), []
    points = statistics.with_settings(points, ["width", "sustained_minutes"])
    points = records.having(
        points[points["samples_per_second"].gt(0)].fillna({"sustained_minutes": 0}),
        framework="tensorflow",
        variant="reference",
        precision="fp32",
        status="ok",
        image_size=ARTICLE_SIZE,
        batch_size=BATCH_SIZE,
        width=1,
    )
    points = statistics.speaking(points[points["sustained_minutes"].eq(0)], ["machine", "device"])
    for point in points.assign(source="measured").to_dict("records"):
        processor = "cpu" if point["device"] == "cpu" else "accelerator"
        rate = Interval.from_row(point, "samples_per_second")
        times = shared.inverse(point, "samples_per_second", "seconds")
        seconds = quantities.between(point | times, f"{processor}_seconds_per_image", "seconds")
        values.append(seconds | {"note": "; ".join(filter(None, (RELEASED, seconds.get("note"))))})
        if processor == "accelerator" and (alone := _gpu_alone(evidence, point)):
            values.append(quantities.event(point, "gpu_alone", alone))
        if processor == "accelerator" and point["energy_per_sample"] > 0:
            joules = Interval.from_row(point, *statistics.ENERGY_COLUMNS)
            watts = intervals.combine(operator.mul, joules, rate)
            read = f"{point['energy_method']}, {point['energy_boundary']}"
            values.append(
                quantities.between(point | watts.columns("watts"), "watts", "watts")
                | {"note": read}
            )
    return values


def _gpu_alone(evidence: Evidence, point: dict) -> list[bool]:
    """Return for each process of a point whether Apple's GPU computed alone in its windows.

    The GPU takes more joules than the CPU, the neural engine takes a hundredth of the GPU's at
    most, and the process is on one core at most, whose work is to queue the GPU's.

    Returns:
        Empty if a part was not read, as elsewhere than on Apple's chips.
    """
    rows, samples = evidence.counting(NAME), evidence.conditions
    own = rows[rows["machine"].eq(point["machine"]) & rows["point"].eq(point["point"])]["run_id"]
    if samples is None or "energy_parts" not in samples:
        return []
    samples = samples[samples["run_id"].isin(own)].reindex(
        columns=["run_id", *CLOCKS, "energy_parts"]
    )
    read = [each if isinstance(each, dict) else {} for each in samples["energy_parts"]]
    parts = pandas.DataFrame(read, samples.index, PARTS, dtype=float)
    windows = samples.groupby("run_id")[CLOCKS].diff().join(parts).dropna()
    sums = windows.groupby(samples["run_id"]).sum()
    alone = (
        sums["cpu_total_mj"].lt(sums["gpu_mj"])
        & sums["ane_mj"].le(sums["gpu_mj"] / 100)
        & sums["cpu_own_seconds"].le(sums["elapsed_seconds"])
    )
    return alone.tolist()


def pictures(rows: dict[str, numpy.ndarray]) -> Drawing:
    """Draw the masks of a few test images over the images, before training and after.

    Args:
        rows: as `plan.Plan.measure` saves them.
    """
    images, triangles = numpy.repeat(rows["image"][..., None] / 255, 3, axis=3), rows["triangle"]
    drawn, overlaps = {}, []
    for stage in STAGES:
        mask = rows[stage]
        drawn[stage] = numpy.where(mask[..., None], (images + MASK_COLOUR) / 2, images)
        overlaps.append(numpy.mean([iou(*pair) for pair in zip(mask, triangles, strict=True)]))
    title = (
        "Masks overlap the triangles by {:.2f} before training and by {:.2f} after (IoU)".format(
            *overlaps
        )
    )
    return Drawing.of_pictures(drawn, title)


def iou(mask: numpy.ndarray, truth: numpy.ndarray) -> float:
    """Return the intersection over union of two bool masks; 1 if both are empty."""
    union = (mask | truth).sum()
    return float((mask & truth).sum() / union) if union else 1.0


RUN = ["machine", "point"]
IMAGE = Template(
    "{number} an image{bounds} training on {place}",
    "ms_per_image",
    "ms",
    "least",
    usual={
        "note": "",
        "width": 1,
        "image_size": ARTICLE_SIZE,
        "batch_size": BATCH_SIZE,
        "framework": "tensorflow",
        "precision": "fp32",
        "variant": "reference",
    },
)
STUDY = Study(
    name=NAME,
    title="Segmentation",
    article="Takashi Shirakawa, 2021",
    claim="segmentation-hours",
    quantity="ms_per_image",
    unit="milliseconds/image",
    charts=(
        Bars(
            "segmentation-times",
            table=image_times,
            title=IMAGE,
            label=(
                "framework",
                "variant",
                "precision",
                "compiled",
                "batch_size",
                "image_size",
                "width",
                "sustained_minutes",
                "note",
            ),
            xlabel="milliseconds an image, training",
        ),
        Points(
            "sustained",
            table=lambda evidence: statistics.first_and_last(
                statistics.sustained(evidence.measured)
            ),
            lines=lambda ends, evidence: statistics.sustained(evidence.measured).merge(
                ends.assign(kept=1 + ends["change"].astype(float))[[*RUN, "kept"]], on=RUN
            ),
            title=Template(
                "On {place} the last minute had {number} of the first minute's rate",
                "kept",
                "%",
                "least",
            ),
            x="minutes",
            column="samples_per_second",
            by=["machine", "point"],
            label=("framework", "variant"),
            xlabel="minutes of training without a pause",
            ylabel="images a second",
        ),
    ),
    quantities=claimed,
    tasks=(
        Task(
            "segmentation",
            "Segmentation, 100,000 images",
            "A U-Net trains on 100,000 grey images of 512 x 512 pixels, at the training rate. Nothing is published or"
            " predicted: the article timed another network, which was not released.",
            NUM_IMAGES,
            NAME,
            NAME,
            where={"image_size": ARTICLE_SIZE, "width": 1},
        ),
    ),
)
