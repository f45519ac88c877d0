"""Predict a rate from a chip's published specifications, a work's operations and measurements; and judge the error.

A line for each rate of the record, of articles and of machines measured here says what the rate may depend on. A ridge
regression learns from them: the logarithm of a rate is half the chip's peak and half its bandwidth, in logarithms, plus
weights that are drawn to zero: of publications, settings, families of precisions, frameworks, works, vendors and
products, of the numbers of a line, and of how families and publications respond to a chip's figures.

It is judged where the rate was printed, with its chip hidden, its publication, or both. A chip is hidden with all its
boards and memories: of a V100 nothing is known that any V100 did.
"""

import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy
import pandas

from benchbook.record import articles, chips
from benchbook.rows import networks

HERE, RECORD, ARTICLES = "measured here", "the record", "the articles of our studies"
TOLD = ("attention", "vocabulary", "data", "cudnn", "compiled", "suite_version", "block", "power_limit_watts")
TOLD += ("memory_format", "optimizer")
SIZES = ("image_size", "sequence_length")
FEATURES = ["peak", "bandwidth", "fp32", "released", "memory"]  # of a chip; logarithms; of `released` years / 3
COLUMNS = ["publication", "setting", "work", "network", "image_size", "sequence_length", "precision", "family"]
COLUMNS += ["framework", "chip", "origin", "product", "vendor", "rate", "batch_size", "date", "loader", "no_update"]
COLUMNS += ["flops_per_sample", "source", *FEATURES]
BATCH, DATE, MEMORY = 64.0, 2021.0, 16.0  # where none was stated
PRINTED = ("published", "digitised", "secondary")  # figures derived from a rule are not measurements
# Starting a step takes longer than its arithmetic: such networks tell nothing of larger ones, nor larger ones of them.
TINY = ("mlp", "lenet5", "mnist_cnn", "nanogpt_char_small", "tiny_vgg", "vae")
SHORTEST = 1e11  # operations of a step of an article's: 10 ms of a chip with 10 TFLOP/s
FP32, TF32, HALF, PLAIN_HALF = "fp32", "tf32", "half", "half without matrix units"
FAMILIES = (FP32, TF32, HALF, PLAIN_HALF)

# How far the weights of each kind of columns, and measurements, spread: `python benchmarks/fit_spreads.py` makes them.
SPREADS = {"wide": 0.601, "narrow": 0.246, "slope": 0.121}
NOISE = {RECORD: 0.135, ARTICLES: 0.381, HERE: 0.135}
SPREADS["free"] = 7.0  # of what nothing is known: the level, and a work whose operations nobody counted
KINDS = {"publication": "narrow", "setting": "narrow", "family": "narrow", "framework": "narrow"}
KINDS |= {"work": "wide", "vendor": "wide", "product": "slope"}
RESPONDS = ("family", "publication")  # they have slopes of their own over the first four of FEATURES
CENTRES = {"peak": numpy.log(15.0), "bandwidth": numpy.log(600.0), "fp32": numpy.log(15.0), "released": 2020.0 / 3}
CENTRES |= {"memory": numpy.log(16.0), "operations": numpy.log(24.5e9), "batch": numpy.log(64.0), "date": 2021.0 / 3}
CENTRES |= {"loader": 0.0, "no_update": 0.0}

CHIP, PUBLICATION, BOTH = "chip hidden", "publication hidden", "chip and publication hidden"
ONE_KNOWN = "publication known by one rate of the chip"
SITUATIONS = (CHIP, PUBLICATION, BOTH, ONE_KNOWN)
LEVEL = 0.90
FEWEST = 20  # lines of a group that has a line of its own
KEPT = ["product", "publication", "vendor", "family", "origin"]
UNLIKE = "a work unlike all others on record, whose operations nobody counted"


class Unknown(ValueError):
    """The record lacks something that a prediction needs; the message names it."""


@functools.cache
def of_publications() -> pandas.DataFrame:
    """Return all rates that were published: those of the record, and those of articles that are not on it."""
    figures, rows = articles.read(), articles.rows()
    listed = rows["reference"].str.partition(";")[0].isin(figures["article"])
    return together(of_record(figures), of_articles(rows[~listed]))


def together(*rates: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return tables of rates as one; as objects, since pandas 2.2 warns of columns that are empty in one of them."""
    tables = [table.astype(object) for table in rates if table is not None]
    return pandas.concat(tables, ignore_index=True).infer_objects()


def of_record(figures: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of a ledger that something can be concluded from.

    Args:
        figures: from `record.read`.

    Returns:
        Columns: origin (the record, articles, or measured here), publication, setting (what within a publication is
        compared chip by chip: network, size, precision, framework, data and the switches it names), work (network with
        image size or sequence length), network, image_size (pixels), sequence_length (tokens), precision (as computed),
        family (of precisions, see FAMILIES), framework, chip, product, vendor, rate (images or sequences a second),
        batch_size, date (a year), loader, no_update (1 where a loader ran, where no optimizer did), flops_per_sample
        (missing where nobody counted), source, and FEATURES. What lacks a precision or the figures of its chip is left
        out; `reasons` tells of it.
    """
    why = reasons(figures)
    usable = figures.loc[why.index[why == ""]]
    return pandas.DataFrame(map(_of_figure, usable.to_dict("records")), columns=COLUMNS, index=usable.index)


def reasons(figures: pandas.DataFrame) -> pandas.Series:
    """Return why each single-device training rate cannot be used, by the figure's line; empty where it can."""
    rates = figures[figures["rate"].gt(0) & figures["device_count"].eq(1)]
    own = [line["refused"] or _other_work(line) or _unusable(line["chip"], line["computed"]) for line in _lines(rates)]
    return pandas.Series(own, index=rates.index, dtype="str")


def of_articles(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return the single-device training rates of articles' rows, as `of_record` lays them out.

    Where a publication printed training alone and a total, training alone counts. CPUs have no printed figures; of
    what is too small to keep a chip busy nothing is concluded.

    Args:
        rows: published ones, of all studies; what was derived is left out.
    """
    kept = rows[rows["source"].isin(PRINTED) & rows["phase"].isin(["train", "total"]) & rows["status"].eq("ok")]
    kept = kept[kept["device"].ne("cpu").fillna(False) & kept["device_count"].fillna(1).eq(1)]
    kept = kept[~kept["model"].isin(TINY) & kept["model"].notna()]
    rates = kept["samples_per_second"].fillna(kept["samples"] / kept["seconds"])
    kept = kept.assign(rate=rates.astype("Float64"))[rates.notna()].sort_values("phase", ascending=False, kind="stable")
    kept = kept.drop_duplicates(["reference", "machine", "point"])
    table = pandas.DataFrame(filter(None, map(_of_row, _lines(kept))), columns=COLUMNS)
    return table[~(table["flops_per_sample"].astype(float) * table["batch_size"] < SHORTEST)]


def of_points(summary: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rates that were measured here, as `of_record` lays them out, of machines that were calibrated.

    What a machine was measured to reach on matrix products and on copies takes the place of what is printed of its
    chip. A CPU, or a chip in no list, is a product of its own.

    Args:
        summary: measured points, from `statistics.summarise`.
        ceilings: from `rows.ceilings`.
    """
    points = summary[summary["samples_per_second"].notna() & summary["status"].eq("ok")]
    points = points[points["device_count"].astype(float).fillna(1).eq(1) & ~points["model"].isin(TINY)]
    best = best_rates(ceilings)
    reached = [(line, reached_by(best, line)) for line in _lines(points)]
    return pandas.DataFrame([_of_point(line, own) for line, own in reached if own], columns=COLUMNS)


def of_point(point: pandas.DataFrame, ceilings: pandas.DataFrame) -> pandas.DataFrame:
    """Return one measured point as `of_points` has it, to be predicted; of a machine that was not calibrated its chip's
    printed figures stand in.

    Args:
        point: one line of a summary.
        ceilings: from `rows.ceilings`.

    Raises:
        Unknown: neither were its machine's ceilings measured nor is its chip in the list.
    """
    (line,) = _lines(point)
    figures = reached_by(best_rates(ceilings), line)
    if figures is None and not _listed(line):
        raise Unknown(
            f"{line['device_name']} is in no list of chips, and {line['machine']} was not calibrated:"
            " make study STUDIES=calibrate"
        )
    return pandas.DataFrame([_of_point(line, figures or chip_figures(_listed(line), line["precision"]))])[COLUMNS]


@functools.cache
def chip_figures(chip: str, precision: str, asked: bool = False) -> dict:
    """Return a chip in a precision: chip, precision, product, vendor, family and FEATURES.

    Args:
        chip: by any of its names.
        precision: one of `records.PRECISIONS`.
        asked: of a chip that is asked about, not learnt from: where its peak of fp32 was never published, as of TPUs,
            that of its matrix units, divided by `usual_ratio`, tells enough of 16 bits.

    Raises:
        UnknownChip: no chip goes by that name.
        Unknown: peak or bandwidth was not published; the message names it.
    """
    printed, family = chips.specification(chip), precision if precision in (FP32, TF32) else HALF
    chip, matrix, bandwidth = (printed.get(name) for name in ("chip", "matrix_tflops", "bandwidth_gb_s"))
    fp32 = printed.get("fp32_tflops")
    if asked and family == HALF and matrix and not fp32:
        fp32 = matrix / usual_ratio()
    missing = [name for name, value in (("fp32 figure", fp32), ("bandwidth", bandwidth)) if not value]
    if missing:
        raise Unknown(f"of {chip} no {' and no '.join(missing)} was published (chips.csv)")
    if family == HALF and not matrix:
        family, matrix = PLAIN_HALF, printed.get("fp16_tflops")
    units = {FP32: 0.0, TF32: (matrix or 0.0) / 2}.get(family, matrix or 0.0)
    year, memory = numpy.nan_to_num(chips.released(chip), nan=DATE), printed.get("memory_gb", MEMORY)
    known = {"chip": chip, "precision": precision, "product": printed["product"], "vendor": printed["vendor"]}
    return known | _features(family, max(fp32, units), bandwidth, fp32, year, memory)


def _features(family: str, peak: float, bandwidth: float, fp32: float, year: float = DATE, memory: float = MEMORY):
    logs = {"peak": peak, "bandwidth": bandwidth, "fp32": fp32, "memory": memory}
    return {"family": family, "released": year / 3} | {name: math.log(value) for name, value in logs.items()}


@functools.cache
def usual_ratio() -> float:
    """Return how many times its fp32 peak a chip's matrix units usually reach: the median where both were published."""
    printed = chips.table()
    return float((printed["matrix_tflops"] / printed["fp32_tflops"]).median())


def best_rates(ceilings: pandas.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """Return what devices reached in their last calibration, the best of frameworks, by machine and device.

    Returns:
        Of each the rates of matrix products by precision (FLOP/s), and that of copies (B/s) as `copy`.
    """
    last = ceilings.sort_values("session")
    last = last.drop_duplicates(["machine", "device", "model", "precision", "framework"], keep="last")
    last = last.assign(work=last["precision"].mask(last["model"].eq("copy"), "copy"))
    last = last[last["model"].isin(["matmul", "copy"])]
    best = last.groupby(["machine", "device", "work"])["rate"].max().unstack()
    return {place: rates.dropna().to_dict() for place, rates in best.iterrows()}


def reached_by(best: dict[tuple[str, str], dict[str, float]], point: dict) -> dict | None:
    """Return the features of a point's device in its precision; None where products or copies were not measured.

    Args:
        best: from `best_rates`.
        point: with machine, device and precision.
    """
    rates, precision = best.get((point["machine"], point["device"]), {}), point["precision"]
    if "fp32" not in rates or "copy" not in rates:
        return None
    fp32 = rates["fp32"]
    peak = max(fp32, rates.get(precision.removeprefix("amp_"), fp32))
    half = HALF if peak > 1.5 * fp32 else PLAIN_HALF  # products of matrix units are much faster
    family = precision if precision in (FP32, TF32) else half
    return _features(family, peak / 1e12, rates["copy"] / 1e9, fp32 / 1e12)


def work_of(network: str, image_size: float | None, sequence_length: float | None = None) -> dict:
    """Return what is trained: work, network, image_size, sequence_length, flops_per_sample (None: nobody counted)."""
    operations = networks.describe(network, image_size, sequence_length).flops_per_sample
    work = f"{network}, {image_size:g} px" if image_size else network
    work = f"{network}, {sequence_length:,.0f} tokens" if sequence_length else work
    sizes = {"image_size": image_size, "sequence_length": sequence_length}
    return {"work": work, "network": network, "flops_per_sample": operations} | sizes


def _other_work(line: dict) -> str:
    """Return why a figure's work cannot be used: its precision, or what of sequences it trained; empty where it can."""
    if not isinstance(line["computed"], str):
        return f"precision {line['precision'] or 'not stated'}"
    details = json.loads(line["settings"] or "{}")
    if details.get("padded"):
        return "samples are shorter than the length that is printed"
    if details.get("recomputed"):
        return "activations are computed a second time, which is other work"
    counted = networks.describe(line["network"]).flops_per_sample
    return "" if counted or not line["sequence_length"] else "a network of sequences whose operations nobody counted"


def _unusable(chip: str, computed: str) -> str:
    """Return why a rate cannot be used: its chip's figures are not stated; empty where they are."""
    try:
        chip_figures(chip, computed)
    except (Unknown, chips.UnknownChip) as error:
        return str(error).partition("; ")[0]
    return ""


def _of_figure(line: dict) -> dict:
    details = json.loads(line["settings"] or "{}")
    framework = re.sub(r"\W+", " ", re.sub(r"\d[\w.+]*", "", line["framework"])).strip().lower()
    work = work_of(line["network"], *(line[name] if line[name] > 0 else None for name in SIZES))
    switches = [f"{name} {details[name]}" for name in TOLD if name in details]
    return work | chip_figures(line["chip"], line["computed"]) | {
        "publication": line["publication"],
        "setting": " | ".join([line["article"], work["work"], line["computed"], framework, *switches]),
        "framework": framework.partition(" ")[0],
        "rate": line["rate"],
        "batch_size": line["batch_size"] if line["batch_size"] > 0 else BATCH,
        "date": line["date"] if line["date"] > 0 else DATE,
        "loader": float(not str(details.get("data", "synthetic")).startswith(("synthetic", "not stated"))),
        "no_update": float("none" in str(details.get("optimizer"))),
        "source": articles.citation(line),
        "origin": RECORD,
    }  # fmt: skip


def _of_row(row: dict) -> dict | None:
    chip = _listed(row) or chips.canonical(row["chip"]) or ""
    printed = row["precision"] or "fp32"
    computed = "tf32" if printed == "fp32" and chips.has_tf32(chip) else printed
    if _unusable(chip, computed):
        return None
    publication = row["reference"].partition(";")[0]
    point = row["point"].removesuffix(f"-{row['device']}")
    stated = re.findall(r"\b(20\d\d)\b", publication)
    return _trained(row) | chip_figures(chip, computed) | {
        "publication": publication,
        "setting": " | ".join([publication, point, row["phase"], computed]),
        "rate": float(row["rate"]),
        "date": float(stated[-1]) if stated else DATE,
        "no_update": float("none" in str((row["settings"] or {}).get("optimizer"))),
        "source": row["reference"],
        "origin": ARTICLES,
    }  # fmt: skip


def _of_point(point: dict, reached: dict) -> dict:
    """Return a measured point; `reached` are the features of its device."""
    named = _listed(point)
    chip = {"chip": point["machine"], "product": f"{point['machine']} {point['device']}", "vendor": "CPU"}
    if named:
        chip = {"chip": named, "product": chips.product(named), "vendor": chips.specification(named)["vendor"]}
    return _trained(point) | chip | reached | {
        "publication": HERE,
        "setting": " | ".join([HERE, point["study"], point["point"]]),
        "precision": point["precision"],
        "rate": float(point["samples_per_second"]),
        "date": DATE,
        "no_update": 0.0,
        "source": HERE,
        "origin": HERE,
    }  # fmt: skip


def _listed(row: dict) -> str:
    """Return the chip that a row's device is, by its one name; empty for a CPU, or one in no list."""
    return "" if row["device"] == "cpu" else chips.listed(row["device_name"])


def _trained(row: dict) -> dict:
    """Return what a row trained, on which input and with which framework."""
    frozen = row["study"] == "mobilenetv2_energy"  # the same network, trained in its last layer alone
    network = networks.canonical(row["study"] if frozen else row["model"])
    usual = networks.describe(network)
    work = work_of(network, *(float(row[name]) if row.get(name) else getattr(usual, name) for name in SIZES))
    return work | {
        "flops_per_sample": row.get("flops_per_sample") or work["flops_per_sample"],
        "framework": {"torch": "pytorch"}.get(row["framework"], row["framework"] or ""),
        "batch_size": float(row["batch_size"] or BATCH),
        "loader": float(row["dataset"] != "synthetic"),
    }


def _lines(table: pandas.DataFrame) -> list[dict]:
    """Return the lines of a table, with None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


class Model:
    """A model of rates, fitted to a set of observations."""

    def __init__(self, observations: pandas.DataFrame):
        """Learn from observations, as `of_record` lays them out."""
        from sklearn.linear_model import Ridge  # takes a second, which a study's first kernel does not wait for
        from sklearn.preprocessing import OneHotEncoder

        self.observations = observations.reset_index(drop=True)
        self.encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        self.encoder.fit(self.observations[list(KINDS)])
        self.design, noise = self._columns(self.observations), _noise(self.observations)
        self.logs = numpy.log(self.observations["rate"].to_numpy(float)) - offset(self.observations)
        self.ridge = Ridge(alpha=1.0, fit_intercept=False).fit(self.design, self.logs, sample_weight=noise**-2)
        self.precision = numpy.linalg.inv(self.design @ self.design.T + numpy.diag(noise**2))

    def predict(self, targets: pandas.DataFrame) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return the logarithms of the targets' rates, and how uncertain the model takes each to be."""
        columns = self._columns(targets)
        shared = columns @ self.design.T
        known = ((shared @ self.precision) * shared).sum(axis=1)
        variance = (columns**2).sum(axis=1) - known + _noise(targets) ** 2
        return self.ridge.predict(columns) + offset(targets), numpy.sqrt(variance)

    def without(self, hidden: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Return what the other observations say of the hidden ones, as `predict` would without these.

        Args:
            hidden: the places of observations.

        Source: Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, 5.4.2, of blocks.
        """
        covariance = numpy.linalg.inv(self.precision[numpy.ix_(hidden, hidden)])
        mean = self.logs[hidden] - covariance @ (self.precision[hidden] @ self.logs)
        return mean + offset(self.observations.iloc[hidden]), numpy.sqrt(numpy.diag(covariance))

    def _columns(self, lines: pandas.DataFrame) -> numpy.ndarray:
        return numpy.hstack([SPREADS[kind] * columns for kind, columns in blocks(self.encoder, lines)])


def blocks(encoder, lines: pandas.DataFrame) -> list[tuple[str, numpy.ndarray]]:
    """Return the regression's columns, each with its kind, see SPREADS.

    Args:
        encoder: a OneHotEncoder, fitted to the columns KINDS of what is learnt from. What it does not know has a last
            column of its group, whose weight stays 0 and whose spread counts.
        lines: as `of_record` lays them out.
    """
    ends = numpy.cumsum([len(names) for names in encoder.categories_])[:-1]
    known = numpy.split(encoder.transform(lines[list(KINDS)]), ends, axis=1)
    shared = {
        name: numpy.column_stack([columns, 1.0 - columns.sum(axis=1)])
        for name, columns in zip(KINDS, known, strict=True)
    }
    numbers = _numbers(lines)
    uncounted = lines["flops_per_sample"].isna().to_numpy(float)[:, None]
    parts = [("free", numpy.ones((len(lines), 1))), ("free", shared["work"] * uncounted), ("narrow", numbers)]
    parts += [(kind, shared[name]) for name, kind in KINDS.items()]
    parts += [("slope", shared[name] * numbers[:, [place]]) for name in RESPONDS for place in range(4)]
    return parts


def offset(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return half the peak and half the bandwidth of each line's chip, in logarithms; of sequences for each operation.

    Networks of images differ in how well they use a chip; transformers of tokens are products of matrices alike.
    """
    operations = numpy.log(lines["flops_per_sample"].astype(float)) - CENTRES["operations"]
    operations = operations.where(lines["sequence_length"].notna(), 0.0).to_numpy()
    return (lines["peak"].to_numpy(float) + lines["bandwidth"].to_numpy(float)) / 2 - operations


def _numbers(lines: pandas.DataFrame) -> numpy.ndarray:
    """Return the numbers of each line, those of its chip first, as distances from a line in the middle."""
    operations = numpy.log(lines["flops_per_sample"].astype(float).where(lines["sequence_length"].isna()))
    operations = operations.fillna(CENTRES["operations"])
    derived = {"operations": operations, "batch": numpy.log(lines["batch_size"].astype(float))}
    table = lines.assign(**derived, date=lines["date"].astype(float) / 3)[list(CENTRES)]
    return table.to_numpy(float) - numpy.array(list(CENTRES.values()))


def _noise(lines: pandas.DataFrame) -> numpy.ndarray:
    return lines["origin"].map(NOISE).fillna(NOISE[RECORD]).to_numpy(float)


def residuals(model: Model) -> pandas.DataFrame:
    """Return what each observation's prediction would have been in each situation.

    Returns:
        One line for each situation and observation: situation, place (in the model's observations), product,
        publication, vendor, family, origin, printed (this and what follows in logarithms), mean and deviation of the
        prediction. A work that is left without another line, and whose operations nobody counted, is refused, as it is
        where nothing is hidden.
    """
    lines, parts, estimates = model.observations, [], {}
    works, counted = pandas.factorize(lines["work"])[0], lines["flops_per_sample"].notna().to_numpy()
    for situation, hidden, asked in _hidden(lines):
        stays = numpy.isin(works[hidden], numpy.delete(works, hidden)) | counted[hidden]
        judged = numpy.isin(hidden, asked) & stays
        if judged.any() and len(hidden) < len(lines):
            key = hidden.tobytes()  # all chips of one publication hide the same lines
            estimates[key] = mean, deviation = estimates.get(key) or model.without(hidden)
            values = {"place": hidden[judged], "mean": mean[judged], "deviation": deviation[judged]}
            parts.append(pandas.DataFrame({"situation": situation} | values))
    table = pandas.concat(parts, ignore_index=True)
    kept = lines[KEPT].assign(printed=numpy.log(lines["rate"].to_numpy(float)))
    return table.join(kept, on="place")


def _hidden(lines: pandas.DataFrame) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray]]:
    """Yield each situation, the places that it hides, and those among them that are asked for."""
    product, publication = lines["product"].to_numpy(), lines["publication"].to_numpy()
    for situation, keys in ((CHIP, "product"), (PUBLICATION, "publication")):
        for places in lines.groupby(keys).indices.values():
            yield situation, places, places
    for (chip, printer), places in lines.groupby(["product", "publication"]).indices.items():
        yield BOTH, numpy.flatnonzero((product == chip) | (publication == printer)), places
        if len(places) > 1:
            others = publication == printer
            others[places[0]] = False
            yield ONE_KNOWN, numpy.flatnonzero(others), places[1:]


def quantile(scores: numpy.ndarray, publications: numpy.ndarray) -> float:
    """Return what LEVEL of the scores stay below, each publication counting as much as any other.

    The lines of one publication share an error: ninety of one say no more of the next publication than three do.

    Source: Dunn, Wasserman and Ramdas, Distribution-free prediction sets for two-layer hierarchical models, 2022,
    https://arxiv.org/abs/1809.07441, pooling of distribution functions.
    """
    codes, counts = numpy.unique(publications, return_inverse=True, return_counts=True)[1:]
    order = numpy.argsort(scores)
    shares = numpy.cumsum(1.0 / counts[codes[order]]) / len(counts)
    return float(scores[order][min(numpy.searchsorted(shares, LEVEL - 1e-9), len(scores) - 1)])


def reach(table: pandas.DataFrame, situation: str) -> float:
    """Return how many of the model's deviations an interval reaches in a situation; `table` is from `residuals`.

    Source: split conformal prediction with normalised residuals, https://arxiv.org/abs/1604.04173, section 5.2; here
    they are those of hidden lines.
    """
    alike = table[table["situation"] == situation]
    scores = (alike["mean"] - alike["printed"]).abs() / alike["deviation"]
    return quantile(scores.to_numpy(), alike["publication"].to_numpy())


def published(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return each line's prediction as it would have been published, its interval chosen without what is hidden.

    Args:
        table: from `residuals`.

    Returns:
        Its columns, and low, high (logarithms), off (predicted minus printed) and hit (whether the interval holds the
        printed rate).
    """
    off, far = table["mean"] - table["printed"], pandas.Series(numpy.nan, index=table.index)
    for situation, own in table.groupby("situation"):
        scores = (off[own.index].abs() / own["deviation"]).to_numpy()
        publications = pandas.factorize(own["publication"])[0]
        for hidden in own.groupby("product" if situation == CHIP else "publication").indices.values():
            times = quantile(numpy.delete(scores, hidden), numpy.delete(publications, hidden))
            far[own.index[hidden]] = times * own["deviation"].iloc[hidden]
    return table.assign(low=table["mean"] - far, high=table["mean"] + far, off=off, hit=off.abs() <= far)


def measures(lines: pandas.DataFrame) -> dict:
    """Return pairs, publications, median_error, within_2, and coverage and half_width where there are intervals."""
    off = lines["off"].astype(float)
    said = {"pairs": len(lines), "publications": lines["publication"].nunique()}
    said["median_error"] = float(numpy.expm1(off).abs().median())
    said["within_2"] = float((off.abs() < math.log(2)).mean())
    if "hit" not in lines:
        return said
    half = math.exp(((lines["high"] - lines["low"]) / 2).median())
    return said | {"coverage": float(lines["hit"].mean()), "half_width": half}


def judge(path: Path, model: Model, table: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.Series]:
    """Predict each single-device training rate of a ledger with its chip, in all its boards, hidden from the record.

    A publication that the record has stays known, all but that chip's rates; any other is new. Intervals are chosen
    without the chip.

    Args:
        path: a table with the record's columns.
        model: of the record.
        table: from `residuals` of it.

    Returns:
        A line for each rate that is predicted: publication, chip, vendor, work, precision, family, situation, printed,
        predicted, low, high (images a second), off (predicted over printed, in logarithms), hit; and why the others are
        not, by the ledger's line.
    """
    figures, parts = articles.read(path), []
    targets, refused = of_record(figures), reasons(figures)
    refused = refused[refused != ""]
    for product, group in targets.groupby("product"):
        known = model.observations[model.observations["product"] != product]
        comparable = group["work"].isin(known["work"]) | group["flops_per_sample"].notna()
        refused = pandas.concat([refused, pandas.Series(UNLIKE, index=group.index[~comparable])])
        if comparable.any():
            parts.append(predict_hidden(group[comparable], model, table))
    lines = pandas.concat(parts) if parts else pandas.DataFrame(columns=["off", "hit", "publication", "vendor"])
    return lines.sort_index(), refused.sort_index()


def predict_hidden(targets: pandas.DataFrame, model: Model, table: pandas.DataFrame) -> pandas.DataFrame:
    """Return the predictions of one product's rates from the other products', as `judge` does."""
    product = targets["product"].iloc[0]
    lines, table = model.observations, table[table["product"] != product]
    others = lines[lines["product"] != product]
    model = Model(others) if len(others) < len(lines) else model
    mean, deviation = model.predict(targets)
    situations = targets["publication"].isin(others["publication"]).map({True: CHIP, False: BOTH})
    far = situations.map({name: reach(table, name) for name in set(situations)}) * deviation
    printed = numpy.log(targets["rate"].astype(float))
    names = ["publication", "chip", "vendor", "work", "precision", "family"]
    bounds, off = {"predicted": mean, "low": mean - far, "high": mean + far}, mean - printed
    judged = targets[names].assign(situation=situations, printed=targets["rate"], off=off, hit=off.abs() <= far)
    return judged.assign(**{name: numpy.exp(bound) for name, bound in bounds.items()})


def summarise(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return how far off the lines of `judge` are: of all, by family of precisions, by situation, and by maker.

    A group with fewer than 20 rates has no line of its own.

    Returns:
        Columns: of, pairs, publications, median_error, within_2, coverage, half_width.
    """
    logs = lines.assign(**{name: numpy.log(lines[name].astype(float)) for name in ("low", "high")})
    groups = {"all": logs} | {
        name: group
        for column in ("family", "situation", "vendor")
        for name, group in logs.groupby(column)
        if len(group) >= FEWEST
    }
    return pandas.DataFrame([{"of": name} | measures(group) for name, group in groups.items()])
