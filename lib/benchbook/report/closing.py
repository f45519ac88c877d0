"""The result of a study's notebook: an answer, one figure and one table of its own point; its
rows fold away."""

from dataclasses import replace

import pandas
from IPython.display import HTML, Markdown, display

from benchbook.judging import statistics, verdicts, wording
from benchbook.record import claims, naming
from benchbook.report import claim_outcomes, tables
from benchbook.rows import records
from benchbook.studies.charts import figures
from benchbook.studies.charts.drawing import Drawing, sources
from benchbook.studies.experiments import parameters
from benchbook.studies.results import findings
from benchbook.studies.results.evidence import SECONDS, Evidence, cached
from benchbook.studies.results.findings import Sentence
from benchbook.studies.results.tables import are_measured
from benchbook.studies.study import Study

ROWS = [
    "phase",
    "precision",
    "repeat",
    "epoch",
    "batch_size",
    "samples",
    "seconds",
    "input_seconds",
]
ROWS += ["samples_per_second", "energy_joules", "loss", "accuracy", "status", "message"]
SIZES = ("batch_size", "image_size", "sequence_length", "width")  # which the study's unit is of


def show(
    evidence: Evidence, study: Study, *more: str, table: pandas.DataFrame | None = None
) -> None:
    """Show the answer of one point, a figure, a table, and the point's rows, which are folded.

    Args:
        evidence: the point's rows and the published ones.
        study: of the point.
        more: sentences of the study about the result.
        table: of the result, at most eight columns; None: the point's speed, accuracy, energy
        and verdict.
    """
    drawing = study.lead.draw(evidence, study.name) if has_answer(evidence, study) else None
    display(Markdown(answer(evidence, study, *more)))
    drawing = drawing if drawing and drawing.figure else windows(evidence, study)
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
    display(
        HTML(f"<details><summary>All {len(rows)} rows</summary>{tables.html(rows[ROWS])}</details>")
    )


def answer(evidence: Evidence, study: Study, *more: str) -> str:
    """Return the answer of one point in Markdown: its verdict and its number, what follows, and
    what it is based on."""
    [point] = evidence.summary.to_dict("records")
    said, verdict = headline(evidence, study), point["verdict"]
    if point["status"] in records.TRAINED:
        more = (
            *findings.finding(study, evidence, measured=True)[has_answer(evidence, study) :],
            *more,
        )
        if verdict and verdict.is_doubtful and not said.startswith(findings.DOUBTS):
            said = f"{verdict.kind.capitalize()} ({verdict.text(verdict.kind)}): {said}"
    first, *said = map(tables.markdown, filter(None, [said, *more, _claim(evidence, study)]))
    said = [f"**{first}**", *said]
    compared = evidence.measured["phase"].eq("parity").sum()
    based = [
        wording.count(point["num_processes"], "process"),
        wording.count(point["num_windows"], "window"),
    ]
    based += [f"{wording.count(compared, 'step')} compared with float64"] if compared else []
    based += [f"how busy the host was is hidden ({word})" for word in _hiding(evidence)]
    trained = f" This is one computer on one day: {wording.joined(based)}. {wording.energy(point)}."
    return " ".join(filter(None, said)) + (f"\n\n{trained.strip()}" if point["num_windows"] else "")


def _hiding(evidence: Evidence) -> list[str]:
    """Return the hypervisors that hide how busy the measured machine's host was."""
    known = evidence.conditions
    if known is None or "hypervisor" not in known:
        return []
    own = known[known["run_id"].isin(evidence.measured["run_id"])]
    return sorted(own["hypervisor"].dropna().unique())


def headline(evidence: Evidence, study: Study) -> str:
    """Return the answer of measured points in the study's unit, or how they failed; empty if
    none trained."""
    points = evidence.summary[evidence.summary["study"] == study.name].sort_values(
        "num_samples", kind="stable"
    )
    if len(points) and not points["status"].isin(records.TRAINED).any():
        return wording.sentence(
            f"{points['status'].iloc[-1].replace('_', ' ')}: {points['message'].iloc[-1]}"
        )
    if has_answer(evidence, study):
        return findings.finding(study, evidence, measured=True)[0]
    trained = points[points["status"].isin(records.TRAINED) & points["num_windows"].gt(0)].to_dict(
        "records"
    )
    return _rate(evidence, study, trained[-1]) if trained else ""


def windows(evidence: Evidence, study: Study) -> Drawing:
    """Draw the rate of each window, and the point's interval as a band."""
    rows = statistics.timed_windows(evidence.measured)
    [point] = evidence.summary.to_dict("records")
    rows = rows.assign(number=range(1, len(rows) + 1))
    with figures.style():
        figure, axes = figures.canvas(2.8)
        disturbed = verdicts.disturbed(rows, evidence.conditions)
        for process, (run_id, own) in enumerate(rows.groupby("run_id", sort=True), start=1):
            label = f"process {process}{', disturbed' * (run_id in disturbed)}"
            axes.plot(own["number"], own["samples_per_second"].astype(float), "o-", label=label)
        if pandas.notna(point["low"]):
            axes.axhspan(
                point["low"], point["high"], alpha=0.15, label=figures.WHISKERS[point["interval"]]
            )
        axes.set(xlabel="window", ylabel="samples per second", title="The rate of each window")
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.locator_params(axis="x", integer=True)
        if len(rows):  # a calibration has none
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    note = sources("samples per second", rows, evidence, study.name)
    return Drawing(figure, rows, "Samples per second over windows", note=note)


@cached
def has_answer(evidence: Evidence, study: Study) -> bool:
    """Return whether the headline is about a measured point; it is not about one of another
    size, for one."""
    lines, sentence = (
        study.lead.drawn(study.lead.table(evidence), evidence),
        study.headline.sentence,
    )
    lines = sentence.lines(lines) if isinstance(sentence, Sentence) else lines
    return any(are_measured(lines[lines[study.headline.quantity].notna()]))


def _rate(evidence: Evidence, study: Study, point: dict) -> str:
    """Return the sentence on a point that the headline is not about: its time in the study's
    unit, and its size."""
    value, low, high, unit = statistics.in_units(point)
    usual, own = parameters.declared(study.name), point["settings"] | point
    sizes = [
        name
        for name in SIZES
        if pandas.notna(own.get(name)) and own[name] != usual.get(name, own[name])
    ]
    theirs = f"{'the article' if study.article else 'usual'}: {naming.words(usual, sizes)}"
    size = f" ({naming.words(own, sizes)}; {theirs})" if sizes else ""
    time, _, work = study.headline.unit.partition("/")
    text = f"Training{size} runs at {{value}} {unit} a second on {{place}}"
    title = Sentence(text, "", "samples_per_second", best="most")
    if time in SECONDS:
        text = f"Training one {work}{size} takes {{value}} on {{place}}"
        show, amount = (
            lambda length: f"{wording.number(length)} {time}",
            study.headline.samples / SECONDS[time],
        )
        title = replace(title, text=text, show=show, work=amount)
    line = point | {"source": "measured", "samples_per_second": value, "low": low, "high": high}
    return wording.sentence(findings.spoken(title, pandas.DataFrame([line]), evidence, study))


def _claim(evidence: Evidence, study: Study) -> str:
    """Return what the article says, and whether this point decides it."""
    if not study.claim:
        return ""
    [claim] = claim_outcomes.table(
        claim_outcomes.judged(evidence).query("id == @study.claim"), evidence.names
    ).to_dict("records")
    sums = f" ({claim['arithmetic']})" if claim["arithmetic"] else ""
    is_open = claim["outcome"] in (claim_outcomes.OUT_OF_REACH, claims.UNDECIDED)
    judged, why = (
        "Not decided by this run" if is_open else claim["outcome"].capitalize(),
        claim["why"],
    )
    why = why[0].lower() + why[1:] if why[1].islower() else why
    return f"The article: {claim['sentence'].removesuffix('.')}{sums}. {judged}: {why}"
