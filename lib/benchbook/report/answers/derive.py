"""What the answers take from the public record, worked out once and kept in `record.json` beside this file.

Predictions of a thousand pairs of chip and work take a minute, and the answer page has to be there within seconds.
`python -m benchbook.report.answers.derive` writes the file again; `inputs` says what it was made from.
"""

import hashlib
import json
import math
from collections.abc import Iterator

import numpy
import pandas

from benchbook import record
from benchbook.machine import layout
from benchbook.record import chips
from benchbook.record.predictions import money, power
from benchbook.record.predictions.answer import of_the_record
from benchbook.record.predictions.features import Unknown
from benchbook.record.predictions.question import Question, Range
from benchbook.report.answers import accuracy
from benchbook.report.answers.from_record import FILE
from benchbook.report.answers.tasks import IMAGENET, MINUTE, TASKS, task

PRECISIONS = {"fp32": "fp32", "half": "amp_fp16"}  # what is asked for each family
OPERATIONS = tuple(float(f"{value:.3g}") for value in numpy.geomspace(5e8, 2e11, 9))  # of one's own network
MOST_DEVICES = 16  # of a machine that a reader may want; for the accuracy any
DIGITS = 4
BOUNDS = {"seconds": "value", "low": "low", "high": "high"}  # of a range


def inputs() -> str:
    """Return the hash of the tables that all of it is made from."""
    files = [*sorted((layout.published() / "record").glob("*.csv")), *layout.published_rows()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def make() -> dict:
    """Work everything out.

    Returns:
        inputs: see there. chips: by name, what is printed, paid and drawn. predictions: lines of task, chip, family of
        precisions, seconds, low, high, basis. refused: lines of task, family and reason, with the chips that have no
        prediction for it. operations: those at which `own` has its predictions. own: lines of chip, family, and
        seconds for a million images, low and high at each. published: lines of task, chip, count, family, seconds, low,
        high, figures, publications and sources.
    """
    figures = record.read()
    said = [line for each in TASKS if each.work and each.key != "own" for line in _predictions(each.key)]
    predicted = [line for line in said if "reason" not in line] + list(_to_accuracy(figures))
    own = list(_own())
    published = [*_rates(figures), *_times_to_accuracy(figures)]
    named = {line["chip"] for line in [*predicted, *own, *published]}
    drawn = power.measured(figures)
    return {
        "inputs": inputs(),
        "chips": {chip: _chip(chip, drawn) for chip in sorted(named | set(chips.table().index))},
        "predictions": predicted,
        "refused": _refused([line for line in said if "reason" in line]),
        "operations": list(OPERATIONS),
        "own": own,
        "published": published,
    }


def write() -> None:
    """Write the file anew."""
    parts = [f"{json.dumps(name)}: {_text(part)}" for name, part in make().items()]
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _text(part) -> str:
    """Return a part as JSON, a line for each chip or entry, so that versions of the file can be compared."""
    if isinstance(part, dict):
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(line)}" for name, line in part.items()) + "\n}"
    return "[\n" + ",\n".join(map(json.dumps, part)) + "\n]" if isinstance(part, list) else json.dumps(part)


def rounded(value: float) -> float | None:
    """Return a number with four digits; None where it is missing or without end."""
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else None


def _predictions(key: str) -> Iterator[dict]:
    """Yield what each chip would take for a task, or the reason why that is not known."""
    this, forecaster = task(key), of_the_record()
    for chip in chips.table().index:
        for family, precision in PRECISIONS.items():
            question = Question(chip=chip, work=this.work, precision=precision, image_size=this.image_size)
            try:
                rate = forecaster.rate(question)
            except Unknown as reason:
                yield {"task": key, "chip": chip, "family": family, "reason": str(reason)}
                continue
            seconds = Range(this.images / rate.value, this.images / rate.high, this.images / rate.low, rate.basis)
            yield _line(key, chip, family, seconds)


def _to_accuracy(figures: pandas.DataFrame) -> Iterator[dict]:
    """Yield what one device of each chip would take to 75.9 %, where its rate is predicted."""
    rate = of_the_record().rate
    worth = accuracy.epochs_worth(figures, rate)
    for chip in chips.table().index:
        seconds = accuracy.predict(chip, worth, rate)
        if seconds is not None:
            yield _line("resnet50-accuracy", chip, "half", seconds)


def _line(key: str, chip: str, family: str, seconds: Range) -> dict:
    numbers = {name: rounded(getattr(seconds, of)) for name, of in BOUNDS.items()}
    return {"task": key, "chip": chip, "family": family} | numbers | {"basis": seconds.basis}


def _refused(lines: list[dict]) -> list[dict]:
    """Return refusals by task, family and reason, without the chip's name in it, with all chips that have it."""
    chips_of = {}
    for line in lines:
        reason = line["reason"].removeprefix(f"of {line['chip']} ")
        chips_of.setdefault((line["task"], line["family"], reason), []).append(line["chip"])
    names = ("task", "family", "reason")
    return [dict(zip(names, key, strict=True)) | {"chips": own} for key, own in chips_of.items()]


def _own() -> Iterator[dict]:
    """Yield what each chip would take for a million images of a network, at each number of operations."""
    forecaster = of_the_record()
    for chip in chips.table().index:
        for family, precision in PRECISIONS.items():
            try:
                rates = [
                    forecaster.rate(Question(chip, precision=precision, flops_per_sample=operations, image_size=224))
                    for operations in OPERATIONS
                ]
            except Unknown:
                continue
            bounds = {"seconds": "value", "low": "high", "high": "low"}
            numbers = {name: [rounded(1e6 / getattr(rate, of)) for rate in rates] for name, of in bounds.items()}
            yield {"chip": chip, "family": family} | numbers | {"basis": rates[0].basis.partition(", and ")[0]}


def _rates(figures: pandas.DataFrame) -> Iterator[dict]:
    """Yield what published rates of ResNet-50 make of its 90 epochs."""
    kept = figures[
        figures["network"].eq("resnet50") & figures["rate"].gt(0) & figures["phase"].isin(["train", "total"])
    ]
    kept = kept[kept["refused"].eq("") & kept["image_size"].eq(224) & kept["device_count"].between(1, MOST_DEVICES)]
    kept = kept.assign(seconds=90 * IMAGENET / kept["rate"].astype(float))
    family = kept["computed"].map({"fp32": "fp32", "tf32": "fp32"}, na_action="ignore").fillna("half")
    yield from _grouped("resnet50", kept[kept["computed"].notna()].assign(family=family))


def _times_to_accuracy(figures: pandas.DataFrame) -> Iterator[dict]:
    """Yield the published times until ResNet-50 names 75.9 % right; they are in minutes."""
    kept = figures[figures["metric"].eq(accuracy.METRIC) & figures["refused"].eq("") & figures["unit"].eq("min")]
    yield from _grouped("resnet50-accuracy", kept.assign(seconds=MINUTE * kept["value"], family="any"))


def _grouped(key: str, figures: pandas.DataFrame) -> Iterator[dict]:
    """Yield a line for each chip, number of them and family: the median of publications, the least and the most."""
    for (chip, count, family), own in figures.groupby(["chip", "device_count", "family"], sort=True):
        medians = own.groupby("publication")["seconds"].median()
        yield {
            "task": key,
            "chip": chip,
            "count": int(count),
            "family": family,
            "seconds": rounded(float(medians.median())),
            "low": rounded(float(own["seconds"].min())),
            "high": rounded(float(own["seconds"].max())),
            "figures": len(own),
            "publications": int(own["publication"].nunique()),
            "sources": sorted({record.citation(line) for line in own.to_dict("records")}),
        }


def _chip(chip: str, drawn: pandas.DataFrame) -> dict:
    """Return what is printed of a chip, its usual rent with all offers' range, its newest price, and its power."""
    printed = chips.specification(chip) if chip in chips.table().index else {"chip": chip}
    today = pandas.Timestamp.now().date()
    offers = money.rented(chip, today).dropna(subset="usd_per_hour") if "product" in printed else pandas.DataFrame()
    prices = money.bought(chip, today).dropna(subset="usd") if "product" in printed else pandas.DataFrame()
    resnet = drawn[drawn["network"].eq("resnet50")]  # other networks' steps keep a chip less busy
    watts = (power.of(chip, resnet) or power.of(chip, drawn)) if "product" in printed else None
    kept = ("product", "vendor", "memory_gb", "released", "tdp_watts")
    line = {name: printed[name] for name in kept if name in printed}
    if len(offers):
        offers = money.usual(offers)
        hourly = offers["usd_per_hour"].astype(float)
        line["rent"] = {"usd_per_hour": rounded(money.usual_rent(offers)), "offers": len(offers)}
        line["rent"] |= {"least": rounded(hourly.min()), "most": rounded(hourly.max())}
        line["rent"] |= {"marketplace": bool(offers["provider"].isin(money.MARKETPLACES).all())}
        line["rent"] |= {"first": offers["date"].min(), "last": offers["date"].max()}
        line["rent"] |= _origin(offers.iloc[0], "provider") if len(offers) == 1 else {}
    if len(prices):
        line["purchase"] = {"usd": rounded(float(prices.iloc[0]["usd"])), **_origin(prices.iloc[0])}
    if watts:
        names = ("watts", "low", "high", "boundary", "source")
        line["power"] = dict(zip(names, [*map(rounded, watts[:3]), *watts[3:]], strict=True))
    return line


def _origin(price: pandas.Series, *further: str) -> dict[str, str]:
    """Return where a price is from: its date, what it includes and its source; what was not told is empty."""
    return {
        name: price[name] if isinstance(price[name], str) else "" for name in (*further, "date", "includes", "source")
    }


if __name__ == "__main__":
    write()
