"""Format numbers and doubts as words, and drop empty columns of tables, whose numbers keep all
digits."""

import math
from collections.abc import Sequence

import pandas

from benchbook.judging import confirmation, intervals
from benchbook.judging.verdicts import REASONS, UNSTABLE, Verdict

LARGE = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
LENGTHS = (
    ("ms", 1e-3, 0.1),
    ("s", 1, 120),
    ("min", 60, 7200),
    ("h", 3600, 172_800),
    ("days", 86_400, math.inf),
)

# The unit of a value below a tenth of one.
SMALLER = {"hours": (60, "minutes"), "minutes": (60, "seconds"), "seconds": (1000, "ms")}

# What a text of this module has after its number, in one unit of its kind.
UNITS = (
    {word: size for size, word in LARGE} | {unit: length for unit, length, _ in LENGTHS} | {"": 1.0}
)


def number(value: float) -> str:
    """Return a number with two significant digits, or three from 100 on; from a million on with
    a word."""
    for size, word in LARGE:
        if abs(value) >= 0.9995 * size:
            return f"{_rounded(value / size)} {word}"
    return _rounded(value)


def four_digits(value: float) -> str:
    """Return a number as tables show it: with at most four significant digits, or whole from
    1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return a time in a fitting unit: ms, s, min, h or days; "not known yet" if it is missing."""
    if pandas.isna(seconds):
        return "not known yet"
    unit, length, _ = next(one for one in LENGTHS[int(seconds == 0) :] if seconds < one[2])
    return f"{_rounded(seconds / length)} {unit}"


def duration_within(seconds: float, low: float, high: float) -> str:
    """Return a time with its bounds in the time's own unit: 44 h (22 to 86)."""
    text = duration(seconds)
    ends = [_rounded(end / UNITS[text.partition(" ")[2]]) for end in (low, high)]
    return text if len(set(ends)) == 1 else f"{text} ({ends[0]} to {ends[1]})"


def rate(samples_per_second: float) -> str:
    """Return a rate as a table shows it: a whole number, or two digits below ten."""
    return f"{samples_per_second:,.0f}" if samples_per_second >= 10 else f"{samples_per_second:.2g}"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 window, 6 windows, 2 processes."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def price(dollars: float, digits: int = 0) -> str:
    """Return a price in US dollars, to the cent below 10 dollars; for `digits` see `quantity`."""
    if not digits and 0 < dollars < 10:
        return "under $0.01" if dollars < 0.005 else f"${dollars:.2f}"
    return f"${_rounded(dollars, digits)}"


def bounds(low: float, high: float, kind: str, say=number) -> str:
    """Return a number's bounds with their kind: 95 % interval 1.2 to 1.4."""
    return f"{'95 % interval' if kind == intervals.INTERVAL else 'range'} {span(pandas.Series([low, high]), say)}"


def quantity(numbers: Sequence[float], unit: str, digits: int = 0) -> list[str]:
    """Return a value with its unit, and further numbers, such as its bounds, in the same unit.

    Args:
        numbers: the value first.
        digits: significant ones; 0: two, or three from 100 on.
        unit: a word after the number; `s`: the unit of time that fits the value; `$`, `%`;
        `times`: a ratio, which has no unit.
    """
    if unit == "$":
        return list(map(price, numbers))
    while 0 < numbers[0] < 0.1 and unit in SMALLER:
        factor, unit = SMALLER[unit]
        numbers = [factor * each for each in numbers]
    value, say = numbers[0], times if unit == "times" else number
    if digits and unit != "times":

        def say(number: float) -> str:
            text = _rounded(number, digits)
            return text.rstrip("0").rstrip(".") if "." in text else text

    size, word = {"%": (0.01, "%"), "times": (1.0, ""), "TFLOP/s": (1e12, "TFLOP/s")}.get(
        unit, (1.0, unit)
    )
    if unit == "s":
        word, size, _ = next((one for one in LENGTHS if value < one[2]), LENGTHS[0])
    first, *others = (
        say(each / size) if math.isfinite(each) else "not a number" for each in numbers
    )
    return [f"{first} {word}".strip(), *others]


def half_width(point: dict) -> str:
    """Return half the width of a rate's interval: ±4%, or over ±100%, since two far processes
    tell little."""
    half = (point["high"] / point["low"]) ** 0.5 - 1
    return f"±{half:.0%}" if half <= 1 else "over ±100%"


def energy(point: dict) -> str:
    """Return the energy in a summary's line as a sentence, with method, boundary and idle power."""
    if pandas.isna(point["energy_per_sample"]):
        return "No energy sensor here"
    idle = (
        "not measured" if pandas.isna(point["idle_watts"]) else f"{number(point['idle_watts'])} W"
    )
    note = f"; {point['energy_note']}" if point["energy_note"] else ""
    return (
        f"Energy: {number(point['energy_per_sample'])} J an image, idle power included "
        f"({point['energy_method']}, {point['energy_boundary']}; idle: {idle}{note})"
    )


def percent(share: float) -> str:
    """Return a share as percent, with two digits."""
    return f"{_rounded(share * 100)} %"


def times(ratio: float) -> str:
    """Return a speed-up: three digits from 1 to 2, because two would hide the difference."""
    return _rounded(ratio, 3) if 1 <= ratio < 2 else number(ratio)


def span(values: pandas.Series, say=number) -> str:
    """Return the smallest and the largest value in the unit of the latter; if both read the
    same, only once."""
    low, high = say(values.min()), say(values.max())
    if low == high:
        return low
    (value, _, own), (_, _, unit) = low.partition(" "), high.partition(" ")
    if own != unit and {own, unit} <= UNITS.keys():
        value = _rounded(float(value.replace(",", "")) * UNITS[own] / UNITS[unit])
    elif own != unit:
        value = low
    return f"{value} to {high}"


def joined(words: list[str]) -> str:
    """Return words as a sentence lists them: a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def doubts(point: dict) -> list[str]:
    """Return the reasons to doubt a point's number, in a few words each.

    Args:
        point: a line of a summary, or of a table made from it. The columns interval, verdict,
        variant, status and message are optional.
    """
    reasons = ["one process"] if point.get("interval") == intervals.RANGE else []
    reasons += causes(point.get("verdict"), UNSTABLE)
    if point.get("variant") == confirmation.UNCONFIRMED:
        reasons.append("tuning not confirmed")
    if point.get("status") == "diverged":
        reasons.append("diverged")
    elif point.get("status") == "ok" and isinstance(failed := point.get("message"), str):
        reasons.append(failed.partition(":")[0])  # how many of its processes failed
    return list(dict.fromkeys(reasons))


def causes(verdict: object, *wanted: str) -> list[str]:
    """Return a verdict's reasons of these kinds or codes in a sentence's words; none for a missing
    verdict."""
    reasons = verdict.reasons if isinstance(verdict, Verdict) else ()
    return [
        REASONS[code][2].format(*values)
        for code, *values in reasons
        if {code, REASONS[code][0]} & {*wanted}
    ]


def filled(table: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table without its empty columns; a table without lines keeps all columns."""
    if table.empty:
        return table
    empty = table.isna() | table.astype("object").eq("")
    return table.loc[:, ~empty.all()]


def _rounded(value: float, digits: int = 0) -> str:
    """Return a number with commas, and with `digits` significant digits; 0: two, or three from
    100 on."""
    if value == 0:
        return "0"
    digits = digits or (3 if abs(value) >= 100 else 2)
    rounded = float(f"{value:.{digits}g}")
    places = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{places}f}"
