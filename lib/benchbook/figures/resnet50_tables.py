"""Tables of the ResNet-50 study: throughput by batch, scaling, money, accuracy by time and by money."""

import itertools

import numpy
import pandas

from benchbook import articles, estimate, figures, records, roofline, statistics, verdicts

STUDY = "resnet50_cost"
RENTED = ("on_demand", "reserved")
_KEPT = ["machine", "chip", "device", "framework", "variant", "source", "dataset", "precision", "batch_size"]
ALIKE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "image_size"]
_COUNTS = ["image_size", "device_count", "node_count"]
_STATED = ["price_per_hour", "purchase_price", "electricity_per_kwh"]
_CURVE = ["machine", "device", "framework", "variant", "source", "dataset", "precision", "device_count"]


def points(rows: pandas.DataFrame, conditions: pandas.DataFrame | None = None) -> pandas.DataFrame:
    """Return one line per point: images a second and the share of the measured ceiling, or how it ended.

    Of two points that are alike the one that measured more images counts. The share is against the ceiling of one
    device, calibrated in the same session, times the number of devices; processes on a CPU share its cores, and its
    ceiling. Published rates stand with their rounding.

    Args:
        rows: measured and published ones, and those of calibration.
        conditions: from `condition.samples`, for the verdicts; None where there are none.

    Returns:
        Columns: machine, chip, device, framework, variant, source, dataset, precision, batch_size, image_size,
        device_count, node_count, images_per_second, low, high, num_windows, verdict, efficiency, energy_per_sample,
        price_per_hour, purchase_price, electricity_per_kwh (as the run states them), status, message.
    """
    study = rows[rows["study"] == STUDY]
    printed = study[(study["source"] != "measured") & study["samples_per_second"].notna()]
    lines = [_printed(row) for row in printed.to_dict("records")]
    measured = study[study["source"] == "measured"]
    counted = measured.groupby(["machine", "point"])[_COUNTS].last()
    summary = verdicts.summarise(measured, conditions)
    reached = roofline.efficiency(summary, rows).set_index(["machine", "point"])["efficiency"].to_dict()
    lines += [_measured(point, counted, reached) for point in summary.to_dict("records")]
    columns = [*_KEPT, *_COUNTS, "images_per_second", "low", "high", "num_windows", "verdict", "efficiency"]
    columns += ["energy_per_sample", *_STATED, "status", "message"]
    table = pandas.DataFrame(lines, columns=[*columns, "num_samples"])
    numbers = ["images_per_second", "low", "high", "efficiency", "energy_per_sample", *_STATED]
    table = table.astype(dict.fromkeys(numbers, float))
    alike = [*ALIKE, "batch_size", "device_count", "node_count"]
    table = table.sort_values("num_samples", kind="stable").drop_duplicates(alike, keep="last")
    return table.sort_values(alike)[columns].reset_index(drop=True)


def batches(table: pandas.DataFrame, swapped: frozenset = frozenset()) -> pandas.DataFrame:
    """Return the largest batch that trained, the smallest that memory did not hold, and the fastest.

    Args:
        table: from `points`.
        swapped: (machine, batch_size) of points whose machine swapped meanwhile; they do not count as held.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, largest_batch,
        out_of_memory_batch (missing where every batch fitted), fastest_batch, images_per_second.
    """
    key = [*(name for name in ALIKE if name != "source"), "device_count"]
    lines = []
    for values, group in table[table["source"] == "measured"].groupby(key, dropna=False, sort=True):
        held = group[group["images_per_second"].notna() & group["status"].isin(["ok", "diverged"])]
        held = held[[(line["machine"], line["batch_size"]) not in swapped for line in held.to_dict("records")]]
        beyond = group.loc[group["status"] == "out_of_memory", "batch_size"]
        line = dict(zip(key, values, strict=True)) | {"out_of_memory_batch": beyond.min() if len(beyond) else None}
        if len(held):
            fastest = held.loc[held["images_per_second"].idxmax()]
            line |= {"largest_batch": held["batch_size"].max(), "fastest_batch": fastest["batch_size"]}
            line["images_per_second"] = fastest["images_per_second"]
        lines.append(line)
    found = ["largest_batch", "out_of_memory_batch", "fastest_batch", "images_per_second"]
    return pandas.DataFrame(lines, columns=[*key, *found])


def scaling(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return how the rate of several devices compares with that of one.

    A point of several is held against one device with the same images each (weak), or, without such a point, with the
    same batch (strong). Devices are ideally n times as fast as one; processes on one CPU share its cores, and are
    ideally as fast as one process that has them all.

    Returns:
        Columns: machine, device, framework, variant, dataset, precision, image_size, device_count, node_count,
        batch_size, kind (weak, strong), ratio (rate over that of one), efficiency (ratio over the ideal), low, high,
        num_windows (of the one with fewer), verdict (of the one that is worse off).
    """
    known = table[(table["source"] == "measured") & table["images_per_second"].notna() & table["status"].eq("ok")]
    ones = {
        (*_identity(line), line["batch_size"]): line for line in known[known["device_count"] == 1].to_dict("records")
    }
    lines = []
    for line in known[known["device_count"] > 1].to_dict("records"):
        choices = {"weak": line["batch_size"] // line["device_count"], "strong": line["batch_size"]}
        kind = next((name for name, size in choices.items() if (*_identity(line), size) in ones), None)
        if kind is None:
            continue
        one = ones[(*_identity(line), choices[kind])]
        ideal = 1 if line["device"] == "cpu" else line["device_count"]
        ratio = line["images_per_second"] / one["images_per_second"]
        bounds = {"low": line["low"] / one["high"] / ideal, "high": line["high"] / one["low"] / ideal}
        judged = {"verdict": verdicts.worse(line["verdict"], one["verdict"])}
        judged["num_windows"] = min(line["num_windows"], one["num_windows"])
        lines.append(line | {"kind": kind, "ratio": ratio, "efficiency": ratio / ideal} | bounds | judged)
    names = [name for name in ALIKE if name != "source"]
    names += ["device_count", "node_count", "batch_size", "kind", "ratio", "efficiency", "low", "high"]
    names += ["num_windows", "verdict"]
    return pandas.DataFrame(lines, columns=names)


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
    study = rows[(rows["study"] == STUDY)]
    lines = _printed_curves(study[study["source"] != "measured"])
    for _, run in statistics.newest(study[study["source"] == "measured"]).groupby(["run_id", "repeat"], sort=True):
        lines += _measured_curve(run)
    found = pandas.DataFrame(
        lines, columns=[*_CURVE, "run_id", "repeat", "epoch", "accuracy", "hours", "joules", "stated"]
    )
    per_hour = [_rent(line, prices) for line in found.to_dict("records")]
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


def reading(rows: pandas.DataFrame) -> str:
    """Return what one run's rows say, in a sentence with its numbers."""
    line = statistics.summarise(rows).iloc[0]
    devices = int(rows["device_count"].max())
    where = f"{line['variant']}, {line['framework']}, {devices} x {line['device']}, {line['dataset']}"
    rate = f"a median of {line['samples_per_second']:,.1f} images a second over {line['num_windows']} windows"
    accuracy = f"; test accuracy {line['accuracy']:.1%}" if pandas.notna(line["accuracy"]) else ""
    joules = line["energy_per_sample"]
    energy = f"; {joules:.3g} J an image" if pandas.notna(joules) else "; its joules cannot be read here"
    return f"This run ({where}, batch {line['batch_size']}) trained on {rate}{accuracy}{energy}."


def _measured(point: dict, counted: pandas.DataFrame, reached: dict) -> dict:
    told, key = records.settings(point["settings"]), (point["machine"], point["point"])
    counts = counted.loc[key].to_dict()
    share = reached.get(key, numpy.nan)
    share = share if point["device"] == "cpu" else share / counts["device_count"]
    return {
        **{
            name: point[name]
            for name in (*_KEPT, "low", "high", "num_windows", "verdict", "energy_per_sample")
            if name in point
        },
        **counts,
        **{name: told.get(name) or numpy.nan for name in _STATED},
        **{name: point[name] for name in ("status", "message", "num_samples")},
        "source": "measured",
        "images_per_second": point["samples_per_second"],
        "efficiency": share,
    }


def _printed(row: dict) -> dict:
    low, high = articles.bounds(row, "samples_per_second")
    told = {name: row[name] for name in (*_KEPT, *_COUNTS, "status", "message")}
    return told | {"images_per_second": row["samples_per_second"], "low": low, "high": high, "num_samples": 0}


def _fastest(table: pandas.DataFrame, alike: list[str]) -> pandas.DataFrame:
    """Return the fastest of the points that did not fail, of those that are alike, each view for itself."""
    known = table[table["images_per_second"].notna() & table["status"].eq("ok")]
    known = known.assign(view=[figures.view(line) for line in known.to_dict("records")])
    known = known.sort_values("images_per_second", kind="stable").drop_duplicates([*alike, "view"], keep="last")
    return known.sort_values("view", kind="stable").drop(columns="view")


def _identity(line: dict) -> tuple:
    return tuple(line[name] for name in ALIKE)


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


def _rent(line: dict, prices: pandas.DataFrame) -> float:
    """Return the price of an hour that a curve is counted at: the run's own, else that on demand."""
    if pandas.notna(line["stated"]) and line["stated"]:
        return float(line["stated"])
    listed = prices[(prices["machine"] == line["machine"]) & (prices["kind"] == "on_demand")]
    return estimate.hourly(listed.iloc[0].to_dict()) if len(listed) else numpy.nan


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
            stated = records.settings(row["settings"]).get("price_per_hour")
            lines.append(told | {"hours": seconds / 3600, "joules": joules, "stated": stated})
    return lines
