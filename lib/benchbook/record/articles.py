"""Published data: the record's figures and their contradictions, the articles' rows, and prices."""

import functools
import json
from typing import Any

import numpy
import pandas

from benchbook.machine import layout
from benchbook.record import chips
from benchbook.rows import networks, records

RATES = ("throughput", "throughput_real_data")  # metrics of training alone
FLOP_RATES = ("TFLOP/s", "TFLOP/s/chip")
SECONDS = {"s": 1.0, "ms": 1e-3}  # units of a step's time
PRECISIONS = {
    "bf16 (the script's default)": "bf16",
    "fp16 (see note)": "fp16",
    "fp32 (see note)": "fp32",
}
UNOFFICIAL = "unofficial: not verified by MLCommons Association"
ABOVE_PEAK = (
    1.1  # allowed factor over the published peak, because clocks rise above the published clock
)
WINOGRAD = (
    2.25  # reduction of multiplications in a 3 x 3 convolution: https://arxiv.org/abs/1509.09308
)
SAME_FIGURE = 0.003  # figures of two sources that differ by less, relative, are one figure


@functools.cache
def read() -> pandas.DataFrame:
    """Return the record's figures, with their settings as columns and the errors found in each
    figure.

    Returns:
        The file's columns; chip is the canonical name. Added columns: publication (several
        sources that report the same runs of one laboratory are one publication); details (the
        settings as a dict); network, phase, image_size, sequence_length (tokens), batch_size (of
        one device), device_count; computed (the precision of the arithmetic: fp32, tf32, fp16,
        bf16, amp_fp16, amp_bf16, or missing); rate (training images or sequences a second on all
        devices together; missing if the figure is not a rate); flops_per_sample (missing if not
        counted); share_of_peak (of one device; missing if its operations or its peak are
        unknown); caveats (for the reader; empty without); refused (why the figure is not used;
        empty if it is used).
    """
    return described(table("record/figures.csv", dtype=str, keep_default_na=False))


def table(name: str, **options: Any) -> pandas.DataFrame:
    """Return a published table with the lines of the user's own; see `pandas.read_csv`."""
    parts = [pandas.read_csv(path, **options) for path in layout.published_files(name)]
    return pandas.concat(parts, ignore_index=True)


def described(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return figures with the columns that `read` adds.

    Args:
        figures: with the record's columns, as text.
    """
    figures = figures.copy()
    figures["value"] = pandas.to_numeric(figures["value"], errors="coerce")
    figures["details"] = settings = [json.loads(text or "{}") for text in figures["settings"]]
    figures["chip"] = figures["chip"].map(chips.canonical)
    figures["publication"] = figures["article"].replace(
        sources().set_index("article")["publication"].to_dict()
    )
    figures["network"] = [networks.canonical(str(details.get("model", ""))) for details in settings]
    figures["phase"] = pandas.Series([details.get("phase") for details in settings], dtype="object")
    for name in ("image_size", "sequence_length", "device_count"):
        figures[name] = pandas.to_numeric(
            pandas.Series([details.get(name) for details in settings]), errors="coerce"
        )
    figures["batch_size"] = [_batch(details) for details in settings]
    figures["computed"] = [_computed(line) for line in figures.to_dict("records")]
    figures["rate"] = _rates(figures)
    sizes = figures[["image_size", "sequence_length"]].astype(object)
    sizes = sizes.where(sizes > 0, None).to_numpy()
    works = map(networks.describe, figures["network"], *sizes.T)
    figures["flops_per_sample"] = pandas.Series(
        [one.flops_per_sample for one in works], dtype=float
    )
    operations = figures["rate"] * figures["flops_per_sample"]
    teraflops = operations / 1e12 / figures["device_count"].clip(1).fillna(1)
    reached = teraflops.fillna(figures["value"].where(figures["unit"].isin(FLOP_RATES)))
    figures["share_of_peak"] = shares = reached / list(
        map(chips.peak, figures["chip"], figures["computed"])
    )
    figures["caveats"] = [
        _caveats(line, share)
        for line, share in zip(figures.to_dict("records"), shares, strict=True)
    ]
    figures["refused"] = _refusals(figures, shares)
    return figures


def citation(line: dict) -> str:
    """Return the citation of a figure: article, place in the article, and caveats."""
    return "; ".join(filter(None, (line["article"], line["source"], line["caveats"])))


@functools.cache
def sources() -> pandas.DataFrame:
    """Return the record's sources: article, publication, date (a year), licence, means, energy."""
    return pandas.read_csv(layout.published() / "record" / "sources.csv", keep_default_na=False)


def _batch(details: dict) -> float:
    """Return the batch size of one device; a batch size of all devices is divided."""
    try:
        if details.get("batch_size_per_device"):
            return float(details["batch_size_per_device"])
        return float(details["batch_size"]) / float(details.get("device_count") or 1)
    except (KeyError, TypeError, ValueError):
        return numpy.nan


def _computed(line: dict) -> str | None:
    """Return the precision of the arithmetic: tf32 for a printed "fp32" if the GPU used TF32 by
    default.

    A chip with matrix units alone, such as a TPU, computes in bf16 if nothing is stated.
    """
    printed = line["precision"]
    computed = printed if printed in records.PRECISIONS else PRECISIONS.get(printed)
    if (
        computed is None
        and printed.startswith(("fp32", "tf32"))
        and ("tf32" in printed or "not stated" in printed)
    ):
        computed = "tf32"
    if not printed and chips.has_matrix_units_alone(line["chip"]):
        computed = "bf16"
    return "fp32" if computed == "tf32" and not chips.has_tf32(line["chip"]) else computed


def _rates(figures: pandas.DataFrame) -> pandas.Series:
    """Return training images or sequences a second; missing if a figure is not a rate, or its
    length is unknown."""
    unit = figures["unit"]
    samples = pandas.Series(1.0, index=figures.index).where(unit.isin(["img/s", "samples/s"]))
    samples = samples.where(unit.ne("tokens/s"), 1 / figures["sequence_length"])
    rates = (figures["value"] * samples).where(figures["metric"].isin(RATES))
    steps = figures["batch_size"] / (figures["value"] * unit.map(SECONDS))
    rates = rates.where(figures["metric"].ne("time_per_step"), steps)
    rates = rates.where(unit.ne("steps/s"), figures["value"] * figures["batch_size"])
    return rates.where(figures["phase"].eq("train"))


def _caveats(line: dict, share_of_peak: float) -> str:
    """Return the caveats of a figure."""
    as_tf32 = line["precision"].startswith("fp32") and line["computed"] == "tf32"
    above = ABOVE_PEAK < share_of_peak <= WINOGRAD and line["unit"] not in FLOP_RATES
    caveats = {
        UNOFFICIAL: line["article"].startswith("MLPerf"),
        "the source states no licence": "no licence" in line["note"],
        f"printed as {line['precision']}, computed in TF32 or assumed to be": as_tf32,
        "the vendor's own": "the vendor's own" in line["note"],
        f"{share_of_peak:.1f} times the published peak, which convolutions with fewer multiplications allow": above,
    }
    return "; ".join(caveat for caveat, holds in caveats.items() if holds)


def _refusals(figures: pandas.DataFrame, shares: pandas.Series) -> pandas.Series:
    """Return why each figure is refused: the error that was traced to its source by hand, else
    the first that is found.

    The text is empty for a figure that is used.
    """
    allowed = figures["unit"].isin(FLOP_RATES).map({True: ABOVE_PEAK, False: WINOGRAD})
    bandwidths = ABOVE_PEAK * figures["chip"].map(chips.table()["bandwidth_gb_s"])
    named = figures[figures["rate"].notna() & figures["network"].ne("")]
    key = ["article", "machine", "chip", "precision", "device_count", "image_size", "rate"]
    copied = (
        named.groupby(key, dropna=False)["network"].transform("nunique").gt(1)
    )  # to the last digit
    reasons = pandas.Series("", index=figures.index)
    for reason, wrong in (
        ("above the chip's published peak", shares > allowed),
        (
            "above the chip's published bandwidth",
            figures["unit"].eq("GB/s") & (figures["value"] > bandwidths),
        ),
        ("the same figure in another source", _repeated(figures)),
        ("one table under two networks", copied.reindex(figures.index, fill_value=False)),
        ("the chip is not stated", figures["chip"].str.contains("not stated")),
    ):
        reasons = reasons.mask(reasons.eq("") & wrong, reason)
    faults = pandas.read_csv(layout.published() / "record" / "faults.csv").set_index(
        ["article", "metric", "value"]
    )
    places = pandas.MultiIndex.from_frame(figures[["article", "metric", "value"]])
    traced = pandas.Series(faults["reason"].reindex(places).to_numpy(), index=figures.index)
    return traced.where(traced.notna(), reasons)


def _repeated(figures: pandas.DataFrame) -> pandas.Series:
    """Return which rates repeat those of another source in the same publication; the one with
    more settings is kept."""
    rates = figures[figures["rate"].notna()].sort_values(
        "settings", key=lambda texts: -texts.str.len(), kind="stable"
    )
    key = ["publication", "chip", "network", "image_size", "computed", "device_count"]
    kept, wrong = {}, pandas.Series(False, index=figures.index)
    for place, line in zip(rates.index, rates.to_dict("records"), strict=True):
        others = kept.setdefault(tuple(str(line[name]) for name in key), [])
        own, printed = line["article"], line["rate"]
        wrong[place] = any(
            article != own and abs(rate / printed - 1) < SAME_FIGURE for article, rate in others
        )
        others.append((own, printed))
    return wrong


def rows() -> pandas.DataFrame:
    """Return the published rows of all studies."""
    return records.merge(layout.published_rows())


@functools.cache
def links() -> dict[str, str]:
    """Return the address of each article that has one, by its name."""
    path = layout.published() / "record" / "articles.csv"
    return pandas.read_csv(path, dtype=str, index_col="article")["link"].dropna().to_dict()


def bounds(row: dict, column: str) -> tuple[float, float]:
    """Return the bounds of a published figure: plus or minus half its last digit.

    Args:
        row: a published row. If the figure was printed in another unit or read off a chart,
        `rounding` in its settings
            is the distance to the bounds, in the column's unit.
        column: one of its measures.
    """
    half = row["settings"].get("rounding", {}).get(column, half_unit(row[column]))
    return row[column] - half, row[column] + half


def half_unit(value: float) -> float:
    """Return half a unit of the last printed decimal: 33.4 means 33.35 to 33.45, 34 means 33.5
    to 34.5."""
    return 0.5 * 10.0 ** -len(f"{value:.9f}".rstrip("0").partition(".")[2])


def prices() -> pandas.DataFrame:
    """Return the published prices: machine, kind, amount, currency, per, includes, region, date,
    source."""
    table = pandas.read_csv(layout.published() / "prices.csv", keep_default_na=False, dtype=str)
    return table.assign(amount=pandas.to_numeric(table["amount"]))
