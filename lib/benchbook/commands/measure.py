"""The command `benchbook measure`: the user's network, measured like a study's, or the loop in a
script."""

from pathlib import Path
from typing import Annotated, get_args

import pandas
import typer

from benchbook.commands.output import SOME_FAILED, SOME_LEFT_OUT, number, say, say_table, short
from benchbook.judging import intervals, statistics, wording
from benchbook.machine import launch, layout, temporary
from benchbook.machine.identity import identify
from benchbook.machine.kinds import KINDS
from benchbook.measuring.rate import Rate
from benchbook.rows import ceilings, networks
from benchbook.rows.points import FILES
from benchbook.running import profiles, session
from benchbook.studies.experiments.parameters import check, declared, model, nested
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import Plan

STUDY = "your_network"
LOOK_SECONDS = 300.0  # to import your code, which may compile extensions


def _option(name: str) -> typer.models.OptionInfo:
    """Return an option of the command line for a parameter of the study."""
    field = model(STUDY).model_fields[name]
    return typer.Option(
        help=": ".join(filter(None, (field.description, ", ".join(get_args(field.annotation)))))
    )


def measure(
    context: typer.Context,
    network: Annotated[
        str,
        typer.Argument(
            help="module:callable or file.py:callable, which makes a torch.nn.Module; or a script that calls"
            " benchbook.measure, with its arguments after --"
        ),
    ],
    script_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    arguments: Annotated[str, _option("arguments")] = Plan.arguments,
    image_size: Annotated[int, _option("image_size")] = Plan.image_size,
    channels: Annotated[int, _option("channels")] = Plan.channels,
    loader: Annotated[str, _option("loader")] = Plan.loader,
    loss: Annotated[str, _option("loss")] = Plan.loss,
    optimizer: Annotated[str, _option("optimizer")] = Plan.optimizer,
    learning_rate: Annotated[float, _option("learning_rate")] = Plan.learning_rate,
    batch_size: Annotated[int, _option("batch_size")] = Plan.batch_size,
    batch_sizes: Annotated[str, typer.Option(help='further batch sizes, such as "8 64"')] = "",
    precision: Annotated[str, _option("precision")] = Plan.precision,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="search two minutes for the fastest settings first")
    ] = False,
    processes: Annotated[
        int, number("fresh processes to measure in; an interval needs two", 1, 99)
    ] = 4,
    device: Annotated[
        str, typer.Option(help=f"{', '.join(KINDS)}, best, or all of this machine")
    ] = "best",
    minutes: Annotated[int, number("time limit in minutes of each process", 1, 24 * 60)] = 30,
    machine: Annotated[
        str, typer.Option(help="name of this machine; empty: made from chip and memory")
    ] = "",
) -> None:
    """Measure your network like a study's, or the loop in your script, in fresh processes."""
    if network.endswith(".py"):
        _measure_script(Path(network), script_arguments or [], processes, 60.0 * minutes)
        return
    if script_arguments:
        raise ValueError(
            f"{script_arguments[0]!r} after {network!r}; allowed: arguments of a script, such as train.py"
        )
    sizes = sorted({batch_size, *map(int, batch_sizes.replace(",", " ").split())})
    given = {name: context.params[name] for name in declared(STUDY) if name in context.params}
    given |= {
        "variant": "tuned" if tuned else "reference",
        "num_processes": processes,
        "batch_size": sizes,
    }
    for name in FILES:
        if loading.is_file(given[name]):  # a kernel has another current folder
            given[name] = str(Path(given[name]).expanduser().resolve())
    _look(check(STUDY, given | {"batch_size": sizes[0]}))
    entry = {"points": [nested(STUDY, given)], "time_limit_minutes": minutes}
    name, points = identify(machine).name, profiles.points_of(STUDY, entry, "all")
    if not session.is_cut_short(points, name):  # the code may have changed since a point was done
        for point in points:
            session.forget(layout.state(name) / STUDY / point.name)
    left_out = session.measure(points, name, retry=True)
    for point, reason in left_out:
        say(f"Left out: {point.title} ({reason}). Next: run the same command again.")
    if left_out:
        raise typer.Exit(SOME_LEFT_OUT)
    lines = session.summary(points, name)
    _say_results(lines)
    if (lines["status"] != "ok").any():
        raise typer.Exit(SOME_FAILED)


def _look(given: dict) -> None:
    """Check choices and your code in a process of its own, before anything is written."""
    _, failed = launch.call("benchbook.studies.your_network.plan:look", given, seconds=LOOK_SECONDS)
    if failed:
        raise ValueError(
            f"{given['network']!r} {failed.message}" if failed.is_late else failed.message
        )


def _measure_script(script: Path, arguments: list[str], count: int, seconds: float) -> None:
    """Run a script in fresh processes, and print the rate of the loop that it measures, over all
    of them."""
    if not script.is_file():
        raise ValueError(
            f"script {str(script)!r} is not a file; allowed: a Python file, or {loading.FORMS}"
        )
    loops: list[list[float]] = []  # the rates of each loop in the script, one for each process
    for place in range(1, count + 1):
        with temporary.folder() as folder:
            log = folder / "log"
            given = str(script.resolve()), arguments
            done, failed = launch.call(
                "benchbook.measuring.scripts:run", *given, log=log, seconds=seconds
            )
            printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        found, ended = done or ([], failed.message)
        if ended.startswith("exit status") and printed:
            ended += f"; it last printed: {printed[-1]}"
        if not (found or ended):
            ended = f"{script.name} measures no loop in its own process; allowed: a call of benchbook.measure there,"
            ended += f" not in a process that it starts (mp.spawn); or {script.name}:NETWORK for a network in it"
        for line in [*found, *filter(None, [ended])]:
            say(*f"Process {place} of {count}: {line}".splitlines())
        if (
            ended
            or not all(isinstance(each, Rate) for each in found)
            or len(loops or found) != len(found)
        ):
            raise typer.Exit(SOME_FAILED)
        loops = loops or [[] for _ in found]
        for rates, rate in zip(loops, found, strict=True):
            rates.append(rate.samples_per_second)
    for place, rates in enumerate(loops if count > 1 else [], 1):
        whole = intervals.interval(rates, range(count))
        bounds = wording.bounds(whole.low, whole.high, whole.kind, wording.four_digits)
        name = f"{script.name}, loop {place}" if len(loops) > 1 else script.name
        say(
            f"{name}: {wording.four_digits(whole.value)} samples/s ({bounds}; {wording.count(count, 'process')})"
        )


def _say_results(lines: pandas.DataFrame) -> None:
    """Print what is known of a session's points besides their rates."""
    from benchbook.studies.results.evidence import Evidence

    evidence = Evidence.of_machine(lines["machine"].iloc[0])  # with calibrations
    peaks = (
        lines["point"]
        .map(evidence.points(STUDY).set_index("point")["peak_memory_bytes"])
        .astype(float)
    )
    shares = ceilings.efficiency(lines, evidence.ceilings).set_index("point")["efficiency"]
    shown = {
        "ms a step": 1000 * lines["batch_size"] / lines["samples_per_second"],
        "samples/s": lines["samples_per_second"],
        "tokens/s": statistics.tokens_per_second(lines),
        "GiB": peaks / 2**30,
        "% of this machine's products": 100 * lines["point"].map(shares),
        "% waiting for input": 100 * lines["waited_high"],
    }
    table = (
        pandas.DataFrame(shown, dtype=float)
        .dropna(axis="columns", how="all")
        .map(wording.four_digits)
    )
    say_table(
        lines["model"].iloc[0],
        pandas.concat([lines[["device", "batch_size"]], table], axis="columns"),
    )
    for device, tried in (
        lines.assign(peak=peaks)[peaks.notna()].sort_values("batch_size").groupby("device")
    ):
        if device != "cpu" and len(tried) > 1:
            ends = tried.iloc[[0, -1]]
            largest = networks.batches_by_line(ends["batch_size"], ends["peak"])
            texts = [f"{batch:,} in {size:g} GB" for size, batch in largest.items()]
            two = " and ".join(map(str, ends["batch_size"]))
            say(
                f"Largest batch, by a line through the peaks of {two}: {', '.join(texts) or 'unknown'}"
            )
    if lines["samples_per_second"].notna().any():
        say(
            "Next: `make report` draws it, next to predictions for other chips if the record has the network."
        )
    say(f"Rows: {short(layout.runs(lines['machine'].iloc[0]) / STUDY)}")
