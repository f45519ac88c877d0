"""Tables of the MobileNetV2 study: images a second and joules an image by setting, losses, convergence."""

import numpy
import pandas

from benchbook import articles, statistics, verdicts

NAME = "mobilenetv2_energy"
FRAMEWORKS = ("tensorflow", "jax", "torch")
LARGEST = 196  # pixels a side; the article's M1 crashed above
LEAST_FALL = 0.05  # of the loss from a run's first window to its last, for a network that converges
LEAST_GAIN = 0.15  # of test accuracy over chance
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10  # of CIFAR-10, its copies and its stand-in
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "batch_size", "image_size"]
_SETTINGS = ["trainable", "learning_rate", "weights", "image_size_over"]


def settings(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return one line per setting: images a second and joules an image, or how it ended.

    Of two points that are alike (quick and paper, say) the one that measured more images counts. What an article
    printed of training and test together is one rate.

    Args:
        rows: measured and published ones.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, batch_size, image_size, trainable,
        learning_rate, weights, image_size_over, images_per_second, low, high, num_windows, verdict, joules_per_image,
        joules_low, joules_high, boundary, accuracy, status, message, point. A rate is missing where a point failed, and
        joules where no sensor could be read.
    """
    study = rows[rows["study"] == NAME]
    lines = [_printed(row) for row in study[study["source"] != "measured"].to_dict("records")]
    measured = study[study["source"] == "measured"]
    lines += [_point(point) for point in verdicts.summarise(measured, conditions).to_dict("records")]
    columns = [*_KEPT, *_SETTINGS, "images_per_second", "low", "high", "num_windows", "verdict"]
    columns += ["joules_per_image", "joules_low", "joules_high", "boundary", "accuracy", "status", "message", "point"]
    table = pandas.DataFrame(lines, columns=[*columns, "num_samples"])
    alike = [*_KEPT, *_SETTINGS]
    known_last = table.sort_values("num_samples", kind="stable", na_position="first")  # a failure has no images
    table = known_last.drop_duplicates(alike, keep="last")
    rank = table["framework"].map({name: place for place, name in enumerate(FRAMEWORKS)}).fillna(len(FRAMEWORKS))
    order = ["source", "machine", "trainable", "image_size", "batch_size", "learning_rate", "variant", "device", "rank"]
    return table.assign(rank=rank).sort_values(order)[columns].reset_index(drop=True)


def curves(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the loss by images seen of each measured point's last session, and its test accuracy at the end.

    A window's loss is its mean and stands at the window's middle; of several runs it is their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable, learning_rate,
        weights, point, images_seen, loss, low, high (over runs), num_runs, accuracy, status.
    """
    study = statistics.newest(rows[(rows["study"] == NAME) & (rows["source"] == "measured")])
    accuracies = statistics.summarise(study).set_index(["machine", "point"])["accuracy"].to_dict()
    windows = study[(study["phase"] == "train") & (study["repeat"] == 0) & study["samples"].notna()]
    named = {name: [settings.get(name) for settings in windows["settings"]] for name in _SETTINGS[:3]}
    middle = windows.groupby("run_id")["samples"].cumsum() - windows["samples"] / 2
    windows = windows.assign(**named, images_seen=middle.astype(float))
    kept = [name for name in _KEPT if name not in ("chip", "source")] + _SETTINGS[:3] + ["point"]
    groups = windows.groupby([*kept, "images_seen"], dropna=False, sort=True)
    spread = {"low": ("loss", "min"), "high": ("loss", "max"), "num_runs": ("run_id", "nunique")}
    last = ("status", lambda states: states.iloc[-1])
    table = groups.agg(loss=("loss", "median"), **spread, status=last).reset_index()
    ends = [accuracies.get(key) for key in zip(table["machine"], table["point"], strict=True)]
    columns = [*kept, "images_seen", "loss", *spread, "accuracy", "status"]
    return table.assign(accuracy=pandas.Series(ends, dtype=float))[columns]


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
    for values, curve in found.groupby([*key, "batch_size", "variant", "point"], dropna=False, sort=True):
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
    # What was interrupted, or had no weights, says nothing of a crash.
    tried = table[(table["image_size"] > LARGEST) & table["status"].isin(["ok", "diverged", "crashed"])]
    for _, probes in tried.groupby("machine"):
        lines.append(_event(probes, "crashed_over_196", (probes["status"] == "crashed").any()))
    judged = convergence(measured)
    judged = judged[(judged["dataset"] == "cifar10") & (judged["verdict"] != NOT_JUDGED) & (judged["device"] != "cpu")]
    for machine, found in judged[judged["learning_rate"] == 5e-4].groupby("machine"):
        chip = table.loc[table["machine"] == machine]
        lines.append(_event(chip, "frozen_diverged", (found["verdict"] == NOT_CONVERGED).any()))
    return lines


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
    if not line["num_windows"]:
        return f"This run measured no window: {line['status'].replace('_', ' ')}."
    rate = f"{line['samples_per_second']:,.0f} images a second over {line['num_windows']} windows"
    accuracy = f"; test accuracy {line['accuracy']:.1%}" if pandas.notna(line["accuracy"]) else ""
    joules = line["energy_per_sample"]
    energy = f"; {joules:.3g} J an image" if pandas.notna(joules) else "; its joules cannot be read here"
    where = f"{line['variant']}, {line['framework']}, {line['device']}, {line['dataset']}"
    return f"This run ({where}) trained on a median of {rate}{accuracy}{energy}."


def _point(point: dict) -> dict:
    told = point["settings"]
    measures = ("low", "high", "num_windows", "verdict", "accuracy", "status", "message", "num_samples", "point")
    return {
        **{name: point[name] for name in _KEPT if name in point},
        **{name: told.get(name) for name in _SETTINGS},
        **{name: point[name] for name in measures},
        "source": "measured",
        "images_per_second": point["samples_per_second"],
        "joules_per_image": point["energy_per_sample"],
        "joules_low": point["energy_low"],
        "joules_high": point["energy_high"],
        "boundary": point["energy_boundary"],
    }


def _printed(row: dict) -> dict:
    told = row["settings"]
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
