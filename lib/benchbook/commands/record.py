"""The command `predict`, which needs no framework."""

import textwrap
from collections.abc import Iterator
from typing import Annotated

import typer

from benchbook.commands.options import AsJson, number
from benchbook.commands.output import say, say_json
from benchbook.judging import wording
from benchbook.record import chips as listed
from benchbook.record import estimates, pairs, prices
from benchbook.record import predict as learned
from benchbook.record.predict import Unknown
from benchbook.rows import networks

COLUMNS = 80  # characters of a line
IMAGENET, TOKENS = (
    1_281_167,
    1e9,
)  # training images, or tokens to train on, if the question has no number


def predict(
    chip: Annotated[str, typer.Option(help="the chip's name; `benchbook chips` lists them")] = "",
    work: Annotated[str, typer.Option(help="a network such as vgg11, or the study of one")] = "",
    precision: Annotated[str, typer.Option(help="one of those of `measure`, but fp64")] = "fp32",
    image_size: Annotated[
        float, number("pixels per side; 0: the default of --work", 0, 100000)
    ] = 0.0,
    sequence_length: Annotated[
        float, number("tokens per sequence; 0: the default of --work", 0, 1e7)
    ] = 0.0,
    batch_size: Annotated[
        float, number("samples per step; 0: as many as keep it busy", 0, 1e6)
    ] = 0.0,
    images: Annotated[
        float, number("images or sequences; 0: an epoch of ImageNet or a billion tokens", 0, 1e15)
    ] = 0.0,
    price: Annotated[float, number("US dollars per hour; 0: prices on record", 0, 1e6)] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Print a chip's rate, time and dollars for a work."""
    if not chip:
        raise ValueError("no --chip; allowed: the name of a chip that `benchbook chips` lists")
    question = learned.Question(
        chip=chip, work=work, precision=precision, image_size=image_size or None,
        sequence_length=sequence_length or None, batch_size=batch_size or None,
    )  # fmt: skip
    name = listed.resolve(chip)
    network = networks.describe(work, question.image_size, question.sequence_length)
    rate = estimates.of_record(question) or learned.rates([question])[0]
    if isinstance(rate, Unknown):
        raise Unknown(_refused(rate, name))
    length, unit = network.sequence_length or 1, "tokens" if network.sequence_length else "images"
    images = images or (TOKENS / length if network.sequence_length else IMAGENET)
    seconds = [images / bound for bound in (rate.value, rate.high, rate.low)]
    rates = [bound * length for bound in (rate.value, rate.low, rate.high)]
    batches = listed.largest_batches(network, name, precision)
    hourly = price or prices.usual_rent(name)
    dollars = [prices.rent(bound, hourly) for bound in seconds] if hourly else []
    sources = rate.sources.split(" | ") if rate.kind == estimates.PUBLISHED else []
    bounds = ("value", "low", "high")
    found = {
        "chip": name, "work": work, "precision": precision, "source": rate.kind, "basis": rate.basis,
        "unit": f"{unit}/s", "rate": dict(zip(bounds, rates, strict=True)), unit: images * length,
        "seconds": dict(zip(bounds, seconds, strict=True)), "usd_per_hour": hourly,
        "usd": dict(zip(bounds, dollars, strict=False)), "sources": sources,
        "largest_batch": {f"{size:g} GB": most for size, (_, most, _) in batches.items()},
    }  # fmt: skip
    if as_json:
        say_json(found)
        return
    lines = [*_of_time(found, unit, price), *(f"source   {each}" for each in sources)]
    for size, (least, most, by) in batches.items():
        by = ", with flash attention" if network.sequence_length else by
        span = f"at most {least:,} to {most:,}" if least < most else f"{most:,}"
        lines.append(f"batch    {span} fit in {size:g} GB{by}")
    if rate.kind == estimates.PREDICTED:
        lines.append(f"nearest  {learned.nearest_rate(question)}")
    for line in lines:
        options = {"break_long_words": False, "break_on_hyphens": False}
        say(*textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 9, **options))


def _of_time(found: dict, unit: str, price: float) -> Iterator[str]:
    """Yield the lines of what was found: rate, time and dollars."""
    title = f"{found['chip']}, {networks.title(found['work'])}, {found['precision']}"
    yield f"{found['source'].capitalize()}, not measured here: {title}"
    middle, low, high = map(wording.rate, found["rate"].values())
    yield f"rate     {middle} {unit}/s (90 %: {low} to {high})"
    yield f"sure     {found['basis']}"
    time = wording.duration_within(*found["seconds"].values())
    yield f"time     {time} for {found[unit]:,.0f} {unit}"
    known = prices.in_words(found["chip"])
    if found["usd"]:
        cost, *ends = (wording.price(each, 2) for each in found["usd"].values())
        hour = f"{wording.price(price, 3)} an hour (your price)" if price else known["hour"]
        yield f"rent     {cost} ({' to '.join(ends)}) at {hour}"
    if "buy" in known:
        yield f"buy      {known['buy']}"


def _refused(reason: Unknown, chip: str) -> str:
    """Return why there is no answer, with the nearest published rate and the chip's pairs."""
    nearest, others = reason.nearest, sorted(set(pairs.between(chip)["product_over"]))
    parts = [str(reason)] + ([f"the nearest on record: {nearest}"] if nearest else [])
    if reason.question and others:
        parts.append(f"`benchbook compare` has pairs with {', '.join(others)}")
    return "; ".join(parts)
