"""The commands on the public record: `predict` and `chips`; they need no framework."""

import textwrap
from typing import Annotated

import typer

from benchbook.commands.output import number, say
from benchbook.judging import wording
from benchbook.record import chips as listed
from benchbook.record import pairs, prices
from benchbook.record import predict as learned
from benchbook.record.predict import Unknown
from benchbook.rows import networks

SPECIFICATIONS = {
    "chip": "chip",
    "released": "released",
    "fp32_tflops": "fp32",
    "matrix_tflops": "matrix",
    "memory_gb": "GB",
    "bandwidth_gb_s": "GB/s",
    "tdp_watts": "W",
    "launch_price_usd": "$ new",
}
COLUMNS = 80  # characters of a line
IMAGENET, TOKENS = (
    1_281_167,
    1e9,
)  # training images, or tokens to train on, if the question has no number


def predict(
    chip: Annotated[str, typer.Option(help="the chip's name; `benchbook chips` lists them")] = "",
    work: Annotated[
        str, typer.Option(help="a study such as resnet50_cost, or a network such as vgg11")
    ] = "",
    precision: Annotated[str, typer.Option(help=", ".join(learned.PRECISIONS))] = "fp32",
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
) -> None:
    """Predict a chip's rate, time and dollars for a study or network, as ranges that say how
    sure they are."""
    if not chip:
        raise ValueError("no --chip; allowed: the name of a chip that `benchbook chips` lists")
    question = learned.Question(
        chip=chip, work=work, precision=precision, image_size=image_size or None,
        sequence_length=sequence_length or None, batch_size=batch_size or None,
    )  # fmt: skip
    name = listed.resolve(chip)
    network = networks.describe(work, question.image_size, question.sequence_length)
    try:
        rate = learned.rate(question)
    except Unknown as reason:
        nearest = reason.nearest
        raise Unknown(
            f"{reason}{f'; the nearest on record: {nearest}' if nearest else ''}"
        ) from None
    length, unit = network.sequence_length or 1, "tokens" if network.sequence_length else "images"
    images = images or (TOKENS / length if network.sequence_length else IMAGENET)
    seconds = [images / bound for bound in (rate.high, rate.low)]
    low, middle, high = (
        wording.rate(bound * length) for bound in (rate.low, rate.value, rate.high)
    )
    times = " to ".join(wording.duration(bound, 2) for bound in seconds)
    lines = [
        f"Predicted, not measured: {name}, {networks.title(work)}, {precision}",
        f"rate     {low} to {high} {unit}/s (90 %), middle {middle}",
        f"sure     {rate.basis}",
        f"time     {times} for {images * length:,.0f} {unit}",
        *_prices(name, price, seconds),
    ]
    for size, (least, most, by) in listed.largest_batches(network, name, precision).items():
        by = ", with flash attention" if network.sequence_length else by
        span = f"at most {least:,} to {most:,}" if least < most else f"{most:,}"
        lines.append(f"batch    {span} fit in {size:g} GB{by}")
    for line in [*lines, f"nearest  {learned.nearest_rate(question)}"]:
        options = {"break_long_words": False, "break_on_hyphens": False}
        say(*textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 9, **options))


def chips(
    text: Annotated[str, typer.Argument(help="words of a name, such as 4090; empty: all")] = "",
) -> None:
    """List the chips of the record with their published specifications; rates are in TFLOP/s."""
    chosen = listed.search(text)
    if chosen.empty:
        raise ValueError(
            f"no chip on record is called {text!r}; `benchbook chips` without words lists all"
        )
    shown = chosen[list(SPECIFICATIONS)].rename(columns=SPECIFICATIONS)
    say(f"{len(chosen)} chips; a cell is empty if no source has the figure")
    texts = shown.map(
        lambda cell: f"{cell:g}" if isinstance(cell, float) else cell, na_action="ignore"
    )
    say(*texts.to_string(index=False, na_rep="").splitlines())


def published_pairs(a: str, b: str) -> None:
    """Print how many times as fast chip B is as chip A in publications that trained the same
    work on both.

    Raises:
        ValueError: there is none; the message names the chips that such publications compare
        with each.
    """
    lines = pairs.between(a, b)
    if lines.empty:
        others = {name: sorted(set(pairs.between(name)["product_over"])) for name in (a, b)}
        known = "; ".join(f"{name} with {', '.join(own) or 'none'}" for name, own in others.items())
        raise ValueError(
            f"no publication trained the same work on {a} and {b}; published pairs: {known}"
        )
    for _, own in lines.groupby("family"):
        say(f"{b} over {a}: {pairs.in_words(own, pairs.ratio(own))}")
    for line in lines.to_dict("records"):
        say(
            f"{wording.times(line['ratio'])} times: {line['work']}, {pairs.FAMILIES[line['family']]}; {line['article']}"
        )


def _prices(chip: str, price: float, seconds: list[float]) -> list[str]:
    """Return lines with the rent and the purchase price of a chip, without those that are unknown.

    Args:
        chip: its canonical name.
        price: the user's, in US dollars an hour; 0: the usual one on record.
        seconds: the least and the most.
    """
    known, lines = prices.in_words(chip), []
    if hourly := price or prices.usual_rent(chip):
        cost = " to ".join(wording.price(prices.rent(bound, hourly), 2) for bound in seconds)
        hour = f"{wording.price(price, 3)} an hour (your price)" if price else known["hour"]
        lines.append(f"rent     {cost} at {hour}")
    return lines + [f"buy      {known[name]}" for name in ("buy",) if name in known]
