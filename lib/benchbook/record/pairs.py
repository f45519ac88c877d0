"""Published pairs: works that one publication trained on two chips, with the same script. A
query, without a model.

Of several batch sizes a chip has its fastest. Boards and memory sizes of a product are one.
"""

import functools
import json

import pandas

from benchbook.judging import intervals, wording
from benchbook.record import articles, chips, observations

FAMILIES = {"fp32": "fp32 or tf32", "half": "16 bits", "unknown": "the precision of its source"}
TIMES = (
    "time_per_step",
    "time_for_1000_iterations",
    "time_to_train",
)  # metrics of which less is better
METRICS = ("throughput", "throughput_real_data", "throughput_wall_clock", "step_rate", *TIMES)
# Settings that say what was trained. All others may differ between two chips, such as batch size,
# host and date.
SAME = (
    "phase", "model", "task", "image_size", "sequence_length", "dataset", "epochs", "attention", "vocabulary", "data",
    "cudnn", "compiled", "suite_version", "block", "power_limit_watts", "memory_format", "optimizer",
)  # fmt: skip
KEY = ("article", "metric", "unit", "framework", "family", "setting")
ASKED = (  # which people compare, the slower first
    ("Apple M1", "NVIDIA A100"), ("Apple M3", "NVIDIA L4"), ("Apple M4", "NVIDIA RTX 4090"),
    ("NVIDIA RTX 3090", "NVIDIA A100"), ("NVIDIA RTX 4090", "NVIDIA A100"), ("NVIDIA V100", "NVIDIA A100"),
    ("NVIDIA A100", "NVIDIA H100"),
)  # fmt: skip
PUBLICATIONS = intervals.Deviations(0.25, 0.0)  # between publications, of the logarithm of a ratio


def family_of(precision: object) -> str:
    """Return the family of a precision, a key of FAMILIES; TF32 counts as fp32, as in most
    publications."""
    if not isinstance(precision, str):
        return "unknown"
    return "fp32" if precision in ("fp32", "tf32") else "half"


@functools.cache
def works() -> pandas.DataFrame:
    """Return the fastest published figure of each product for each work that a publication
    trained on several.

    Returns:
        Columns: KEY; publication, work (in words), product, chip, value (as printed), speed
        (higher is better; its unit is the same within a work).
    """
    figures = pandas.concat([articles.read(), observations.of_articles()], ignore_index=True)
    is_whole = (
        figures["phase"].isin(["train", "total"])
        & figures["metric"].isin(METRICS)
        & figures["value"].gt(0)
    )
    is_alone = figures["device_count"].fillna(1).eq(1) & figures["chip"].isin(chips.table().index)
    figures = figures[
        figures["refused"].eq("")
        & is_whole
        & is_alone
        & ~figures["article"].str.startswith("MLPerf")
    ]
    settings = [
        {name: own[name] for name in SAME if own.get(name) is not None}
        for own in figures["details"]
    ]
    figures = figures.assign(
        setting=[json.dumps(own, sort_keys=True) for own in settings],
        work=[_in_words(own) for own in settings],
        framework=figures["framework"].str.extract(r"([A-Za-z]+)")[0].str.lower().fillna(""),
        family=figures["computed"].map(family_of),
        product=figures["chip"].map(chips.product),
        speed=figures["value"]
        .where(~figures["metric"].isin(TIMES), 1 / figures["value"])
        .astype(float),
    )
    figures = figures.sort_values("speed", kind="stable").drop_duplicates(
        [*KEY, "product"], keep="last"
    )
    several = figures.groupby(list(KEY))["product"].transform("nunique").gt(1)
    columns = [*KEY, "publication", "work", "product", "chip", "value", "speed"]
    return figures.loc[several, columns].sort_values([*KEY, "speed"], ignore_index=True)


@functools.cache
def table() -> pandas.DataFrame:
    """Return each work with each two of its products, both ways.

    Returns:
        The columns of `works`, those of the second product with `_over`, and ratio: the second's
        speed over the first.
    """
    shared = [*KEY, "publication", "work"]
    both = works().merge(works(), on=shared, suffixes=("", "_over"))
    both = both[both["product"].ne(both["product_over"])]
    return both.assign(ratio=both["speed_over"] / both["speed"]).reset_index(drop=True)


def between(chip: str, other: str = "") -> pandas.DataFrame:
    """Return the lines of `table` of two chips, or of one with all others: how many times as
    fast the other is."""
    lines = table()[table()["product"].eq(chips.product(chip))]
    return lines[lines["product_over"].eq(chips.product(other))] if other else lines


def ratio(lines: pandas.DataFrame) -> intervals.Interval:
    """Return how many times as fast the second chip is, over works and publications.

    Each publication counts once. One publication alone has the range of its works, which decides
    nothing.

    Args:
        lines: of `table`, of two products in one family of precisions.
    """
    return intervals.interval(lines["ratio"], lines["publication"], PUBLICATIONS)


def in_words(lines: pandas.DataFrame, number: intervals.Interval) -> str:
    """Return the `ratio` of lines in words: "3.1 times (2.4 to 3.9; 14 works in 5 publications,
    16 bits)"."""
    family = FAMILIES[lines["family"].iloc[0]]
    span = wording.span(pandas.Series([number.low, number.high]), wording.times)
    span = (
        span
        if number.kind == intervals.INTERVAL
        else f"range {span}"
        if len(lines) > 1
        else "no bounds"
    )
    counts = f"{wording.count(len(lines), 'work')} in {wording.count(lines['publication'].nunique(), 'publication')}"
    return f"{wording.times(number.value)} times ({span}; {counts}, {family})"


def asked() -> pandas.DataFrame:
    """Return the pairs that people compare, in words: chip, over, and published, in the most
    published precision."""
    lines = []
    for slow, fast in ASKED:
        families = [own for _, own in between(slow, fast).groupby("family")]
        most = max(families, key=lambda own: (own["publication"].nunique(), len(own)))
        lines += [(fast, slow, in_words(most, ratio(most)))]
    return pandas.DataFrame(lines, columns=["chip", "over", "published"])


def _in_words(setting: dict) -> str:
    """Return what was trained."""
    units = {
        "model": "",
        "task": "",
        "image_size": " px",
        "sequence_length": " tokens",
        "data": "",
        "optimizer": "",
    }
    return ", ".join(
        f"{setting[name]}".removesuffix(".0") + unit
        for name, unit in units.items()
        if setting.get(name)
    )
