"""The commands on the public record: `predict` and `chips`; they need no framework."""

import datetime
import json
from dataclasses import asdict
from typing import Annotated

import pandas
import typer

from benchbook.commands.output import number, say, say_table
from benchbook.judging import wording
from benchbook.record import chips as listed
from benchbook.record import forecast
from benchbook.rows import networks
from benchbook.studies import predictions
from benchbook.studies.study import Evidence

SPECIFICATIONS = {
    "chip": "chip",
    "released": "released",
    "cores": "cores",
    "fp32_tflops": "fp32",
    "fp16_tflops": "fp16",
    "matrix_tflops": "matrix",
    "memory_gb": "GB",
    "bandwidth_gb_s": "GB/s",
    "tdp_watts": "W",
    "launch_price_usd": "$ at launch",
}


def predict(
    chip: Annotated[str, typer.Option(help="the chip's name; `benchbook chips` lists them")] = "",
    work: Annotated[str, typer.Option(help="a study such as resnet50_cost, or a network such as vgg11")] = "",
    precision: Annotated[str, typer.Option(help=", ".join(forecast.PRECISIONS))] = "fp32",
    flops: Annotated[float, number("operations of a training step per image, instead of --work", 0, 1e18)] = 0.0,
    image_size: Annotated[float, number("pixels per side; 0: the default of --work", 0, 100000)] = 0.0,
    sequence_length: Annotated[float, number("tokens per sequence; 0: the default of --work", 0, 1e7)] = 0.0,
    batch_size: Annotated[float, number("samples per step and device; 0: 64 images or 8 sequences", 0, 1e6)] = 0.0,
    count: Annotated[int, typer.Option(help="number of devices, 1 to 8")] = 1,
    images: Annotated[float, number("images or sequences; 0: an epoch of ImageNet or a billion tokens", 0, 1e15)] = 0.0,
    price: Annotated[float, number("US dollars per hour of one device; 0: prices on record", 0, 1e6)] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="print the answer as JSON")] = False,
) -> None:
    """Predict a chip's rate, time, dollars and joules for a study or network, each with its interval and basis."""
    if not chip:
        raise ValueError("no --chip; allowed: the name of a chip that `benchbook chips` lists")
    question = forecast.Question(
        chip=chip, work=work, precision=precision, flops_per_sample=flops or None, image_size=image_size or None,
        sequence_length=sequence_length or None, batch_size=batch_size or None, count=count, images=images or None,
    )  # fmt: skip
    answer = predictions.learn(Evidence.of_machine()).ask(question, datetime.date.today(), price or None)
    if as_json:
        _say_json(vars(answer))
    else:
        _print_answer(answer)


def chips(
    text: Annotated[str, typer.Argument(help="words of a name, such as 4090; empty: all")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print the chips as JSON, with their sources")] = False,
) -> None:
    """List the chips of the record with their published specifications; rates are in TFLOP/s."""
    chosen = listed.search(text)
    if chosen.empty:
        raise ValueError(f"no chip on record is called {text!r}; `benchbook chips` without words lists all")
    if as_json:
        _say_json(chosen)
        return
    shown = chosen[list(SPECIFICATIONS)].rename(columns=SPECIFICATIONS)
    say_table(f"{len(chosen)} chips; a cell is empty if no source has the figure", shown)


def _print_answer(answer) -> None:
    question, rate, seconds = answer.question, answer.rate, answer.seconds
    length = question.sequence_length or 1
    unit, sample = ("tokens", "a sequence") if question.sequence_length else ("images", "an image")
    what = question.work or f"{question.flops_per_sample:.3g} operations an image"
    devices = f"{question.count} x {question.chip}" if question.count > 1 else question.chip
    say(f"PREDICTED, not measured: {devices}, {what}, {question.precision}")
    expected, low, high = (wording.rate(value * length) for value in (rate.value, rate.low, rate.high))
    batch = f"{question.batch_size:g} per step" if question.batch_size else "at a batch size that keeps the chip busy"
    say(f"  rate    {expected} {unit}/s (90 %: {low} to {high}), {batch}")
    say(f"          from {rate.basis}; {answer.error}")
    time, low, high = (wording.duration(value, 3) for value in (seconds.value, seconds.low, seconds.high))
    say(f"  time    {time} for {question.images * length:,.0f} {unit} (90 %: {low} to {high})")
    for line in answer.rented.to_dict("records"):
        rent, low, high, hourly = (wording.price(line[name], 3) for name in ("dollars", "low", "high", "usd_per_hour"))
        say(
            f"  rent    {rent} (90 %: {low} to {high}) at {hourly} an hour of {line['chip']}, {line['provider']}"
            f"{_dated(line)}; includes: {line['includes']}"
        )
    for line in answer.bought.to_dict("records"):
        hours = line["hours_to_break_even"]
        even = f"; as much as {hours:,.0f} hours at the median of these rents" if pandas.notna(hours) else ""
        say(f"  buy     {wording.price(line['usd'], 3)}{_dated(line)}; {line['includes']}{even}")
    if answer.memory_bytes is None:
        say("  memory  unknown: the activations of this network were not counted")
    else:
        say(
            f"  memory  {answer.memory_bytes / 2**30:,.3g} GiB in a step with Adam; largest batch:"
            f" {networks.batches_text(answer.largest_batches)} ({networks.MEMORY_ERROR})"
        )
    joules = answer.joules_per_image
    if joules is None:
        say("  energy  unknown: the record has no measured power of this chip for this work")
    else:
        say(f"  energy  {joules.value:.3g} J {sample} ({joules.low:.3g} to {joules.high:.3g}): {joules.basis}")
    for note in answer.notes:
        say(f"  note    {note}")
    say("  nearest published or measured:")
    for line in answer.nearest.to_dict("records"):
        what = f"{line['chip']}, {line['work']}, {line['precision']}"
        rate = line["rate"] * (line["sequence_length"] if question.sequence_length else 1)
        say(f"    {rate:,.0f} {unit}/s: {what} ({line['source']})")


def _dated(line: dict) -> str:
    if pandas.isna(line["age_years"]):
        return ", price without a date" if pandas.notna(line["date"]) else ""
    return f", price of {line['date']}, {line['age_years']:.1f} years old"


def _say_json(value: object) -> None:
    """Print a value as JSON: a table as a list of its lines, a missing value as null."""

    def plain(part: object) -> object:
        return json.loads(part.to_json(orient="records")) if isinstance(part, pandas.DataFrame) else asdict(part)

    say(json.dumps(value, default=plain, indent=2, ensure_ascii=False))
