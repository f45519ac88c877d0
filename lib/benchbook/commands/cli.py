"""The command line: `benchbook --help` lists the commands, and imports nothing of what they do."""

import functools
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchbook.commands.output import check_device, number, say
from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import PRECISIONS
from benchbook.rows import staging

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
# The panels of `benchbook --help`.
MEASURE, REPORT = "Measure this machine", "Compare and report"
SHARE, RECORD = "Check and share rows", "Ask the public record (no measuring)"

Profile = Annotated[str, typer.Option(help="name of a file in notebooks/profiles")]
Studies = Annotated[str, typer.Option(help="names separated by blanks, or all")]
MachineName = Annotated[
    str, typer.Option(help="name of this machine; empty: made from chip and memory")
]
PackedName = Annotated[
    str, typer.Option(help="name of a machine; empty: what this checkout measured here")
]
DeviceKind = Annotated[
    str, typer.Option(help=f"{', '.join(KINDS)}, or all of this machine", callback=check_device)
]


def _version(is_asked: bool) -> None:
    if is_asked:
        from benchbook.machine import identity

        say(identity.version())
        raise typer.Exit


@app.callback()
def benchbook(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show and end")
    ] = False,
) -> None:
    """Measure or predict what training a network costs, in time, energy and money.

    `benchbook study` measures this machine and writes a report, which also shows the rows of
    other machines.
    """
    staging.tidy()


def command(panel: str, home: str, name: str = "") -> Callable:
    """Return a decorator that makes a function's signature a command.

    Args:
        panel: of the help.
        home: the module of this package with the function that does it, which is imported then.
        name: of the command; empty: the function's.
    """

    def register(signature: Callable) -> Callable:
        @functools.wraps(signature)
        def run(**given: object) -> None:
            module = importlib.import_module(f"{__package__}.{home}")
            getattr(module, signature.__name__)(**given)

        return app.command(name or None, rich_help_panel=panel)(run)

    return register


@command(MEASURE, "study")
def study(
    profile: Profile = "quick",
    studies: Studies = "all",
    machine: MachineName = "",
    device: DeviceKind = "all",
    retry: Annotated[
        bool, typer.Option("--retry", help="run failed and unstable points again")
    ] = False,
    executor: Annotated[
        str, typer.Option(help="local: this computer; slurm: a job for each study")
    ] = "local",
    deadline: Annotated[
        float, number("seconds until the command ends; what does not fit is left out", 0)
    ] = math.inf,
    state: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure this machine, or the nodes of a Slurm cluster, and write the report."""


@command(MEASURE, "study")
def plan(
    profile: Profile = "quick",
    studies: Studies = "all",
    machine: MachineName = "",
    device: DeviceKind = "all",
    price: Annotated[
        float, number("US dollars per hour of this machine; 0: unknown", 0, 1e6)
    ] = 0.0,
) -> None:
    """Show a profile's points, how long they should take and, with a price, what they cost;
    nothing runs."""


@command(REPORT, "study")
def report() -> None:
    """Merge all rows into figures, tables and the report."""


@command(SHARE, "rows")
def validate(
    path: Annotated[Path, typer.Argument(help="a CSV of rows, or a folder of them")],
) -> None:
    """Check rows against the schema, each other and their manifests; name the first fault with
    file and line."""


@command(REPORT, "compare")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="machines, sessions or chips; or two files of measure --json"),
    ],
    work: Annotated[str, typer.Option(help="the task of chips: resnet50, gpt2, ...")] = "resnet50",
    precision: Annotated[
        str,
        typer.Option(help="one for all chips, such as fp32 or amp_bf16; empty: each its fastest"),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Compare machines or sessions with the first of them, point by point and by the geometric
    mean; or machines and chips at a task, by the best evidence."""


@command(SHARE, "rows")
def pack(
    machine: PackedName = "",
    to: Annotated[
        Path | None, typer.Option(help="the zip to write; default: outputs/<machine>.zip")
    ] = None,
) -> None:
    """Check the rows and manifests that this checkout measured, or those of --machine, and zip
    them for sending."""


@command(SHARE, "rows")
def add(
    paths: Annotated[
        list[Path],
        typer.Argument(help="zips made by `benchbook pack`, or folders unpacked from them"),
    ],
    name: Annotated[
        str, typer.Option("--as", help="name of the machine here, of one zip; empty: the zip's")
    ] = "",
) -> None:
    """Check machines' zips and copy them to outputs/runs; a zip with a fault changes nothing,
    the others are added. Rows of another computer under a name in use get a name of their own."""


@command(MEASURE, "study", "machine")
def show_machine(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show this computer, and the devices and energy sensors of each framework; all of it may be
    published."""


@command(MEASURE, "measure")
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
    """Measure the training of your network, or the loop in your script, in fresh processes."""


@command(RECORD, "record")
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
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show a chip's rate, time and dollars for a study or network, published or predicted, with
    90 % intervals."""


@command(RECORD, "chips")
def chips(
    text: Annotated[str, typer.Argument(help="words of a name, such as 4090; empty: all")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """List the chips of the record with their published specifications; rates are in TFLOP/s."""


@command(SHARE, "share")
def share(
    machine: Annotated[
        str, typer.Option(help="name of a machine; empty: what this checkout measured here")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be sent, and send nothing")
    ] = False,
) -> None:
    """Show a machine's files and all texts in them, ask, and send them as a pull request on GitHub.

    A second call updates the request while it is open. Without `gh`, the command prints where to
    attach the zip.
    """
