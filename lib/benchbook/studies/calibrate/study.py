"""The results of calibration: the ceilings of each device."""

import pandas

from benchbook.frameworks import operations
from benchbook.judging import wording
from benchbook.rows import ceilings as best_rates
from benchbook.rows import records
from benchbook.studies.charts.plots import Bars
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.study import Study


def ceilings(evidence: Evidence) -> pandas.DataFrame:
    """Return the `rows.ceilings` of each device's last session; a session's name begins with its
    time."""
    every = evidence.ceilings
    last = every.groupby(["machine", "device", "framework"])["session"].transform("max")
    return every[every["session"] == last].reset_index(drop=True)


def reading(rows: pandas.DataFrame) -> str:
    """Return what one calibration found besides its products: refusals, copies, launches,
    waiting and idle power."""
    mine = best_rates.ceilings(rows)
    rate = mine.set_index(["model", mine["precision"].fillna("")])["rate"]
    fp32, copied = rate["matmul", "fp32"], rate["copy"].iloc[0]
    products = records.having(rows, model="matmul")
    refused = sorted(set(products.loc[products["status"].ne("ok"), "precision"].dropna()))
    idle = rows["idle_watts"].dropna()
    exact = records.having(rows, model=[*operations.EXACT], status="ok")
    exact = exact.drop_duplicates("model", keep="last").set_index("model")[
        "settings"
    ]  # each process has its own
    kept = [f"{own['mantissa_bits']} in {name}" for name, own in exact.items()]
    wrong = [
        f"{size} x {size} in {name}"
        for name, own in exact.items()
        for size in own.get("wrong_outputs", ())
    ]
    remaining = [
        settings["remaining_share"]
        for settings in rows.loc[rows["model"].eq("synchronize"), "settings"]
    ]
    figures = copied / 1e9, fp32 / copied, 1e6 / rate["launch"].iloc[0]
    speed, intensity, launch = map(wording.number, figures)
    freed = [own["given_back"] for own in rows["settings"] if "given_back" in own][-1:]
    sentences = [
        f"It refuses {wording.joined(refused)}." if refused else "",
        f"A copy moves {speed} GB/s: work below {intensity} operations a byte waits for memory.",
        f"Launching an operation takes {launch} µs.",
        f"Where freed memory goes back to the system, as in a plain script, elementwise work on new arrays takes "
        f"{wording.span(pandas.Series(freed[0]))} times as long ({wording.count(len(freed[0]), 'pair')} of processes)."
        if freed
        else "",
        f"Waiting for it is complete: {wording.percent(remaining[-1])} of the work was left."
        if remaining
        else "",
        f"Of the 23 bits of a number in fp32, it keeps {wording.joined(kept)}." if kept else "",
        f"Products with an inner dimension of {operations.LONG:,} are wrong for outputs of {wording.joined(wrong)}."
        if wrong
        else "",
        f"Its idle power is {wording.number(idle.iloc[-1])} W."
        if len(idle)
        else "Its power is unknown: no sensor.",
    ]
    return " ".join(filter(None, sentences))


def _products(table: pandas.DataFrame, evidence: Evidence) -> pandas.DataFrame:
    """Return the fastest framework's matrix products of each device and precision."""
    products = table[table["model"] == "matmul"].sort_values("rate", ascending=False, kind="stable")
    return products.drop_duplicates(["machine", "device", "precision"])


PRODUCTS = Template(
    "{number}{bounds} in {precision} matrix products on {place}",
    "rate",
    "TFLOP/s",
)
STUDY = Study(
    name="calibrate",
    title="Calibration",
    quantity="rate",
    unit="operations/second",
    charts=(
        Bars(
            "ceilings",
            table=ceilings,
            lines=_products,
            title=PRODUCTS,
            label=("precision", "framework"),
            ticks=lambda rate, place: f"{rate / 1e12:g}",
            xlabel="TFLOP/s in matrix products",
        ),
    ),
)
