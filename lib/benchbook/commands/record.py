"""The commands on the public record: `predict` and `chips`; they need no framework."""

import json
from dataclasses import asdict
from typing import Annotated

import pandas
import typer

from benchbook.commands.output import number, say
from benchbook.judging import wording
from benchbook.record import chips as listed
from benchbook.record import estimate
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
IMAGENET, TOKENS = 1_281_167, 1e9  # training images, or tokens to train on, if the question has no number


def predict(
    chip: Annotated[str, typer.Option(help="the chip's name; `benchbook chips` lists them")] = "",
    work: Annotated[str, typer.Option(help="a study such as resnet50_cost, or a network such as vgg11")] = "",
    precision: Annotated[str, typer.Option(help=", ".join(learned.PRECISIONS))] = "fp32",
    flops: Annotated[float | None, number("operations of a step per image, instead of --work", 0, 1e18)] = None,
    image_size: Annotated[float, number("pixels per side; 0: the default of --work", 0, 100000)] = 0.0,
    sequence_length: Annotated[float, number("tokens per sequence; 0: the default of --work", 0, 1e7)] = 0.0,
    batch_size: Annotated[float, number("samples per step; 0: as many as keep it busy", 0, 1e6)] = 0.0,
    images: Annotated[float, number("images or sequences; 0: an epoch of ImageNet or a billion tokens", 0, 1e15)] = 0.0,
    price: Annotated[float, number("US dollars per hour; 0: prices on record", 0, 1e6)] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as JSON")] = False,
) -> None:
    """Predict a chip's rate, time and dollars for a study or network, as ranges with their rule and its error."""
    if not chip:
        raise ValueError("no --chip; allowed: the name of a chip that `benchbook chips` lists")
    question = learned.Question(
        chip=chip, work=work, precision=precision, flops_per_sample=flops, image_size=image_size or None,
        sequence_length=sequence_length or None, batch_size=batch_size or None,
    )  # fmt: skip
    name = listed.resolve(chip)
    network = networks.describe(work, question.image_size, question.sequence_length)
    nearest = learned.nearest(question)
    try:
        rate = learned.rate(question)
    except Unknown as reason:
        known = network.flops_per_sample or "lora" in work.lower()
        printed = f"; the nearest on record: {_nearest(nearest)}" if known else ""
        raise Unknown(f"{reason}{printed}") from None
    images = images or (TOKENS / network.sequence_length if network.sequence_length else IMAGENET)
    offers = estimate.rental_offers(name)
    hourly = price or estimate.usual_rent(offers)
    answer = {
        "question": asdict(question) | {"chip": name},
        "rate": asdict(rate),
        "samples": images,
        "seconds": {"low": images / rate.high, "high": images / rate.low},
        "usd_per_hour": hourly,
        "offers": offers,
        "purchases": estimate.purchase_prices(name),
        "largest_batches": estimate.largest_batches(network, name, precision),
        "nearest": nearest,
    }
    if as_json:
        say(json.dumps(answer, default=_plain, indent=2, ensure_ascii=False))
        return
    priced = "your price" if price else f"price of {offers['date'].max()}"
    for line in _lines(answer, network, priced):
        say(line if len(line) <= COLUMNS else line[: COLUMNS - 4].rpartition(" ")[0] + " ...")


def chips(
    text: Annotated[str, typer.Argument(help="words of a name, such as 4090; empty: all")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the chips as JSON, with their sources")] = False,
) -> None:
    """List the chips of the record with their published specifications; rates are in TFLOP/s."""
    chosen = listed.search(text)
    if chosen.empty:
        raise ValueError(f"no chip on record is called {text!r}; `benchbook chips` without words lists all")
    if as_json:
        say(json.dumps(chosen, default=_plain, indent=2, ensure_ascii=False))
        return
    shown = chosen[list(SPECIFICATIONS)].rename(columns=SPECIFICATIONS)
    say(f"{len(chosen)} chips; a cell is empty if no source has the figure")
    texts = shown.map(lambda cell: f"{cell:g}" if isinstance(cell, float) else cell, na_action="ignore")
    say(texts.to_string(index=False, na_rep=""))


def _lines(answer: dict, network: networks.Network, priced: str) -> list[str]:
    """Return the answer in at most eight lines.

    Args:
        answer: as in JSON.
        network: the question's.
        priced: where the rent's price comes from.
    """
    question, rate, seconds, hourly = (answer[name] for name in ("question", "rate", "seconds", "usd_per_hour"))
    length = network.sequence_length or 1
    unit = "tokens" if network.sequence_length else "images"
    work = networks.title(question["work"]) or f"{question['flops_per_sample']:.3g} operations an image"
    low, middle, high = (wording.rate(rate[name] * length) for name in ("low", "value", "high"))
    times = [wording.duration(seconds[name], 2) for name in ("low", "high")]
    lines = [
        f"Predicted, not measured: {question['chip']}, {work}, {question['precision']}",
        f"rate     {low} to {high} {unit}/s (90 %), middle {middle}",
        f"rule     {rate['rule']}, median error {rate['basis'].partition('error is ')[2]}",
        f"time     {times[0]} to {times[1]} for {answer['samples'] * length:,.0f} {unit}",
    ]
    if hourly:
        cost = [wording.price(estimate.rent(seconds[name], hourly), 2) for name in ("low", "high")]
        lines.append(f"rent     {cost[0]} to {cost[1]} at {wording.price(hourly, 3)} an hour ({priced})")
    bought = answer["purchases"].head(1).to_dict("records")
    lines += [f"buy      {wording.price(line['usd'], 3)} ({line['date']}): {line['includes']}" for line in bought]
    for size, (least, most) in answer["largest_batches"].items():
        attention = ", with flash attention" if network.sequence_length else ""
        lines.append(f"batch    at most {least:,} to {most:,} fit in {size:g} GB{attention}")
    return [*lines, f"nearest  {_nearest(answer['nearest'])}"]


def _nearest(table: pandas.DataFrame) -> str:
    """Return the published rate that is nearest to the question, with its source."""
    line = table.iloc[0]
    tokens = line["sequence_length"]
    rate = f"{line['rate'] * tokens:,.0f} tokens/s" if tokens > 0 else f"{line['rate']:,.0f} images/s"
    return f"{rate}: {line['chip']}, {line['work']}, {line['precision']} ({line['source']})"


def _plain(table: pandas.DataFrame) -> list[dict]:
    """Return a table as a list of its lines, with None for missing values."""
    return json.loads(table.to_json(orient="records"))
