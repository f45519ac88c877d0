"""How a study's notebook ends: its result with the limits, and this machine among others."""

import math

import pandas
from IPython.display import Markdown

from benchbook.judging import statistics, wording
from benchbook.judging.parity import Agreement
from benchbook.record import chips
from benchbook.report import answers, headline
from benchbook.report.answers import page
from benchbook.report.answers.marks import MEASURED, PREDICTED, PUBLISHED, TASKS, UNKNOWN, Mark, Task
from benchbook.studies import figures, findings
from benchbook.studies.study import Drawing, Evidence, Study

ONE_DAY = "This is one machine on one day; the manifest next to the rows holds its condition."
LOOKS = {MEASURED: ("o", "cpu"), PUBLISHED: ("s", "published"), PREDICTED: ("d", "accelerator")}  # marker, colour


def sentences(evidence: Evidence, rows: pandas.DataFrame) -> str:
    """Return the rate of a run's point with its interval, and its energy, as the report has them.

    Args:
        evidence: with all rows of the machine and study.
        rows: of the run.
    """
    summary, (machine, study, name) = evidence.summary, rows[["machine", "study", "point"]].iloc[0]
    is_its = summary["machine"].eq(machine) & summary["study"].eq(study) & summary["point"].eq(name)
    point = summary[is_its].iloc[0].to_dict()
    settings = [point[column] for column in ("variant", "framework", "device", "precision", "dataset")]
    called = f"This point ({', '.join(word for word in settings if pandas.notna(word))})"
    if pandas.isna(point["samples_per_second"]):
        return f"{called} measured no window: {point['status'].replace('_', ' ')}."
    rate, low, high, unit = statistics.in_units(point)
    ends = [wording.number(end) for end in (low, high)]
    bounds = f"{wording.bounds(low, high, point['interval'])}, n={point['num_windows']}"
    bounds = bounds if ends[0] != ends[1] else "one window"
    rate = f"{wording.number(rate)} {unit} a second"
    return f"{called} trains {rate}{findings.hedged(evidence, [point], bounds)}. {wording.energy(point)}."


def reading(evidence: Evidence, rows: pandas.DataFrame, agreement: Agreement, *more: str, limits: str = "") -> Markdown:
    """Return what a run found, with its interval, and then the limits of that.

    Args:
        evidence, rows: see `sentences`.
        agreement: with float64.
        more: sentences of the study.
        limits: sentences of the study, before the one that holds for all.
    """
    passed = "agrees" if agreement.passed else "does NOT agree, so its speed says nothing"
    found = [sentences(evidence, rows), *more, f"Training {passed} with float64 ({agreement.reason})."]
    return Markdown(f"**Result.** {' '.join(found)}\n\n**Limits.** {limits} {ONE_DAY}".strip())


def among_others(evidence: Evidence, study: Study) -> Drawing:
    """Draw what a study's task takes this machine, what was published of others, and what is predicted.

    Args:
        evidence: what this machine measured, and what was printed.
        study: that answers one of the tasks.
    """
    task = next(task for task in TASKS if task.study == study.name)
    marks = _shown(evidence, study, task)
    ticks = _ticks([value for mark in marks for value in (mark.seconds, mark.low, mark.high) if value])
    with figures.style():
        figure, axes = figures.canvas(1.6 + 0.26 * len(marks))
        for source in dict.fromkeys(mark.source for mark in marks):
            own = [(place, mark) for place, mark in enumerate(marks) if mark.source == source]
            marker, shade = LOOKS[source]
            look = {"color": figures.COLOURS[shade], "markerfacecolor": "white" if source == PREDICTED else None}
            for place, mark in own:
                axes.plot([mark.low or mark.seconds, mark.high or mark.seconds], [place] * 2, color=look["color"])
            axes.plot([mark.seconds for _, mark in own], [place for place, _ in own], marker, **look, label=source)
        axes.set_yticks(range(len(marks)), [mark.name for mark in marks], fontsize=8)
        axes.set_ylim(len(marks) - 0.4, -0.6)
        axes.set(xscale="log", xlim=(ticks[0], ticks[-1]), xlabel=f"time to {task.does}")
        axes.set_xticks(ticks, list(map(wording.duration, ticks)))
        axes.minorticks_off()
        axes.grid(visible=True, axis="x")
        axes.legend(fontsize=8)
        axes.set_title(_title(task, marks))
    columns = ["name", "source", "family", "seconds", "low", "high", "bounds"]
    table = pandas.DataFrame([[getattr(mark, name) for name in columns] for mark in marks], columns=columns)
    return Drawing.titled(figure, table, "Times of machines, the shortest first")


def _title(task: Task, marks: list[Mark]) -> str:
    """Return the shortest time of this machine, and the shortest that was published of another."""
    certain = [mark for mark in marks if mark.source != PREDICTED]
    shortest = [next((mark for mark in certain if mark.here is own), None) for own in (True, False)]
    times = [f"{wording.duration(mark.seconds)} on {page.called(mark)}" for mark in shortest if mark]
    return f"{task.short}: {', '.join(times)}"


def _shown(evidence: Evidence, study: Study, task: Task) -> list[Mark]:
    """Return this machine's marks, those of the study's article, and one for each well-known chip, the fastest first.

    Others are of the families of precisions that this machine ran, else of fp32.
    """
    machine = next(iter(evidence.measured["machine"]), "")
    marks, _ = answers.gather(evidence, headline.table(evidence, {study.name: study}), machine, [task])
    alike = [mark for mark in marks if not mark.apart and mark.count == 1]
    families = {mark.family for mark in alike if mark.here} - {UNKNOWN} or {"fp32"}
    known, shown = set(map(chips.product, chips.SHOWN)), {}
    for mark in alike:
        product = chips.product(mark.chip)
        if mark.source == MEASURED or mark.place != mark.chip:
            shown.setdefault(mark.name, mark)
        elif product in known and mark.family in families:
            shown.setdefault((product, mark.family), mark)
    return list(shown.values())


def _ticks(values: list[float]) -> list[float]:
    """Return the ticks of an axis that holds all values."""
    least, most = min(values), max(values)
    first = max((each for each in page.TIME if each <= least), default=page.TIME[0])
    last = min((each for each in page.TIME if each >= most and each > first), default=page.TIME[-1])
    inside = [each for each in page.TIME if first <= each <= last]
    apart = math.ceil((len(inside) - 1) / page.MOST_TICKS)
    return [*inside[:-1:apart], inside[-1]]
