"""The result of a study's notebook: an answer, one figure and one table of its own point; its
rows fold away."""

import base64
import itertools
from collections.abc import Mapping
from contextlib import suppress

import pandas
from IPython.display import HTML, Markdown, display
from matplotlib.axes import Axes

from benchbook.judging import intervals, statistics, verdicts, wording
from benchbook.loop.rate import Rate
from benchbook.record import chips, claims, estimates
from benchbook.report import claim_outcomes, tables
from benchbook.rows import records
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing, sources
from benchbook.studies.results import answers, quantities
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.results.tables import is_measured
from benchbook.studies.study import Study

ROWS = """phase precision repeat epoch batch_size samples seconds input_seconds samples_per_second
    energy_joules loss accuracy status message"""


def show(
    evidence: Evidence, study: Study, *more: str, table: pandas.DataFrame | None = None
) -> None:
    """Show the answer of one point, the study's figure, a table, and the point's windows and
    rows, which are folded.

    Args:
        evidence: the point's rows and the published ones.
        study: of the point.
        more: sentences of the study about the result.
        table: of the result, at most eight columns; None: the point's speed, accuracy, energy
        and verdict.
    """
    drawing, own = study.lead.draw(evidence, study.name), windows(evidence, study)
    display(answer(evidence, study, *more))
    drawing = drawing if drawing.figure and not _own_network(evidence) else own
    display(drawing)
    display(HTML(drawing.note))
    rows, names = evidence.measured, evidence.names
    display(
        HTML(
            tables.html(table)
            if table is not None
            else tables.of_columns(evidence.summary, "result", names)
        )
    )
    picture = base64.b64encode(figures.render(own.figure)).decode()
    folded = f'<img alt="{own.alt}" src="data:image/png;base64,{picture}">{tables.html(rows[ROWS.split()])}'
    title = f"The rate of each window, and all {len(rows)} rows"
    display(HTML(f"<details><summary>{title}</summary>{folded}</details>"))


def show_rate(rate: Rate) -> None:
    """Show the answer of a loop of the user's own, and the rate of each window."""
    numbers = [rate.samples_per_second, min(rate.rates), max(rate.rates)]
    speed, low, high = wording.quantity(numbers, "samples a second")
    hours = wording.duration(1e6 / rate.samples_per_second)
    said = f"{speed} ({low} to {high}; one process) on this {rate.device}"
    display(_spoken(said, f": a million samples take {hours}."))
    table = pandas.DataFrame({"window": range(1, len(rate.rates) + 1), "rate": rate.rates})
    with figures.style():
        figure, axes = figures.canvas(2.8)
        axes.plot(table["window"], table["rate"], "o-")
        _label(axes)
    display(Drawing(figure, table, "Samples per second over windows"))
    if lines := _elsewhere(rate):
        display(
            Markdown("On other chips, by published pairs of other workloads, or by specifications:")
        )
        display(tables.shown(pandas.DataFrame(lines)))


def _elsewhere(rate: Rate) -> list[dict]:
    """Return what a loop of the user's own would reach on the chips that people compare."""
    lines: list[dict] = []
    try:
        own = chips.resolve(rate.chip)
    except chips.UnknownChip:
        return lines
    others = dict.fromkeys(itertools.chain.from_iterable(estimates.ASKED))
    for chip in [each for each in others if each != own]:
        with suppress(estimates.Unknown):
            found = estimates.of_any_work(own, chip)
            ratios = found.value, found.low, found.high
            speeds = [wording.number(rate.samples_per_second * ratio) for ratio in ratios]
            said = "{} ({} to {})".format(*speeds)
            lines.append({"chip": chip, "samples a second": said, "basis": found.basis})
    return lines


def answer(evidence: Evidence, study: Study, *more: str) -> Markdown:
    """Return the answer of one point: its number, what is published, and the proof."""
    first, *said = sentences(evidence, study)
    compared = [] if _own_network(evidence) else [*more, _claim(evidence, study)]
    said = [*said, *compared, proof(evidence, study)]
    return _spoken(first, "".join(f"\n\n{tables.markdown(each)}" for each in said if each))


def _spoken(first: str, rest: str) -> Markdown:
    """Return a text whose first sentence is bold; pages read it in the output's metadata."""
    return Markdown(f"**{tables.markdown(first)}**{rest}", metadata={"sentence": first})


def sentences(evidence: Evidence, study: Study, dated: bool = False) -> list[str]:
    """Return the answer to a study's question, with its day if `dated`, what it costs to rent,
    and what is published; without a point that trained, how it failed."""
    own = answers.of_study(study, evidence)
    points = evidence.summary[evidence.summary["study"] == study.name]
    failed = points[~points["status"].isin(records.TRAINED)].to_dict("records")
    if failed and (own is None or not is_measured(own.line)):
        status, message = (failed[-1][name] for name in ("status", "message"))
        return [wording.sentence(f"{status.replace('_', ' ')}: {message}")]
    if name := _own_network(evidence):
        [point] = points.to_dict("records")
        *rate, unit = statistics.in_units(point)
        named = dict(zip(("samples_per_second", "low", "high"), rate, strict=True)) | {"name": name}
        text = "{number}{bounds} training {name}, your network, on {place}"
        template = answers.Template(text, "samples_per_second", f"{unit} a second")
        return [str(template.of_line(point | named | {"source": "measured"}, evidence, study.name))]
    if own is None:
        return [f"{study.title}: not measured here yet."]
    first = own.dated if dated else str(own)
    more = (answers.money(study, evidence), answers.published(study, evidence))
    return [first, *filter(None, more)]


def _own_network(evidence: Evidence) -> str:
    """Return the name of a reader's network in place of the study's; empty for the study's."""
    rows = evidence.measured
    settings = rows.loc[rows["model"].eq(records.YOURS), "settings"].head(1)
    replaced = [each.get("replaced", {}) for each in settings]
    return "".join(each.get("the study's network", "") for each in replaced).removeprefix("your ")


def proof(evidence: Evidence, study: Study) -> str:
    """Return what a point's number is based on, in a line; empty without a window."""
    [point] = evidence.summary.to_dict("records")
    if not point["num_windows"]:
        return ""
    steps = int(evidence.measured["phase"].eq("parity").sum())
    agree = "1 step agrees" if steps == 1 else f"{steps:,} steps agree"
    parts = [
        f"{agree} with float64" if steps else "",
        wording.count(point["num_processes"], "process"),
        wording.count(point["num_windows"], "window"),
        *wording.causes(point["verdict"], verdicts.UNPROVEN, "variables"),
        *(f"how busy the host was is hidden ({word})" for word in _hiding(evidence)),
        _between(point) if point["interval"] == intervals.INTERVAL else "",
        *statistics.days(evidence.measured)[-1:],
    ]
    said = f"Proof: {', '.join(filter(None, parts))}. {wording.energy(point)}."
    if (point["settings"] or {}).get("keeps_memory"):
        said += " Steps keep the memory that they free; a plain script's may not."
    if study.by_accelerator and point["device"] == "cpu":
        said += " No GPU was measured here."
    return said


def _between(point: Mapping) -> str:
    """Return by how much sessions differ, as the point's interval holds it."""
    deviation = point["between_sessions"]
    is_assumed = deviation == intervals.UNPAIRED.session
    whose = "sessions are assumed to" if is_assumed else "sessions of virtual machines' CPUs"
    return f"{whose} differ by {deviation:.0%}"


def _hiding(evidence: Evidence) -> list[str]:
    """Return the hypervisors that hide how busy the measured machine's host was."""
    known = evidence.conditions
    if known is None or "hypervisor" not in known:
        return []
    own = known[known["run_id"].isin(evidence.measured["run_id"])]
    return sorted(own["hypervisor"].dropna().unique())


def _label(axes: Axes) -> None:
    axes.set(xlabel="window", ylabel="samples per second", title="The rate of each window")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.locator_params(axis="x", integer=True)


def windows(evidence: Evidence, study: Study) -> Drawing:
    """Draw the rate of each window, and the point's interval as a band."""
    rows = statistics.timed_windows(evidence.measured)
    [point] = evidence.summary.to_dict("records")
    rows = rows.assign(number=range(1, len(rows) + 1))
    with figures.style():
        figure, axes = figures.canvas(3.2)
        disturbed = set(evidence.runs.loc[evidence.runs["is_disturbed"], "run_id"])
        for process, (run_id, own) in enumerate(rows.groupby("run_id", sort=True), start=1):
            label = f"process {process}{', disturbed' if run_id in disturbed else ''}"
            axes.plot(own["number"], own["samples_per_second"].astype(float), "o-", label=label)
        if pandas.notna(point["low"]):
            axes.axhspan(
                point["low"], point["high"], alpha=0.15, label=figures.WHISKERS[point["interval"]]
            )
        _label(axes)
        if len(rows):  # a calibration has none
            figure.legend(loc="outside lower center", ncols=2)
    note = sources("samples per second", rows, evidence, study.name)
    return Drawing(figure, rows, "Samples per second over windows", note=note)


def _claim(evidence: Evidence, study: Study) -> str:
    """Return what the article says, and whether this point decides it."""
    if not study.claim:
        return ""
    only = records.having(claims.read(), id=study.claim)
    judged = claims.table(only, quantities.gather(evidence, [study]))
    [claim] = claim_outcomes.table(judged, evidence.names).to_dict("records")
    sums = f" ({claim['arithmetic']})" if claim["arithmetic"] else ""
    is_open = claim["outcome"] in (claim_outcomes.OUT_OF_REACH, claims.UNDECIDED)
    judged, why = (
        "Not decided by this run" if is_open else claim["outcome"].capitalize(),
        claim["why"],
    )
    why = why[0].lower() + why[1:] if why[1].islower() else why
    return f"The article: {claim['sentence'].removesuffix('.')}{sums}. {judged}: {why}"
