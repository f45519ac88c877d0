"""Results of the MobileNetV2 study: images a second, joules an image, whether the network
learns, and what fails."""

import math

import pandas

from benchbook.judging import statistics, wording
from benchbook.measuring import failures
from benchbook.rows import records
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.study import Study

NAME = "mobilenetv2_energy"
LEARNING_RATE = 5e-4  # the article's
LARGEST_IMAGE_SIZE = 196  # pixels a side; above it the article's M1 crashed
# A converging network's loss falls by this share from the first window to the last, and its test
# accuracy is this much over chance.
LEAST_FALL, LEAST_GAIN = 0.05, 0.15
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10
TEN_CLASSES = (
    "cifar10",
    "shapes",
)  # data sets with as many; their copies and sizes have names that begin so
GUESSING_LOSS = math.log(NUM_CLASSES)
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"
LAYERS = {True: "all layers", False: "last layer"}
# Events of the claims, by learning rates and verdict.
EVENTS = {
    "frozen_diverged": (pandas.Series.eq, NOT_CONVERGED),
    "lower_rate_converged": (pandas.Series.lt, CONVERGED),
}

_SETTINGS = ["trainable", "learning_rate", "weights", "image_size_over"]
_WORKS = "machine chip device framework variant source dataset batch_size image_size"
_ALIKE = _WORKS.split()
_CURVES = "machine device framework variant dataset batch_size image_size"
_CURVE = [*_CURVES.split(), *_SETTINGS[:3], "point"]
_FROZEN = ["machine", "device", "framework", "dataset", "weights", "learning_rate", "image_size"]
_RENAMED = {"samples_per_second": "images_per_second", "energy_per_sample": "joules_per_image"}
_RENAMED |= {f"energy_{name}": f"joules_{name}" for name in ("low", "high", "interval")}
_RENAMED |= {"energy_method": "method", "energy_boundary": "boundary"}


@cached
def settings(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per setting: images a second and joules an image, or how the point failed.

    If two points have the same setting (from quick and paper, say), the one that measured more
    images counts. A published time for training and test together is one rate.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, batch_size,
        image_size, trainable, learning_rate, weights, image_size_over, layers (which are
        trained), images_per_second, low, high, interval (its kind), num_windows, verdict,
        joules_per_image, joules_low, joules_high, joules_interval, method, boundary, accuracy,
        status, message, point. The rate is missing where a point failed; joules are missing
        where no sensor could be read.
    """
    printed = shared.with_bounds(
        statistics.with_settings(evidence.printed(NAME), _SETTINGS), "seconds"
    )
    rates = shared.inverse(printed, "seconds", "images_per_second", printed["samples"])
    printed = printed.assign(**rates, point=None)
    measured = statistics.with_settings(evidence.points(NAME), _SETTINGS).rename(columns=_RENAMED)
    columns = [
        *_ALIKE,
        *_SETTINGS,
        "layers",
        "images_per_second",
        *shared.MEASURED,
        "joules_per_image",
        "joules_low",
    ]
    columns += [
        "joules_high",
        "joules_interval",
        "method",
        "boundary",
        "accuracy",
        "status",
        "message",
        "point",
    ]
    table = shared.with_printed(measured, printed, columns, [*_ALIKE, *_SETTINGS])
    return table.assign(layers=table["trainable"].map(LAYERS).fillna(""))


@cached
def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss by images seen in each measured point's last session, and the test
    accuracy at its end.

    A window's loss is the mean of its steps, drawn at the window's middle; several runs give
    their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable,
        learning_rate, weights, point, layers, images_seen, loss, low, high (over runs),
        num_runs, accuracy, status.
    """
    windows = evidence.counting(NAME, phase="train", repeat=0)
    windows = windows.dropna(subset="samples")
    windows = windows.assign(images_seen=shared.images_seen(windows, ["run_id"]))
    windows = statistics.with_settings(windows, _SETTINGS[:3])
    table = shared.over_runs(windows, [*_CURVE, "images_seen"], "loss")
    tested = evidence.points(NAME).set_index(["machine", "point"])["accuracy"]
    table = table.join(tested, on=["machine", "point"]).assign(
        layers=table["trainable"].map(LAYERS).fillna("")
    )
    return table[
        [*_CURVE, "layers", "images_seen", "loss", "low", "high", "num_runs", "accuracy", "status"]
    ]


def _unlike_guessing(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the curves whose loss differs from that of guessing by LEAST_FALL at least once."""
    distance = (table["loss"].astype(float) / GUESSING_LOSS - 1).abs()
    return table[distance.groupby(table["point"]).transform("max").ge(LEAST_FALL)]


def convergence(evidence: Evidence) -> pandas.DataFrame:
    """Return whether each measured frozen point converged, by RULE.

    Returns:
        Columns: machine, device, framework, dataset, weights, learning_rate, image_size,
        first_loss, last_loss, accuracy, verdict (converged, did not converge, not judged). A
        frozen network with random features cannot converge, a single window shows no fall, and
        other data sets than TEN_CLASSES have another or an unknown chance level; none of these
        is judged.
    """
    return _judged(evidence)[[*_FROZEN, "first_loss", "last_loss", "accuracy", "verdict"]]


def _judged(evidence: Evidence) -> pandas.DataFrame:
    frozen = losses(evidence)
    frozen, judged = frozen[frozen["trainable"].eq(False)], []
    for _, curve in frozen.groupby([*_FROZEN, "batch_size", "variant", "point"], dropna=False):
        line = curve.iloc[-1].to_dict() | {
            "first_loss": curve["loss"].iloc[0],
            "last_loss": curve["loss"].iloc[-1],
        }
        judged.append(line | {"verdict": _verdict(line, curve)})
    return pandas.DataFrame(judged, columns=[*frozen, "first_loss", "last_loss", "verdict"])


def convergence_sentence(judged: pandas.DataFrame) -> str:
    """Return a sentence on how many frozen points did not converge; `judged` is from
    `convergence`."""
    judged = judged[judged["verdict"] != NOT_JUDGED]
    if judged.empty:
        return "Frozen convergence: not judged (this needs ImageNet's weights, ten classes and two windows)."
    failed = judged[judged["verdict"] == NOT_CONVERGED]
    rates = ", ".join(f"{rate:g}" for rate in sorted(set(failed["learning_rate"])))
    tail = f", at learning rate {rates}" if len(failed) else ""
    return (
        f"{len(failed)} of {len(judged)} frozen points did not converge{tail} (the rule: {RULE})."
    )


def claimed(evidence: Evidence) -> list[dict]:
    """Return the quantities of this study's claims, from accelerators that ran the reference
    protocol on CIFAR-10.

    Returns:
        joules_per_image, rate, frozen_rate, crashed_over_196, frozen_diverged and
        lower_rate_converged. Rates and joules are those at 128 px and batch 64. The three events
        are of TensorFlow, the article's framework: crashed is a process that training over
        LARGEST_IMAGE_SIZE ended, as the article's; an exception is no evidence.
    """
    table, values = settings(evidence), []
    table = records.having(
        table[table["device"].ne("cpu")],
        source="measured",
        variant="reference",
        dataset="cifar10",
        framework="tensorflow",
    )
    article = records.having(
        table, image_size=128, batch_size=64, learning_rate=LEARNING_RATE, status="ok"
    ).sort_values("weights")  # imagenet before random
    for line in article.drop_duplicates(["machine", "device", "trainable"]).to_dict("records"):
        values.append(
            quantities.between(
                line, "rate" if line["trainable"] else "frozen_rate", "images_per_second"
            )
        )
        if line["trainable"] and pandas.notna(line["joules_per_image"]):
            bounds = ("joules_low", "joules_high", "joules_interval")
            joules = quantities.between(line, "joules_per_image", "joules_per_image", *bounds)
            values.append(joules | {"note": f"{line['method']}, {line['boundary']}"})
    rows = evidence.counting(NAME, phase=["compile", "warmup", "train"])
    rows = rows[rows["image_size"].gt(LARGEST_IMAGE_SIZE)].merge(table[["machine", "point"]])
    rows["died"] = [failures.is_death(line) for line in rows.to_dict("records")]
    trained = rows["phase"].eq("train") & rows["status"].isin(records.TRAINED)
    for _, own in rows[trained | rows["died"].astype(bool)].groupby("machine"):
        died = own.groupby(["point", "run_id"])["died"].any()
        values.append(quantities.event(own.iloc[0].to_dict(), "crashed_over_196", died))
    judged = _judged(evidence).merge(table[["machine", "point", "chip", "source"]])
    judged = judged[judged["verdict"].ne(NOT_JUDGED)]
    for name, (compare, verdict) in EVENTS.items():
        alike = judged[compare(judged["learning_rate"], LEARNING_RATE)]
        for _, own in alike.groupby("machine"):
            values.append(quantities.event(own.iloc[0].to_dict(), name, own["verdict"] == verdict))
    return values


def _verdict(line: dict, curve: pandas.DataFrame) -> str:
    if line["weights"] != "imagenet" or line["dataset"].partition("-")[0] not in TEN_CLASSES:
        return NOT_JUDGED
    if (curve["status"] == "diverged").any():
        return NOT_CONVERGED
    if len(curve) < 2 or pandas.isna(line["accuracy"]):
        return NOT_JUDGED
    fall, gain = 1 - line["last_loss"] / line["first_loss"], line["accuracy"] - 1 / NUM_CLASSES
    return CONVERGED if fall >= LEAST_FALL and gain >= LEAST_GAIN else NOT_CONVERGED


def _times(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return lines of `settings` with milliseconds an image and their bounds."""
    sized = table[table["image_size"].notna()]
    return sized.assign(**shared.inverse(sized, "images_per_second", "ms_per_image", 1000))


def _text(line: dict) -> str:
    digits, joules = 0 if shared.is_measured(line) else 3, line["joules_per_image"]
    return wording.quantity([line["ms_per_image"]], "ms", digits)[0] + (
        f", {wording.number(joules)} J an image ({line['boundary']})"
        if pandas.notna(joules)
        else ""
    )


ARTICLE = {
    "learning_rate": LEARNING_RATE,
    "variant": "reference",
    "framework": "tensorflow",
    "layers": LAYERS[True],
    "dataset": "cifar10",
    "image_size": 128,
    "batch_size": 64,
}
ANSWER = Template(
    "{number} an image{bounds} training MobileNetV2 on {place}",
    "ms_per_image",
    "ms",
    "least",
    usual=ARTICLE,
)
LABEL = ("framework", "batch_size", "learning_rate", "variant")
ALIKE = ("layers", "dataset", "image_size")
STUDY = Study(
    name=NAME,
    title="MobileNetV2",
    article="Kadamala's replica of the article, 2021",
    claim="mobilenet-energy",
    quantity="images_per_second",
    unit="images/second",
    charts=(
        Bars(
            "mobilenetv2-settings",
            table=settings,
            lines=_times,
            title=ANSWER,
            label=(*LABEL, *ALIKE),
            text=_text,
            xlabel="milliseconds to train on an image",
        ),
        Points(
            "mobilenetv2-loss",
            table=losses,
            lines=_unlike_guessing,
            title=Template(
                f"The loss reaches {{number}} on {{place}}; guessing gives {GUESSING_LOSS:.2f}",
                "loss",
                best="least",
            ),
            x="images_seen",
            by=_CURVE,
            label=LABEL,
            alike=ALIKE,
            xlabel="images seen",
            ylabel="loss (grey: guessing)",
            reference=GUESSING_LOSS,
            tables={"mobilenetv2-convergence": convergence},
        ),
    ),
    quantities=claimed,
)
