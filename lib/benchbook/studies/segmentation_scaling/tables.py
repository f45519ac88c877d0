"""Tables of the segmentation study: milliseconds an image, and the masks that runs kept."""

import functools
from pathlib import Path

import numpy
import pandas

from benchbook.record import articles, estimate
from benchbook.rows import manifests
from benchbook.studies import datasets
from benchbook.studies.segmentation_scaling import masks as encoded
from benchbook.studies.segmentation_scaling.network import ARTICLE_SIZE
from benchbook.studies.study import Evidence, once

NAME = "segmentation_scaling"
NUM_IMAGES = 100_000  # whose hours the article printed
OTHER_CODE = "other code, not comparable"
SMALLER = "a smaller network"
STAGES = ("start", "end")  # of training: masks are kept before it and after
BYTES_PER_GIBIBYTE = 2**30

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "precision", "compiled", "dataset"]
_KEPT += ["batch_size", "image_size"]
_MEASURES = ["width", "sustained_minutes", "ms_per_image", "low", "high", "interval", "num_windows"]
_MEASURES += ["verdict", "hours", "peak_gibibytes", "iou", "status", "message", "note", "point"]


@once
def image_times(evidence: Evidence) -> pandas.DataFrame:
    """Return milliseconds for an image in training, of each measured point and of what was published.

    Returns:
        Columns: machine, chip, device, framework, variant, source, precision, compiled, dataset, batch_size,
        image_size, width, sustained_minutes, ms_per_image, low, high, interval, num_windows, verdict, hours (for
        100,000 images), peak_gibibytes, iou, status, message, note, point. Of a point that failed the time is missing;
        the IoU is that after the last epoch.
    """
    printed = evidence.published[(evidence.published["study"] == NAME) & (evidence.published["samples"] == 1)]
    measured = evidence.measured[evidence.measured["study"] == NAME]
    peaks = measured.groupby(["machine", "point"])["peak_memory_bytes"].max()
    times = [_printed_time(row) for row in printed.to_dict("records")]
    times += [
        _measured_time(point, peaks[point["machine"], point["point"]])
        for point in evidence.points(NAME).to_dict("records")
    ]
    table = pandas.DataFrame(times, columns=[*_KEPT, *_MEASURES])
    rates = 1000 / table["ms_per_image"].astype(float)
    table["hours"] = [estimate.run_hours(1, NUM_IMAGES, rate) if rate > 0 else numpy.nan for rate in rates]
    order = ["printed", "source", "machine", "image_size", "variant", "device", "framework", "batch_size"]
    table = table.assign(printed=table["source"] != "measured").sort_values(order, kind="stable")
    return table.drop(columns="printed").reset_index(drop=True)


def setting(time: dict) -> str:
    """Return how a line of `image_times` was run: framework and variant."""
    compiled = ", XLA" if time.get("compiled") is True and time["framework"] == "tensorflow" else ""
    return f"{time['framework']}, {time['variant']}{compiled}"


def kept_masks(folder: Path) -> list[dict]:
    """Return the masks that measured runs kept, of the newest run of each machine and point.

    Args:
        folder: of measured rows and their manifests.

    Returns:
        Dictionaries: machine, point, images (uint8, shape (n, side, side)), truth, start, end (lists of bool masks).
    """
    newest = {}
    for path, manifest in manifests.files(folder, f"{NAME}/*/{manifests.FILES}").items():
        if (manifest.get("masks") or {}).get("end") and manifest.get("parameters"):
            newest[path.parts[-4], path.parts[-2]] = manifest
    return [_decoded(*key, manifest["parameters"], manifest["masks"]) for key, manifest in sorted(newest.items())]


def overlaps(kept: list[dict]) -> pandas.DataFrame:
    """Return how well each kept mask meets its triangle, before training and after.

    Args:
        kept: from `kept_masks`.

    Returns:
        Columns: machine, point, image (number), start, end (IoU).
    """
    lines = [
        {"machine": point["machine"], "point": point["point"], "image": number}
        | {stage: overlap(point[stage][number], truth) for stage in STAGES}
        for point in kept
        for number, truth in enumerate(point["truth"])
    ]
    return pandas.DataFrame(lines, columns=["machine", "point", "image", *STAGES])


def best(kept: list[dict]) -> dict:
    """Return, of several points' masks, those that meet the triangles best after training."""
    return max(kept, key=lambda point: overlaps([point])["end"].mean())


def overlap(mask: numpy.ndarray, truth: numpy.ndarray) -> float:
    """Return the intersection over union of two bool masks; of two empty ones 1."""
    union = (mask | truth).sum()
    return float((mask & truth).sum() / union) if union else 1.0


def _measured_time(point: dict, peak_bytes: float) -> dict:
    rates = [point[name] for name in ("samples_per_second", "high", "low")]
    times = [1000 / rate if pandas.notna(rate) and rate > 0 else None for rate in rates]
    settings = point["settings"]
    article = point["image_size"] == ARTICLE_SIZE and settings.get("width") == 1
    return {
        **{name: point[name] for name in _KEPT if name in point},
        **dict(zip(("ms_per_image", "low", "high"), times, strict=True)),
        **{name: point[name] for name in ("interval", "num_windows", "verdict", "status", "message", "point")},
        "source": "measured",
        **{name: settings.get(name) for name in ("width", "sustained_minutes")},
        "peak_gibibytes": peak_bytes / BYTES_PER_GIBIBYTE if pandas.notna(peak_bytes) else None,
        "iou": point["accuracy"],
        "note": "" if article else SMALLER,
    }


def _printed_time(row: dict) -> dict:
    low, high = articles.bounds(row, "seconds")
    times = {"ms_per_image": row["seconds"] * 1000, "low": low * 1000, "high": high * 1000}
    return {name: row[name] for name in [*_KEPT, "status", "message"]} | times | {"note": OTHER_CODE}


@functools.lru_cache(maxsize=8)  # most machines run the same points
def _thinned(num_images: int, num_test: int, image_size: int, side: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return the test images and their masks, with as many pixels as kept masks have, and none of the others."""
    data, thin = datasets.triangles(num_images, num_test, image_size), slice(None, None, image_size // side)
    return data.test_images[:, thin, thin].copy(), data.test_labels[:, thin, thin].astype(bool)


def _decoded(machine: str, point: str, parameters: dict, kept: dict) -> dict:
    """Return the masks of a manifest over the images that its parameters draw, thinned as the masks are."""
    stages = {stage: [encoded.decode(text) for text in kept[stage]] for stage in STAGES}
    side = len(stages["end"][0])
    images, truth = _thinned(parameters["num_images"], len(stages["end"]), parameters["image_size"], side)
    return {"machine": machine, "point": point, "images": images, "truth": list(truth), **stages}
