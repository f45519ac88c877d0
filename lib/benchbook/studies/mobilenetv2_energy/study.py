"""What the MobileNetV2 study says: images a second, joules an image, whether it learns, and what breaks."""

import numpy
import pandas

from benchbook.judging import wording
from benchbook.machine.libraries import PREFERRED
from benchbook.record import naming
from benchbook.record.naming import Names
from benchbook.rows import records
from benchbook.studies import figures, findings, quantities
from benchbook.studies import tables as shared
from benchbook.studies.charts import Bars, Lines, plot
from benchbook.studies.study import Chart, Evidence, Rule, Study, longest, once

NAME = "mobilenetv2_energy"
LEARNING_RATE = 5e-4  # the article's
LARGEST = 196  # pixels a side; the article's M1 crashed above
LEAST_FALL = 0.05  # of the loss from a run's first window to its last, for a network that converges
LEAST_GAIN = 0.15  # of test accuracy over chance
RULE = f"the last window's loss {LEAST_FALL:.0%} under the first's, test accuracy {LEAST_GAIN:.0%} over chance"
NUM_CLASSES = 10  # of CIFAR-10, its copies and its stand-in
GUESSED = 1.2 / NUM_CLASSES  # an accuracy up to this is taken for that of guessing
CONVERGED, NOT_CONVERGED, NOT_JUDGED = "converged", "did not converge", "not judged"
DASHES = {"tensorflow": "-", "jax": "--", "torch": ":", "mlx": "-."}
MARKERS = "os^vDP*X"

_SETTINGS = ["trainable", "learning_rate", "weights", "image_size_over"]
_ALIKE = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "batch_size", "image_size"]
_CURVE = ["machine", "device", "framework", "variant", "dataset", "batch_size", "image_size", *_SETTINGS[:3], "point"]
_RENAMED = {"samples_per_second": "images_per_second", "energy_per_sample": "joules_per_image"}
_RENAMED |= {f"energy_{name}": f"joules_{name}" for name in ("low", "high", "interval")}
_RENAMED |= {"energy_method": "method", "energy_boundary": "boundary"}


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
    printed = shared.with_settings(evidence.printed(NAME), _SETTINGS).assign(point=None)
    timed = shared.with_bounds(printed[printed["seconds"].notna()], "seconds")
    rates = {"images_per_second": "seconds", "low": "high", "high": "low"}
    timed = timed.assign(**{name: timed["samples"] / timed[time] for name, time in rates.items()})
    measured = shared.with_settings(evidence.points(NAME), _SETTINGS).assign(source="measured").rename(columns=_RENAMED)
    lines = [line for part in (timed, printed[printed["seconds"].isna()], measured) for line in part.to_dict("records")]
    columns = [*_ALIKE, *_SETTINGS, "images_per_second", "low", "high", "interval", "num_windows", "verdict"]
    columns += ["joules_per_image", "joules_low", "joules_high", "joules_interval", "method", "boundary"]
    columns += ["accuracy", "status", "message", "point"]
    table = longest(pandas.DataFrame(lines, columns=[*columns, "num_samples"]), [*_ALIKE, *_SETTINGS])
    rank = table["framework"].map({name: place for place, name in enumerate(PREFERRED)}).fillna(len(PREFERRED))
    order = ["source", "machine", "trainable", "image_size", "batch_size", "learning_rate", "variant", "device", "rank"]
    return table.assign(rank=rank).sort_values(order)[columns].reset_index(drop=True)


@once
def losses(evidence: Evidence) -> pandas.DataFrame:
    """Return the loss by images seen of each measured point's last session, and its test accuracy at the end.

    A window's loss is its mean and is drawn at the window's middle; of several runs it is their median.

    Returns:
        Columns: machine, device, framework, variant, dataset, batch_size, image_size, trainable, learning_rate,
        weights, point, images_seen, loss, low, high (over runs), num_runs, accuracy, status.
    """
    windows = evidence.newest(NAME).query("phase == 'train' and repeat == 0 and samples.notna()", engine="python")
    windows = shared.with_settings(windows, _SETTINGS[:3]).assign(images_seen=shared.middles(windows, ["run_id"]))
    table = shared.over_runs(windows, [*_CURVE, "images_seen"], "loss", status=("status", shared.worst))
    tested = evidence.points(NAME).set_index(["machine", "point"])["accuracy"]
    table = table.join(tested, on=["machine", "point"])
    return table[[*_CURVE, "images_seen", "loss", "low", "high", "num_runs", "accuracy", "status"]]


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
        if line["trainable"] and pandas.notna(line["joules_per_image"]):
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


def finding(evidence: Evidence) -> str:
    """Return the fastest setting, the energy of an image, and how many settings failed."""
    table = settings(evidence)
    own, trained = _trained(table)
    if trained.empty:
        return f"{_rates_title(table, evidence.names)}."
    best = findings.fastest(trained, "images_per_second")
    layers = "" if pandas.isna(best["trainable"]) else "all layers" if best["trainable"] else "its last layer alone"
    size = "" if pandas.isna(best["image_size"]) else f"{best['image_size']:.0f}-pixel images"
    hedge = findings.hedged(evidence, [best], findings.stand_in(best, "cifar10"))
    rate, place = wording.number(best["images_per_second"]), findings.place(evidence, best, trained)
    work = " on ".join(filter(None, (layers, size)))
    failed = len(own) - len(trained)
    broken = f"; {failed} of {len(own)} settings failed" if failed else ""
    first = f"MobileNetV2 trains {rate} images a second on {place}, {work}{hedge}"
    return f"{first}. {_joules_title(table, evidence.names)}{broken}."


def _trained(table: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return the measured settings, and those of them that trained."""
    own = table[table["source"] == "measured"]
    return own, own[own["status"].isin(records.TRAINED) & own["images_per_second"].notna()]


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


def _rates_title(table: pandas.DataFrame, names: Names) -> str:
    own, trained = _trained(table)
    if trained.empty:
        return f"All {len(own)} settings of MobileNetV2 failed" if len(own) else "MobileNetV2 was not measured here yet"
    best = trained.sort_values("images_per_second").iloc[-1]
    how = f"{best['framework']}, {naming.device_word(best['device'])}"
    return f"MobileNetV2 trains up to {wording.number(best['images_per_second'])} images a second ({how})"


def _joules_title(table: pandas.DataFrame, names: Names) -> str:
    read = table[(table["source"] == "measured") & table["joules_per_image"].notna()]
    read = read[read["status"].isin(records.TRAINED)]
    if read.empty:
        return "No sensor could read its energy"
    boundaries = ", ".join(sorted(set(read["boundary"])))
    return f"An image takes {wording.span(read['joules_per_image'])} J ({boundaries})"


def _losses_title(table: pandas.DataFrame, names: Names) -> str:
    tested = table[table["accuracy"].notna()]
    if tested.empty:
        return "Loss: nothing measured here yet"
    best = tested.sort_values("accuracy").iloc[-1]
    after = f"after {best['images_seen']:,.0f} images"
    if best["accuracy"] <= GUESSED:
        return f"Test accuracy {after} is no better than guessing ({wording.percent(best['accuracy'])})"
    return f"Test accuracy reaches {wording.percent(best['accuracy'])} {after} ({_work(best)})"


def _joules(line: dict) -> str:
    if pandas.notna(line["joules_per_image"]):
        return f"{line['joules_per_image']:.3g} J ({line['boundary']})"
    return "no sensor" if line["source"] == "measured" else "not printed"


def _work(line: dict) -> str:
    """Return a setting in few words; data that stand in for CIFAR-10 are named."""
    return ", ".join(filter(None, (_short(line), figures.stand_in(line, "cifar10"))))


def _short(line: dict) -> str:
    trained = "" if pandas.isna(line["trainable"]) else ", all layers" if line["trainable"] else ", last layer"
    rate = line["learning_rate"]
    rate = f", rate {rate:g}" if pandas.notna(rate) and rate != LEARNING_RATE else ""
    variant = "" if line["variant"] == "reference" else f", {line['variant']}"
    device = naming.device_word(line["device"]) if pandas.notna(line["device"]) else "any device"
    device = device.removesuffix(" with TensorFlow")
    return f"{line['framework']} {device}{trained}{figures.size(line)}{rate}{variant}"


def _label(line: dict, names: Names) -> str:
    """Return a setting's label: its machine with stand-in data or an article's kind, and below it the setting."""
    measured = line["source"] == "measured"
    other = figures.stand_in(line, "cifar10") if measured else line["source"]
    over = f", over {line['image_size_over']:.0f} px" if pandas.notna(line["image_size_over"]) else ""
    short = _short(line if measured else line | {"framework": "tensorflow"})
    return f"{', '.join(filter(None, (names.machine(line['machine']), other)))}\n{short}{over}"


def _marked(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return curves with a marker for each network and batch, and their machine's name where there are several."""
    shapes = table.groupby(["trainable", "image_size", "batch_size"], dropna=False).ngroup()
    several = table["machine"].nunique() > 1
    places = [f"{evidence.names.machine(machine)}, " if several else "" for machine in table["machine"]]
    return table.assign(marker=[MARKERS[number % len(MARKERS)] for number in shapes], place=places)


def _curve_label(curve: pandas.DataFrame, names: Names) -> str:
    line = curve.iloc[0].to_dict()
    tested = f": test {line['accuracy']:.0%}" if pandas.notna(line["accuracy"]) else ""
    return f"{line['place']}{_work(line)}, n={len(curve)}{figures.num_runs(curve)}{tested}"


STUDY = Study(
    name=NAME,
    title="MobileNetV2",
    article="Chris Van Pelt, Weights & Biases, 2021",
    charts=(
        Chart(
            "mobilenetv2-settings",
            "Images a second and joules an image",
            "Every setting, framework next to framework; a cross where it failed, and the published ones in grey.",
            plot(
                settings,
                Bars(
                    column="images_per_second",
                    label=_label,
                    text="{images_per_second:,.0f}",
                    xlabel="images a second, training",
                    title=_rates_title,
                ),
                Bars(
                    column="joules_per_image",
                    lines=lambda table, evidence: table.assign(low=table["joules_low"], high=table["joules_high"]),
                    label=_label,
                    text=_joules,
                    margin=0.4,
                    xlabel="joules an image",
                    title=_joules_title,
                ),
                shows="Bars of images a second and of joules an image",
                width=12.0,
                sharey=True,
            ),
        ),
        Chart(
            "mobilenetv2-loss",
            "What does it learn, and does the frozen network converge?",
            "The table gives the rule for convergence next to each verdict. A frozen network of random weights is not"
            " judged: it cannot converge.",
            plot(
                losses,
                Lines(
                    x="images_seen",
                    y="loss",
                    by=_CURVE,
                    lines=_marked,
                    fmt=lambda line: DASHES[line["framework"]] + line["marker"],
                    label=_curve_label,
                    xlabel="images seen",
                    ylabel="loss (grey: of guessing)",
                    reference=numpy.log(NUM_CLASSES),
                    from_zero=True,  # a loss that does not fall is not to look as if it did
                    title=_losses_title,
                ),
                shows="Loss over images seen, with test accuracies",
                width=12.0,
                height=4.0,
                legend="right",
                tables={"mobilenetv2-convergence": convergence},
            ),
        ),
    ),
    published=(Rule("crashed_over_196", None, "status == 'crashed' and image_size_over == 196"),),
    finding=finding,
    quantities=claimed,
)
