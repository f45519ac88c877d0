"""What claims are made of: named quantities of each machine, gathered from rows and prices."""

from dataclasses import dataclass

import pandas

from benchbook import articles, estimate, records, statistics
from benchbook.studies.mnist_speedup import results as mnist
from benchbook.studies.mobilenetv2_energy import results as mobilenetv2
from benchbook.studies.simclr_epochs import matrix as support
from benchbook.studies.simclr_epochs import results as simclr

COLUMNS = ["machine", "chip", "source", "name", "value", "low", "high"]
KEPT = ["epochs", "images_seen_in_epoch", "image_size_over", "reading"]  # settings that tell published rows apart


@dataclass(frozen=True)
class Rule:
    """Where a quantity stands in published rows.

    Attributes:
        study: whose rows.
        name: what claims call it.
        column: the measure that holds it; None for something that happened, which is 1.
        where: which of the study's rows, as pandas.DataFrame.query takes it.
    """

    study: str
    name: str
    column: str | None
    where: str


LOGGED = "images_seen_in_epoch == {}"
ACCELERATOR = "device != 'cpu' and reading.isna() and batch_size == 128 and epochs == {}"
PUBLISHED = (
    Rule("vae_stability", "first_loss", "loss", LOGGED.format(0)),
    Rule("vae_stability", "loss_after_10_steps", "loss", LOGGED.format(1280)),
    Rule("vae_stability", "loss_after_20_steps", "loss", LOGGED.format(2560)),
    Rule("vae_stability", "loss_after_30_steps", "loss", LOGGED.format(3840)),
    Rule("vae_stability", "diverged", None, "status == 'diverged' and device != 'cpu'"),
    Rule("mobilenetv2_energy", "crashed_over_196", None, "status == 'crashed' and image_size_over == 196"),
    Rule("simclr_epochs", "cpu_epoch_seconds", "seconds", "device == 'cpu' and epochs == 1"),
    Rule("simclr_epochs", "cpu_two_epochs_seconds", "seconds", "device == 'cpu' and epochs == 2"),
    Rule("simclr_epochs", "accelerator_epoch_seconds", "seconds", ACCELERATOR.format(1)),
    Rule("simclr_epochs", "accelerator_two_epochs_seconds", "seconds", ACCELERATOR.format(2)),
    Rule("simclr_epochs", "accelerator_200_epochs_seconds", "seconds", ACCELERATOR.format(200)),
    Rule("simclr_epochs", "knn_accuracy", "accuracy", ACCELERATOR.format(200)),
    Rule("simclr_epochs", "peak_memory_bytes", "peak_memory_bytes", ACCELERATOR.format(200)),
    Rule("segmentation_scaling", "accelerator_seconds_per_image", "seconds", "device != 'cpu' and samples == 1"),
    Rule("resnet50_cost", "synthetic_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 1024"),
    Rule("resnet50_cost", "mxnet_rate", "samples_per_second", "dataset == 'synthetic' and batch_size == 768"),
    Rule("resnet50_cost", "real_rate", "samples_per_second", "dataset == 'imagenet' and phase == 'train'"),
)


def gather(rows: pandas.DataFrame, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return every quantity that claims are made of.

    Args:
        rows: published and measured ones, of all studies.
        prices: from `articles.prices`.

    Returns:
        Columns: machine, chip (where the machine has one, the GPU or TPU: that is what a claim is about), source, name,
        value, low, high. Published ones carry plus or minus half the last printed digit, measured ones their interval.
    """
    printed, measured = rows[rows["source"] != "measured"], rows[rows["source"] == "measured"]
    parts = [mnist.quantities(rows).to_dict("records"), *(_by_rule(printed, rule) for rule in PUBLISHED)]
    parts += [
        mobilenetv2.quantities(measured),
        _accuracies(printed),
        _simclr(measured),
        _vae(measured),
        _resnet(measured),
    ]
    table = pandas.DataFrame([line for part in parts for line in part], columns=COLUMNS)
    accelerators = (
        rows[rows["device"].isin(["cuda", "tpu"])].groupby("machine")["device_name"].last().dropna().to_dict()
    )
    table["chip"] = [accelerators.get(*both) for both in zip(table["machine"], table["chip"], strict=True)]
    money = pandas.DataFrame(_money(prices, table), columns=COLUMNS)
    return pandas.concat([part for part in (table, money) if len(part)] or [table], ignore_index=True)


def _by_rule(rows: pandas.DataFrame, rule: Rule) -> list[dict]:
    study = rows[rows["study"] == rule.study]
    settings = [records.settings(text) for text in study["settings"]]
    told = {name: [setting.get(name) for setting in settings] for name in KEPT}
    found = study.assign(**told).query(rule.where, engine="python")
    return [_quantity(row, rule.name, rule.column) for row in found.to_dict("records")]


def _quantity(row: dict, name: str, column: str | None) -> dict:
    value, (low, high) = (row[column], articles.bounds(row, column)) if column else (1.0, (1.0, 1.0))
    return _head(row, name) | {"value": float(value), "low": float(low), "high": float(high)}


def _head(row: dict, name: str) -> dict:
    return {"machine": row["machine"], "chip": row["chip"], "source": row["source"], "name": name}


def _accuracies(printed: pandas.DataFrame) -> list[dict]:
    """Return ResNet-50's best accuracy, the epoch it was reached in, and the epoch that reached 75.7 %."""
    tested = printed[(printed["study"] == "resnet50_cost") & (printed["phase"] == "evaluate")]
    lines = []
    for _, curve in tested.groupby("machine"):
        best = curve.sort_values("accuracy").iloc[-1].to_dict()
        epoch = estimate.epochs_to_accuracy(curve, 0.757)
        lines.append(_quantity(best, "best_accuracy", "accuracy"))
        for name, value in (("epochs_to_best", best["epoch"]), ("epochs_to_757", epoch)):
            lines += [_exact(best, name, value)] if value is not None else []
    return lines


def _exact(row: dict, name: str, value: float) -> dict:
    return _head(row, name) | dict.fromkeys(("value", "low", "high"), float(value))


def _points(rows: pandas.DataFrame, study: str, **equal) -> list[dict]:
    """Return a study's points that ended well and have windows, with these columns."""
    points = statistics.summarise(rows[rows["study"] == study])
    points = points[(points["status"] == "ok") & points["samples_per_second"].notna()]
    for name, value in equal.items():
        points = points[points[name] == value]
    return points.assign(source="measured").to_dict("records")


def _simclr(rows: pandas.DataFrame) -> list[dict]:
    """Return seconds of the article's epoch, which includes the kNN evaluation; and what an accelerator refused."""
    tried = support.matrix(rows)
    tried = tried[(tried["study"] == "simclr_epochs") & (tried["device"] != "cpu")].assign(source="measured")
    lines = simclr.quantities(rows).to_dict("records")
    for _, cells in tried.groupby(["machine", "device"], sort=True):
        lines += [_exact(cells.iloc[0].to_dict(), name, value) for name, value in support.events(cells).items()]
    return lines


def _vae(rows: pandas.DataFrame) -> list[dict]:
    """Return whether the loss ran away on an accelerator, and whether it did not on the CPU, in the article's run."""
    study = rows[(rows["study"] == "vae_stability") & (rows["dataset"] == "mnist") & (rows["precision"] == "fp32")]
    study = statistics.newest(study[(study["phase"] == "train") & (study["variant"] == "reference")])
    lines = []
    for (_, device), windows in study.groupby(["machine", "device"]):
        broken = (windows["status"] == "diverged").any()
        happened = ("cpu_trained", not broken) if device == "cpu" else ("diverged", broken)
        lines.append(_exact(windows.iloc[0].to_dict(), happened[0], float(happened[1])))
    return lines


def _resnet(rows: pandas.DataFrame) -> list[dict]:
    """Return the rates of four devices at the article's batch size."""
    four = rows[(rows["device_count"] == 4).fillna(False)]
    lines = []
    for dataset, name in (("synthetic", "synthetic_rate"), ("imagenet", "real_rate")):
        points = _points(four, "resnet50_cost", dataset=dataset, batch_size=1024)
        for point in points:
            bounds = {"value": point["samples_per_second"], "low": point["low"], "high": point["high"]}
            lines.append(_head(point, name) | bounds)
    return lines


def _money(prices: pandas.DataFrame, table: pandas.DataFrame) -> list[dict]:
    """Return hourly prices; a derived price is as exact as it is written."""
    chips = table.drop_duplicates("machine").set_index("machine")["chip"].to_dict()
    lines = []
    for price in prices[prices["kind"].isin(["on_demand", "reserved"])].to_dict("records"):
        half = articles.half_unit(price["amount"])
        low, value, high = (
            estimate.hourly(price | {"amount": amount})
            for amount in (price["amount"] - half, price["amount"], price["amount"] + half)
        )
        head = {"machine": price["machine"], "chip": chips.get(price["machine"]), "source": "published"}
        lines.append(head | {"name": f"{price['kind']}_per_hour", "value": value, "low": low, "high": high})
    return lines
