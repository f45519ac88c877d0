"""Tables and charts of the MobileNetV2 study: images a second and joules an image by setting, losses, convergence."""

import json

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import articles, figures, statistics

STUDY = "mobilenetv2_energy"
FRAMEWORKS = ("tensorflow", "jax", "torch")
LARGEST = 196  # pixels a side; the article's M1 crashed above
LEAST_FALL = 0.05  # of the loss from a run's first window to its last, for a network that converges
LEAST_GAIN = 0.15  # of test accuracy over chance
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10  # of CIFAR-10, its copies and its stand-in
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "batch_size", "image_size"]
_SETTINGS = ["trainable", "learning_rate", "weights", "image_size_over"]


def settings(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return one line per setting: images a second and joules an image, or how it ended.

    Of two points that are alike (quick and paper, say) the one that measured more images counts. What an article
    printed of training and test together is one rate.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, batch_size, image_size, trainable,
        learning_rate, weights, image_size_over, images_per_second, low, high, num_windows, joules_per_image, boundary,
        accuracy, status, message. A rate is missing where a point failed, and joules where no sensor could be read.
    """
    study = rows[rows["study"] == STUDY]
    lines = [_printed(row) for row in study[study["source"] != "measured"].to_dict("records")]
    measured = study[study["source"] == "measured"]
    points = measured.groupby(["machine", "point"])[["image_size", "energy_boundary"]].last()
    lines += [_point(point, points) for point in statistics.summarise(measured).to_dict("records")]
    columns = [*_KEPT, *_SETTINGS, "images_per_second", "low", "high", "num_windows", "joules_per_image", "boundary"]
    table = pandas.DataFrame(lines, columns=[*columns, "accuracy", "status", "message", "num_samples"])
    alike = [*_KEPT, *_SETTINGS]
    table = table.sort_values("num_samples", kind="stable").drop_duplicates(alike, keep="last")
    rank = table["framework"].map({name: place for place, name in enumerate(FRAMEWORKS)}).fillna(len(FRAMEWORKS))
    order = ["source", "machine", "trainable", "image_size", "batch_size", "learning_rate", "variant", "device", "rank"]
    return (
        table.assign(rank=rank).sort_values(order)[[*columns, "accuracy", "status", "message"]].reset_index(drop=True)
    )


def curves(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the loss by images seen of each measured point's last session, and its test accuracy at the end.

    A window's loss is its mean and stands at the window's middle; of several runs it is their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable, learning_rate,
        weights, images_seen, loss, accuracy, status.
    """
    study = statistics.newest(rows[(rows["study"] == STUDY) & (rows["source"] == "measured")])
    accuracies = study[study["phase"] == "evaluate"].groupby(["machine", "point"])["accuracy"].median().to_dict()
    windows = study[(study["phase"] == "train") & (study["repeat"] == 0) & study["samples"].notna()]
    told = [json.loads(text) for text in windows["settings"]]
    named = {name: [setting.get(name) for setting in told] for name in _SETTINGS[:3]}
    middle = windows.groupby("run_id")["samples"].cumsum() - windows["samples"] / 2
    windows = windows.assign(**named, images_seen=middle.astype(float))
    kept = [name for name in _KEPT if name not in ("chip", "source")] + _SETTINGS[:3]
    groups = windows.groupby([*kept, "point", "images_seen"], dropna=False, sort=True)
    table = groups.agg(loss=("loss", "median"), status=("status", lambda states: states.iloc[-1])).reset_index()
    ends = [accuracies.get(key) for key in zip(table["machine"], table["point"], strict=True)]
    return table.assign(accuracy=pandas.Series(ends, dtype=float))[[*kept, "images_seen", "loss", "accuracy", "status"]]


def convergence(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return whether each measured frozen point converged, by RULE.

    Returns:
        Columns: machine, device, framework, dataset, weights, learning_rate, image_size, first_loss, last_loss,
        accuracy, verdict (converged, did not converge, not judged), reason. Random features say nothing of a frozen
        network's convergence, and one window nothing of a fall: both are not judged.
    """
    found = curves(rows)
    found = found[found["trainable"].eq(False)]
    key = ["machine", "device", "framework", "dataset", "weights", "learning_rate", "image_size"]
    lines = []
    for values, curve in found.groupby([*key, "batch_size", "variant"], dropna=False, sort=True):
        line = dict(zip(key, values, strict=False))
        line |= {"first_loss": curve["loss"].iloc[0], "last_loss": curve["loss"].iloc[-1]}
        line["accuracy"] = curve["accuracy"].iloc[-1]
        verdict, reason = _converged(line, curve)
        lines.append(line | {"verdict": verdict, "reason": reason})
    columns = [*key, "first_loss", "last_loss", "accuracy", "verdict", "reason"]
    return pandas.DataFrame(lines, columns=columns)


def quantities(rows: pandas.DataFrame) -> list[dict]:
    """Return what claims of this study are made of, from measured points of CIFAR-10 in the reference protocol.

    Returns:
        Lines of machine, chip, source, name (joules_per_image, rate, frozen_rate, crashed_over_196,
        frozen_diverged), value, low, high. Rates and joules are those of 128 px and batch 64 on an accelerator.
    """
    measured = rows[rows["source"] == "measured"]
    table = settings(measured)
    table = table[(table["dataset"] == "cifar10") | (table["status"] == "crashed")]
    table = table[(table["variant"] == "reference") & (table["device"] != "cpu")]
    article = table[(table["image_size"] == 128) & (table["batch_size"] == 64) & (table["learning_rate"] == 5e-4)]
    lines = []
    for line in article[(article["status"] == "ok") & (article["framework"] == "tensorflow")].to_dict("records"):
        rate = {"value": line["images_per_second"], "low": line["low"], "high": line["high"]}
        lines.append(_head(line, "frozen_rate" if not line["trainable"] else "rate") | rate)
        if line["trainable"] and pandas.notna(line["joules_per_image"]):
            joules = dict.fromkeys(("value", "low", "high"), line["joules_per_image"])
            lines.append(_head(line, "joules_per_image") | joules)
    for _, probes in table[table["image_size"] > LARGEST].groupby("machine"):
        lines.append(_event(probes, "crashed_over_196", (probes["status"] == "crashed").any()))
    judged = convergence(measured)
    judged = judged[(judged["dataset"] == "cifar10") & (judged["verdict"] != NOT_JUDGED) & (judged["device"] != "cpu")]
    for machine, verdicts in judged[judged["learning_rate"] == 5e-4].groupby("machine"):
        chip = table.loc[table["machine"] == machine]
        lines.append(_event(chip, "frozen_diverged", (verdicts["verdict"] == NOT_CONVERGED).any()))
    return lines


def draw_rates(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw images a second of each setting; a cross and a word where it failed."""
    order = table.iloc[::-1].reset_index(drop=True)
    rates = order["images_per_second"].astype(float)
    axes.barh(order.index, rates.fillna(0), color=_colours(order))
    errors = [(rates - order["low"].astype(float)).clip(lower=0), (order["high"].astype(float) - rates).clip(lower=0)]
    axes.errorbar(rates, order.index, xerr=errors, fmt="none", color=figures.COLOURS["line"], capsize=3)
    for position, line in order.iterrows():
        if line["status"] != "ok":
            axes.plot(0, position, "X", color=figures.COLOURS["line"], clip_on=False)
        broken = line["status"].replace("_", " ") if line["status"] != "ok" else ""
        rate = f"{line['images_per_second']:,.0f}" if pandas.notna(line["images_per_second"]) else ""
        start = line["high"] if pandas.notna(line["high"]) else 0
        axes.text(start, position, f"   {' '.join(part for part in (rate, broken) if part)}", va="center", fontsize=8)
    axes.set_yticks(order.index, [_label(line) for line in order.to_dict("records")], fontsize=8)
    axes.set_xlabel("images a second, training")
    axes.margins(x=0.15)
    axes.set_title(rates_title(table))


def draw_joules(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw joules an image of each setting, with what they cover; said where no sensor could be read."""
    order = table.iloc[::-1].reset_index(drop=True)
    joules = order["joules_per_image"].astype(float)
    axes.barh(order.index, joules.fillna(0), color=_colours(order))
    for position, line in order.iterrows():
        known = pandas.notna(line["joules_per_image"])
        text = f"{line['joules_per_image']:.3g} J ({line['boundary']})" if known else "no sensor"
        text = "not printed" if not known and line["source"] != "measured" else text
        text = "" if not known and line["status"] not in ("ok", "diverged") else text
        axes.text(joules[position] if known else 0, position, f"  {text}", va="center", fontsize=8)
    axes.set_yticks(order.index, [_label(line) for line in order.to_dict("records")], fontsize=8)
    axes.set_xlabel("joules an image")
    axes.margins(x=0.25)
    if not joules.notna().any():
        axes.set(xticks=[], xlim=(0, 1))
    axes.set_title(joules_title(table))


def draw_losses(axes: Axes, table: pandas.DataFrame) -> None:
    """Draw the loss over images seen, a line for each setting; its test accuracy stands in the legend."""
    dashes = {"tensorflow": "-", "jax": "--", "torch": ":"}
    markers = "os^vDP*X"
    sizes = sorted({(line["trainable"], line["image_size"], line["batch_size"]) for line in table.to_dict("records")})
    key = [name for name in table.columns if name not in ("images_seen", "loss", "accuracy", "status")]
    for _, curve in table.groupby(key, dropna=False, sort=True):
        first = curve.iloc[0].to_dict()
        marker = markers[sizes.index((first["trainable"], first["image_size"], first["batch_size"])) % len(markers)]
        tested = f": test {first['accuracy']:.0%}" if pandas.notna(first["accuracy"]) else ""
        style = dashes[first["framework"]] + marker
        axes.plot(curve["images_seen"], curve["loss"], style, color=figures.colour(first["device"]), markersize=4)
        axes.lines[-1].set_label(_short(first) + tested)
    axes.axhline(numpy.log(NUM_CLASSES), color=figures.COLOURS["published"], linewidth=1)
    axes.set(xlabel="images seen", ylabel="loss (grey: of guessing)")
    axes.grid(visible=True)
    axes.legend(fontsize=7) if len(table) else None
    axes.set_title(losses_title(table))


def rates_title(table: pandas.DataFrame) -> str:
    """Return what the chart of rates shows, in a sentence with its numbers."""
    measured = table[(table["source"] == "measured") & table["images_per_second"].notna()]
    broken = table[(table["source"] == "measured") & ~table["status"].isin(["ok", "diverged"])]
    failed = f"; {len(broken)} of {len(broken) + len(measured)} settings failed" if len(broken) else ""
    if measured.empty:
        return f"Nothing measured here yet{failed}"
    best = measured.sort_values("images_per_second").iloc[-1]
    return f"Up to {best['images_per_second']:,.0f} images/s ({_short(best)}){failed}"


def joules_title(table: pandas.DataFrame) -> str:
    """Return what the chart of joules shows, in a few words with their numbers."""
    known = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    if known.empty:
        return "Joules an image: no sensor could be read"
    low, high = known["joules_per_image"].min(), known["joules_per_image"].max()
    return f"{low:.3g} to {high:.3g} J an image ({', '.join(sorted(set(known['boundary'])))})"


def losses_title(table: pandas.DataFrame) -> str:
    """Return what the chart of losses shows."""
    tested = table[table["accuracy"].notna()]
    if tested.empty:
        return "Loss: nothing measured here yet"
    best = tested.sort_values("accuracy").iloc[-1]
    return f"Best test accuracy {best['accuracy']:.1%} after {best['images_seen']:,.0f} images ({_short(best)})"


def convergence_sentence(judged: pandas.DataFrame) -> str:
    """Return what is known of frozen convergence, in a sentence."""
    known = judged[judged["verdict"] != NOT_JUDGED]
    if known.empty:
        return "Frozen convergence: not judged (it takes ImageNet's weights and two windows)."
    bad = known[known["verdict"] == NOT_CONVERGED]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(bad["learning_rate"])))
    tail = f", at learning rate {rates}" if len(bad) else ""
    return f"Of {len(known)} frozen points {len(bad)} did not converge{tail} ({RULE})."


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say, in a sentence with its numbers."""
    line = statistics.summarise(rows).iloc[0]
    rate = f"{line['samples_per_second']:,.0f} images a second over {line['num_windows']} windows"
    accuracy = f"; test accuracy {line['accuracy']:.1%}" if pandas.notna(line["accuracy"]) else ""
    joules = line["energy_per_sample"]
    energy = f"; {joules:.3g} J an image" if pandas.notna(joules) else "; its joules cannot be read here"
    where = f"{line['variant']}, {line['framework']}, {line['device']}, {line['dataset']}"
    return f"This run ({where}) trained on a median of {rate}{accuracy}{energy}."


def _point(point: dict, points: pandas.DataFrame) -> dict:
    told, rest = json.loads(point["settings"]), points.loc[(point["machine"], point["point"])]
    measures = ("low", "high", "num_windows", "accuracy", "status", "message", "num_samples")
    return {
        **{name: point[name] for name in _KEPT if name in point},
        **{name: told.get(name) for name in _SETTINGS},
        **{name: point[name] for name in measures},
        "source": "measured",
        "image_size": rest["image_size"],
        "images_per_second": point["samples_per_second"],
        "joules_per_image": point["energy_per_sample"],
        "boundary": rest["energy_boundary"],
    }


def _printed(row: dict) -> dict:
    told = json.loads(row["settings"]) if isinstance(row["settings"], str) else {}
    low, high = articles.bounds(row, "seconds") if pandas.notna(row["seconds"]) else (numpy.nan, numpy.nan)
    return {
        **{name: row[name] for name in [*_KEPT, "status", "message", "accuracy"]},
        **{name: told.get(name) for name in _SETTINGS},
        "images_per_second": row["samples"] / row["seconds"] if pandas.notna(row["seconds"]) else None,
        "low": row["samples"] / high if pandas.notna(high) else None,
        "high": row["samples"] / low if pandas.notna(low) else None,
    }


def _converged(line: dict, curve: pandas.DataFrame) -> tuple[str, str]:
    if line["weights"] != "imagenet":
        return NOT_JUDGED, f"{line['weights']} weights"
    if (curve["status"] == "diverged").any():
        return NOT_CONVERGED, "the loss was not finite"
    if len(curve) < 2 or pandas.isna(line["accuracy"]):
        return NOT_JUDGED, "one window"
    fall, gain = 1 - line["last_loss"] / line["first_loss"], line["accuracy"] - 1 / NUM_CLASSES
    reason = f"loss {fall:.0%} lower, accuracy {gain:+.0%} over chance"
    return (CONVERGED if fall >= LEAST_FALL and gain >= LEAST_GAIN else NOT_CONVERGED), reason


def _head(line: dict, name: str) -> dict:
    return {"machine": line["machine"], "chip": line["chip"], "source": "measured", "name": name}


def _event(lines: pandas.DataFrame, name: str, happened: bool) -> dict:
    return _head(lines.iloc[0].to_dict(), name) | dict.fromkeys(("value", "low", "high"), float(happened))


def _colours(order: pandas.DataFrame) -> list[str]:
    return [
        figures.colour(line["device"]) if line["source"] == "measured" else figures.COLOURS["published"]
        for line in order.to_dict("records")
    ]


def _short(line: dict) -> str:
    trained = "" if pandas.isna(line["trainable"]) else ", all layers" if line["trainable"] else ", head"
    rate = line["learning_rate"]
    rate = f", rate {rate:g}" if pandas.notna(rate) and rate != 5e-4 else ""
    variant = "" if line["variant"] == "reference" else f", {line['variant']}"
    size = f", {line['image_size']:.0f} px" if pandas.notna(line["image_size"]) else ""
    batch = f", batch {line['batch_size']:.0f}" if pandas.notna(line["batch_size"]) else ""
    return f"{line['framework']} {line['device']}{trained}{size}{batch}{rate}{variant}"


def _label(line: dict) -> str:
    if line["source"] == "measured":
        stand_in = "" if line["dataset"] == "cifar10" else f", {line['dataset']}"
        return f"{line['machine']}{stand_in}\n{_short(line)}"
    over = f", over {line['image_size_over']:.0f} px" if pandas.notna(line["image_size_over"]) else ""
    device = line["device"] if pandas.notna(line["device"]) else "any device"
    return f"{line['machine']}, {line['source']}\n{_short(line | {'framework': 'tensorflow', 'device': device})}{over}"
