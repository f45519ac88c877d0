"""The command `benchbook measure`: your network, or the loop in your script, in processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import pandas
import typer

from benchbook.commands.options import number
from benchbook.commands.output import SOME_FAILED, say, say_table, short
from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.judging import wording
from benchbook.loop import loading, results
from benchbook.loop.networks import Choices
from benchbook.loop.rate import Rate, accelerator
from benchbook.loop.results import Result
from benchbook.machine import contention, launch, layout, temporary
from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import PRECISIONS

RUN = "benchbook.loop.networks:run"
# What `--tuned` tries, one after the other, and then all of it together.
TUNED = {"precision": "amp_bf16", "channels_last": True, "compiled": True}


def measure(
    network: Annotated[
        str,
        typer.Argument(
            help="module:callable or file.py:callable, which makes a torch.nn.Module; or a script"
            " that calls benchbook.measure, with its arguments after --"
        ),
    ],
    script_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    module: Annotated[
        bool, typer.Option("-m", help="the script is a module, as in `python -m pkg.train`")
    ] = False,
    arguments: Annotated[
        str, typer.Option(help='arguments of the callable, such as "num_classes=10"')
    ] = "",
    image_size: Annotated[int, number("pixels a side of random images", 1, 65_536)] = 224,
    channels: Annotated[int, number("channels of random images", 1, 65_536)] = 3,
    loader: Annotated[
        str, typer.Option(help="file.py:callable; makes batches of (inputs, target) of a size")
    ] = "",
    loss: Annotated[
        str, typer.Option(help="file.py:callable of (outputs, target); else the network's own")
    ] = "",
    optimizer: Annotated[str, typer.Option(help="sgd (with momentum 0.9), adam or adamw")] = "sgd",
    learning_rate: Annotated[float, typer.Option(help="the same in all steps")] = 0.01,
    batch_size: Annotated[int, number("samples a step", 1, 10_000_000)] = 32,
    precision: Annotated[str, typer.Option(help=", ".join(PRECISIONS))] = "fp32",
    tuned: Annotated[
        bool, typer.Option("--tuned", help="also bf16, channels_last, compiled, and all of them")
    ] = False,
    processes: Annotated[
        int, number("most fresh processes; fewer if the rate is known before", 1, 99)
    ] = 6,
    device: Annotated[str, typer.Option(help=f"{', '.join(KINDS)}, or best")] = "best",
    minutes: Annotated[int, number("time limit in minutes of each process", 1, 24 * 60)] = 30,
    json: Annotated[
        Path | None, typer.Option(help="keep the result in this file; see `compare`")
    ] = None,
) -> None:
    """Print the rate of a network, or of the loops in a script."""
    limits = {"most": processes, "seconds": 60.0 * minutes}
    if module:
        call = "benchbook.loop.scripts:run", network, script_arguments or [], str(Path.cwd())
        found = _measure(network, *call, **limits)
    elif network.endswith(".py"):
        script = Path(network)
        if not script.is_file():
            forms = f"a Python file, or {loading.FORMS}"
            raise ValueError(f"script {network!r} is not a file; allowed: {forms}")
        call = "benchbook.loop.scripts:run", str(script.resolve()), script_arguments or []
        found = _measure(script.name, *call, **limits)
    else:
        if script_arguments:
            allowed = "arguments of a script, such as train.py"
            raise ValueError(f"{script_arguments[0]!r} after {network!r}; allowed: {allowed}")
        choices = Choices(
            _absolute(network), arguments, image_size, channels, _absolute(loader),
            _absolute(loss), optimizer, learning_rate, batch_size, device, Settings(precision),
        )  # fmt: skip
        found = _measure_network(choices, tuned, **limits)
    for result in found:
        say(str(result))
    _say_page(found[0])
    if json:
        results.write(found, json)
        say(f"Kept: {short(json)}. Next: `benchbook compare {json} OTHER.json`.")


def _say_page(result: Result) -> None:
    """Say where the report's start page shows what other chips would reach, if there is one."""
    page = layout.outputs() / "report" / "index.html"
    if page.is_file() and (chip := accelerator(result.device)):
        asked = urlencode({"have": chip, "loop": f"{result.samples_per_second:.4g}"})
        say(f"On other chips: {page.as_uri()}#{asked}")


def _absolute(name: str) -> str:
    """Return the name of a callable for processes with another current folder."""
    is_file = loading.is_file(name)
    return str(Path(name).expanduser().resolve()) if is_file else name


def _measure_network(choices: Choices, tuned: bool, **limits: Any) -> list[Result]:
    """Measure a network in its settings, or in several, one after the other."""
    if "torch" not in devices.installed():
        how = layout.how_to_install("torch", "torchvision")
        raise ValueError(f"networks train in PyTorch, missing here; allowed: `{how}`")
    tried = [choices.settings]
    if tuned:
        tried += [replace(choices.settings, **{name: value}) for name, value in TUNED.items()]
        tried += [replace(choices.settings, **TUNED)]
    network = choices.network.rpartition("/")[2]
    if choices.arguments:
        network += f" ({choices.arguments})"
    images = "" if choices.loader else f", {choices.image_size} px"
    work = f"{network}{images}, batch {choices.batch_size}, "
    found = []
    for settings in dict.fromkeys(tried):
        own = replace(choices, settings=settings)
        found += _measure(
            f"{work}{settings}", RUN, own, **limits, words=lambda rate: str(rate).splitlines()[0]
        )
    if tuned:
        lines = {
            "samples/s": [wording.four_digits(each.samples_per_second) for each in found],
            "bounds": [each.bounds() for each in found],
            "losses of the first steps": [
                " ".join(map("{:.4g}".format, each.losses)) for each in found
            ],
        }
        names = [each.name.removeprefix(work) for each in found]
        say_table(work.removesuffix(", "), pandas.DataFrame({"setting": names} | lines))
    return found


def _measure(
    name: str,
    function: str,
    *arguments: Any,
    most: int,
    seconds: float,
    words: Callable[[Any], str] = str,
) -> list[Result]:
    """Run a function in fresh processes until the rates of its loops are known.

    Args:
        function: returns the rate of each loop or why it has none, how it ended (empty if well),
            and the first losses, if it knows them.
        most: processes.
        seconds: the limit of each process.
        words: for what a process found.
    """
    loops: list[list[Rate]] = []
    losses: list[float] = []
    for place in range(1, most + 1):
        with temporary.folder() as folder:
            log = folder / "log"
            try:
                done, failed = launch.call(function, *arguments, log=log, seconds=seconds)
            except BaseException:  # an interrupt, which a loop of the process has heard, too
                say(*_said(log))
                raise
            printed = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if failed and failed.name == "ValueError":
            raise ValueError(failed.message)
        found, ended, *rest = done or ([], failed.message)
        if ended.startswith("exit status") and printed:
            ended += f"; it last printed: {printed[-1]}"
        if not (found or ended):
            ended = (
                f"{name} measures no loop in its own process; allowed: a call of benchbook.measure"
                f" there, not in a process that it starts (mp.spawn); or {name}:NETWORK for a"
                " network in it"
            )
        for line in [*map(words, found), *filter(None, [ended])]:
            say(*f"Process {place} of at most {most}: {line}".splitlines())
        is_whole = all(isinstance(each, Rate) for each in found)
        if ended or not is_whole or len(loops or found) != len(found):
            raise typer.Exit(SOME_FAILED)
        loops = loops or [[] for _ in found]
        for own, rate in zip(loops, found, strict=True):
            own.append(rate)
        losses = losses or [each for part in rest for each in part]
        if results.is_known(loops):
            break
    names = (
        [name] if len(loops) == 1 else [f"{name}, loop {place + 1}" for place in range(len(loops))]
    )
    is_virtual = contention.is_virtual()
    return [
        Result.of(each, rates, losses, is_virtual) for each, rates in zip(names, loops, strict=True)
    ]


def _said(log: Path) -> list[str]:
    """Return the lines of the last rate that a process printed."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    first = [place for place, line in enumerate(lines) if " samples/s (range " in line][-1:]
    return [line for place in first for line in lines[place : place + 4]]
