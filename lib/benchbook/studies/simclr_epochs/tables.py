"""Tables of the SimCLR study: minutes for the article's epoch, the input's share, accuracy."""

import pandas

from benchbook.judging import confirmation, statistics
from benchbook.judging.confirmation import TUNED_NAMES
from benchbook.studies import curves, input_shares, quantities
from benchbook.studies.epochs import ArticleEpoch
from benchbook.studies.study import Evidence, longest, once

NAME = "simclr_epochs"
BATCH_SIZE, EPOCHS = 128, 200  # the article's
JOINT = ", joint views"
EPOCH = ArticleEpoch(
    study=NAME,
    dataset="cifar10",
    train_images=50_000 // BATCH_SIZE * BATCH_SIZE,  # a last batch with fewer is dropped
    evaluated_images=50_000 + 10_000,  # those that vote and those that are judged
    unit="minutes",
    ways=("variant", ("reference", "controlled", *TUNED_NAMES, *(name + JOINT for name in TUNED_NAMES))),
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
    printed = evidence.published[evidence.published["study"] == NAME]
    printed = printed[(printed["phase"] == "total") & (printed["source"] == "published")]
    once = [settings.get("epochs", 1) == 1 for settings in printed["settings"]]
    return EPOCH.table(evidence, _points(evidence), printed[pandas.Series(once, printed.index, dtype=bool)])


def shares(evidence: Evidence) -> pandas.DataFrame:
    """Return how much of a training step is input: making the views, waiting for them, moving them.

    Returns:
        What `input_shares.table` returns; the steps on ready batches are of the same run, and as they are few, their
        bounds are their range.
    """
    return input_shares.beside_ready(evidence, _points(evidence))


def accuracies(evidence: Evidence) -> pandas.DataFrame:
    """Return the nearest-neighbour accuracy by epochs trained, a part of an epoch being a fraction.

    Returns:
        Columns: machine, chip, device, variant, source, dataset, epochs, accuracy (median over seeds and runs), low,
        high (least and most), num_seeds, num_runs.
    """
    published, measured = (rows[rows["study"] == NAME] for rows in (evidence.published, evidence.measured))
    printed = published[(published["source"] == "published") & (published["batch_size"] == BATCH_SIZE)]
    printed = printed[printed["accuracy"].notna()].to_dict("records")
    evaluations = [_evaluation(row, row["settings"]["epochs"]) for row in printed]
    evaluations += _evaluations(statistics.newest(measured))
    key = ["machine", "chip", "device", "variant", "source", "dataset", "epochs"]
    table = pandas.DataFrame(evaluations, columns=[*key, "accuracy", "seed", "run_id"])
    return curves.over_runs(table, key, "accuracy", num_seeds=("seed", "nunique"))


def trained(evidence: Evidence) -> list[dict]:
    """Return as quantities the accuracy after the article's 200 epochs, and the peak memory, on an accelerator."""
    rows = statistics.newest(evidence.measured[evidence.measured["study"] == NAME])
    rows = rows[(rows["variant"] == "reference") & (rows["dataset"] == "cifar10") & (rows["device"] != "cpu")]
    rows = rows[rows["batch_size"] == BATCH_SIZE]
    values = []
    for _, machine in rows.groupby("machine", sort=True):
        last = [line["accuracy"] for line in _evaluations(machine) if round(line["epochs"]) == EPOCHS]
        head = machine.iloc[0].to_dict()
        values += [quantities.of_runs(head, "knn_accuracy", last)] if last else []
        windows = machine[(machine["phase"] == "train") & (machine["device"] == "cuda")]
        memory = windows["peak_memory_bytes"].dropna()
        values += [quantities.exact(head, "peak_memory_bytes", float(memory.max()))] if len(memory) else []
    return values


def _evaluations(rows: pandas.DataFrame) -> list[dict]:
    """Return the evaluations of runs, by repeat of each, with the epochs that were trained before each."""
    run = ["machine", "point", "run_id", "repeat"]
    samples = rows["samples"].where(rows["phase"] == "train").fillna(0)
    seen = samples.groupby([rows[name] for name in run]).cumsum()
    epochs = seen / (rows["dataset_samples"] // rows["batch_size"] * rows["batch_size"])
    tested = rows.assign(epochs=epochs)[(rows["phase"] == "evaluate") & rows["accuracy"].notna()]
    tested = tested.sort_values(run, kind="stable")
    return [_evaluation(row, row["epochs"]) for row in tested.to_dict("records")]


def _evaluation(row: dict, epochs: float) -> dict:
    return row | {
        "variant": _variant(row),
        "epochs": float(epochs),
        "seed": row["settings"].get("seed"),
    }


def _points(evidence: Evidence) -> pandas.DataFrame:
    """Return the measured points at the article's batch size; of two alike, the one that measured more images."""
    points = evidence.points(NAME)
    points = points[(points["batch_size"] == BATCH_SIZE) | points["batch_size"].isna()]
    points = points.assign(variant=[_variant(point) for point in points.to_dict("records")])
    return longest(points, ["machine", "device", "dataset", "variant"])


def _variant(row: dict) -> str:
    return confirmation.name(row) + (JOINT if row["settings"].get("joint_views") else "")
