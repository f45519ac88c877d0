"""The command line: a table of its commands; the module of one is imported when it is asked for."""

import importlib
import itertools
from operator import attrgetter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from benchbook.rows import staging

# The panels of `benchbook --help`.
MEASURE, REPORT = "Measure this machine", "Compare and report"
SHARE, RECORD = "Check and share rows", "Ask the public record (no measuring)"
# The commands by panel: module of this package with the function of that name, and help.
COMMANDS = {
    "study": (
        MEASURE,
        "study",
        "Measure this machine, or the nodes of a Slurm cluster, and write the report.",
    ),
    "plan": (
        MEASURE,
        "study",
        "Show a profile's points, how long they should take and, with a price, what they cost;"
        " nothing runs.",
    ),
    "machine": (
        MEASURE,
        "study",
        "Show this computer, and the devices and energy sensors of each framework; all of it may"
        " be published.",
    ),
    "measure": (
        MEASURE,
        "measure",
        "Measure the training of your network, or the loop in your script, in fresh processes.",
    ),
    "report": (REPORT, "study", "Merge all rows into figures, tables and the report."),
    "compare": (
        REPORT,
        "compare",
        "Compare machines or sessions with the first of them, point by point and by the geometric"
        " mean; or machines and chips at a task, by the best evidence.",
    ),
    "validate": (
        SHARE,
        "rows",
        "Check rows against the schema, each other and their manifests; name the first fault with"
        " file and line.",
    ),
    "pack": (
        SHARE,
        "rows",
        "Check the rows and manifests that this checkout measured, or those of --machine, and zip"
        " them for sending.",
    ),
    "add": (
        SHARE,
        "rows",
        "Check machines' zips and copy them to outputs/runs; a zip with a fault changes nothing,"
        " the others are added. Rows of another computer under a name in use get a name of their"
        " own.",
    ),
    "share": (
        SHARE,
        "share",
        "Show a machine's files and all texts in them, ask, and send them as a pull request on"
        " GitHub.\n\nA second call updates the request while it is open. Without `gh`, the command"
        " prints where to attach the zip.",
    ),
    "predict": (
        RECORD,
        "record",
        "Show a chip's rate, time and dollars for a study or network, published or predicted, with"
        " 90 % intervals.",
    ),
    "chips": (
        RECORD,
        "chips",
        "List the chips of the record with their published specifications; rates are in TFLOP/s.",
    ),
}
PLAIN: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None}  # rich imports slowly


class Command(TyperCommand):
    """A command of the table, without its arguments: its function declares them."""

    def make_context(self, info_name: str | None, *given: Any, **options: Any) -> typer.Context:
        _, home, text = COMMANDS[self.name]
        function = getattr(importlib.import_module(f"{__package__}.{home}"), self.name)
        whole = typer.Typer(**PLAIN)
        whole.command(self.name, help=text)(function)
        return typer.main.get_command(whole).make_context(info_name, *given, **options)


class Panels(TyperGroup):
    """All commands, which the help lists by panel."""

    def format_commands(self, _: typer.Context, formatter: Any) -> None:
        for panel, commands in itertools.groupby(
            self.commands.values(), attrgetter("rich_help_panel")
        ):
            with formatter.section(panel):
                formatter.write_dl([(each.name, each.help.split("\n\n")[0]) for each in commands])


app = typer.Typer(cls=Panels, pretty_exceptions_enable=False, **PLAIN)
for _name, (_panel, _, _help) in COMMANDS.items():
    app.command(_name, cls=Command, help=_help, rich_help_panel=_panel)(lambda: None)


def _version(is_asked: bool) -> None:
    if is_asked:
        from benchbook.machine import identity

        typer.echo(identity.version())
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
