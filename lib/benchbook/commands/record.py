"""The commands on the public record: `predict` and `chips`; they need no framework."""

import json
import textwrap
from dataclasses import asdict
from typing import Annotated

import pandas
import typer

from benchbook.commands.output import number, say
from benchbook.judging import wording
from benchbook.record import chips as listed
from benchbook.record import estimates, observations, pairs, prices
from benchbook.record import predict as learned
from benchbook.record.predict import Unknown
from benchbook.report import costs
from benchbook.rows import networks
from benchbook.studies.results.evidence import Evidence

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
DUAL_ISSUE = "dual issue: two products at a time on each core"  # the words of a peak's source
SHOWN = ("chip", "family", "source", "seconds", "low", "high", "basis", "sources")
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
    """Show a chip's rate, time and dollars for a study or network, published or predicted, with
    90 % intervals."""
    if not chip:
        raise ValueError("no --chip; allowed: the name of a chip that `benchbook chips` lists")
    question = learned.Question(
        chip=chip, work=work, precision=precision, image_size=image_size or None,
        sequence_length=sequence_length or None, batch_size=batch_size or None,
    )  # fmt: skip
    name = listed.resolve(chip)
    network = networks.describe(work, question.image_size, question.sequence_length)
    (rate,) = estimates.find([question])
    if isinstance(rate, Unknown):
        raise Unknown(_refused(rate, name))
    length, unit = network.sequence_length or 1, "tokens" if network.sequence_length else "images"
    images = images or (TOKENS / length if network.sequence_length else IMAGENET)
    seconds = [images / bound for bound in (rate.value, rate.high, rate.low)]
    low, middle, high = (
        wording.rate(bound * length) for bound in (rate.low, rate.value, rate.high)
    )
    kind = "Published" if rate.kind == estimates.PUBLISHED else "Predicted"
    lines = [
        f"{kind}, not measured here: {name}, {networks.title(work)}, {precision}",
        f"rate     {middle} {unit}/s (90 %: {low} to {high})",
        f"sure     {rate.basis}",
        f"time     {wording.duration_within(*seconds)} for {images * length:,.0f} {unit}",
        *_prices(name, price, seconds),
    ]
    if rate.kind == estimates.PUBLISHED:
        lines += [f"source   {each}" for each in rate.sources.split(" | ")]
    for size, (least, most, by) in listed.largest_batches(network, name, precision).items():
        by = ", with flash attention" if network.sequence_length else by
        span = f"at most {least:,} to {most:,}" if least < most else f"{most:,}"
        lines.append(f"batch    {span} fit in {size:g} GB{by}")
    if rate.kind == estimates.PREDICTED:
        lines.append(f"nearest  {learned.nearest_rate(question)}")
    for line in lines:
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
    doubled = chosen["source"].str.contains(DUAL_ISSUE, regex=False)
    texts["fp32"] = texts["fp32"].where(~doubled, texts["fp32"] + "*")
    if doubled.any():
        say(f"* with {DUAL_ISSUE}")
    say(*texts.to_string(index=False, na_rep="").splitlines())


def _refused(reason: Unknown, chip: str) -> str:
    """Return why there is no answer, with the nearest published rate and the chip's pairs."""
    nearest, others = reason.nearest, sorted(set(pairs.between(chip)["product_over"]))
    parts = [str(reason)] + ([f"the nearest on record: {nearest}"] if nearest else [])
    if reason.question and others:
        parts.append(f"`benchbook compare` has pairs with {', '.join(others)}")
    return "; ".join(parts)


def compare_estimates(
    names: list[str], work: str, evidence: Evidence, as_json: bool, fault: ValueError | None
) -> None:
    """Print how many times as fast each is as the first, and the time of each.

    Args:
        names: of machines or sessions in the rows, or of chips.
        work: the key of a task, or its network.
        evidence: the rows of all machines, and the published ones.
        as_json: print JSON.
        fault: why the names are not all of machines.
    """
    task = next((task for task in costs.TASKS if work in (task.key, task.network)), None)
    if task is None:
        raise ValueError(f"work {work!r}; allowed: {', '.join(task.key for task in costs.TASKS)}")
    try:
        sides = _sides(names, task, evidence)
    except listed.UnknownChip as unknown:
        raise ValueError(f"{fault}; or a chip: {unknown}") from None
    (first, one), *others = sides.items()
    ratios = {name: _ratios(one, other) for name, other in others}
    if as_json:
        shown = [
            {"name": name} | {key: own.get(key) for key in SHOWN} for name, own in sides.items()
        ]
        told = [
            asdict(each) | {"name": name, "over": first} for name in ratios for each in ratios[name]
        ]
        say(json.dumps({"work": task.key, "sides": shown, "ratios": told}))
        return
    say(f"{task.title}:")
    for name, found in ratios.items():
        for each in found:
            say(f"{each.in_words(name, first)}.")
    for name, line in sides.items():
        if "seconds" in line:
            time = wording.duration_within(line["seconds"], line["low"], line["high"])
            family = observations.FAMILIES[line["family"]]
            say(f"  {name}: {time}, {line['source']}, {family}; {line['basis']}")
        else:
            asked = costs.question(task, line["chip"], "half")
            say(f"  {name}: no time; nearest published {learned.nearest_rate(asked)}")
    for name, other in others:
        for line in pairs.between(one["chip"], other["chip"]).to_dict("records"):
            said = f"{wording.times(line['ratio'])} times: {line['work']}"
            family = observations.FAMILIES[line["family"]]
            say(f"  pair of {first} and {name}, {said}, {family}; {line['article']}")


def _sides(names: list[str], task: costs.Task, evidence: Evidence) -> dict[str, dict]:
    """Return the fastest line of `costs.of_task` of each machine, session or chip, in any
    precision; a side without one has its chip alone.

    Raises:
        ValueError: two sides are equal, or a name is unknown.
    """
    found, rows = {}, evidence.measured
    measured = costs.of_study(task, evidence, {}) if task.study else []
    for name in names:
        own = rows[(rows["machine"].eq(name) | rows["session"].eq(name)).fillna(False)]
        machines, chip = set(own["machine"]), _chip(name, own)
        sides = [line for line in measured if line["machine"] in machines]
        if not sides:
            name, sides = chip, costs.of_chip(task, chip) if listed.listed(chip) else []
        if name in found:
            raise ValueError(f"{name} twice; allowed: different machines or chips")
        found[name] = min(sides, key=lambda line: line["seconds"], default={"chip": chip})
    return found


def _ratios(one: dict, other: dict) -> list[estimates.Ratio]:
    """Return how many times as fast the other is; without a time of both, by pairs of any work."""
    if "estimate" in one and "estimate" in other:
        return [estimates.ratio(one["estimate"], other["estimate"])]
    of_pairs = (
        estimates.of_pairs(one["chip"], other["chip"], each) for each in observations.FAMILIES
    )
    return [each for each in of_pairs if each]


def _chip(name: str, own: pandas.DataFrame) -> str:
    """Return the chip of this name, or the one that its rows are of."""
    kinds = own.loc[own["device"] != "cpu", "device_name"], own["chip"]
    names = [each for kind in kinds for each in kind.dropna().unique()]
    found = next(filter(None, map(listed.listed, names)), "")
    return found or (names[0] if names else listed.resolve(name))


def _prices(chip: str, price: float, seconds: list[float]) -> list[str]:
    """Return lines with the rent and the purchase price of a chip, without those that are unknown.

    Args:
        chip: its canonical name.
        price: the user's, in US dollars an hour; 0: the usual one on record.
        seconds: the middle, the least and the most.
    """
    known, lines = prices.in_words(chip), []
    if hourly := price or prices.usual_rent(chip):
        middle, *ends = (wording.price(prices.rent(bound, hourly), 2) for bound in seconds)
        cost = f"{middle} ({' to '.join(ends)})"
        hour = f"{wording.price(price, 3)} an hour (your price)" if price else known["hour"]
        lines.append(f"rent     {cost} at {hour}")
    return lines + [f"buy      {known[name]}" for name in ("buy",) if name in known]
