"""What the SimCLR study says: minutes an epoch, the input's share, accuracy, which precisions and compilers work."""

import numpy
import pandas

from benchbook.judging import confirmation, wording
from benchbook.studies import input_shares, quantities, support_matrix
from benchbook.studies import tables as shared
from benchbook.studies.charts import Points
from benchbook.studies.epochs import ArticleEpoch
from benchbook.studies.findings import Says
from benchbook.studies.simclr_epochs.plan import BATCH_SIZE, EPOCHS
from benchbook.studies.study import Drawing, Evidence, Study, longest, once

NAME = "simclr_epochs"
EPOCH = ArticleEpoch(
    study=NAME,
    dataset="cifar10",
    train_images=50_000 // BATCH_SIZE * BATCH_SIZE,  # a last batch with fewer is dropped
    evaluated_images=50_000 + 10_000,  # those that vote and those that are judged
    unit="minutes",
    ways=("variant", ("reference", "controlled", *confirmation.TUNED_NAMES)),
    described=("precision", "compiled"),
)


@once
def epochs(evidence: Evidence) -> pandas.DataFrame:
    """Return minutes for the article's epoch: training on CIFAR-10 once, and the nearest-neighbour evaluation.

    The start of a loader's workers is in windows that are whole epochs alone.

    Returns:
        What `ArticleEpoch.table` returns, with precision and compiled, of points at the article's batch size and of
        those that failed before they had one.
    """
    printed = evidence.printed(NAME, "phase == 'total' and source == 'published'")
    single = [settings.get("epochs", 1) == 1 for settings in printed["settings"]]
    return EPOCH.table(evidence, _points(evidence), printed[pandas.Series(single, printed.index, dtype=bool)])


def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return how much of a training step is input (making, awaiting and moving views); see `input_shares`."""
    return input_shares.beside_ready(evidence, _points(evidence))


def accuracies(evidence: Evidence) -> pandas.DataFrame:
    """Return the nearest-neighbour accuracy by epochs trained, a part of an epoch being a fraction.

    Returns:
        Columns: machine, chip, device, variant, source, dataset, epochs, accuracy (median over seeds and runs), low,
        high (least and most), num_seeds, num_runs.
    """
    printed = evidence.printed(NAME, f"source == 'published' and batch_size == {BATCH_SIZE} and accuracy.notna()")
    printed = shared.with_settings(printed, ["epochs", "seed"])
    key = ["machine", "chip", "device", "variant", "source", "dataset", "epochs"]
    rows = printed.to_dict("records") + _evaluations(evidence.newest(NAME)).to_dict("records")
    table = pandas.DataFrame(rows, columns=[*key, "accuracy", "seed", "run_id"]).astype({"epochs": float})
    return shared.over_runs(table, key, "accuracy", num_seeds=("seed", "nunique"))


def claimed(evidence: Evidence) -> list[dict]:
    """Return the seconds of the article's epochs, their accuracy and memory, and what an accelerator refused.

    Several epochs take as many times as long as one. Accuracy is that after the article's 200 epochs.
    """
    table, values = epochs(evidence), []
    for count, words in ((1, ""), (2, "two_"), (200, "200_")):
        times = table.assign(**{name: table[name] * count for name in (EPOCH.unit, "low", "high")})
        values += EPOCH.quantities(times, f"{words}epoch{'s' * (count > 1)}_seconds")
    rows = evidence.newest(NAME).query("variant == 'reference' and dataset == 'cifar10' and device != 'cpu'")
    for _, machine in rows[rows["batch_size"] == BATCH_SIZE].groupby("machine", sort=True):
        head, tested = machine.iloc[0].to_dict(), _evaluations(machine)
        last = tested.loc[tested["epochs"].round() == EPOCHS, "accuracy"].tolist()
        values += [quantities.of_runs(head, "knn_accuracy", last)] if last else []
        memory = machine.query("phase == 'train' and device == 'cuda'")["peak_memory_bytes"].dropna()
        values += [quantities.exact(head, "peak_memory_bytes", float(memory.max()))] if len(memory) else []
    return values + support_matrix.claimed(evidence, NAME)


def pairs(first: numpy.ndarray, second: numpy.ndarray) -> Drawing:
    """Draw two views of each image, one above the other; pixels 0 to 1, shape (n, height, width, 3)."""
    apart = numpy.abs(first - second).mean()
    title = f"Two views of {len(first)} images; their pixels are {apart:.2f} apart on average"
    return Drawing.of_pictures({"first view": first, "second view": second}, title)


def reading(evidence: Evidence) -> str:
    """Return what one run's rows say of its input and of its accuracy, in sentences with their numbers."""
    saved, learnt = shares(evidence)["share"].dropna(), accuracies(evidence)
    sentences = [f"Ready batches would save {wording.percent(saved.iloc[0])} of a step."] if len(saved) else []
    sentences += [f"{ACCURACY(learnt, evidence.names)}."] if len(learnt) else []
    return " ".join(sentences)


def _evaluations(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the evaluations of runs, by repeat of each, with the epochs that were trained before each."""
    run = ["machine", "point", "run_id", "repeat"]
    samples = rows["samples"].where(rows["phase"] == "train").fillna(0)
    seen = samples.groupby([rows[name] for name in run]).cumsum()
    epochs = seen / (rows["dataset_samples"] // rows["batch_size"] * rows["batch_size"])
    tested = rows.assign(epochs=epochs.astype(float))[(rows["phase"] == "evaluate") & rows["accuracy"].notna()]
    tested = shared.with_settings(tested.sort_values(run, kind="stable"), ["seed"])
    return tested.assign(variant=[confirmation.name(row) for row in tested.to_dict("records")])


def _points(evidence: Evidence) -> pandas.DataFrame:
    """Return the measured points at the article's batch size; of two alike, the one that measured more images."""
    points = evidence.points(NAME)
    points = points[(points["batch_size"] == BATCH_SIZE) | points["batch_size"].isna()]
    return longest(points, ["machine", "device", "dataset", "variant"])


SAYS = EPOCH.says("One epoch of SimCLR", "No epoch of SimCLR was measured here yet")
ACCURACY = Says(
    "Accuracy reaches {value} after {epochs:.3g} epochs", "Accuracy: nothing yet", "accuracy", wording.percent, "most"
)
LABEL = ("variant", "precision", "dataset")
USUAL = {"precision": "fp32", "dataset": "cifar10"}
STUDY = Study(
    name=NAME,
    title="SimCLR",
    article="Lightly, 2023",
    dataset="cifar10",
    says=(
        (epochs, SAYS),
        (
            lambda evidence: EPOCH.first_share(epochs(evidence), shares(evidence)),
            input_shares.says("Making two views of each image"),
        ),
    ),
    charts=(
        EPOCH.chart(
            "simclr-epochs",
            "Minutes for one epoch",
            "Training and the nearest-neighbour evaluation, each scaled to the article's images.",
            epochs,
            SAYS,
            label=LABEL,
            text="{minutes:.3g} min",
            xlabel="minutes for one epoch of CIFAR-10 and its nearest-neighbour evaluation",
        ),
        input_shares.chart(
            "simclr-input-share",
            "Making two views of every image, on the host or on the device: what the same steps on ready views would"
            " save.",
            shares,
            LABEL,
            USUAL,
        ),
        Points(
            "simclr-accuracy",
            "What does it learn?",
            table=accuracies,
            title=ACCURACY,
            x="epochs",
            by=["source", "machine", "device", "variant", "dataset"],
            label=LABEL,
            usual=USUAL,
            xlabel="epochs trained",
            ylabel="nearest-neighbour accuracy",
            percent=True,
            look={"xscale": "log", "ylim": (0, 1)},
        ),
        support_matrix.CHART,
    ),
    quantities=claimed,
    epoch_seconds=lambda evidence: EPOCH.seconds(epochs(evidence)),
)
