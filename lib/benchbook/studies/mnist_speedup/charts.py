"""Charts of the MNIST study: seconds for the article's epoch, speed-up, the input's share, a step's time."""

from collections.abc import Callable

import pandas

from benchbook.judging import wording
from benchbook.studies import figures, input_shares
from benchbook.studies.mnist_speedup import tables
from benchbook.studies.mnist_speedup.tables import EPOCH
from benchbook.studies.study import Drawing, Evidence


def epochs(evidence: Evidence) -> Drawing:
    """Draw the seconds of what the article timed."""
    table = tables.epochs(evidence)
    timed = "data set-up, one training epoch and the test"
    title = EPOCH.title(table, "One MNIST epoch", evidence.names)
    return EPOCH.draw(table, form=".1f", name=_naming(evidence), title=title, of=timed)


def speedups(evidence: Evidence) -> Drawing:
    """Draw how many times as fast as its CPU an accelerator is, measured beside published."""
    table = tables.speedups(tables.epochs(evidence))
    figure, axes = figures.canvas(1.4 + 0.5 * len(table))
    figures.draw_bars(axes, table, "speedup", name=_naming(evidence), text=lambda line: f"{line['speedup']:.2f}x")
    axes.set(xlabel="CPU seconds / accelerator seconds, same machine", title=speedups_title(table))
    axes.axvline(1, color=figures.COLOURS["line"], linewidth=1)
    return Drawing.titled(figure, table, "Bars of CPU seconds over accelerator seconds")


def speedups_title(table: pandas.DataFrame) -> str:
    """Return what the chart of speed-ups shows."""
    measured = table.loc[table["source"] == "measured", "speedup"]
    if len(measured):
        return f"The accelerator is {wording.span(measured, wording.times)} times as fast as its CPU"
    if len(table):
        return f"Published: the GPU is {wording.span(table['speedup'], wording.times)} times as fast as its CPU"
    return "Accelerator and CPU: no machine has both yet"


def shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input."""
    return input_shares.draw(tables.shares(evidence), _naming(evidence), "the data were on the device")


def step_times(evidence: Evidence) -> Drawing:
    """Draw the resident step's time over batch size, with the line that splits it into its two parts."""
    table = tables.step_times(evidence)
    figure, axes = figures.canvas(4.0)
    for (_, device, *_), group in figures.of_few_machines(axes, table).groupby(tables.PLACE, sort=True):
        shade, first = figures.colour(device), group.iloc[0].to_dict()
        milliseconds = group.assign(**{name: group[name] * 1e3 for name in ("seconds_per_step", "low", "high")})
        named = ", ".join(filter(None, (evidence.names.place(first), _framework(first))))
        style = {"fmt": "o", "color": shade, "label": named + figures.num_windows(group)}
        figures.draw_points(axes, milliseconds, "batch_size", "seconds_per_step", style)
        ends = pandas.Series([0.0, group["batch_size"].max()])
        fitted = (first["fixed_seconds"] + first["seconds_per_image"] * ends) * 1e3
        axes.plot(ends, fitted, color=shade, linewidth=1)
    axes.set(xlabel="batch size", ylabel="ms a step, data resident", xlim=(0, None), ylim=(0, None))
    axes.grid(visible=True)
    if len(table):
        axes.legend(fontsize=8)
    axes.set_title(step_times_title(table))
    return Drawing.titled(figure, table, "Step time over batch size with a fitted line")


def step_times_title(table: pandas.DataFrame) -> str:
    """Return what the chart of step times shows."""
    if table.empty:
        return "No machine has two batch sizes yet"
    return f"A step costs {wording.span(table['fixed_seconds'], wording.duration)} before its first image"


def _naming(evidence: Evidence) -> Callable[[dict], str]:
    """Return what names a line of a table."""
    return lambda line: figures.name_point(
        line, line["loader"], _framework(line), names=evidence.names, dataset=EPOCH.dataset
    )


def _framework(line: dict) -> str:
    """Return the framework of a line where it is not the article's."""
    framework = line.get("framework")
    return "" if framework == "torch" or pandas.isna(framework) else framework
