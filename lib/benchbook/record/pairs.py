"""Published pairs: works that one publication trained on two chips, with the same script and
build. A query, without a model.

Of several batch sizes and builds a chip has its fastest; two chips of one vendor pair if that is
the same build. Boards and memory sizes of a product are one.
"""

import functools
import json

import pandas

from benchbook.record import chips, observations

TIMES = (
    "time_per_step",
    "time_for_1000_iterations",
    "time_to_train",
)  # metrics of which less is better
METRICS = ("throughput", "throughput_real_data", "throughput_wall_clock", "step_rate", *TIMES)
# Settings that say what was trained. All others may differ between two chips, such as batch size,
# host and date.
SAME = """phase model task image_size sequence_length dataset epochs attention vocabulary data cudnn
    compiled suite_version block power_limit_watts memory_format optimizer"""
KEY = ("article", "metric", "unit", "framework", "family", "setting")


@functools.cache
def works() -> pandas.DataFrame:
    """Return the fastest published figure of each product for each work that a publication
    trained on several.

    Returns:
        Columns: KEY; publication, work (in words), task (its work_name), product, chip, vendor, build, value (as
        printed), speed (higher is better; its unit is the same within a work).
    """
    figures = observations.usable()
    is_whole = (
        figures["phase"].isin(["train", "total"])
        & figures["metric"].isin(METRICS)
        & figures["value"].gt(0)
    )
    is_alone = figures["device_count"].fillna(1).eq(1) & figures["chip"].isin(chips.table().index)
    figures = figures[is_whole & is_alone & ~figures["article"].str.startswith("MLPerf")]
    settings = [
        {name: own[name] for name in SAME.split() if own.get(name) is not None}
        for own in figures["details"]
    ]
    figures = figures.assign(
        setting=[json.dumps(own, sort_keys=True) for own in settings],
        work=[_in_words(own) for own in settings],
        task=list(map(observations.work_name, figures["network"], figures["image_size"])),
        framework=figures["framework"].str.extract(r"([A-Za-z]+)")[0].str.lower().fillna(""),
        build=figures["framework"],
        vendor=figures["chip"].map(chips.table()["vendor"]),
        speed=figures["value"]
        .where(~figures["metric"].isin(TIMES), 1 / figures["value"])
        .astype(float),
    )
    figures = figures.sort_values("speed", kind="stable").drop_duplicates(
        [*KEY, "product"], keep="last"
    )
    several = figures.groupby(list(KEY))["product"].transform("nunique").gt(1)
    columns = [*KEY, "publication", "work", "task", "product", "chip", "vendor", "build"]
    columns += ["value", "speed"]
    return figures.loc[several, columns].sort_values([*KEY, "speed"], ignore_index=True)


@functools.cache
def table() -> pandas.DataFrame:
    """Return each work with each two of its products, both ways.

    Returns:
        The columns of `works`, those of the second product with `_over`, and ratio: the second's
        speed over the first.
    """
    shared = [*KEY, "publication", "work", "task"]
    both = works().merge(works(), on=shared, suffixes=("", "_over"))
    is_alike = both["build"].eq(both["build_over"]) | both["vendor"].ne(both["vendor_over"])
    both = both[both["product"].ne(both["product_over"]) & is_alike]
    return both.assign(ratio=both["speed_over"] / both["speed"]).reset_index(drop=True)


def between(*chosen: str, family: str = "") -> pandas.DataFrame:
    """Return the lines of `table` of two chips, of a family or all, or of one with all others:
    how many times as fast the other is."""
    key = (*map(chips.product, chosen), *filter(None, [family]))
    return _grouped(len(key)).get(key, table()[:0])


@functools.cache
def _grouped(count: int) -> dict[tuple[str, ...], pandas.DataFrame]:
    return dict(iter(table().groupby(["product", "product_over", "family"][:count])))


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
