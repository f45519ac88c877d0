"""Results of the ResNet-50 study: images a second by batch and device count, dollars, and the
cost of an accuracy."""

from operator import itemgetter

import numpy
import pandas

from benchbook.datasets import Collection
from benchbook.judging import statistics, wording
from benchbook.machine.precisions import PRECISIONS
from benchbook.record import chips, prices
from benchbook.rows import ceilings, records
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.charts.plots import Bars, Points
from benchbook.studies.resnet50_cost.plan import DROP_EPOCHS
from benchbook.studies.results import quantities
from benchbook.studies.results import tables as shared
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence, cached
from benchbook.studies.study import Study, Task

NAME = "resnet50_cost"
NUM_DEVICES = 4  # chips in the article's claims
# A jump exceeds the gains of so many epochs before a drop of the learning rate, and this accuracy:
# at a high rate two tests of one network already differ by a hundredth.
NUM_BEFORE, LEAST_JUMP = 10, 0.02
TWO_CORES = r"TPU v[23]\b"  # each of their chips is two devices of JAX
CLAIMED_RATES = {  # by data set and global batch
    ("synthetic", 1024): "synthetic_rate",
    ("imagenet", 1024): "real_rate",
    ("synthetic", 256): "small_batch_rate",
}
TARGET_ACCURACY = 0.757  # the article's
HALF = [name for name, precision in PRECISIONS.items() if precision.family == "half"]
ELECTRICITY = "electricity"  # the only cost of a machine that was bought
# What an electricity price leaves out, by the boundary of the energy.
NOT_AT_THE_WALL = {
    "board": "electricity of the GPU's board only, without the rest of the computer and its power supply",
    "soc": "electricity of the chip and its memory only, without the rest of the computer",
    "package": "electricity of the CPU's package only, without the rest of the computer",
}

_WORKS = "machine device framework variant source dataset precision image_size"
_ALIKE = _WORKS.split()
_POINT = [*_ALIKE, "batch_size", "device_count"]
_SETTING = [name for name in _ALIKE if name != "source"]
_STATED = ["price_per_hour", "electricity_per_kwh"]
_ENERGY = ["energy_method", "energy_boundary"]
_CURVE = [*_ALIKE[:-1], "device_count", "run_id", "repeat"]


@cached
def points(evidence: Evidence) -> pandas.DataFrame:
    """Return one line per point: images a second and the share of the measured ceiling, or how
    the point failed.

    If two points have the same setting, the one that measured more images counts. For the ceiling
    see `ceilings.efficiency`. Published rates have the bounds of their rounding.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, precision,
        batch_size, image_size, device_count, images_per_second, low, high, interval (kind of
        these bounds), num_windows, verdict, efficiency (the share), energy_per_sample,
        energy_method, energy_boundary, price_per_hour, electricity_per_kwh (these two from the
        run's parameters), status, message, point.
    """
    printed = evidence.printed(NAME).dropna(subset="samples_per_second")
    printed = shared.with_bounds(printed, "samples_per_second")
    measured = statistics.with_settings(evidence.points(NAME), _STATED)
    shares = ceilings.efficiency(measured, evidence.ceilings).set_index(["machine", "point"])[
        "efficiency"
    ]
    measured = measured.join(shares.astype(float), on=["machine", "point"])
    measured[_STATED] = measured[_STATED].astype(float).where(lambda prices: prices != 0)
    described = "machine chip device framework variant source dataset precision batch_size"
    columns = [*described.split(), "image_size", "device_count"]
    columns += ["samples_per_second", *shared.MEASURED, "efficiency"]
    columns += ["energy_per_sample", *_ENERGY, *_STATED, "status", "message", "point"]
    numbers = ["samples_per_second", "low", "high", "efficiency", "energy_per_sample", *_STATED]
    table = shared.with_printed(measured, printed, columns, _POINT)
    table = table.astype(dict.fromkeys(numbers, float)).sort_values(_POINT, ignore_index=True)
    return table.rename(columns={"samples_per_second": "images_per_second"})


def scaling(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rate of several devices over that of one.

    A point with several devices is compared with one device that has the same batch per device
    (weak scaling). Without such a point, it is compared with one device that has the same global
    batch (strong scaling). Ideally, n devices are n times as fast as one. Processes on one CPU
    share its cores; ideally they are as fast as one process with all of them.

    Args:
        table: from `points`.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, several
        (such as 2 processes), device_count, batch_size, kind (weak, strong), ratio (rate over
        the rate of one), efficiency (ratio over the ideal ratio), low, high, interval (the kind
        of these bounds), num_windows (the smaller number), verdict (the worse one).
    """
    measured = records.having(table, source="measured", status="ok")
    measured = measured.dropna(subset="images_per_second").to_dict("records")
    alone = [line for line in measured if line["device_count"] == 1]
    alike, lines = itemgetter(*_ALIKE), []
    ones = {(*alike(line), line["batch_size"]): line for line in alone}
    for several in measured:
        count, batch_size = several["device_count"], several["batch_size"]
        for kind, size in (
            {"weak": batch_size // count, "strong": batch_size}.items() if count > 1 else ()
        ):
            if one := ones.get((*alike(several), size)):
                ideal = 1 if several["device"] == "cpu" else count
                ratio = shared.ratio(several, one, "images_per_second")
                shares = {name: ratio[name] / ideal for name in ("low", "high")}
                shares |= {
                    "several": wording.count(
                        count, "process" if several["device"] == "cpu" else "device"
                    )
                }
                lines.append(
                    several | ratio | shares | {"efficiency": ratio["ratio"] / ideal, "kind": kind}
                )
                break
    names = [*_SETTING, "several", "device_count", "batch_size", "kind", "ratio", "efficiency"]
    return pandas.DataFrame(lines, columns=[*names, *shared.MEASURED])


@cached
def costs(evidence: Evidence) -> pandas.DataFrame:
    """Return the cost of a million training images at every known price, at the fastest point of
    each machine and view.

    Returns:
        Columns: machine, device, device_count, variant, source, precision, dataset, batch_size,
        kind (on_demand, reserved, stated by the run, or electricity), per_hour,
        images_per_second, per_million, low, high (of per_million), interval (their kind),
        num_windows, verdict, energy_method and energy_boundary (of the electricity's joules),
        note (what that boundary leaves out).
    """
    lines, listed = [], {}
    for price in prices.rented(evidence.prices).to_dict("records"):
        listed.setdefault(price["machine"], {})[price["kind"]] = prices.hourly(price)
    best = records.having(points(evidence), status="ok").dropna(subset="images_per_second")
    best = best.assign(view=[figures.view(line) for line in best.to_dict("records")])
    best = best.sort_values("images_per_second", kind="stable")
    best = best.drop_duplicates(["machine", "device", "source", "dataset", "view"], keep="last")
    for line in best.sort_values(["source", "machine", "dataset", "view"], kind="stable").to_dict(
        "records"
    ):
        hourly = dict(listed.get(line["machine"], {}))
        if line["price_per_hour"] > 0:
            hourly["stated by the run"] = line["price_per_hour"]
        if line["electricity_per_kwh"] > 0 and line["energy_per_sample"] > 0:
            watts = line["energy_per_sample"] * line["images_per_second"]
            hourly[ELECTRICITY] = watts / 1000 * line["electricity_per_kwh"]
        for kind, per_hour in hourly.items():
            ends = {"per_million": "images_per_second", "low": "high", "high": "low"}
            cost = {name: prices.rent(1e6 / line[rate], per_hour) for name, rate in ends.items()}
            energy = {name: line[name] if kind == ELECTRICITY else None for name in _ENERGY}
            note = NOT_AT_THE_WALL.get(energy["energy_boundary"], "")
            lines.append(line | energy | cost | {"kind": kind, "per_hour": per_hour, "note": note})
    described = "machine device device_count variant source precision dataset batch_size kind"
    names = [
        *described.split(),
        "per_hour",
        "images_per_second",
        "per_million",
        *shared.MEASURED,
        *_ENERGY,
        "note",
    ]
    return pandas.DataFrame(lines, columns=names)


@cached
def curves(evidence: Evidence) -> pandas.DataFrame:
    """Return accuracy by epoch for each run, with the hours, joules and dollars of the training
    before it.

    Measured values come from `tables.evaluations`. For an article, the hours are its epochs at
    its printed rate, without evaluation, as in its own formula; the dollars are at the machine's
    on-demand price.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count,
        run_id, repeat, epoch, accuracy, hours, joules (missing if a window has none), dollars
        (missing without a price).
    """
    tested = shared.evaluations(evidence, NAME, "accuracy")
    listed = prices.on_demand(evidence.prices)
    rates = evidence.printed(NAME, phase="train", dataset="imagenet").set_index("machine")
    rates = rates["samples_per_second"].to_dict()
    evaluated = evidence.printed(NAME, phase="evaluate").dropna(subset="accuracy")
    for row in evaluated.to_dict("records"):
        rate = rates.get(row["machine"], numpy.nan)
        hours = row["epoch"] * row["dataset_samples"] / rate / 3600
        tested.append(
            row | {"hours": hours, "dollars": hours * listed.get(row["machine"], numpy.nan)}
        )
    table = pandas.DataFrame(
        tested, columns=[*_CURVE, "epoch", "accuracy", "hours", "joules", "dollars"]
    )
    table = table.astype(dict.fromkeys(("hours", "joules", "dollars"), float))
    return table.sort_values(["source", "machine", "run_id", "repeat", "epoch"], ignore_index=True)


def to_target(table: pandas.DataFrame, target: float = TARGET_ACCURACY) -> pandas.DataFrame:
    """Return when each run of `curves` first reached a target accuracy, a fraction; see
    `tables.to_target`.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count,
        run_id, repeat, target, best_accuracy, epoch, hours, joules, dollars.
    """
    ends = ["epoch", "hours", "joules", "dollars"]
    reached = shared.to_target(table.assign(target=target), "accuracy", ends)
    return reached[[*_CURVE, "target", "best_accuracy", *ends]]


def pictures(collection: Collection) -> Drawing:
    """Draw eight training pictures of a collection, resized to squares."""
    train = collection.train
    shown = [train.open(number * len(train) // 8).resize((64, 64)) for number in range(8)]
    pixels = numpy.stack([numpy.asarray(picture) / 255 for picture in shown])
    return Drawing.of_pictures({"training": pixels}, "Eight training pictures, resized to squares")


def claimed(evidence: Evidence) -> list[dict]:
    """Return the quantities of claims: each curve's best accuracy, its epochs and first jump,
    hourly prices, and rates.

    Measured accuracies and rates come from points with as many devices as the article had.
    Accuracies are those on ImageNet; of several runs the longest counts, then the last. Rates
    are those of CLAIMED_RATES, of reference points with 16 bits; of several frameworks and
    precisions the fastest counts. larger_rate is that of the MobileNetV2 article's setting, for
    which this network is the larger one. A price is the run's or, without one, the list price;
    purchase_price is the newest on record, of four chips.
    """
    printed = evidence.printed(NAME, phase="evaluate")
    four = evidence.printed(NAME, dataset="synthetic", batch_size=1024, device_count=NUM_DEVICES)
    values = _purchases(four)
    for _, curve in printed.groupby("machine"):
        best = _best(curve)
        values += [quantities.printed(best, "best_accuracy", "accuracy"), *_epochs(curve, best)]
    four = records.having(evidence.measured, study=NAME, dataset="imagenet", phase="evaluate")
    tested = four[_has_four_chips(four)].dropna(subset="accuracy")
    for _, own in tested.groupby("machine"):
        last = own.sort_values(["epoch", "run_id", "repeat"]).iloc[-1]
        curve = records.having(own, run_id=last["run_id"], repeat=last["repeat"])
        best = _best(curve)
        values += [quantities.exact(best, "best_accuracy", best["accuracy"]), *_epochs(curve, best)]
        gains = curve.set_index("epoch")["accuracy"].astype(float).diff()
        before = gains.loc[DROP_EPOCHS[0] - NUM_BEFORE + 1 : DROP_EPOCHS[0]]
        after = gains.get(DROP_EPOCHS[0] + 1)
        if after is not None and len(before) == NUM_BEFORE:
            values.append(
                quantities.exact(
                    best, "jumped_at_first_drop", after > max(LEAST_JUMP, before.max())
                )
            )
    listed = prices.on_demand(evidence.prices)
    measured = records.having(points(evidence), source="measured")
    measured = measured.sort_values("price_per_hour", na_position="first")
    for line in measured.drop_duplicates("machine", keep="last").to_dict("records"):
        price = prices.price_of_hour(line["machine"], line["price_per_hour"], listed)
        values += [quantities.exact(line, "on_demand_per_hour", price)] if price > 0 else []
    trained = records.having(evidence.points(NAME), variant="reference", status="ok")
    trained = trained[trained["device"].ne("cpu")].dropna(subset="samples_per_second")
    trained = trained.assign(source="measured").sort_values("samples_per_second")
    alike = trained[_has_four_chips(trained) & trained["precision"].isin(HALF)]
    # of the MobileNetV2 article
    larger = records.having(trained, framework="tensorflow", precision="fp32", image_size=128)
    for rates, names in ((alike, CLAIMED_RATES), (larger, {("cifar10", 64): "larger_rate"})):
        rates = rates.drop_duplicates(["machine", "dataset", "batch_size"], keep="last")
        for point in rates.to_dict("records"):
            if name := names.get((point["dataset"], point["batch_size"])):
                values.append(quantities.between(point, name, "samples_per_second"))
    return values + _purchases(alike)


def _purchases(lines: pandas.DataFrame) -> list[dict]:
    """Return what NUM_DEVICES of each machine's chip cost, where their purchase price is known."""
    lines = lines.drop_duplicates("machine").to_dict("records")
    newest = [
        (line, prices.purchase_prices(chips.product(line["device_name"])).head(1)) for line in lines
    ]
    return [
        quantities.exact(line, "purchase_price", NUM_DEVICES * usd)
        for line, own in newest
        for usd in own["usd"]
    ]


def _has_four_chips(rows: pandas.DataFrame) -> pandas.Series:
    """Return whether rows, or lines of a summary, are of as many chips as the article's."""
    doubled = rows["device_name"].str.contains(TWO_CORES).fillna(False) & rows["device"].eq("tpu")
    return rows["device_count"].eq(NUM_DEVICES * (1 + doubled.astype(int))).fillna(False)


def _best(curve: pandas.DataFrame) -> dict:
    """Return the first evaluation with a curve's best accuracy."""
    return curve.sort_values(["accuracy", "epoch"], ascending=[True, False]).iloc[-1].to_dict()


def _epochs(curve: pandas.DataFrame, best: dict) -> list[dict]:
    """Return the epoch of a curve's best accuracy, and the first that reached TARGET_ACCURACY,
    if one did."""
    reached = curve.loc[curve["accuracy"] >= TARGET_ACCURACY, "epoch"].min()
    epochs = {"epochs_to_best": best["epoch"], "epochs_to_757": reached}
    return [
        quantities.exact(best, name, epoch) for name, epoch in epochs.items() if pandas.notna(epoch)
    ]


def _hours(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return lines of `points` with the hours of a million images and their bounds."""
    return table.assign(**shared.inverse(table, "images_per_second", "hours", 1e6 / 3600))


LABEL = ("device_count", "variant", "framework", "precision")
WORK = ("dataset", "image_size")
MILLION = Template(
    "{number} a million images{bounds} training ResNet-50 on {place}",
    "hours",
    "hours",
    "least",
    usual={"variant": "reference", "device_count": 1, "precision": "fp32", "image_size": 224}
    | {"dataset": "imagenet", "batch_size": 0},
)
STUDY = Study(
    name=NAME,
    title="ResNet-50",
    article="RiseML, 2018",
    claim="resnet-cost-75.7",
    quantity="images_per_second",
    unit="images/second",
    priced=(1, ""),
    charts=(
        Bars(
            "resnet50-hours",
            table=points,
            lines=_hours,
            title=MILLION,
            label=(*LABEL, *WORK, "batch_size"),
            xlabel="hours to train on a million images",
            look={"xscale": "log"},
        ),
        Points(
            "resnet50-batches",
            table=points,
            lines=lambda table, evidence: table[table["source"] == "measured"],
            title=Template(
                "{number}{bounds} training ResNet-50 on {place}",
                "images_per_second",
                "images a second",
                usual={"batch_size": 0},
            ),
            x="batch_size",
            by=[*_ALIKE, "device_count"],
            label=LABEL,
            alike=WORK,
            xlabel="images in a step, all devices together",
            ylabel="images a second, training",
        ),
        Bars(
            "resnet50-scaling",
            table=lambda evidence: scaling(points(evidence)),
            title=Template(
                "{several} on {place} reach {number} of the ideal speed{bounds}",
                "efficiency",
                "%",
            ),
            label=("kind", "batch_size", *LABEL),
            alike=WORK,
            text=lambda line: (
                f"{wording.percent(line['efficiency'])} ({wording.times(line['ratio'])} times one)"
            ),
            ticks="{x:.0%}",
            reference=1,
            xlabel="rate over the ideal: n times one device; on a CPU, one process with all cores",
        ),
        Bars(
            "resnet50-money",
            table=costs,
            title=Template(
                "A million images cost {number}{bounds} on {place}", "per_million", "$", "least"
            ),
            label=("variant", "precision", "kind"),
            alike=("dataset",),
            text=lambda line: (
                f"{wording.price(line['per_million'])} at {wording.price(line['per_hour'])} an hour"
            ),
            xlabel="US dollars for a million training images, without evaluation",
            tables={"resnet50-accuracy": lambda evidence: to_target(curves(evidence))},
        ),
    ),
    quantities=claimed,
    tasks=(
        Task(
            "resnet50",
            "ResNet-50, 90 epochs",
            "90 epochs of ImageNet, each with 1,281,167 images of 224 x 224 pixels, at the training"
            " rate, without tests.",
            90 * 1_281_167,
            NAME,
            NAME,
            where={"image_size": 224},
        ),
        Task(
            "resnet50-accuracy",
            "ResNet-50 to 75.9 %",
            "Published times until 75.9 % of ImageNet's test images are classified correctly. Batch"
            " size and recipe differ between sources. Nothing is predicted.",
            1,
            NAME,
            metric="time_to_75.9",
        ),
    ),
)
