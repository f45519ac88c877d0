"""What ResNet-50 costs: dollars for a million images, hours until a purchase pays, accuracy by hours and dollars."""

import itertools

import numpy
import pandas

from benchbook import estimate, figures, statistics
from benchbook.studies.resnet50_cost.tables import NAME

RENTED = ("on_demand", "reserved")
_CURVE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "device_count"]


def money(table: pandas.DataFrame, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return what a million training images cost on the fastest point of each machine and view, at every price.

    Args:
        table: from `points`.
        prices: from `articles.prices`, in one currency.

    Returns:
        Columns: machine, device, variant, source, dataset, batch_size, kind (on_demand, reserved, stated by the run, or
        electricity: of a machine that is paid for), per_hour, images_per_second, per_million, low, high (of
        per_million), num_windows, verdict, rate_per_dollar (images a second for each dollar an hour).
    """
    best = _fastest(table, ["machine", "device", "source", "dataset"])
    lines = []
    for line in best.sort_values(["source", "machine", "dataset"], kind="stable").to_dict("records"):
        for kind, per_hour in _hourly(line, prices).items():
            costs = [estimate.cost_per_million(line[name], per_hour) for name in ("images_per_second", "high", "low")]
            worth = estimate.rate_per_dollar(line["images_per_second"], per_hour)
            cost = dict(zip(("per_million", "low", "high"), costs, strict=True))
            lines.append(line | cost | {"kind": kind, "per_hour": per_hour, "rate_per_dollar": worth})
    names = ["machine", "device", "variant", "source", "dataset", "batch_size", "kind", "per_hour", "images_per_second"]
    names += ["per_million", "low", "high", "num_windows", "verdict", "rate_per_dollar"]
    return pandas.DataFrame(lines, columns=names)


def break_even(table: pandas.DataFrame, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return after how many hours of training a machine that states its price has paid, against each rented one.

    Both train on the same kind of data at their fastest, in the same view. The power is that of the training windows,
    whose boundary a row names: what it leaves out is not paid here.

    Returns:
        Columns: machine, variant, rented, kind, dataset, hours (of the bought machine; infinite where it never pays).
    """
    own = table[(table["purchase_price"] > 0) & (table["electricity_per_kwh"] > 0) & table["energy_per_sample"].notna()]
    own = _fastest(own, ["machine", "dataset"])
    rented = money(table, prices)
    rented = rented[rented["kind"].isin(RENTED)]
    lines = [
        {
            "machine": line["machine"],
            "variant": line["variant"],
            "rented": other["machine"],
            "kind": other["kind"],
            "dataset": line["dataset"],
            "hours": estimate.break_even_hours(
                line["purchase_price"],
                line["energy_per_sample"] * line["images_per_second"],
                line["electricity_per_kwh"],
                other["per_hour"],
                line["images_per_second"] / other["images_per_second"],
            ),
        }
        for line, other in itertools.product(own.to_dict("records"), rented.to_dict("records"))
        if line["dataset"] == other["dataset"] and line["machine"] != other["machine"]
        if figures.view(line) == figures.view(other)
    ]
    return pandas.DataFrame(lines, columns=["machine", "variant", "rented", "kind", "dataset", "hours"])


def curves(rows: pandas.DataFrame, prices: pandas.DataFrame) -> pandas.DataFrame:
    """Return accuracy by epoch with the training that came before it, every run's own raw curve.

    Measured hours and joules are sums over windows; those of an article are its epochs at its printed rate. Dollars are
    hours at the run's stated price, or at the machine's price on demand.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count, run_id, repeat, epoch,
        accuracy, hours, joules (missing if a window has none), dollars (missing without a price).
    """
    study = rows[(rows["study"] == NAME)]
    lines = _printed_curves(study[study["source"] != "measured"])
    for _, run in statistics.newest(study[study["source"] == "measured"]).groupby(["run_id", "repeat"], sort=True):
        lines += _measured_curve(run)
    found = pandas.DataFrame(
        lines, columns=[*_CURVE, "run_id", "repeat", "epoch", "accuracy", "hours", "joules", "stated"]
    )
    per_hour = [estimate.price_of_hour(line["machine"], line["stated"], prices) for line in found.to_dict("records")]
    found = found.assign(dollars=found["hours"].astype(float) * pandas.Series(per_hour, dtype=float, index=found.index))
    return found.drop(columns="stated").sort_values(
        ["source", "machine", "run_id", "repeat", "epoch"], ignore_index=True
    )


def to_target(found: pandas.DataFrame, target: float) -> pandas.DataFrame:
    """Return when each run first reached an accuracy; what was not reached is missing, never continued.

    Args:
        found: from `curves`.
        target: a fraction.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count, run_id, repeat, target,
        best_accuracy, epoch, hours, joules, dollars.
    """
    lines = []
    for _, curve in found.groupby(["run_id", "repeat"], sort=True):
        reached = curve[curve["accuracy"] >= target]
        ends = dict.fromkeys(("epoch", "hours", "joules", "dollars"))
        ends = reached.sort_values("epoch").iloc[0][list(ends)].to_dict() if len(reached) else ends
        lines.append(curve.iloc[0].to_dict() | {"target": target, "best_accuracy": curve["accuracy"].max()} | ends)
    names = [*_CURVE, "run_id", "repeat", "target", "best_accuracy", "epoch", "hours", "joules", "dollars"]
    return pandas.DataFrame(lines, columns=names)


def _fastest(table: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return the fastest of the points that did not fail, of those that are alike, each view for itself."""
    known = table[table["images_per_second"].notna() & table["status"].eq("ok")]
    known = known.assign(view=[figures.view(line) for line in known.to_dict("records")])
    known = known.sort_values("images_per_second", kind="stable").drop_duplicates([*alike, "view"], keep="last")
    return known.sort_values("view", kind="stable").drop(columns="view")


def _hourly(line: dict, prices: pandas.DataFrame) -> dict[str, float]:
    """Return the prices of an hour of a machine, by kind."""
    listed = prices[(prices["machine"] == line["machine"]) & prices["kind"].isin(RENTED)]
    found = {price["kind"]: estimate.hourly(price) for price in listed.to_dict("records")}
    if line["price_per_hour"] > 0:
        found["stated by the run"] = line["price_per_hour"]
    if line["electricity_per_kwh"] > 0 and line["energy_per_sample"] > 0:
        watts = line["energy_per_sample"] * line["images_per_second"]
        found["electricity"] = estimate.electricity(watts, line["electricity_per_kwh"])
    return found


def _printed_curves(printed: pandas.DataFrame) -> list[dict]:
    """Return an article's accuracies, at its rate on real data; evaluation is left out, as in its formula."""
    rates = printed[(printed["phase"] == "train") & (printed["dataset"] == "imagenet")].set_index("machine")
    lines = []
    for row in printed[(printed["phase"] == "evaluate") & printed["accuracy"].notna()].to_dict("records"):
        rate = rates["samples_per_second"].get(row["machine"], numpy.nan)
        hours = estimate.run_hours(row["epoch"], row["dataset_samples"], rate) if rate > 0 else numpy.nan
        lines.append(
            {name: row[name] for name in [*_CURVE, "run_id", "repeat", "epoch", "accuracy"]} | {"hours": hours}
        )
    return lines


def _measured_curve(run: pandas.DataFrame) -> list[dict]:
    lines, seconds, joules = [], 0.0, 0.0
    for row in run.to_dict("records"):
        if row["phase"] == "train" and pandas.notna(row["seconds"]):
            seconds += row["seconds"]
            joules += row["energy_joules"] if pandas.notna(row["energy_joules"]) else numpy.nan
        if row["phase"] == "evaluate" and pandas.notna(row["accuracy"]):
            told = {name: row[name] for name in [*_CURVE, "run_id", "repeat", "epoch", "accuracy"]}
            stated = row["settings"].get("price_per_hour")
            lines.append(told | {"hours": seconds / 3600, "joules": joules, "stated": stated})
    return lines
