"""This machine among others: what it measured beside what was published and predicted, and what it is like."""

import json
import math
from pathlib import Path

import numpy
import pandas
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from benchbook import chips, figures, headline, naming, studies, wording
from benchbook.answers import tasks
from benchbook.figures import legends
from benchbook.study import Drawing, Evidence, Study

MEASURED, PUBLISHED, PREDICTED = "measured here", "published", "predicted"
SECONDS, RATE = "seconds_per_epoch", "images_per_second"
AXES = {SECONDS: "seconds for an epoch, less is better", RATE: "images a second, more is better"}
LOOKS = {MEASURED: ("o", True), PUBLISHED: ("s", True), PREDICTED: ("d", False)}  # marker, and whether it is filled
# Chips that stand in the charts, of those that are predicted.
SHOWN = {"Apple M1", "Apple M1 Max", "Apple M3 Max", "NVIDIA P100", "NVIDIA T4", "NVIDIA V100", "NVIDIA RTX 3090"}
SHOWN |= {"NVIDIA A100", "NVIDIA RTX 4090", "NVIDIA H100 80GB SXM", "NVIDIA H200 141GB SXM", "NVIDIA RTX 5090"}
TERA = 1e12
COLUMNS = ["machine", "place", "device", "kind", "variant", "dataset", "value", "low", "high"]


def predictions(study: str) -> pandas.DataFrame:
    """Return what is predicted in fp32 of a study from the public record, as it is kept beside the answers' tasks.

    Returns:
        Columns: machine (a chip), value, low, high (images a second, 90 %); no line of a study without predictions.
    """
    images = {task.key: task.images for task in tasks.TASKS if task.study == study and task.work}
    kept = json.loads((Path(tasks.__file__).parent / "record.json").read_text(encoding="utf-8"))["predictions"]
    return pandas.DataFrame(
        [
            {
                "machine": line["chip"],
                "value": images[line["task"]] / line["seconds"],
                "low": images[line["task"]] / line["high"],
                "high": images[line["task"]] / line["low"],
            }
            for line in kept
            if line["task"] in images and line["family"] == "fp32" and line["chip"] in SHOWN
        ],
        columns=["machine", "value", "low", "high"],
    )


def table(evidence: Evidence, study: Study) -> tuple[pandas.DataFrame, str]:
    """Return one study's machines side by side, and what is compared: SECONDS of an epoch, else RATE.

    Args:
        evidence: what was measured and printed.
        study: whose article says what an epoch is.

    Returns:
        Columns: COLUMNS; of a prediction the machine is its chip. Bounds are those of the rate.
    """
    lines = _comparable(headline.table(evidence, {study.name: study}))
    both = [set(lines.loc[lines[column].notna(), "source"]) for column in (SECONDS, RATE)]
    column = SECONDS if len(both[0]) > 1 or "measured" in both[0] - both[1] else RATE
    lines = lines[lines[column].notna()].rename(columns={column: "value"})
    kinds = lines["source"].map({"measured": MEASURED}).fillna(PUBLISHED)
    bounds = {} if column == RATE else {"low": numpy.nan, "high": numpy.nan}
    places = [evidence.names.place(line) for line in lines.to_dict("records")]
    parts = [lines.assign(place=places, kind=kinds, **bounds)]
    printed = evidence.published[evidence.published["study"] == study.name]
    images = printed["dataset_samples"].dropna().max()
    predicted = predictions(study.name).assign(kind=PREDICTED, device="accelerator")
    if column == SECONDS:
        predicted = predicted.assign(
            value=images / predicted["value"], low=images / predicted["high"], high=images / predicted["low"]
        )
    parts.append(predicted.assign(place=predicted["machine"]))
    together = pandas.concat([part.reindex(columns=COLUMNS) for part in parts if len(part)] or [pandas.DataFrame()])
    fastest_first = together.reindex(columns=COLUMNS).sort_values("value", ascending=column == SECONDS, kind="stable")
    return fastest_first.reset_index(drop=True), column


def draw(evidence: Evidence, study: Study) -> Drawing:
    """Draw a study's machines side by side: this one in colour, published ones grey, predicted ones hollow."""
    lines, column = table(evidence, study)
    with figures.style():
        figure, axes = figures.canvas(1.6 + 0.26 * max(1, len(lines)))
        for place, line in enumerate(lines.to_dict("records")):
            _draw_mark(axes, line, place)
        axes.set_yticks(range(len(lines)), [_name(line, lines) for line in lines.to_dict("records")], fontsize=8)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.set(xlabel=AXES[column], title=title(evidence, study, lines))
        if len(lines):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(lambda value, _: wording.number(value).removesuffix(".0"))
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(visible=True, axis="x")
        legends.add_legend(figure, _legend(lines["kind"]))
    return Drawing.titled(figure, lines, f"Machines side by side, {AXES[column]}")


def title(evidence: Evidence, study: Study, lines: pandas.DataFrame) -> str:
    """Return what the chart shows: what this machine is like, else how many others stand beside it."""
    alike = likeness(evidence, study)
    if alike:
        return f"This machine: {alike}"
    count = (lines["kind"] == PUBLISHED).sum()
    predicted = (lines["kind"] == PREDICTED).sum()
    others = [f"{number} {word}" for number, word in ((count, PUBLISHED), (predicted, PREDICTED)) if number]
    return (
        f"{study.title}: this machine beside {wording.joined(others)}"
        if others
        else f"{study.title}: nothing to compare"
    )


def likeness(evidence: Evidence, study: Study) -> str:
    """Return what this machine is like in a study, as in `its CPU has about a third of the speed of an Apple M1's CPU`.

    Only the whole epoch of the article, in its own way, is held against what the article printed; a CPU against CPUs
    where there are any, else against the nearest. Where only other data of the article's image size was trained on,
    which takes the network as long, it is named.

    Returns:
        A part of a sentence; empty where nothing comparable was measured or printed.
    """
    if study.epoch_seconds is None:
        return ""
    lines = _comparable(headline.table(evidence, {study.name: study}))
    lines = lines[lines[SECONDS].notna() & lines["variant"].eq("reference")]
    printed = lines[lines["source"] == "published"]
    measured = lines[lines["source"] == "measured"]
    is_own = measured["dataset"].isin(printed["dataset"])
    is_alike = measured["image_size"].isin(printed["image_size"].dropna()) & measured["dataset"].notna()
    own = measured[is_own if is_own.any() else is_alike].to_dict("records")
    said = [_like(line, printed.to_dict("records"), evidence.names) for line in own]
    if not said:
        return ""
    data = "" if is_own.any() else f", with {naming.dataset(own[0]['dataset'])} of its image size"
    return f"{wording.joined(said)} on {study.title}{data}{wording.hedged(own)}"


def summary(evidence: Evidence) -> str:
    """Return what this machine is like, in one sentence: by its training, else by the ceiling of its arithmetic."""
    said = [alike for study in studies.every().values() if (alike := likeness(evidence, study))]
    if said:
        return wording.sentence(f"this machine: {'; '.join(said)}")
    return (
        f"This machine: {_ceiling(evidence)}nothing that it trained can be compared with a published figure, which"
        " takes an article's whole epoch at its image size (MNIST, CIFAR-10)."
    )


def _ceiling(evidence: Evidence) -> str:
    """Return what the matrix products of the fastest device are beside a chip's printed peak; empty without any."""
    best = evidence.ceilings
    best = best[best["model"].eq("matmul") & best["precision"].eq("fp32")]
    if best.empty:
        return ""
    fastest = best.loc[best["rate"].idxmax()]
    peaks = chips.table()["fp32_tflops"].loc[sorted(SHOWN)].dropna()
    nearest = (numpy.log(peaks) - math.log(fastest["rate"] / TERA)).abs().idxmin()
    share = fastest["rate"] / TERA / peaks[nearest]
    beside = f"{wording.part(share)} of" if share < 1 else f"{wording.times(share)} times"
    device = naming.device_word(fastest["device"])
    printed = naming.with_article(nearest) + ("'s GPU" if nearest.startswith("Apple") else "")
    return (
        f"by its ceiling alone, its {device}'s matrix products in fp32 reach {beside} what is printed of"
        f" {printed} ({wording.number(fastest['rate'] / TERA)} of {wording.number(peaks[nearest])} TFLOP/s); "
    )


def _comparable(lines: pandas.DataFrame) -> pandas.DataFrame:
    """Return lines of a headline without failures, and without measured ones of another image size than in print."""
    sizes = set(lines.loc[lines["source"] == "published", "image_size"].dropna())
    alike = lines["image_size"].isin(sizes) | lines["image_size"].isna() | (not sizes)
    return lines[(lines["source"] == "published") | (lines["status"].eq("ok") & alike)]


def _like(own: dict, printed: list[dict], names: naming.Names) -> str:
    """Return how fast an epoch is beside the printed one that is nearest to it.

    A CPU is held against CPUs, and a chip with a name comes before one without.
    """
    of_kind = [line for line in printed if (line["device"] == "cpu") == (own["device"] == "cpu")] or printed
    named = [line for line in of_kind if names.is_named(line)] or of_kind
    nearest = min(named, key=lambda line: abs(math.log(line[SECONDS] / own[SECONDS])))
    speed = wording.speed_of(nearest[SECONDS] / own[SECONDS])
    return f"its {naming.device_word(own['device'])} has {speed} {names.in_sentence(nearest)}"


def _name(line: dict, lines: pandas.DataFrame) -> str:
    """Return what a line is called: its place, and of a measured one its variant and the data that stood in."""
    theirs = set(lines.loc[lines["kind"] == PUBLISHED, "dataset"].dropna())
    other = line["dataset"] if theirs and line["dataset"] not in theirs else None
    further = [line["variant"], naming.dataset(other) if other else ""] if line["kind"] == MEASURED else []
    return ", ".join(filter(None, (line["place"], *further)))


def _draw_mark(axes: Axes, line: dict, place: int) -> None:
    """Draw one machine's mark with its bounds; those of a prediction are dashed."""
    marker, filled = LOOKS[line["kind"]]
    colour = figures.COLOURS["published"] if line["kind"] == PUBLISHED else figures.colour(line["device"])
    if pandas.notna(line["low"]):
        dash = "--" if line["kind"] == PREDICTED else "-"
        axes.plot([line["low"], line["high"]], [place, place], dash, color=colour, linewidth=1)
    axes.plot(line["value"], place, marker, color=colour, markerfacecolor=colour if filled else "white", markersize=7)


def _legend(kinds: pandas.Series) -> list[Line2D]:
    """Return the legend's entries of what stands in a chart."""
    named = {kind: look for kind, look in LOOKS.items() if kind in set(kinds)}
    words = {PREDICTED: "predicted: training alone, 90 % interval"}
    look = {"linestyle": "none", "color": figures.COLOURS["line"]}
    return [
        Line2D(
            [], [], marker=marker, markerfacecolor="black" if filled else "white", label=words.get(kind, kind), **look
        )
        for kind, (marker, filled) in named.items()
    ]
