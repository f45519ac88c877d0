"""A speed from a machine's calibration: the share of their ceiling that other machines reached on the same work."""

import math
from collections.abc import Sequence

import numpy
import pandas

from benchbook import roofline
from benchbook.predictions import speeds
from benchbook.predictions.prediction import LEVEL, PREDICTED, Prediction, TooLittle

BASIS = "calibration"
FEWEST = 3  # other machines
WORK = ["study", "work", "framework", "arithmetic", "flops_per_sample"]


def predict(efficiencies: Sequence[float], ceiling: float, flops_per_sample: float) -> Prediction:
    """Return how fast a machine trains what others trained: efficiency x ceiling / arithmetic of a sample.

    Args:
        efficiencies: the shares of their own ceiling that other machines reached, one each.
        ceiling: what the machine reaches on matrix products, FLOP/s.
        flops_per_sample: of training.

    Raises:
        TooLittle: fewer than three other machines.
        ValueError: a number that is not above 0.
    """
    from scipy.stats import t

    for name, value in (("ceiling", ceiling), ("flops_per_sample", flops_per_sample)):
        if not value > 0:
            raise ValueError(f"{name} {value!r}; allowed: above 0")
    if any(not value > 0 for value in efficiencies):
        raise ValueError(f"efficiency {min(efficiencies)!r}; allowed: above 0")
    count = len(efficiencies)
    if count < FEWEST:
        raise TooLittle(f"{count} of the {FEWEST} other machines that a calibration needs were measured on it")
    logs = numpy.log(efficiencies)
    value = math.exp(logs.mean()) * ceiling / flops_per_sample
    reach = t.ppf((1 + LEVEL) / 2, count - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / count)
    return Prediction(value, value * math.exp(-reach), value * math.exp(reach), BASIS, count)


def reached(summary: pandas.DataFrame, rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the share of its ceiling that each machine reached on each work.

    Args:
        summary: measured points, from `statistics.summarise`.
        rows: with those of calibrations.

    Returns:
        Columns: work, machine, chip, device, framework, arithmetic (the precision of its matrix products), study,
        point, flops_per_sample, samples_per_second, efficiency.
    """
    known = roofline.efficiency(summary, rows)
    known = known[known["efficiency"].notna()]
    named = pandas.DataFrame(speeds.measured(known), columns=["machine", "study", "point", "work", "processor"])
    known = known.assign(arithmetic=known["precision"].replace(roofline.ARITHMETIC))
    return known.merge(named, on=["machine", "study", "point"])


def lines(summary: pandas.DataFrame, rows: pandas.DataFrame) -> list[dict]:
    """Return each calibrated machine's speed on each work that others reached a share of their ceiling on.

    CPUs tell of CPUs, and accelerators of accelerators. What a machine reached itself is hidden from its prediction.

    Args:
        summary, rows: as `reached` takes them.

    Returns:
        machine, chip, device, processor, study, work, unit, publication, source, measured (None where it was not), and
        prediction, or reason where there was too little to go on.
    """
    known, best = reached(summary, rows), _ceilings(rows)
    found = []
    for key, group in known.groupby(WORK, sort=True) if len(known) else ():
        work = dict(zip(WORK, key, strict=True))
        able = best[(best["framework"] == work["framework"]) & (best["precision"] == work["arithmetic"])]
        for target in able.to_dict("records"):
            itself = (group["machine"] == target["machine"]) & (group["device"] == target["device"])
            kin = (group["machine"] != target["machine"]) & (group["device"].eq("cpu") == (target["device"] == "cpu"))
            line = {name: target[name] for name in ("machine", "chip", "device", "processor")} | work
            line["unit"] = "samples/s"
            line["measured"] = float(group.loc[itself, "samples_per_second"].median()) if itself.any() else None
            line |= {"source": "measured" if itself.any() else PREDICTED, "publication": speeds.HERE}
            others = group[kin].groupby("machine")["efficiency"].median()
            try:
                line["prediction"] = predict(others.tolist(), target["rate"], work["flops_per_sample"])
            except TooLittle as reason:
                line["reason"] = str(reason)
            found.append(line)
    return found


def _ceilings(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the last calibration of matrix products of each machine's devices."""
    best = roofline.ceilings(rows)
    best = best[best["model"] == "matmul"].sort_values("session")
    best = best.drop_duplicates(["machine", "device", "framework", "precision"], keep="last")
    names = rows.groupby(["machine", "device"])["device_name"].last().dropna().to_dict()
    named = [
        speeds.processor(line["device"], line["chip"], names.get((line["machine"], line["device"])), line["machine"])
        for line in best.to_dict("records")
    ]
    return best.assign(processor=named).sort_values(["machine", "device", "framework"])
