"""Tables of the MobileNetV2 study: images a second and joules an image by setting, losses, convergence."""

import pandas

from benchbook.judging import statistics
from benchbook.machine.libraries import PREFERRED
from benchbook.record import articles
from benchbook.studies import curves, quantities
from benchbook.studies.study import Evidence, longest, once

NAME = "mobilenetv2_energy"
LEARNING_RATE = 5e-4  # the article's
LARGEST = 196  # pixels a side; the article's M1 crashed above
LEAST_FALL = 0.05  # of the loss from a run's first window to its last, for a network that converges
LEAST_GAIN = 0.15  # of test accuracy over chance
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10  # of CIFAR-10, its copies and its stand-in
GUESSED = 1.2 / NUM_CLASSES  # an accuracy up to this is taken for that of guessing
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"

_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "batch_size", "image_size"]
_TRAINED = ["trainable", "learning_rate", "weights"]
_SETTINGS = [*_TRAINED, "image_size_over"]


@once
def settings(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per setting: images a second and joules an image, or how it ended.

    Of two points that are alike (quick and paper, say) the one that measured more images counts. What an article
    printed of training and test together is one rate.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, batch_size, image_size, trainable,
        learning_rate, weights, image_size_over, images_per_second, low, high, interval (its kind), num_windows,
        verdict, joules_per_image, joules_low, joules_high, joules_interval, method, boundary, accuracy, status,
        message, point.
        A rate is missing where a point failed, and joules where no sensor could be read.
    """
    printed = evidence.published[evidence.published["study"] == NAME]
    both = [_printed(row) for row in printed.to_dict("records")]
    both += [_measured(point) for point in evidence.points(NAME).to_dict("records")]
    columns = [*_KEPT, *_SETTINGS, "images_per_second", "low", "high", "interval", "num_windows"]
    columns += ["verdict", "joules_per_image", "joules_low", "joules_high", "joules_interval", "method", "boundary"]
    columns += ["accuracy"]
    columns += ["status", "message", "point"]
    table = longest(pandas.DataFrame(both, columns=[*columns, "num_samples"]), [*_KEPT, *_SETTINGS])
    rank = table["framework"].map({name: place for place, name in enumerate(PREFERRED)}).fillna(len(PREFERRED))
    order = ["source", "machine", "trainable", "image_size", "batch_size", "learning_rate", "variant", "device", "rank"]
    return table.assign(rank=rank).sort_values(order)[columns].reset_index(drop=True)


@once
def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss by images seen of each measured point's last session, and its test accuracy at the end.

    A window's loss is its mean and stands at the window's middle; of several runs it is their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable, learning_rate,
        weights, point, images_seen, loss, low, high (over runs), num_runs, accuracy, status.
    """
    study = statistics.newest(evidence.measured[evidence.measured["study"] == NAME])
    windows = study[(study["phase"] == "train") & (study["repeat"] == 0) & study["samples"].notna()]
    trained = {name: [settings.get(name) for settings in windows["settings"]] for name in _TRAINED}
    windows = windows.assign(**trained, images_seen=curves.middles(windows, ["run_id"]))
    key = [*(name for name in _KEPT if name not in ("chip", "source")), *_TRAINED, "point", "images_seen"]
    table = curves.over_runs(windows, key, "loss", status=("status", curves.worst))
    tested = evidence.points(NAME).set_index(["machine", "point"])["accuracy"]
    table = table.join(tested, on=["machine", "point"])
    return table[[*key, "loss", "low", "high", "num_runs", "accuracy", "status"]]


def convergence(evidence: Evidence) -> pandas.DataFrame:
    """Return whether each measured frozen point converged, by RULE.

    Returns:
        Columns: machine, device, framework, dataset, weights, learning_rate, image_size, first_loss, last_loss,
        accuracy, verdict (converged, did not converge, not judged), reason. Random features say nothing of a frozen
        network's convergence, and one window nothing of a fall: both are not judged.
    """
    frozen = losses(evidence)
    frozen = frozen[frozen["trainable"].eq(False)]
    key = ["machine", "device", "framework", "dataset", "weights", "learning_rate", "image_size"]
    judged = [_judged(curve) for _, curve in frozen.groupby([*key, "batch_size", "variant", "point"], dropna=False)]
    columns = [*key, "first_loss", "last_loss", "accuracy", "verdict", "reason"]
    return pandas.DataFrame(judged, columns=columns)


def convergence_sentence(judged: pandas.DataFrame) -> str:
    """Return how many frozen points converged, in a sentence.

    Args:
        judged: from `convergence`.
    """
    clear = judged[judged["verdict"] != NOT_JUDGED]
    if clear.empty:
        return "Frozen convergence: not judged (it takes ImageNet's weights and two windows)."
    bad = clear[clear["verdict"] == NOT_CONVERGED]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(bad["learning_rate"])))
    tail = f", at learning rate {rates}" if len(bad) else ""
    return f"Of {len(clear)} frozen points {len(bad)} did not converge{tail} ({RULE})."


def claimed(evidence: Evidence) -> list[dict]:
    """Return what claims of this study are made of, from points of CIFAR-10 in the reference protocol.

    Returns:
        Quantities joules_per_image, rate, frozen_rate, crashed_over_196 and frozen_diverged. Rates and joules are those
        of 128 px and batch 64 on an accelerator.
    """
    table = settings(evidence)
    table = table[(table["source"] == "measured") & (table["variant"] == "reference") & (table["device"] != "cpu")]
    table = table[(table["dataset"] == "cifar10") | (table["status"] == "crashed")]
    article = table[(table["image_size"] == 128) & (table["batch_size"] == 64) & (table["framework"] == "tensorflow")]
    article = article[(article["learning_rate"] == LEARNING_RATE) & (article["status"] == "ok")]
    values = []
    for line in article.to_dict("records"):
        values.append(quantities.between(line, "rate" if line["trainable"] else "frozen_rate", "images_per_second"))
        if line["trainable"] and pandas.notna(line["joules_per_image"]):
            bounds = ("joules_low", "joules_high", "joules_interval")
            joules = quantities.between(line, "joules_per_image", "joules_per_image", *bounds)
            values.append(joules | {"note": f"{line['method']}, {line['boundary']}"})
    return values + _crashes(table) + _divergences(convergence(evidence), table)


def _crashes(table: pandas.DataFrame) -> list[dict]:
    """Return whether each machine crashed over LARGEST; an interrupted point, or one without weights, says nothing."""
    tried = table[(table["image_size"] > LARGEST) & table["status"].isin(["ok", "diverged", "crashed"])]
    return [
        quantities.exact(points.iloc[0].to_dict(), "crashed_over_196", (points["status"] == "crashed").any())
        for _, points in tried.groupby("machine")
    ]


def _divergences(judged: pandas.DataFrame, table: pandas.DataFrame) -> list[dict]:
    """Return whether a frozen network of each machine did not converge at the article's learning rate."""
    judged = judged[(judged["dataset"] == "cifar10") & (judged["verdict"] != NOT_JUDGED) & (judged["device"] != "cpu")]
    return [
        quantities.exact(
            table[table["machine"] == machine].iloc[0].to_dict(),
            "frozen_diverged",
            (points["verdict"] == NOT_CONVERGED).any(),
        )
        for machine, points in judged[judged["learning_rate"] == LEARNING_RATE].groupby("machine")
    ]


def _measured(point: dict) -> dict:
    return {
        **point,
        **{name: point["settings"].get(name) for name in _SETTINGS},
        "source": "measured",
        "images_per_second": point["samples_per_second"],
        "joules_per_image": point["energy_per_sample"],
        "joules_low": point["energy_low"],
        "joules_high": point["energy_high"],
        "joules_interval": point["energy_interval"],
        "method": point["energy_method"],
        "boundary": point["energy_boundary"],
    }


def _printed(row: dict) -> dict:
    line = {name: row[name] for name in [*_KEPT, "status", "message", "accuracy"]}
    line |= {name: row["settings"].get(name) for name in _SETTINGS}
    if pandas.isna(row["seconds"]):
        return line
    low, high = articles.bounds(row, "seconds")
    rates = {"images_per_second": row["seconds"], "low": high, "high": low}
    return line | {name: row["samples"] / seconds for name, seconds in rates.items()}


def _judged(curve: pandas.DataFrame) -> dict:
    """Return a frozen point's verdict, with its first and its last loss."""
    line = curve.iloc[-1].to_dict() | {"first_loss": curve["loss"].iloc[0], "last_loss": curve["loss"].iloc[-1]}
    verdict, reason = _verdict(line, curve)
    return line | {"verdict": verdict, "reason": reason}


def _verdict(line: dict, curve: pandas.DataFrame) -> tuple[str, str]:
    if line["weights"] != "imagenet":
        return NOT_JUDGED, f"{line['weights']} weights"
    if (curve["status"] == "diverged").any():
        return NOT_CONVERGED, "the loss was not finite"
    if len(curve) < 2 or pandas.isna(line["accuracy"]):
        return NOT_JUDGED, "one window"
    fall, gain = 1 - line["last_loss"] / line["first_loss"], line["accuracy"] - 1 / NUM_CLASSES
    reason = f"loss {fall:.0%} lower, accuracy {gain:+.0%} over chance"
    return (CONVERGED if fall >= LEAST_FALL and gain >= LEAST_GAIN else NOT_CONVERGED), reason
