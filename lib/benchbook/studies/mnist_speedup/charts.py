"""Charts of the MNIST study: seconds for the article's epoch, speed-up, the input's share, a step's time."""

import pandas

from benchbook import figures, input_shares
from benchbook.studies.mnist_speedup import tables
from benchbook.studies.mnist_speedup.tables import EPOCH
from benchbook.study import Drawing, Evidence


def epochs(evidence: Evidence) -> Drawing:
    """Draw the seconds of what the article timed."""
    table = tables.epochs(evidence)
    timed = "data set-up, one training epoch and the test"
    return EPOCH.draw(table, form=".1f", name=_name, title=epochs_title(table), of=timed)


def epochs_title(table: pandas.DataFrame) -> str:
    """Return what the chart of epochs shows: the fastest with the article's loaders, and what was published."""
    own = (table["source"] == "measured") & (table["loader"] == "reference") & table["status"].eq("ok")
    published = figures.published_span(table.loc[table["source"] != "measured", "seconds"], ".0f", "s")
    if not own.any():
        return f"One MNIST epoch: {published}; none measured with the article's loaders yet"
    best = table[own].sort_values("seconds").iloc[0]
    where = f"{best['chip']} ({best['device']}{EPOCH.scaled(best)})"
    return f"One epoch takes {best['seconds']:.0f} s on {where}; {published}"


def speedups(evidence: Evidence) -> Drawing:
    """Draw how many times as fast as its CPU an accelerator is, measured beside published."""
    table = tables.speedups(tables.epochs(evidence))
    figure, axes = figures.canvas(1.4 + 0.5 * len(table))
    figures.draw_bars(axes, table, "speedup", name=_name, text=lambda line: f"{line['speedup']:.2f}x")
    axes.set(xlabel="CPU seconds / accelerator seconds, same machine", title=speedups_title(table))
    axes.axvline(1, color=figures.COLOURS["line"], linewidth=1)
    return Drawing.titled(figure, table, "Bars of CPU seconds over accelerator seconds")


def speedups_title(table: pandas.DataFrame) -> str:
    """Return what the chart of speed-ups shows."""
    measured = table.loc[table["source"] == "measured", "speedup"]
    published = figures.published_span(table.loc[table["source"] != "measured", "speedup"], ".2f", "times")
    if measured.empty:
        return f"Accelerator over CPU: {published}; not measured here"
    return f"Accelerator over CPU: measured {figures.span(measured, '.2f')} times, {published}"


def shares(evidence: Evidence) -> Drawing:
    """Draw how much of a step is input."""
    return input_shares.draw(tables.shares(evidence), _name, "the data were on the device")


def step_times(evidence: Evidence) -> Drawing:
    """Draw the resident step's time over batch size, with the line that splits it into its two parts."""
    table = tables.step_times(evidence)
    figure, axes = figures.canvas(4.0)
    for (machine, device, framework, _), group in figures.of_few_machines(axes, table).groupby(tables.PLACE, sort=True):
        shade, first = figures.colour(device), group.iloc[0]
        milliseconds = group.assign(**{name: group[name] * 1e3 for name in ("seconds_per_step", "low", "high")})
        style = {
            "fmt": "o",
            "color": shade,
            "label": f"{machine}, {_driven(device, framework)}{figures.num_windows(group)}",
        }
        figures.draw_points(axes, milliseconds, "batch_size", "seconds_per_step", style)
        ends = pandas.Series([0.0, group["batch_size"].max()])
        fitted = (first["fixed_seconds"] + first["seconds_per_image"] * ends) * 1e3
        axes.plot(ends, fitted, color=shade, linewidth=1)
    axes.set(xlabel="batch size", ylabel="ms a step, data resident", xlim=(0, None), ylim=(0, None))
    axes.grid(visible=True)
    if len(table):
        axes.legend(fontsize=8)
    axes.set_title(step_times_title(table))
    return Drawing.titled(figure, table, "Step time over batch size with a fitted line", is_finding=False)


def step_times_title(table: pandas.DataFrame) -> str:
    """Return what the chart of step times shows, of the first two devices."""
    if table.empty:
        return "No machine has two batch sizes yet"
    costs = []
    for (_, device, framework, _), group in table.groupby(tables.PLACE, sort=True):
        fixed, per_image = group["fixed_seconds"].iloc[0] * 1e3, group["seconds_per_image"].iloc[0] * 1e6
        misfit = f"the line is off by up to {group['misfit'].max():.0%}"
        costs.append(f"{fixed:.1f} ms + {per_image:.0f} µs an image ({_driven(device, framework)}; {misfit})")
    return "A step costs " + "; ".join(costs[:2])


def _name(line: dict) -> str:
    driven = line | {"device": _driven(line["device"], line["framework"])}
    return figures.name_point(driven, line["loader"], dataset=EPOCH.dataset)


def _driven(device: str, framework: str | None) -> str:
    """Return a device, with the framework where it is not the article's."""
    return device if framework == "torch" or pandas.isna(framework) else f"{device} ({framework})"
