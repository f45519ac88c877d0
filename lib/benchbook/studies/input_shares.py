"""How much of a training step is input: making a batch, waiting for it, moving it."""

from collections.abc import Callable

import pandas

from benchbook.judging import intervals, statistics, wording
from benchbook.judging.intervals import Interval
from benchbook.measuring import support
from benchbook.studies import figures
from benchbook.studies.study import Drawing, Evidence


def table(
    points: pandas.DataFrame, ready: pandas.DataFrame, on: list[str], described: tuple[str, ...] = ()
) -> pandas.DataFrame:
    """Return the share of a step that is input, as the host waited for it and as batches that lie ready would save it.

    Args:
        points: lines of a summary.
        ready: rates of steps on batches that lie on the device already: samples_per_second, low, high and interval
            (the kind of its bounds), by `on`.
        on: columns that say which steps on ready batches a point is held against.
        described: further columns of points that the table shows.

    Returns:
        Columns: machine, device, dataset, variant, those of `described`, waited (host wait over window), share (1 -
        step on a ready batch / step; missing where none was timed), the bounds of both (waited_low and so on; those of
        waited are the range of its windows, share_interval is the kind of the others), num_windows, verdict, status.
    """
    joined = points[points["seconds_per_step"].notna()].join(ready.add_suffix("_ready"), on=on)
    saved = [_saved(line) for line in joined.to_dict("records")]
    saved = pandas.DataFrame(saved, joined.index, ["share", "share_low", "share_high", "share_interval"])
    saved = saved.astype(dict.fromkeys(["share", "share_low", "share_high"], float))
    joined = joined.assign(waited=joined["input_share_waited"], **saved)
    columns = ["machine", "device", "dataset", "variant", *described, "waited", "waited_low", "waited_high", *saved]
    return joined[[*columns, "num_windows", "verdict", "status"]].reset_index(drop=True)


def beside_ready(evidence: Evidence, points: pandas.DataFrame) -> pandas.DataFrame:
    """Return the table of points whose own runs took some steps on ready batches; these are few, their bounds a range.

    Args:
        evidence: with the rows of the points.
        points: lines of the summary.
    """
    tried = support.rows_tried(evidence.measured[evidence.measured["study"].isin(points["study"])], support.RESIDENT)
    rates = tried.groupby(statistics.POINT_KEY)["samples_per_second"].agg(["median", "min", "max"]).astype(float)
    ready = rates.set_axis(["samples_per_second", "low", "high"], axis=1).assign(interval=intervals.RANGE)
    return table(points, ready, statistics.POINT_KEY)


def _saved(line: dict) -> tuple[float, float, float, str]:
    """Return the share of a step that a ready batch saves, with its bounds and their kind."""
    rate = Interval.of(line, "samples_per_second")
    ready = Interval.of(line, *(f"{name}_ready" for name in ("samples_per_second", "low", "high", "interval")))
    share = intervals.combine(lambda with_input, without: 1 - with_input / without, rate, ready)
    return share.value, share.low, share.high, share.kind


def draw(shares: pandas.DataFrame, name: Callable[[dict], str], ready: str, digits: int = 0) -> Drawing:
    """Draw, two bars for each line, the share that the host waited and the share that ready batches would save.

    Args:
        shares: from `table`; a share that is missing is not drawn.
        name: from a line to what its bars are called.
        ready: what would save the share, after "saved if".
        digits: of percentages.
    """
    figure, axes = figures.canvas(1.6 + 0.9 * max(1, len(shares)))
    bars = pandas.concat([_bars(shares, "waited", "evaluate"), _bars(shares, "share", "cpu")])
    timed = shares["share"].dropna()
    saved = f"Input takes {wording.span(timed, wording.percent)} of a training step" if len(timed) else ""
    figures.draw_bars(
        axes,
        bars.sort_index(kind="stable"),
        "value",
        name=lambda bar: name(bar) if bar["shade"] == "evaluate" else "",
        text=lambda bar: f"{bar['value']:.{digits}%}" if pandas.notna(bar["value"]) else "not timed",
        names={"evaluate": "host waited for input", "cpu": f"saved if {ready}"},
    )
    axes.set(xlabel="share of training time", title=saved or "Input share: no step on ready batches was timed yet")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.axvline(0, color=figures.COLOURS["line"], linewidth=1)
    return Drawing.titled(figure, shares, "Bars of the share of training time that is input")


def _bars(shares: pandas.DataFrame, column: str, shade: str) -> pandas.DataFrame:
    """Return a bar for each line's share of one kind."""
    bounds = {"low": shares[f"{column}_low"], "high": shares[f"{column}_high"]}
    bounds["interval"] = shares.get(f"{column}_interval")
    return shares.assign(value=shares[column].astype(float), shade=shade, **bounds)
