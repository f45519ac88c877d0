"""What the answers take from the public record and its predictions, worked out once and kept in the outputs folder.

Predictions of a thousand pairs of chip and work take a while, and the answer page has to be there within seconds.
"""

import functools
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy
import pandas

from benchbook import record
from benchbook.machine import layout
from benchbook.record import chips, estimate
from benchbook.record.forecast import Forecaster, Question, Range, of_the_record, watts_of
from benchbook.record.observations import Unknown
from benchbook.report.answers import accuracy
from benchbook.report.answers.tasks import IMAGENET, MINUTE, TASKS, task

PRECISIONS = {"fp32": "fp32", "half": "amp_fp16"}  # what is asked for each family
OPERATIONS = tuple(float(f"{value:.3g}") for value in numpy.geomspace(5e8, 2e11, 9))  # of one's own network
MOST_DEVICES = 16  # of a machine that a reader may want; for the accuracy any
DIGITS = 4
FILE = ".record.json"  # in the outputs folder
CODE = (Path(record.__file__).parent, Path(__file__).parent)  # constants and formulas are in it
BOUNDS = {"seconds": "value", "low": "low", "high": "high"}  # of a range


def read(forecaster: Forecaster | None = None) -> dict:
    """Return what `make` works out, from the file in the outputs folder where that was made from the same inputs.

    Args:
        forecaster: whose predictions are shown; None: any, such as of who asks for refusals, in which all agree.
    """
    path, made_from = layout.outputs() / FILE, inputs(forecaster)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if made_from.items() <= kept.items():
        return kept
    forecaster = forecaster or of_the_record()
    made = inputs(forecaster) | make(forecaster)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(made), encoding="utf-8")
    part.replace(path)
    return made


def inputs(forecaster: Forecaster | None) -> dict[str, str]:
    """Return the hashes of all that it is made from: published tables, code, and what the model learnt from."""
    tables = [*sorted((layout.published() / "record").glob("*.csv")), *layout.published_rows()]
    code = [path for folder in CODE for path in sorted(folder.glob("*.py"))]
    hashes = {"made_from": hashlib.sha256(b"".join(path.read_bytes() for path in [*tables, *code])).hexdigest()}
    if forecaster is not None:
        learnt = forecaster.model.observations.to_csv().encode()
        hashes["learnt"] = hashlib.sha256(learnt).hexdigest()
    return hashes


@functools.cache
def make(forecaster: Forecaster) -> dict:
    """Work everything out.

    Returns:
        chips: by name, what is printed, paid and drawn. predictions: lines of task, chip, family of
        precisions, seconds, low, high, basis. refused: lines of task, family and reason, with the chips that have no
        prediction for it. operations: those at which `own` has its predictions. own: lines of chip, family, and
        seconds for a million images, low and high at each. published: lines of task, chip, count, family, seconds, low,
        high, figures, publications and sources.
    """
    figures = forecaster.figures
    said = [line for each in TASKS if each.work and each.key != "own" for line in _predictions(each.key, forecaster)]
    predicted = [line for line in said if "reason" not in line] + list(_to_accuracy(forecaster))
    own = list(_own(forecaster))
    published = [*_rates(figures), *_times_to_accuracy(figures)]
    named = {line["chip"] for line in [*predicted, *own, *published]}
    drawn = forecaster.drawn
    return {
        "chips": {chip: _chip(chip, drawn) for chip in sorted(named | set(chips.table().index))},
        "predictions": predicted,
        "refused": _refused([line for line in said if "reason" in line]),
        "operations": list(OPERATIONS),
        "own": own,
        "published": published,
    }


def rounded(value: float) -> float | None:
    """Return a number with four digits; None where it is missing or without end."""
    return float(f"{value:.{DIGITS}g}") if value is not None and math.isfinite(value) else None


def _predictions(key: str, forecaster: Forecaster) -> Iterator[dict]:
    """Yield what each chip would take for a task, or the reason why that is not known."""
    this = task(key)
    asked = [(chip, family) for chip in chips.table().index for family in PRECISIONS]
    questions = [Question(chip, this.work, PRECISIONS[family], image_size=this.image_size) for chip, family in asked]
    for (chip, family), rate in zip(asked, forecaster.rates(questions), strict=True):
        if isinstance(rate, Unknown):
            yield {"task": key, "chip": chip, "family": family, "reason": str(rate)}
            continue
        seconds = Range(this.images / rate.value, this.images / rate.high, this.images / rate.low, rate.basis)
        yield _line(key, chip, family, seconds)


def _to_accuracy(forecaster: Forecaster) -> Iterator[dict]:
    """Yield what one device of each chip would take to 75.9 %, where its rate is predicted."""
    listed = list(chips.table().index)
    questions = [Question(chip, "resnet50", accuracy.PRECISION, image_size=224) for chip in listed]
    said = dict(zip(listed, forecaster.rates(questions), strict=True))
    rates = {chip: rate for chip, rate in said.items() if not isinstance(rate, Unknown)}
    worth = accuracy.epochs_worth(forecaster.figures, rates)
    for chip, rate in rates.items():
        yield _line("resnet50-accuracy", chip, "half", accuracy.predict(rate, worth))


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


def _own(forecaster: Forecaster) -> Iterator[dict]:
    """Yield what each chip would take for a million images of a network, at each number of operations."""
    bounds = {"seconds": "value", "low": "high", "high": "low"}
    asked = [(chip, family) for chip in chips.table().index for family in PRECISIONS]
    questions = [
        Question(chip, precision=PRECISIONS[family], flops_per_sample=operations, image_size=224)
        for chip, family in asked
        for operations in OPERATIONS
    ]
    said = iter(forecaster.rates(questions))
    for chip, family in asked:
        rates = [next(said) for _ in OPERATIONS]
        if not any(isinstance(rate, Unknown) for rate in rates):
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
    offers = estimate.rented(chip, today).dropna(subset="usd_per_hour") if "product" in printed else pandas.DataFrame()
    prices = estimate.bought(chip, today).dropna(subset="usd") if "product" in printed else pandas.DataFrame()
    resnet = drawn[drawn["network"].eq("resnet50")]  # other networks' steps keep a chip less busy
    watts = (watts_of(chip, resnet) or watts_of(chip, drawn)) if "product" in printed else None
    kept = ("product", "vendor", "memory_gb", "released", "tdp_watts")
    line = {name: printed[name] for name in kept if name in printed}
    if len(offers):
        offers = estimate.usual(offers)
        hourly = offers["usd_per_hour"].astype(float)
        line["rent"] = {"usd_per_hour": rounded(estimate.usual_rent(offers)), "offers": len(offers)}
        line["rent"] |= {"least": rounded(hourly.min()), "most": rounded(hourly.max())}
        line["rent"] |= {"marketplace": bool(offers["provider"].isin(estimate.MARKETPLACES).all())}
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
