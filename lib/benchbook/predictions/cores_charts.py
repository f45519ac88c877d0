"""How far a guess of a bigger chip is off: by GPU cores, and calibrated on what other pairs of chips measured."""

import numpy
import pandas
from matplotlib.axes import Axes

from benchbook import estimate, figures
from benchbook.predictions import cores

NUM_IMAGES = 100_000  # whose hours the article printed
TICKS = (0.5, 1, 2, 5, 10, 20)


def extrapolations(table: pandas.DataFrame, pairs: pandas.DataFrame) -> pandas.DataFrame:
    """Return what each Apple GPU's time says of the bigger chips of its generation, by the rule and calibrated.

    Args:
        table: from `tables.image_times`.
        pairs: from `cores.pairs`, to calibrate on.

    Returns:
        Columns: machine, chip, ms_per_image, larger_chip, core_ratio, rule_ms, rule_hours, calibrated_ms,
        calibrated_low, calibrated_high, calibrated_hours. Chips without a known number of GPU cores have no line.
    """
    scaling, lines = cores.calibrated(pairs), []
    timed = table[table["device"].isin(cores.GPUS) & table["ms_per_image"].notna() & (table["source"] != "derived")]
    for line in timed.to_dict("records") if scaling else ():
        most = cores.CORES.get(line["chip"], (0, 0))[1]
        family = str(line["chip"]).split()[:2]
        for chip, (_, most_cores) in cores.CORES.items():
            if most and chip.split()[:2] == family and most_cores > most:
                lines.append(_extrapolation(line, chip, most_cores / most, scaling))
    columns = ["machine", "chip", "ms_per_image", "larger_chip", "core_ratio", "rule_ms", "rule_hours"]
    columns += ["calibrated_ms", "calibrated_low", "calibrated_high", "calibrated_hours"]
    return pandas.DataFrame(lines, columns=columns)


def draw(axes: Axes, pairs: pandas.DataFrame) -> None:
    """Draw what the rule says over what was measured, both as ratios of speeds; on the line the rule is right."""
    for source, marker in (("published", "o"), ("digitised", "s"), ("measured", "D")):
        some = pairs[pairs["source"] == source]
        if some.empty:
            continue
        errors = [(some["rule"] - some["rule_low"]).clip(lower=0), (some["rule_high"] - some["rule"]).clip(lower=0)]
        colour = figures.COLOURS["accelerator" if source == "measured" else "published"]
        axes.errorbar(some["measured"], some["rule"], yerr=errors, fmt=marker, color=colour, capsize=2, label=source)
    calibrated = pairs[pairs["calibrated"].notna()]
    axes.plot(
        calibrated["measured"],
        calibrated["calibrated"],
        "x",
        color=figures.COLOURS["cpu"],
        label="calibrated on others",
    )
    ends = [0.5, max(20.0, *pairs["measured"], *pairs["rule_high"])] if len(pairs) else [0.5, 20.0]
    axes.plot(ends, ends, color=figures.COLOURS["line"], linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="speed, larger chip over smaller, measured")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.set_ylabel("predicted (grey: ratio of GPU cores)")
    axes.grid(visible=True)
    axes.legend(fontsize=8)
    axes.set_title(title(pairs))


def title(pairs: pandas.DataFrame) -> str:
    """Return how far off the rule is on the pairs of chips that there are, in a sentence with its numbers."""
    if pairs.empty:
        return "No pair of chips says how well GPU cores predict speed"
    rule = f"off by a factor of {off_by(pairs['rule_error']):.1f} (median of {len(pairs)} pairs)"
    return f"A bigger chip's speed, guessed from its GPU cores, is {rule}"


def off_by(errors: pandas.Series) -> float:
    """Return the median factor between prediction and measurement, either way, of errors as fractions."""
    return float(numpy.exp(numpy.median(abs(numpy.log1p(errors.dropna().astype(float))))))


def covered(pairs: pandas.DataFrame) -> float:
    """Return the share of pairs whose measured ratio lies in the calibrated prediction's interval."""
    fitted = pairs[pairs["calibrated"].notna()]
    return float(fitted["measured"].between(fitted["calibrated_low"], fitted["calibrated_high"]).mean())


def sentence(pairs: pandas.DataFrame) -> str:
    """Return what the pairs say of the rule and of the calibrated prediction, in a few sentences."""
    if pairs.empty:
        return "No pair of chips was measured."
    high = (pairs["rule_error"] > 0).sum()
    scaling = cores.calibrated(pairs)
    own = f"Fitted to the other pairs, it is off by a factor of {off_by(pairs['calibrated_error']):.1f}."
    text = f"{title(pairs)}: too fast in {high}, too slow in {len(pairs) - high}. {own}"
    if scaling is None:
        return text
    return text + (
        f" Over all pairs, speed grows with cores to the power of {scaling.exponent:.2f}. Fitted without the"
        f" publication that is judged, {covered(pairs):.0%} of the measured ratios lie within the 95 % intervals."
    )


def _extrapolation(line: dict, chip: str, ratio: float, scaling: cores.Scaling) -> dict:
    value, low, high = scaling.predict(ratio)
    rule_ms, own_ms = line["ms_per_image"] / ratio, line["ms_per_image"] / value
    return {
        **{name: line[name] for name in ("machine", "chip", "ms_per_image")},
        "larger_chip": chip,
        "core_ratio": ratio,
        "rule_ms": rule_ms,
        "rule_hours": estimate.run_hours(1, NUM_IMAGES, 1000 / rule_ms),
        "calibrated_ms": own_ms,
        "calibrated_low": line["ms_per_image"] / high,
        "calibrated_high": line["ms_per_image"] / low,
        "calibrated_hours": estimate.run_hours(1, NUM_IMAGES, 1000 / own_ms),
    }
