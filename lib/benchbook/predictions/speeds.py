"""How fast which processor did which work: published and measured rows as one table, no line repeating another."""

import re

import pandas

from benchbook.devices.kinds import named_by_driver

SOURCES = ("published", "digitised", "secondary")  # what was derived from a rule is no measurement
HERE = "measured here"
HALF = ("fp16", "bf16", "amp_fp16", "amp_bf16")
WORK = ["publication", "study", "setting", "network", "dataset", "image_size", "batch_size", "framework", "half"]
COLUMNS = ["work", "processor", *WORK, "machine", "chip", "device", "point", "source", "speed", "unit"]


def table(rows: pandas.DataFrame, summary: pandas.DataFrame) -> pandas.DataFrame:
    """Return the speed of every processor on every work that it did.

    A work is what was trained and who published it; all measured rows are of one publication. Where a publication
    printed training alone and a total, the one that more processors have counts, then training alone. Of a processor
    that did a work several times the newest framework counts, then the median. A precision that was not printed is
    taken for a full one, and rows whose device was not told are left out.

    Args:
        rows: published ones, of all studies; others are not read.
        summary: measured points, from `statistics.summarise`.

    Returns:
        Columns: work (its name), processor, what tells works apart (publication to half), machine, chip, device, point,
        source, speed, and unit: samples/s, or runs/s where no number of samples was printed.
    """
    lines = pandas.DataFrame([*_published(rows), *measured(summary)])
    if lines.empty:
        return pandas.DataFrame(columns=COLUMNS)
    kind, key = ["work", "unit", "phase"], ["work", "processor"]
    counts = lines.groupby(kind)["processor"].nunique().reset_index().sort_values(["processor", "unit", "phase"])
    lines = lines.merge(counts.drop_duplicates("work", keep="last")[kind])
    lines = lines[lines["version"] == lines.groupby(key)["version"].transform("max")]
    lines = lines.sort_values([*key, "machine", "point"])
    lines["speed"] = lines.groupby(key)["speed"].transform("median")
    return lines.drop_duplicates(key).reindex(columns=COLUMNS).reset_index(drop=True)


def processor(device: str, chip: str | None, device_name: str | None, machine: str, count: int = 1) -> str:
    """Return what rows of one processor have in common, whoever wrote them.

    Apple's chips are the same in every machine; another CPU is known by its machine, since cores and memory are not
    told by its name. Of GPUs and TPUs the vendor, the socket and the memory are left out of the name.

    Args:
        device: cpu, mps, metal, cuda or tpu.
        chip: as the row names it.
        device_name: as the row names it.
        machine: as the row names it.
        count: how many of them trained together.
    """
    if device in named_by_driver():
        name = re.sub(r"\b(NVIDIA|Tesla|GeForce)\b ?", "", device_name or chip or machine)
        name = re.sub(r"[- ](SXM|PCIe|HBM|\d+ ?GB).*", "", name, flags=re.IGNORECASE)
    elif device == "cpu":
        name = f"{chip if str(chip).startswith('Apple') else machine} CPU"
    else:
        name = f"{chip or machine} GPU"
    return name if count == 1 else f"{count} x {name}"


def setting(point: str, device: str) -> str:
    """Return a measured point's name without its device and without the hash that tells devices apart."""
    return "-".join(word for word in point.split("-")[:-1] if word != device)


def measured(summary: pandas.DataFrame) -> list[dict]:
    """Return a line for each measured point, with columns as in `table`, of every machine by itself."""
    points = summary[summary["samples_per_second"].notna() & (summary["status"] == "ok")]
    lines = []
    for point in points.astype(object).where(points.notna(), None).to_dict("records"):
        work = {
            "publication": HERE,
            "setting": setting(point["point"], point["device"]),
            "network": point["model"],
            "image_size": None,  # where a point does not have its study's own, its name says so
            "half": point["precision"] in HALF,
            "phase": "train",
            "source": "measured",
        }
        lines.append(_line(point | work, point["samples_per_second"], "samples/s"))
    return lines


def _published(rows: pandas.DataFrame) -> list[dict]:
    kept = rows[rows["source"].isin(SOURCES) & rows["phase"].isin(["train", "total"]) & (rows["status"] == "ok")]
    kept = kept[kept["device"].notna() & (kept["samples_per_second"].notna() | kept["seconds"].notna())]
    lines = []
    for row in kept.astype(object).where(kept.notna(), None).to_dict("records"):
        told = row["settings"]
        best = str(told.get("batch_size_printed")).startswith("best per device")
        work = {
            "publication": row["reference"].partition(";")[0],
            "setting": None,
            "network": row["model"],
            "batch_size": "best" if best else row["batch_size"],
            # One publication marks what it trained in fp16 with "(+)".
            "half": row["precision"] in HALF or "+" in str(told.get("precision_printed")),
        }
        lines.append(_line(row | work, *_speed(row), int(row["device_count"] or 1)))
    return lines


def _line(row: dict, speed: float, unit: str, count: int = 1) -> dict:
    name = processor(row["device"], row["chip"], row["device_name"], row["machine"], count)
    version = tuple(int(part) for part in re.findall(r"\d+", str(row["framework_version"])))
    kept = {column: row[column] for column in (*WORK, "machine", "chip", "device", "point", "source", "phase")}
    return kept | {"work": _name(row), "processor": name, "speed": speed, "unit": unit, "version": version}


def _speed(row: dict) -> tuple[float, str]:
    if row["samples_per_second"] is not None:
        return float(row["samples_per_second"]), "samples/s"
    return (row["samples"] or 1) / row["seconds"], "samples/s" if row["samples"] else "runs/s"


def _name(row: dict) -> str:
    parts = [row["study"] if row["study"] != "related" else None, row["setting"], row["network"], row["dataset"]]
    parts += [f"{row['image_size']:g} px"] if row["image_size"] else []
    parts += [f"batch {row['batch_size']}"] if row["batch_size"] else []
    parts += [row["framework"], "half precision" if row["half"] else None]
    return f"{', '.join(str(part) for part in parts if part)} ({row['publication']})"
