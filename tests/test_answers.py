"""Answers: a number first, its bounds and doubts behind it, the same in every place; no comparison
that its interval does not support."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchbook import studies
from benchbook.commands import study as command
from benchbook.judging import wording
from benchbook.judging.verdicts import REASONS, Verdict
from benchbook.record.naming import Name, Names
from benchbook.report import closing
from benchbook.studies.results import answers
from benchbook.studies.results.answers import Template
from benchbook.studies.results.evidence import Evidence
from made import study_rows
from made.rows import make_row, make_rows, windows
from made.study_rows import is_short

STUDIES = studies.every()
STUDY = STUDIES["mnist_speedup"]
PRINTED = make_row(
    source="published", machine="printed-box", phase="total", device="mps", seconds=19.6, epoch=1
)
PRINTED |= {"samples_per_second": None, "samples": 60_000, "run_id": "printed", "point": "printed"}
TITLES = {
    chart.name: chart.title
    for study in STUDIES.values()
    for chart in study.charts
    if isinstance(chart.title, Template)
}
RATIOS = [name for name, title in TITLES.items() if title.equal is not None]
COMPARES = re.compile(r"faste|slow|\btimes as\b|\bpays?\b|\btakes \S+ of a training step", re.I)
DOUBTS = re.compile("|".join(words for _, _, words in REASONS.values() if words), re.I)
UNKNOWN = Evidence(make_rows([PRINTED]))


def point(rates=(100.0, 101.0, 99.0, 100.0, 102.0, 98.0), variant="reference", **columns):
    name = f"{variant}-{columns.get('machine')}-{columns.get('device')}"
    return windows(rates, variant=variant, point=name, run_id=name, session=name, **columns)


def starts(number, *given, **columns):
    """Return a point as so many processes measured it."""
    rows = [(n, row) for n in range(number) for row in point(*given, **columns)]
    return [row | {"run_id": f"{row['run_id']}-{n}"} for n, row in rows]


def said(*parts, **more):
    evidence = Evidence(make_rows([PRINTED, *(row for part in parts for row in part)]), **more)
    return closing.sentences(evidence, STUDY)


def test_the_number_comes_first_and_its_bounds_and_doubts_behind_it():
    own = "600 seconds an epoch of MNIST (554 to 650) on"
    assert said(starts(5))[0] == f"{own} a Chip A."
    assert said(starts(5), own_first=True)[0] == f"{own} this Chip A."
    unstable = said(starts(5, (50.0, 150.0, 60.0, 140.0, 55.0, 145.0)))[0]
    assert re.fullmatch(
        r"[\d,]+ seconds an epoch of MNIST \(\S+ to \S+; its speed varied\) on a Chip A\.", unstable
    )
    assert said(point())[0].startswith("600 seconds an epoch of MNIST (588 to 612; one process)")


def test_published_figures_are_those_of_the_work_that_is_nearest():
    work = {"study": "mobilenetv2_energy", "image_size": 64}
    article = {"source": "published", "machine": "mac-mini", "phase": "total", "seconds": 10.0}
    lines = [
        make_row(**work, **article, samples=samples, settings={"trainable": is_whole})
        for samples, is_whole in ((1000, True), (2000, False))
    ]
    own = windows([100.0] * 6, **work, settings={"trainable": True})
    said = answers.published(STUDIES[work["study"]], Evidence(make_rows([*lines, *own])))
    assert ": 10 ms on " in said  # not the faster 5 ms of the last layer


def test_a_sentence_ends_with_what_the_work_has_other_than_the_articles():
    assert said(starts(5, batch_size=7, dataset="digits"))[0].endswith(
        "on a Chip A, 8 x 8 scans of digits, batch 7."
    )
    tuned = point((200.0,) * 6, "tuned")
    assert "not confirmed; " not in said(point(), tuned)[0]  # a confirmed one speaks before it
    assert said(tuned)[0].startswith("300 seconds")
    assert "tuning not confirmed" in said(tuned)[0]


def test_a_steady_point_speaks_before_a_faster_unstable_one():
    unstable = starts(3, (100.0, 400.0, 100.0, 400.0), machine="attic", chip="Chip B")
    assert "on a Chip A" in said(starts(3), unstable)[0]
    assert len(answers.of_machines(STUDY, Evidence(make_rows([*starts(3), *unstable])))) == 2


def test_the_machines_of_a_class_are_ranked():
    rates = {"anna": 90.0, "ben": 140.0, "carla": 110.0}
    rows = [row for name, rate in rates.items() for row in point([rate] * 6, machine=name)]
    found = answers.of_machines(STUDY, Evidence(make_rows([PRINTED, *rows])))
    assert [each.line["machine"] for each in found] == ["ben", "carla", "anna"]
    tokens = STUDIES["gpt_tokens"]
    evidence = study_rows.given("gpt_tokens", "two machines")
    values = [each.value for each in answers.of_machines(tokens, evidence)]
    assert values == sorted(values, reverse=True)


def test_a_measured_answer_carries_its_day_once_and_a_published_one_none():
    day = "2026-11-28"
    measured = [row | {"session": "20261128T101500Z-00000001"} for row in starts(5)]
    evidence = Evidence(make_rows([PRINTED, *measured]))
    first, *more = closing.sentences(evidence, STUDY, dated=True)
    assert first == f"{answers.of_study(STUDY, evidence)} Measured on {day}."
    assert " ".join([first, *more]).count(day) == 1
    assert closing.sentences(UNKNOWN, STUDY, dated=True) == closing.sentences(UNKNOWN, STUDY)


def test_the_published_figures_follow_with_three_digits_and_answer_where_nothing_was_measured():
    assert said(starts(5))[-1] == "Chinese PyTorch blog post, 2022: 19.6 seconds on a Chip A's GPU."
    assert said()[0] == "19.6 seconds an epoch of MNIST on a Chip A's GPU."
    nothing = Evidence(make_rows([]))
    assert closing.sentences(nothing, STUDY) == ["MNIST: not measured here yet."]


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("rows", ["one machine", "two machines"])
def test_each_place_shows_the_same_answer_short_and_with_no_doubt_before_its_number(name, rows):
    study, evidence = STUDIES[name], study_rows.given(name, rows, True)
    answer = answers.of_study(study, evidence)
    lead = study.lead.draw(evidence, name)
    first, *more = closing.sentences(evidence, study)
    assert first == str(answer)
    assert closing.sentences(evidence, study, dated=True) == [answer.dated, *more]
    assert str(answer) in map(str, answers.of_machines(study, evidence))
    if lead.figure:
        assert lead.figure.axes[0].get_title(loc="left") == first.removesuffix(".")
    assert not DOUBTS.search(first.partition(answer.number)[0])
    assert "ot decided" not in first
    assert all(is_short(sentence) for sentence in (first, *more))


@pytest.mark.parametrize("is_steady", [True, False])
def test_the_terminal_shows_the_answer_of_this_machine_in_80_columns(
    tmp_path, monkeypatch, capsys, is_steady
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(command, "_write_report", lambda: tmp_path / "index.html")
    rates = (100.0, 101.0, 99.0) if is_steady else (50.0, 150.0, 60.0, 140.0, 55.0, 145.0)
    evidence = Evidence(make_rows(starts(5, rates)), own_first=True)
    monkeypatch.setattr(Evidence, "of_machine", lambda machine: evidence)
    own = [SimpleNamespace(key=(STUDY.name, evidence.summary["point"].item()), title="MNIST, CPU")]
    command._show(own, evidence.summary, [], math.inf)
    shown = capsys.readouterr().out
    assert str(answers.of_study(STUDY, evidence)) in " ".join(shown.split())
    assert max(map(len, shown.splitlines()[:-1])) <= 80  # the last is a path
    [line] = [line for line in shown.splitlines() if "MNIST, CPU" in line]
    assert line.strip().endswith("~") != is_steady
    assert ("RETRY=1" in shown) != is_steady


@pytest.mark.parametrize("name", TITLES)
def test_a_title_that_compares_has_a_value_of_no_difference(name):
    title = TITLES[name]
    assert bool(COMPARES.search(re.sub("{.*?}", "5", title.text))) == (title.equal is not None)
    assert (title.equal is None) or title.same


NUMBERS = st.tuples(
    st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from(["interval", "range"])
)


@pytest.mark.parametrize("name", RATIOS)
@settings(max_examples=60, deadline=None)
@given(lines=st.lists(NUMBERS, min_size=1, max_size=4))
def test_no_title_says_a_difference_that_its_bounds_do_not_show(name, lines):
    title, rows = TITLES[name], []
    for centre, below, above, kind in lines:
        value = math.exp(centre) if title.equal else centre
        bounds = {"low": value - below, "high": value + above, "interval": kind}
        own = {"machine": "desk", "device": "cpu", "status": "ok", "precision": "bf16"}
        rows.append(
            {title.column: value, "source": "measured", "verdict": Verdict()} | own | bounds
        )
    line = title.line(pandas.DataFrame(rows))
    text = title(pandas.DataFrame(rows), UNKNOWN)
    holds = line["low"] <= title.equal <= line["high"]
    assert bool(re.search("about as fast|not distinguishable", text)) == holds
    number = wording.quantity([line[title.column]], title.unit)[0]
    assert holds or number in text


@pytest.mark.parametrize(
    ("rate", "device", "words"),
    [
        (0.5, "cpu", r"It costs \$0\.\d\d \(\$\S+ to \$\S+\) at \$0\.50 an hour\."),
        (0, "cuda", r"It costs \$\S+( to \$\S+)? at the \$\S+( to \$\S+)? an hour that this chip"),
        (0, "cpu", r"No price by the hour is known \(price_per_hour\)\."),
    ],
)
def test_money_is_the_runs_own_price_or_the_records_for_this_chip_or_none(rate, device, words):
    here = {"settings": {"price_per_hour": rate}, "device": device}
    here |= {"device_name": "NVIDIA A100-SXM4-80GB"} if device == "cuda" else {}
    evidence = study_rows.evidence(study_rows.point("resnet50_cost", (800.0, 810.0), **here))
    assert re.match(words, answers.money(STUDIES["resnet50_cost"], evidence))


def test_a_brace_in_the_text_of_a_row_is_shown():
    title = Template("{number} of {model}{bounds} on {place}", "rate")
    line = {"rate": 2.0, "machine": "desk", "device": "cpu", "model": "net{place}"}
    names = Names({"desk": Name("Chip A")}, {})
    evidence = replace(UNKNOWN)
    vars(evidence)["names"] = names
    assert title(pandas.DataFrame([line]), evidence) == "2.0 of net{place} on a Chip A."
