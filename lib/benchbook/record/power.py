"""What chips draw while they train, where somebody measured it: watts of a device, with the boundary of the sensor."""

import json
import math
import re

import pandas

from benchbook.record import chips

IMAGENET = 1_281_167  # training images


def measured(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the watts that a device drew in each training whose energy and time are both on record.

    Energy over time where the source tells both; else joules an image times the images a second of the same setting.

    Args:
        figures: from `record.read`.

    Returns:
        Columns: chip, product, watts (of one device), boundary, network, device_count, article, source, mark.
    """
    energy = figures[figures["metric"].eq("energy_per_image") & figures["phase"].isin(["train", "total"])]
    energy = energy[energy["refused"].eq("")]
    rates = {_key(line): line["rate"] for line in figures[figures["rate"].gt(0)].to_dict("records")}
    lines = []
    for line in energy.to_dict("records"):
        details = json.loads(line["settings"])
        images, seconds = _images(line, details), details.get("seconds")
        rate = images / seconds if images and seconds else rates.get(_key(line))
        if rate:
            kept = {name: line[name] for name in ("chip", "network", "device_count", "article", "source", "mark")}
            watts = line["value"] * rate / (line["device_count"] or 1)
            kept |= {"product": chips.product(line["chip"]), "watts": watts, "boundary": details["energy_boundary"]}
            lines.append(kept)
    return pandas.DataFrame(lines)


def of(chip: str, table: pandas.DataFrame) -> tuple[float, float, float, str, str] | None:
    """Return the median watts of a chip, the least and the most, the boundary, and the source; None without.

    The board's own sensor is taken before that of a node, whose host is inside.

    Args:
        chip: its one name.
        table: from `measured`.
    """
    own = table[table["product"] == chips.product(chip)]
    if own.empty:
        return None
    boards = own[own["boundary"].str.contains("board")]
    own = boards if len(boards) else own
    watts = own["watts"]
    where = "; ".join(sorted(set(own["article"] + ": " + own["source"])))
    return float(watts.median()), float(watts.min()), float(watts.max()), own["boundary"].iloc[0], where


def _key(line: dict) -> tuple:
    details = json.loads(line["settings"])
    return line["article"], line["chip"], line["network"], details.get("power_limit_watts"), details.get("batch_size")


def _images(line: dict, details: dict) -> float | None:
    """Return the images of a whole training: those that the note tells, or epochs of ImageNet."""
    stated = re.search(r"J / (\d+) images", line["note"])
    if stated:
        return float(stated[1])
    epochs = float(details.get("epochs") or math.nan)
    return epochs * IMAGENET if details.get("dataset") == "imagenet" and epochs > 0 else None
