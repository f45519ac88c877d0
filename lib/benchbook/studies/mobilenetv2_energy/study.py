"""What the MobileNetV2 study says: images a second, joules an image, whether it learns, and what breaks."""

import math

import pandas

from benchbook.judging import statistics, wording
from benchbook.record.naming import Names
from benchbook.rows import records
from benchbook.studies import quantities
from benchbook.studies import tables as shared
from benchbook.studies.charts import Bars, Lines
from benchbook.studies.findings import Sentence
from benchbook.studies.study import Evidence, Study, cached

NAME = "mobilenetv2_energy"
LEARNING_RATE = 5e-4  # the article's
LARGEST = 196  # pixels a side; the article's M1 crashed above
LEAST_FALL = 0.05  # of the loss from a run's first window to its last, for a network that converges
LEAST_GAIN = 0.15  # of test accuracy over chance
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10  # of CIFAR-10, its copies and its stand-in
GUESSING = math.log(NUM_CLASSES)  # the loss of it
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"
LAYERS = {True: "all layers", False: "last layer"}

_SETTINGS = ["trainable", "learning_rate", "weights", "image_size_over"]
_ALIKE = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "batch_size", "image_size"]
_CURVE = ["machine", "device", "framework", "variant", "dataset", "batch_size", "image_size", *_SETTINGS[:3], "point"]
_RENAMED = {"samples_per_second": "images_per_second", "energy_per_sample": "joules_per_image"}
_RENAMED |= {f"energy_{name}": f"joules_{name}" for name in ("low", "high", "interval")}
_RENAMED |= {"energy_method": "method", "energy_boundary": "boundary"}


@cached
def settings(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per setting: images a second and joules an image, or how it ended.

    Of two points that are alike (quick and paper, say) the one that measured more images counts. What an article
    printed of training and test together is one rate.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, batch_size, image_size, trainable,
        learning_rate, weights, image_size_over, layers (which are trained), images_per_second, low, high, interval
        (its kind), num_windows, verdict, joules_per_image, joules_low, joules_high, joules_interval, method, boundary,
        accuracy, status, message, point.
        A rate is missing where a point failed, and joules where no sensor could be read.
    """
    printed = shared.with_bounds(shared.with_settings(evidence.printed(NAME), _SETTINGS), "seconds")
    rates = {"images_per_second": "seconds", "low": "high", "high": "low"}
    printed = printed.assign(**{name: printed["samples"] / printed[time] for name, time in rates.items()}, point=None)
    measured = shared.with_settings(evidence.points(NAME), _SETTINGS).rename(columns=_RENAMED)
    columns = [*_ALIKE, *_SETTINGS, "layers", "images_per_second", *shared.MEASURED, "joules_per_image", "joules_low"]
    columns += ["joules_high", "joules_interval", "method", "boundary", "accuracy", "status", "message", "point"]
    table = shared.with_printed(measured, printed, columns, [*_ALIKE, *_SETTINGS])
    return table.assign(layers=table["trainable"].map(LAYERS).fillna(""))


@cached
def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss by images seen of each measured point's last session, and its test accuracy at the end.

    A window's loss is its mean and is drawn at the window's middle; of several runs it is their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable, learning_rate,
        weights, point, layers, images_seen, loss, low, high (over runs), num_runs, accuracy, status.
    """
    windows = evidence.newest(NAME).query("phase == 'train' and repeat == 0 and samples.notna()", engine="python")
    windows = shared.with_settings(windows, _SETTINGS[:3]).assign(images_seen=shared.images_seen(windows, ["run_id"]))
    table = shared.over_runs(windows, [*_CURVE, "images_seen"], "loss")
    tested = evidence.points(NAME).set_index(["machine", "point"])["accuracy"]
    table = table.join(tested, on=["machine", "point"]).assign(layers=table["trainable"].map(LAYERS).fillna(""))
    return table[[*_CURVE, "layers", "images_seen", "loss", "low", "high", "num_runs", "accuracy", "status"]]


def _changed(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the curves whose loss ever differs from that of guessing."""
    distance = (table["loss"].astype(float) / GUESSING - 1).abs()
    return table[distance.groupby(table["point"]).transform("max").ge(LEAST_FALL)]


def convergence(evidence: Evidence) -> pandas.DataFrame:
    """Return whether each measured frozen point converged, by RULE.

    Returns:
        Columns: machine, device, framework, dataset, weights, learning_rate, image_size, first_loss, last_loss,
        accuracy, verdict (converged, did not converge, not judged), reason. Random features say nothing of a frozen
        network's convergence, and one window nothing of a fall: both are not judged.
    """
    frozen = losses(evidence)
    frozen, judged = frozen[frozen["trainable"].eq(False)], []
    key = ["machine", "device", "framework", "dataset", "weights", "learning_rate", "image_size"]
    for _, curve in frozen.groupby([*key, "batch_size", "variant", "point"], dropna=False):
        line = curve.iloc[-1].to_dict() | {"first_loss": curve["loss"].iloc[0], "last_loss": curve["loss"].iloc[-1]}
        verdict, reason = _verdict(line, curve)
        judged.append(line | {"verdict": verdict, "reason": reason})
    columns = [*key, "first_loss", "last_loss", "accuracy", "verdict", "reason"]
    return pandas.DataFrame(judged, columns=columns)


def convergence_sentence(judged: pandas.DataFrame) -> str:
    """Return how many frozen points converged, in a sentence; `judged` is from `convergence`."""
    clear = judged[judged["verdict"] != NOT_JUDGED]
    if clear.empty:
        return "Frozen convergence: not judged (it takes ImageNet's weights and two windows)."
    bad = clear[clear["verdict"] == NOT_CONVERGED]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(bad["learning_rate"])))
    tail = f", at learning rate {rates}" if len(bad) else ""
    return f"{len(bad)} of {len(clear)} frozen points did not converge{tail} ({RULE})."


def claimed(evidence: Evidence) -> list[dict]:
    """Return what claims of this study are made of, from points of CIFAR-10 in the reference protocol.

    Returns:
        Quantities joules_per_image, rate, frozen_rate, crashed_over_196 and frozen_diverged. Rates and joules are those
        of 128 px and batch 64 on an accelerator. A point over LARGEST that was interrupted, or had no weights, says
        nothing of a crash.
    """
    table = settings(evidence)
    table = table[(table["source"] == "measured") & (table["variant"] == "reference") & (table["device"] != "cpu")]
    table = table[(table["dataset"] == "cifar10") | (table["status"] == "crashed")]
    article = table[(table["image_size"] == 128) & (table["batch_size"] == 64) & (table["framework"] == "tensorflow")]
    article = article[(article["learning_rate"] == LEARNING_RATE) & (article["status"] == "ok")]
    values = []
    for line in article.to_dict("records"):
        values.append(quantities.between(line, "rate" if line["trainable"] else "frozen_rate", "images_per_second"))
        is_read = pandas.notna(line["joules_per_image"]) and line["method"] != statistics.ESTIMATE
        if line["trainable"] and is_read:
            bounds = ("joules_low", "joules_high", "joules_interval")
            joules = quantities.between(line, "joules_per_image", "joules_per_image", *bounds)
            values.append(joules | {"note": f"{line['method']}, {line['boundary']}"})
    tried = table[(table["image_size"] > LARGEST) & table["status"].isin(["ok", "diverged", "crashed"])]
    for _, points in tried.groupby("machine"):
        crashed = (points["status"] == "crashed").any()
        values.append(quantities.exact(points.iloc[0].to_dict(), "crashed_over_196", crashed))
    judged = convergence(evidence)
    judged = judged[(judged["dataset"] == "cifar10") & (judged["verdict"] != NOT_JUDGED) & (judged["device"] != "cpu")]
    for machine, points in judged[judged["learning_rate"] == LEARNING_RATE].groupby("machine"):
        head, diverged = table[table["machine"] == machine].iloc[0], (points["verdict"] == NOT_CONVERGED).any()
        values.append(quantities.exact(head.to_dict(), "frozen_diverged", diverged))
    return values


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


def _energy_sentence(table: pandas.DataFrame, names: Names) -> str:
    """Return the joules of an image within each boundary, estimates apart; they are not compared across."""
    read = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    read = read[read["status"].isin(records.TRAINED)]
    kinds = read["boundary"] + read["method"].eq(statistics.ESTIMATE).map({True: ", estimated", False: ""})
    spans = [f"{wording.span(joules)} J ({kind})" for kind, joules in read.groupby(kinds)["joules_per_image"]]
    return f"An image takes {wording.joined(spans)}" if spans else "No sensor could read its energy"


def _text(line: dict) -> str:
    rate, joules = f"{line['images_per_second']:,.0f}", line["joules_per_image"]
    return rate + (f", {joules:.3g} J an image ({line['boundary']})" if pandas.notna(joules) else "")


RATE = Sentence(
    "MobileNetV2 ({layers}, {image_size:.0f} px, {framework}) trains {value} images a second on {place}",
    "MobileNetV2 was not measured here yet",
    "images_per_second",
    best="most",
    where="image_size.notna()",
)
USUAL = {"dataset": "cifar10", "learning_rate": LEARNING_RATE, "variant": "reference"}
LABEL = ("framework", "layers", "image_size", "batch_size", "learning_rate", "variant", "dataset")
STUDY = Study(
    name=NAME,
    title="MobileNetV2",
    article="Chris Van Pelt, Weights & Biases, 2021",
    dataset="cifar10",
    sentences=((settings, RATE), (settings, _energy_sentence)),
    charts=(
        Bars(
            "mobilenetv2-settings",
            "Images a second and joules an image",
            "Every setting, the fastest first; a cross where it failed, and the published ones in grey. Joules are"
            " missing where no sensor was read.",
            table=settings,
            title=RATE,
            label=LABEL,
            usual=USUAL,
            text=_text,
            xlabel="images a second, training",
        ),
        Lines(
            "mobilenetv2-loss",
            "What does it learn, and does the frozen network converge?",
            "The table gives the rule for convergence next to each verdict. A frozen network of random weights is not"
            " judged: it cannot converge.",
            table=losses,
            lines=_changed,
            title=Sentence(
                f"The loss is {{value}}; guessing gives {GUESSING:.2f}",
                "Loss: nothing measured here yet",
                "loss",
                "{:.2f}".format,
            ),
            x="images_seen",
            by=_CURVE,
            label=LABEL,
            usual=USUAL,
            xlabel="images seen",
            ylabel="loss (grey: of guessing)",
            reference=GUESSING,
            from_zero=True,  # a loss that does not fall is not to look as if it did
            tables={"mobilenetv2-convergence": convergence},
        ),
    ),
    quantities=claimed,
)
