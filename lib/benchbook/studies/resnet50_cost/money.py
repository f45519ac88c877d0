"""What ResNet-50 costs: dollars for a million images, hours until a purchase pays, accuracy by hours and dollars."""

import itertools

import numpy
import pandas

from benchbook.judging import statistics
from benchbook.record import estimate
from benchbook.studies import figures, quantities
from benchbook.studies.resnet50_cost import tables
from benchbook.studies.study import Evidence, once

TARGET_ACCURACY = 0.757  # the article's
RENTED = ("on_demand", "reserved")
ELECTRICITY = "electricity"  # of a machine that is paid for
_ENERGY = ["energy_method", "energy_boundary"]
_CURVE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "device_count"]
_CURVE += ["run_id", "repeat"]
_TESTED = [*_CURVE, "epoch", "accuracy"]


@once
def costs(evidence: Evidence) -> pandas.DataFrame:
    """Return what a million training images cost on the fastest point of each machine and view, at every price.

    Returns:
        Columns: machine, device, variant, source, dataset, batch_size, kind (on_demand, reserved, stated by the run, or
        electricity: of a machine that is paid for), per_hour, images_per_second, per_million, low, high (of
        per_million), interval (their kind), num_windows, verdict, rate_per_dollar (images a second for each dollar an
        hour), energy_method and energy_boundary (of joules that electricity is priced by), note (what that boundary
        leaves out).
    """
    best = _fastest(tables.points(evidence), ["machine", "device", "source", "dataset"])
    lines, listed = [], _listed(evidence.prices)
    for line in best.sort_values(["source", "machine", "dataset"], kind="stable").to_dict("records"):
        for kind, per_hour in _hourly(line, listed.get(line["machine"], {})).items():
            ends = {"per_million": "images_per_second", "low": "high", "high": "low"}
            cost = {name: estimate.cost_per_million(line[rate], per_hour) for name, rate in ends.items()}
            worth = estimate.rate_per_dollar(line["images_per_second"], per_hour)
            line |= dict.fromkeys(_ENERGY) if kind != ELECTRICITY else {}
            note = estimate.wall_note(line["energy_boundary"])
            lines.append(line | cost | {"kind": kind, "per_hour": per_hour, "rate_per_dollar": worth, "note": note})
    names = ["machine", "device", "variant", "source", "dataset", "batch_size", "kind", "per_hour", "images_per_second"]
    names += ["per_million", "low", "high", "interval", "num_windows", "verdict", "rate_per_dollar", *_ENERGY, "note"]
    return pandas.DataFrame(lines, columns=names)


def break_even(evidence: Evidence) -> pandas.DataFrame:
    """Return after how many hours of training a machine that states its price has paid, against each rented one.

    Both train on the same kind of data at their fastest, in the same view. The power is that of the training windows,
    within the boundary that a line names: what it leaves out is not paid here, and the note says so.

    Returns:
        Columns: machine, variant, rented, kind, dataset, hours (of the bought machine; infinite where it never pays),
        energy_method, energy_boundary, note.
    """
    table, rented = tables.points(evidence), costs(evidence)
    own = table[(table["purchase_price"] > 0) & (table["electricity_per_kwh"] > 0) & table["energy_per_sample"].notna()]
    own = _fastest(own, ["machine", "dataset"])
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
            **{name: line[name] for name in _ENERGY},
            "note": estimate.wall_note(line["energy_boundary"]),
        }
        for line, other in itertools.product(own.to_dict("records"), rented.to_dict("records"))
        if line["dataset"] == other["dataset"] and line["machine"] != other["machine"]
        if figures.view(line) == figures.view(other)
    ]
    return pandas.DataFrame(
        lines, columns=["machine", "variant", "rented", "kind", "dataset", "hours", *_ENERGY, "note"]
    )


@once
def curves(evidence: Evidence) -> pandas.DataFrame:
    """Return accuracy by epoch with the training that came before it, every run's own raw curve.

    Measured hours and joules are sums over windows; those of an article are its epochs at its printed rate. Dollars are
    hours at the run's stated price, or at the machine's price on demand.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count, run_id, repeat, epoch,
        accuracy, hours, joules (missing if a window has none), dollars (missing without a price).
    """
    printed, measured = (rows[rows["study"] == tables.NAME] for rows in (evidence.published, evidence.measured))
    lines = _printed_curves(printed)
    read = statistics.newest(measured)[list(dict.fromkeys([*_TESTED, "phase", "seconds", "energy_joules", "settings"]))]
    for _, run in read.groupby(["run_id", "repeat"], sort=True):
        lines += _measured_curve(run)
    table = pandas.DataFrame(lines, columns=[*_TESTED, "hours", "joules", "stated"])
    listed = estimate.on_demand(evidence.prices)
    stated = zip(table["machine"], table["stated"], strict=True)
    per_hour = [estimate.price_of_hour(machine, price, listed) for machine, price in stated]
    dollars = table["hours"].astype(float) * pandas.Series(per_hour, table.index, dtype=float)
    table = table.assign(dollars=dollars).drop(columns="stated")
    return table.sort_values(["source", "machine", "run_id", "repeat", "epoch"], ignore_index=True)


def to_target(table: pandas.DataFrame, target: float = TARGET_ACCURACY) -> pandas.DataFrame:
    """Return when each run first reached an accuracy; what was not reached is missing, never continued.

    Args:
        table: from `curves`.
        target: a fraction.

    Returns:
        Columns: machine, device, framework, variant, source, dataset, precision, device_count, run_id, repeat, target,
        best_accuracy, epoch, hours, joules, dollars.
    """
    lines = []
    for _, curve in table.groupby(["run_id", "repeat"], sort=True):
        reached = curve[curve["accuracy"] >= target]
        ends = dict.fromkeys(("epoch", "hours", "joules", "dollars"))
        ends = reached.sort_values("epoch").iloc[0][list(ends)].to_dict() if len(reached) else ends
        lines.append(curve.iloc[0].to_dict() | {"target": target, "best_accuracy": curve["accuracy"].max()} | ends)
    names = [*_CURVE, "target", "best_accuracy", "epoch", "hours", "joules", "dollars"]
    return pandas.DataFrame(lines, columns=names)


def accuracies(evidence: Evidence) -> list[dict]:
    """Return as quantities each curve's best accuracy, the epoch that reached it, and that of the target.

    Measured ones are of four devices on ImageNet; of several runs the longest counts, then the last.
    """
    printed, measured = (rows[rows["study"] == tables.NAME] for rows in (evidence.published, evidence.measured))
    values = []
    for _, curve in printed[printed["phase"] == "evaluate"].groupby("machine"):
        best = curve.sort_values("accuracy").iloc[-1].to_dict()
        values += [quantities.printed(best, "best_accuracy", "accuracy"), *_epochs(curve, best)]
    four = (measured["device_count"] == tables.NUM_DEVICES) & (measured["dataset"] == "imagenet")
    measured = statistics.newest(measured[four.fillna(False)])
    tested = measured[(measured["phase"] == "evaluate") & measured["accuracy"].notna()]
    for _, curves_of_machine in tested.groupby("machine"):
        longest = curves_of_machine.sort_values(["epoch", "run_id"]).iloc[-1]
        curve = tested[(tested["run_id"] == longest["run_id"]) & (tested["repeat"] == longest["repeat"])]
        best = curve.sort_values("accuracy").iloc[-1].to_dict()
        values += [quantities.exact(best, "best_accuracy", best["accuracy"]), *_epochs(curve, best)]
    return values


def stated_prices(evidence: Evidence) -> list[dict]:
    """Return as quantities the dollars for an hour of measured machines, as their runs state them or as listed."""
    measured = tables.points(evidence)
    measured = measured[measured["source"] == "measured"].sort_values("price_per_hour", na_position="first")
    values, listed = [], estimate.on_demand(evidence.prices)
    for line in measured.drop_duplicates("machine", keep="last").to_dict("records"):
        price = estimate.price_of_hour(line["machine"], line["price_per_hour"], listed)
        values += [quantities.exact(line, "on_demand_per_hour", price)] if price > 0 else []
    return values


def _epochs(curve: pandas.DataFrame, best: dict) -> list[dict]:
    """Return the epochs in which a curve reached its best accuracy, and the target where it did."""
    epochs = {"epochs_to_best": best["epoch"], "epochs_to_757": estimate.epochs_to_accuracy(curve, TARGET_ACCURACY)}
    return [quantities.exact(best, name, epoch) for name, epoch in epochs.items() if epoch is not None]


def _fastest(table: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return the fastest of the points that did not fail, of those that are alike, each view for itself."""
    trained = tables.trained(table)
    trained = trained.assign(view=[figures.view(line) for line in trained.to_dict("records")])
    fastest = trained.sort_values("images_per_second", kind="stable").drop_duplicates([*alike, "view"], keep="last")
    return fastest.sort_values("view", kind="stable").drop(columns="view")


def _listed(prices: pandas.DataFrame) -> dict[str, dict[str, float]]:
    """Return the listed prices of an hour, by machine and kind."""
    rented = estimate.in_dollars(prices[prices["kind"].isin(RENTED)])
    listed = {}
    for price in rented.to_dict("records"):
        listed.setdefault(price["machine"], {})[price["kind"]] = estimate.hourly(price)
    return listed


def _hourly(line: dict, listed: dict[str, float]) -> dict[str, float]:
    """Return the prices of an hour of a machine, by kind: those listed for it, and what its run states."""
    hourly = dict(listed)
    if line["price_per_hour"] > 0:
        hourly["stated by the run"] = line["price_per_hour"]
    if line["electricity_per_kwh"] > 0 and line["energy_per_sample"] > 0:
        watts = line["energy_per_sample"] * line["images_per_second"]
        hourly[ELECTRICITY] = estimate.electricity(watts, line["electricity_per_kwh"])
    return hourly


def _printed_curves(printed: pandas.DataFrame) -> list[dict]:
    """Return an article's accuracies, at its rate on real data; evaluation is left out, as in its formula."""
    rates = printed[(printed["phase"] == "train") & (printed["dataset"] == "imagenet")].set_index("machine")
    lines = []
    for row in printed[(printed["phase"] == "evaluate") & printed["accuracy"].notna()].to_dict("records"):
        rate = rates["samples_per_second"].get(row["machine"], numpy.nan)
        hours = estimate.run_hours(row["epoch"], row["dataset_samples"], rate) if rate > 0 else numpy.nan
        lines.append({name: row[name] for name in _TESTED} | {"hours": hours})
    return lines


def _measured_curve(run: pandas.DataFrame) -> list[dict]:
    lines, seconds, joules = [], 0.0, 0.0
    for row in run.to_dict("records"):
        if row["phase"] == "train" and pandas.notna(row["seconds"]):
            seconds += row["seconds"]
            joules += row["energy_joules"] if pandas.notna(row["energy_joules"]) else numpy.nan
        if row["phase"] == "evaluate" and pandas.notna(row["accuracy"]):
            stated = row["settings"].get("price_per_hour")
            lines.append(
                {name: row[name] for name in _TESTED} | {"hours": seconds / 3600, "joules": joules, "stated": stated}
            )
    return lines
