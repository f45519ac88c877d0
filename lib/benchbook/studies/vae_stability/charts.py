"""Charts of the autoencoder study: loss by images seen, steps beside float64, pictures."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook.judging import parity, wording
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.studies import figures
from benchbook.studies.study import Drawing, Evidence
from benchbook.studies.vae_stability import tables

SMALLEST_ERROR = 1e-9  # drawn for no error at all, on an axis that has no zero
DASHES = ("-", "--", ":", "-.")  # one for each precision of a device


def losses(evidence: Evidence) -> Drawing:
    """Draw the loss over images seen, both on logarithmic axes; a cross marks where it stopped being a number."""
    table = tables.losses(evidence)
    figure, axes = figures.canvas(4.0)
    key = ["source", "machine", "device", "loader", "dataset"]
    for (source, *_), curve in figures.of_few_machines(axes, table).groupby(key, sort=True):
        first = curve.iloc[0]
        shade = figures.colour(first["device"]) if source == "measured" else figures.COLOURS["published"]
        dash = {"loader": "-", "resident": "--", "first steps": ":"}[first["loader"]]
        label = _name(curve, evidence.names)
        axes.plot(curve["images_seen"], curve["loss"], dash, marker="o", color=shade, label=label)
        axes.vlines(curve["images_seen"], curve["low"], curve["high"], color=shade, linewidth=1)
        _mark_broken(axes, curve[curve["status"] == "diverged"], table["loss"].max() * 3, shade)
    axes.set(xscale="log", yscale="log", xlabel="images seen", ylabel="loss per image")
    axes.margins(y=0.15)
    axes.grid(visible=True)
    if len(table):
        axes.legend(fontsize=8)
    axes.set_title(losses_title(table, evidence.names))
    return Drawing.titled(figure, table, "Loss per image over images seen")


def _mark_broken(axes: Axes, broken: pandas.DataFrame, height: float, shade: str) -> None:
    """Draw a cross, and the epoch, where a loss was not finite."""
    axes.plot(broken["images_seen"], [height] * len(broken), "X", color=shade, markersize=9)
    beside = {"textcoords": "offset points", "ha": "right", "fontsize": 8}
    for line in broken.to_dict("records"):
        axes.annotate(f"not finite, epoch {line['epoch']}", (line["images_seen"], height), (0, 9), **beside)


def losses_title(table: pandas.DataFrame, names: Names) -> str:
    """Return what the loss chart shows: where the loss ended on each device, else that it ran away in print."""
    measured = table[table["source"] == "measured"]
    if measured.empty:
        return published_sentence(table, names) or "The autoencoder's loss: nothing measured here yet"
    return measured_sentence(measured, names)


def measured_sentence(measured: pandas.DataFrame, names: Names) -> str:
    """Return where the loss ended on each kind of device, those where it ran away first.

    Args:
        measured: measured lines of `tables.losses`; at least one.
        names: of machines.
    """
    ends = measured.sort_values("images_seen", kind="stable").groupby("device").tail(1)
    ends = ends.sort_values(["status", "device"]).to_dict("records")
    return f"The autoencoder's loss {wording.joined([_end(line, names) for line in ends])}"


def published_sentence(table: pandas.DataFrame, names: Names) -> str:
    """Return how the loss ran away in print; empty where it did not."""
    printed = table[table["source"] != "measured"]
    broken = printed[printed["status"] == "diverged"].to_dict("records")
    if not broken:
        return ""
    peak, epoch = wording.number(printed["loss"].max()), broken[0]["epoch"]
    return f"In the article it ran away on {names.in_sentence(broken[0])}, to {peak} and then to NaN in epoch {epoch}"


def agreement(evidence: Evidence) -> Drawing:
    """Draw how far each step's loss is from float64's, and the losses themselves."""
    table = tables.compared_steps(evidence)
    figure, (errors, values) = figures.canvas(4.0, 10.0, panels=2)
    dashes = {name: DASHES[place % len(DASHES)] for place, name in enumerate(sorted(table["precision"].unique()))}
    drawn = figures.of_few_machines(values, table)
    for (_, device, precision), curve in drawn.groupby(["machine", "device", "precision"], sort=True):
        style = {
            "linestyle": dashes[precision],
            "color": figures.colour(device),
            "label": f"{naming.device_word(device)}, {precision}",
        }
        _draw_errors(errors, curve, style)
        values.plot(curve["step"], curve["reference_loss"], color=figures.COLOURS["published"], linewidth=5, alpha=0.6)
        values.plot(curve["step"], curve["loss"], **style)
    errors.set(ylabel="relative error (black: allowed)", yscale="log", title=parity_title(table))
    values.set(ylabel="loss per image", title="Same weights, batches and noise (grey: float64)")
    for axes in (errors, values):
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True)
    if len(table):
        errors.legend(fontsize=8)
    shows = "Relative error of each step's loss, and the losses themselves"
    return Drawing.titled(figure, table, shows, tables={"parity": parity.verdicts(evidence.measured)})


def _draw_errors(axes: Axes, curve: pandas.DataFrame, style: dict) -> None:
    """Draw the errors of a curve's losses, what is allowed, and the first step that is farther."""
    axes.plot(curve["step"], curve["loss_error"].clip(lower=SMALLEST_ERROR), marker=".", **style)
    allowed = {"linestyle": style["linestyle"], "color": figures.COLOURS["line"], "linewidth": 1}
    axes.axhline(curve["tolerance"].iloc[0], **allowed)
    for step in curve.loc[curve["apart"], "step"].head(1):
        axes.axvline(step, color=style["color"], linewidth=1)


def parity_title(table: pandas.DataFrame) -> str:
    """Return what the parity chart shows, in a few words with their numbers."""
    if table.empty:
        return "Nothing compared with float64 yet"
    apart = table[table["apart"]]
    if apart.empty:
        most, steps = table["loss_error"].max(), table["step"].max()
        return f"Losses are within {wording.percent(most)} of float64 for {steps:.0f} steps"
    first = apart.sort_values("step").iloc[0]
    device = naming.device_word(first["device"])
    return f"{device}, {first['precision']}: too far from float64 at step {first['step']:.0f}"


def pictures(images: numpy.ndarray, reconstructions: numpy.ndarray, samples: numpy.ndarray) -> Drawing:
    """Draw test images, their reconstructions and samples of the prior; pixels 0 to 1, shape (n, height, width)."""
    rows = {"test image": images, "reconstruction": reconstructions, "sample": samples}
    broken = sum(not numpy.isfinite(picture).all() for picture in reconstructions)
    if broken:
        title = f"{broken} of {len(images)} reconstructions are not numbers"
    else:
        error = numpy.abs(reconstructions - images).mean()
        title = f"Reconstructed pixels are {error:.3f} off on average (0 is white, 1 is black)"
    return Drawing.of_pictures(rows, title, cmap="gray_r", vmin=0, vmax=1)


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say about its training, in a sentence with its numbers."""
    trained = rows[rows["phase"] == "train"].iloc[-1]
    tested = rows.loc[rows["phase"] == "evaluate", "loss"].astype(float)
    end = f"epoch {trained['epoch']} ({trained['device']}, {trained['precision']}, {trained['dataset']})"
    if trained["status"] == "diverged":
        return f"The loss was no longer a number in {end}."
    images = rows.loc[rows["phase"] == "train", "samples"].sum()
    test = f"; on test images {tested.iloc[-1]:.2f}" if len(tested) else ""
    return f"After {images:,} images, in {end}, the loss per image was {trained['loss']:.2f}{test}."


def _end(end: dict, names: Names) -> str:
    other = figures.stand_in(end, "mnist")
    where = f"{names.in_sentence(end)}" + (f" ({other})" if other else "")
    seen = f"in epoch {end['epoch']}" if pandas.notna(end["epoch"]) else f"after {end['images_seen']:,.0f} images"
    if end["status"] == "diverged":
        return f"is NaN {seen} on {where}"
    return f"is {wording.number(end['loss'])} an image {seen} on {where}"


def _name(curve: pandas.DataFrame, names: Names) -> str:
    line = curve.iloc[0].to_dict()
    measured = line["source"] == "measured"
    how = line["loader"] if measured else f"torch {line['framework_version']}"
    counted = f", n={len(curve)}{figures.num_runs(curve)}" if measured else ""
    return figures.name_point(line, how, names=names, dataset="mnist").replace("\n", ", ") + counted
