"""What is wrong with a figure of the record, and what a reader must know of it."""

import pandas

from benchbook.machine import layout
from benchbook.record import chips, networks

UNOFFICIAL = "unofficial: not verified by MLCommons Association"
ABOVE = 1.1  # times the peak: clocks rise above the printed one
WINOGRAD = 2.25  # as many fewer multiplications does a 3 x 3 convolution need: https://arxiv.org/abs/1509.09308
ALIKE = 0.003  # two sources print one figure where they differ by less


def judge(figures: pandas.DataFrame) -> tuple[list[str], pandas.Series]:
    """Return what a reader must know of each figure, and why nothing is concluded from it; empty where nothing.

    Args:
        figures: as `ledger.read` lays them out, without these two columns.
    """
    shares = _shares_of_peak(figures)
    marks = [_mark(line, share) for line, share in zip(figures.to_dict("records"), shares, strict=True)]
    return marks, _refusals(figures, shares)


def _mark(line: dict, share_of_peak: float) -> str:
    """Return what a reader must know of a figure."""
    marks = []
    if line["article"].startswith("MLPerf"):
        marks.append(UNOFFICIAL)
    if "no licence" in line["note"]:
        marks.append("source without a licence: cited one by one")
    if line["precision"].startswith("fp32") and line["computed"] == "tf32":
        marks.append(f"printed as {line['precision']}, computed in TF32 or taken for it")
    if "the vendor's own" in line["note"]:
        marks.append("the vendor's own")
    if ABOVE < share_of_peak <= WINOGRAD and line["unit"] != "TFLOP/s":
        marks.append(f"{share_of_peak:.1f} times the printed peak, as convolutions that save multiplications can be")
    return "; ".join(marks)


def _refusals(figures: pandas.DataFrame, shares: pandas.Series) -> pandas.Series:
    """Return why nothing is concluded from a figure: what was traced to its source by hand, else the first reason."""
    allowed = figures["unit"].eq("TFLOP/s").map({True: ABOVE, False: WINOGRAD})
    reasons = pandas.Series("", index=figures.index)
    for reason, wrong in (
        ("above the chip's printed peak", shares > allowed),
        ("above the chip's printed bandwidth", _above_bandwidth(figures)),
        ("the same figure in another source", _repeated(figures)),
        ("one table under two networks", _copied(figures)),
        ("the chip is not stated", figures["chip"].str.contains("not stated")),
    ):
        reasons = reasons.mask(reasons.eq("") & wrong, reason)
    faults = pandas.read_csv(layout.published() / "record" / "faults.csv").set_index(["article", "metric", "value"])
    places = pandas.MultiIndex.from_frame(figures[["article", "metric", "value"]])
    traced = pandas.Series(faults["reason"].reindex(places).to_numpy(), index=figures.index)
    return traced.where(traced.notna(), reasons)


def _above_bandwidth(figures: pandas.DataFrame) -> pandas.Series:
    """Return which copies are faster than the memory that is printed of the chip."""
    printed = figures["chip"].map(chips.table()["bandwidth_gb_s"])
    return figures["unit"].eq("GB/s") & (figures["value"] > ABOVE * printed)


def _shares_of_peak(figures: pandas.DataFrame) -> pandas.Series:
    """Return how many times the chip's printed peak a rate, or a matrix product, takes in operations a second."""
    operations = figures["value"].where(figures["unit"].eq("TFLOP/s"))
    counted = figures["network"].isin(networks.table().index) & figures["rate"].notna()
    for place, line in figures[counted].iterrows():
        work = networks.describe(line["network"], line["image_size"] if line["image_size"] > 0 else None)
        operations[place] = line["rate"] * work.flops_per_sample / 1e12 / max(1, line["device_count"])
    precisions = figures["computed"].where(figures["computed"].notna(), None)
    peaks = [chips.peak(chip, computed) for chip, computed in zip(figures["chip"], precisions, strict=True)]
    return operations / pandas.Series(peaks, index=figures.index)


def _repeated(figures: pandas.DataFrame) -> pandas.Series:
    """Return which rates another source of the same publication prints too; that with more settings is kept."""
    rates = figures[figures["rate"].notna()].sort_values("settings", key=lambda texts: -texts.str.len(), kind="stable")
    key = ["publication", "chip", "network", "image_size", "computed", "device_count"]
    kept, wrong = {}, pandas.Series(False, index=figures.index)
    for place, line in zip(rates.index, rates.to_dict("records"), strict=True):
        others = kept.setdefault(tuple(str(line[name]) for name in key), [])
        same = [article != line["article"] and abs(rate / line["rate"] - 1) < ALIKE for article, rate in others]
        wrong[place] = any(same)
        others.append((line["article"], line["rate"]))
    return wrong


def _copied(figures: pandas.DataFrame) -> pandas.Series:
    """Return which rates a source prints for two networks to the last digit, on one chip in one precision."""
    rates = figures[figures["rate"].notna() & (figures["network"] != "")]
    key = ["article", "machine", "chip", "precision", "device_count", "image_size", "rate"]
    names = rates.groupby(key, dropna=False)["network"].transform("nunique")
    return (names > 1).reindex(figures.index, fill_value=False)
