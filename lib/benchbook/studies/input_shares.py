"""How much of a training step is input: making a batch, waiting for it, moving it."""

from collections.abc import Mapping

import pandas

from benchbook.judging import intervals, statistics, wording
from benchbook.judging.intervals import Interval
from benchbook.measuring import support
from benchbook.studies import charts
from benchbook.studies.findings import Says
from benchbook.studies.study import Chart, Evidence

RATE = ["samples_per_second", "low", "high", "interval"]


def table(
    points: pandas.DataFrame, ready: pandas.DataFrame, on: list[str], described: tuple[str, ...] = ()
) -> pandas.DataFrame:
    """Return the share of a step that is input, as the host waited for it and as ready batches would save it.

    Args:
        points: lines of a summary.
        ready: rates of steps on batches that are on the device already, with the columns of RATE, by `on`.
        on: columns that say which steps on ready batches a point is compared with.
        described: further columns of points that the table shows.

    Returns:
        Columns: machine, device, dataset, variant, those of `described`, waited (host wait over window), share (1 -
        step on a ready batch / step; missing where none was timed), the bounds of both (waited_low and so on; those of
        waited are the range of its windows, share_interval is the kind of the others), num_windows, verdict, status.
    """
    joined = points[points["seconds_per_step"].notna()].join(ready.add_suffix("_ready"), on=on)
    saved = []
    for line in joined.to_dict("records"):
        rates = Interval.from_row(line, *RATE), Interval.from_row(line, *(f"{name}_ready" for name in RATE))
        share = intervals.combine(lambda with_input, without: 1 - with_input / without, *rates)
        saved.append((share.value, share.low, share.high, share.kind))
    names = ["share", "share_low", "share_high", "share_interval"]
    saved = pandas.DataFrame(saved, joined.index, names).astype(dict.fromkeys(names[:3], float))
    joined = joined.assign(waited=joined["input_share_waited"], **saved)
    columns = ["machine", "device", "dataset", "variant", *described, "waited", "waited_low", "waited_high", *names]
    return joined[[*columns, "num_windows", "verdict", "status"]].reset_index(drop=True)


def beside_ready(evidence: Evidence, points: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table of points whose own runs took some steps on ready batches; these are few, their bounds a range.

    Args:
        evidence: with the rows of the points.
        points: lines of the summary.
    """
    tried = support.rows_tried(evidence.measured[evidence.measured["study"].isin(points["study"])], support.RESIDENT)
    rates = tried.groupby(statistics.POINT_KEY)["samples_per_second"].agg(["median", "min", "max"]).astype(float)
    return table(points, rates.set_axis(RATE[:3], axis=1).assign(interval=intervals.RANGE), statistics.POINT_KEY)


def says(what: str = "Input") -> Says:
    """Return the sentence on the shares of a table."""
    text = f"{what} takes {{value}} of a training step"
    return Says(text, "", "share", lambda share: wording.percent(share) if share > 0 else "0 %")


def chart(name: str, note: str, shares: charts.Table, label: tuple[str, ...], usual: Mapping[str, object]) -> Chart:
    """Return a chart with a bar for the share of each line: what ready batches would save.

    Args:
        name, note: of the chart.
        shares: from the evidence to `table`; a line whose steps on ready batches were not timed is not drawn.
        label, usual: see `charts.Plot`.
    """
    return charts.Bars(
        name,
        "How much of a step is input?",
        note,
        table=shares,
        lines=lambda table, evidence: table[table["share"].notna()],
        bounds=("share_low", "share_high", "share_interval"),
        label=label,
        usual=usual,
        text="{share:.1%} (the host waited {waited:.0%})",
        percent=True,
        reference=0,
        xlabel="share of training time that ready batches would save",
        title=says(),
    )
