"""Findings and titles: hedges, doubts first, and no comparison that its interval does not
support."""

import math
import re

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchbook import studies
from benchbook.judging import wording
from benchbook.judging.verdicts import Verdict
from benchbook.record import articles
from benchbook.record.naming import Name, Names
from benchbook.studies.results import findings
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.results.findings import Sentence
from rows import make_row, make_rows, windows

STUDY = "mnist_speedup"
PRINTED = make_row(
    source="published", machine="printed-box", phase="total", device="mps", seconds=19.6, epoch=1
)
PRINTED |= {"samples_per_second": None, "samples": 60_000, "run_id": "printed", "point": "printed"}
COMPARES = re.compile(
    r"faste|slow|\btimes as\b|\bpays?\b|\btakes \S+ of a training step", re.IGNORECASE
)
CHARTS = [chart for study in studies.every().values() for chart in study.charts]
TITLES = {
    chart.name: chart.title
    for chart in CHARTS
    if isinstance(getattr(chart, "title", None), Sentence)
}
NAMES = Names({"desk": Name("Chip A"), "attic": Name("Chip B")}, {})


def point(rates=(100.0, 101.0, 99.0, 100.0, 102.0, 98.0), variant="reference", **columns):
    name = f"{variant}-{columns.get('machine')}-{columns.get('status')}-{columns.get('device')}"
    common = {"variant": variant, "point": name, "run_id": name, "session": name} | columns
    if common.get("status", "ok") != "ok":
        return [
            make_row(
                **common
                | dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds"))
            )
        ]
    return windows(rates, **common)


def finding(*parts, printed=(PRINTED,)):
    evidence = Evidence(make_rows([*printed, *(row for part in parts for row in part)]))
    return " ".join(findings.finding(studies.every()[STUDY], evidence))


def starts(num_processes, *points, **columns):
    """Return points as so many processes measured them."""
    return [
        row | {"run_id": f"{row['run_id']}-{n}"}
        for n in range(num_processes)
        for row in point(*points, **columns)
    ]


def test_a_finding_names_the_machine_the_way_and_its_hedges():
    tuned = point((200.0,) * 6, "tuned")
    assert "(reference) takes 600 seconds" in finding(
        point(), tuned
    )  # the tuned one is not confirmed
    text = finding(tuned)
    assert (
        "not confirmed) takes 300 seconds on a Chip A, at the measured rate (one process only"
        in text
    )
    assert "desk" not in text


def test_a_machines_own_finding_leaves_out_what_was_only_published():
    study, own = (
        studies.every()[STUDY],
        pandas.concat([articles.rows(), make_rows(starts(5))], ignore_index=True),
    )
    assert findings.finding(study, Evidence(own))[-1].endswith(", published.")
    assert "published" not in " ".join(findings.finding(study, Evidence(own), measured=True))
    assert findings.finding(study, Evidence(make_rows([PRINTED])), measured=True) == []


def test_a_sound_point_has_no_hedge_and_an_unstable_one_says_so_first():
    text = "One MNIST epoch (reference) takes 600 seconds on a Chip A, at the measured rate (95 % interval 554 to 650"
    assert finding(starts(5)) == f"Not decided (needs a GPU or a TPU): {text} seconds)."
    unstable = finding(starts(5, (50.0, 150.0, 60.0, 140.0, 55.0, 145.0)))
    assert unstable.startswith("Unstable (its speed varied): One MNIST epoch")
    assert unstable.count("its speed varied") == 1


@pytest.mark.parametrize(
    ("reasons", "low", "said"),
    [
        ((), 1.2, "It is 1.50 times as fast"),
        ((), 0.9, "No difference is shown"),
        ((("spread", 0.1),), 1.2, "Not decided, because a point of the comparison is unstable"),
    ],
)
def test_two_points_of_which_one_is_unstable_decide_nothing(reasons, low, said):
    title = Sentence(
        "It is {value} times as fast",
        "",
        "ratio",
        wording.times,
        "most",
        equal=1,
        undecided="No difference is shown",
    )
    line = {
        "source": "measured",
        "ratio": 1.5,
        "low": low,
        "high": 1.8,
        "interval": "interval",
        "verdict": Verdict(reasons),
    }
    assert title(pandas.DataFrame([line]), Names({}, {})) == said


def test_a_steady_point_speaks_before_a_faster_unstable_one():
    unstable = point((100.0, 400.0, 100.0, 400.0, 100.0, 400.0), machine="attic", chip="Chip B")
    assert "takes 600 seconds on a Chip A" in finding(point(), unstable)


def test_the_title_over_bars_of_several_machines_has_the_span_of_the_others():
    attic = {"machine": "attic", "chip": "Another chip"}

    def title(*rows):
        return studies.every()[STUDY].lead.draw(Evidence(make_rows(rows)), STUDY).alt

    slow, fast = point((50.0,) * 6, **attic), point((200.0,) * 6, "controlled", **attic)
    others = "on a Chip A, at the measured rate; 1,200 seconds on 1 other machine"
    assert f"takes 600 seconds {others}" in title(*point(), *slow)
    said = title(*point(), *slow, *fast)
    assert "(equal loader) takes 300 seconds" in said
    assert "other machine" not in said  # which has no such point


def test_where_nothing_was_measured_it_says_so():
    assert finding().startswith(
        "One MNIST epoch (reference) takes 20 seconds on a Chip A's GPU, published."
    )
    assert finding(printed=()).startswith("No MNIST epoch was measured here yet.")


@pytest.mark.parametrize("name", TITLES)
def test_a_title_that_compares_has_a_value_of_no_difference(name):
    title = TITLES[name]
    assert bool(COMPARES.search(re.sub("{.*?}", "5", title.text))) == (title.equal is not None)
    assert (title.equal is None) or title.undecided


@pytest.mark.parametrize(
    "name", [name for name, title in TITLES.items() if title.equal is not None]
)
@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(
        st.tuples(
            st.floats(-1, 1),
            st.floats(0, 1),
            st.floats(0, 1),
            st.sampled_from(["interval", "range", None]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_title_compares_where_every_interval_holds_no_difference(name, lines):
    title, rows = TITLES[name], []
    for centre, below, above, kind in lines:
        value = math.exp(centre) if title.equal else centre
        bounds = {"low": value - below, "high": value + above, "interval": kind}
        rows.append(
            {title.column: value, "machine": "desk", "device": "cpu", "status": "ok"} | bounds
        )
    table = pandas.DataFrame(rows).assign(
        precision="amp_bf16", compiled=False, verdict=Verdict(), source="measured"
    )
    decided = table["interval"].eq("interval") & ~table["low"].le(title.equal) | table[
        "interval"
    ].eq("interval") & ~(table["high"].ge(title.equal))
    text = title(table, NAMES)
    assert (text == title.undecided) == (not decided.any())
    if decided.any() and not title.best:
        assert title.show(table.loc[decided, title.column].max()) in text
