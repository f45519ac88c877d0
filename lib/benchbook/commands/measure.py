"""The command `benchbook measure`: the user's network, measured like a study's."""

import tempfile
import threading
from pathlib import Path
from typing import Annotated

import typer

from benchbook.commands.output import SOME_FAILED, SOME_LEFT_OUT, number, say, short
from benchbook.judging import intervals, statistics, wording
from benchbook.machine import layout
from benchbook.machine.identity import identify
from benchbook.machine.kinds import KINDS
from benchbook.measuring import launch
from benchbook.rows import ceilings, networks, records
from benchbook.rows.points import FILES, nested
from benchbook.running import profiles, session
from benchbook.studies.your_network import choices, loading

STUDY = "your_network"
NOT_OF_THE_POINT = ("tuned", "processes", "minutes", "machine", "script_arguments")
FIRST_NUMBER_POLL_SECONDS = 0.3
LOOK_SECONDS = 300.0  # to import your code, which may compile extensions


def measure(
    network: Annotated[
        str,
        typer.Argument(
            help="module:callable or file.py:callable, which makes a torch.nn.Module; or a script that calls"
            " benchbook.measure, with its arguments after --"
        ),
    ],
    script_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    image_size: Annotated[int, typer.Option(help="pixels per side")] = 224,
    channels: Annotated[int, typer.Option(help="channels of an image")] = 3,
    num_classes: Annotated[int, typer.Option(help="number of classes")] = 1000,
    arguments: Annotated[str, typer.Option(help='arguments of the callable, such as "num_classes=10"')] = "",
    example: Annotated[str, typer.Option(help="file.py:callable; makes (inputs, target) of (batch_size, seed)")] = "",
    loader: Annotated[
        str,
        typer.Option(
            help="file.py:callable; makes an iterable of (inputs, target), such as a DataLoader, of batch_size"
        ),
    ] = "",
    loss: Annotated[
        str,
        typer.Option(help="file.py:callable; called with (outputs, target), it returns a scalar; empty: cross-entropy"),
    ] = "",
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw")] = "sgd",
    learning_rate: Annotated[float, typer.Option(help="the same for all steps")] = 0.01,
    batch_size: Annotated[int, typer.Option(help="samples per step")] = 32,
    batch_sizes: Annotated[str, typer.Option(help='further batch sizes, such as "8 64"')] = "",
    precision: Annotated[str, typer.Option(help=", ".join(records.PRECISIONS))] = "fp32",
    tuned: Annotated[bool, typer.Option("--tuned", help="search two minutes for the fastest settings first")] = False,
    processes: Annotated[int, number("fresh processes to measure in; an interval needs two", 1, 99)] = 4,
    device: Annotated[str, typer.Option(help=f"{', '.join(KINDS)}, best, or all of this machine")] = "best",
    minutes: Annotated[int, number("time limit in minutes of each process", 1, 24 * 60)] = 30,
    machine: Annotated[str, typer.Option(help="name of this machine; empty: made from chip and memory")] = "",
) -> None:
    """Measure your network like a study's, or the loop in your script, in fresh processes."""
    given = {name: value for name, value in locals().items() if name not in NOT_OF_THE_POINT}
    if network.endswith(".py"):
        _measure_script(Path(network), script_arguments or [], processes, 60.0 * minutes)
        return
    if script_arguments:
        raise ValueError(f"{script_arguments[0]!r} after {network!r}; allowed: arguments of a script, such as train.py")
    for name in FILES:  # files become absolute paths, because a kernel has another current folder
        place, colon, attribute = given[name].rpartition(":")
        if place.endswith(".py"):
            given[name] = f"{Path(place).expanduser().resolve()}{colon}{attribute}"
    given |= {"variant": "tuned" if tuned else "reference"}
    choices.check(given)
    _look(network, {name: given[name] for name in FILES})
    entry = {"points": [nested(STUDY, given | {"num_processes": processes})], "time_limit_minutes": minutes}
    points = profiles.points_of(STUDY, entry, "all")
    name = identify(machine).name
    if not session.is_cut_short(points, name):  # the code may have changed since the point was done
        for point in points:
            session.forget(layout.state(name) / STUDY / point.name)
    ended = threading.Event()
    threading.Thread(target=_say_first, args=(layout.point(name, STUDY, points[0].name), ended), daemon=True).start()
    try:
        left_out = session.measure(points, name, retry=True)
    finally:
        ended.set()
    for point, reason in left_out:
        say(f"Left out: {point.title} ({reason}). Next: run the same command again.")
    if left_out:
        raise typer.Exit(SOME_LEFT_OUT)
    lines = session.summary(points, name)
    _say_results(points, lines)
    if (lines["status"] != "ok").any():
        raise typer.Exit(SOME_FAILED)


def _look(network: str, names: dict[str, str]) -> None:
    """Look for your code in a process of its own, before anything is written.

    Args:
        network: as it was typed.
        names: of callables, by parameter.
    """
    with tempfile.TemporaryDirectory() as folder:
        look = f"{loading.__name__}:{loading.look.__name__}"
        _, failed = launch.call(look, names, log=Path(folder, "log"), seconds=LOOK_SECONDS)
    if failed:
        raise ValueError(f"{network!r} {failed.message}; {loading.TRAINS}" if failed.is_late else failed.message)


def _measure_script(script: Path, arguments: list[str], count: int, seconds: float) -> None:
    """Run a script in fresh processes, and print the rate of the loop that it measures, over all of them."""
    if not script.is_file():
        raise ValueError(f"script {str(script)!r} is not a file; allowed: a Python file, or {loading.FORMS}")
    rates, numbers = [], []
    for place in range(1, count + 1):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            rate, failed = launch.call(
                "benchbook.loop:run_script", str(script.resolve()), arguments, log=log, seconds=seconds
            )
            printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if failed:
            reason = failed.message if failed.is_late or not printed else printed[-1]
            say(f"Process {place} of {count}: {reason}")
            break
        say(f"Process {place} of {count}: {rate}")
        rates += rate.rates
        numbers += [place] * len(rate.rates)
    if len(set(numbers)) > 1:
        found = intervals.interval(rates, numbers)
        bounds = wording.bounds(found.low, found.high, found.kind, "{:,.4g}".format)
        processes = wording.count(len(set(numbers)), "process")
        say(f"{script.name}: {found.value:,.4g} samples/s ({bounds}; {processes})")
    if len(set(numbers)) < count:
        raise typer.Exit(SOME_FAILED)


def _say_first(folder: Path, ended: threading.Event) -> None:
    """Print the rate of a new run's first row as soon as it is written."""
    before = set(folder.glob("*.csv"))
    while not ended.wait(FIRST_NUMBER_POLL_SECONDS):
        for path in set(folder.glob("*.csv")) - before:
            rates = records.gather([path], lambda line: None)["samples_per_second"].dropna()
            if len(rates):
                say(f"\nRoughly {wording.number(rates.iloc[0])} samples/s (one step); the measurement continues.")
                return


def _say_results(points: list, lines) -> None:
    from benchbook.studies.study import Evidence
    from benchbook.studies.your_network import study

    evidence = Evidence.of_machine(lines["machine"].iloc[0])  # with calibrations
    names = [point.name for point in points]
    rates = study.rates(evidence)
    peaks = rates.set_index("point")["peak_memory_bytes"]
    sizes = study.batch_sizes(evidence)
    sizes = sizes[sizes["point"].isin(names)]
    shares = ceilings.efficiency(lines, evidence.ceilings).set_index("point")["efficiency"]
    for line in lines.assign(tokens_per_second=statistics.tokens_per_second(lines)).to_dict("records"):
        if line["status"] != "ok":
            say(f"{line['model']}: {line['status']}: {line['message']}")
            continue
        rate, batch_size, peak = line["samples_per_second"], line["batch_size"], peaks.get(line["point"], 0)
        name = f"{line['model']} on {line['device']} ({line['variant']}, {line['precision']})"
        if line["verdict"].is_doubtful:
            say(wording.sentence(str(line["verdict"])))
        say(f"{name}: {rate:,.3g} samples/s ({line['interval']} {line['low']:,.3g} to {line['high']:,.3g})")
        share = shares.get(line["point"], 0)
        known = {
            f"{1000 * batch_size / rate:,.3g} ms per step of {batch_size:.0f}": rate,
            f"{line['tokens_per_second']:,.3g} tokens/s": line["tokens_per_second"],
            f"{peak / 2**30:,.3g} GiB of memory": peak,
            f"{share:.0%} of this machine's matrix products": share,
            f"waits for input {line['waited_low']:.0%} to {line['waited_high']:.0%} of the time": line["waited_high"],
        }
        say(f"  {', '.join(text for text, value in known.items() if value > 0)}")
        tried = sizes[sizes["point"].eq(line["point"]) & sizes["peak_memory_bytes"].notna()].sort_values("batch_size")
        if line["device"] != "cpu" and len(tried) > 1:
            ends = tried.iloc[[0, -1]]
            batches = networks.batches_text(networks.batches_by_line(ends["batch_size"], ends["peak_memory_bytes"]))
            two = " and ".join(map(str, ends["batch_size"]))
            say(f"  Largest batch, by a line through the peaks of {two}: {batches or 'unknown'}")
    if len(sizes):
        say(f"{study.batch_sizes_title(sizes)}.")
    measured = rates[rates["point"].isin(names) & rates["samples_per_second"].notna()]
    if len(measured):
        table = study.elsewhere(evidence)
        _say_elsewhere(table[table["model"].isin(measured["model"])])
    say(f"Rows: {short(layout.runs(lines['machine'].iloc[0]) / STUDY)}")
    if len(measured):
        say("Next: `make report` draws it next to other chips.")


def _say_elsewhere(table) -> None:
    """Print the record's predictions for other chips."""
    from benchbook.studies.your_network import study

    others = table[table["source"] == "predicted"]
    for network in sorted(set(table["model"]) - set(others["model"])):
        say(f"  {network}: no predictions for other chips, because its operations were not counted.")
    timed = others[others["hours"].notna()]
    for line in timed.to_dict("records"):
        rate, low, high = (wording.number(line[name]) for name in ("samples_per_second", "low", "high"))
        cost = f", {wording.price(line['dollars'])} rented" if line["dollars"] == line["dollars"] else ""
        time_and_cost = f"{study.IMAGES:,} take {wording.duration(3600 * line['hours'])}{cost}"
        say(f"  {line['where']}: {rate} samples/s ({low} to {high}); {time_and_cost}")
    if timed["samples_per_second"].duplicated().any():
        say("  Equal rates: a step of this batch size takes at least as long as the shortest step on record.")
    for reason in others["reason"].dropna().unique()[:1]:
        say(f"  Other chips: {reason}.")
