"""The contract of every study: rows in; tables, charts and a finding out, whatever was measured. Numbers: golden."""

import functools
import re

import pytest

from benchbook import studies
from benchbook.studies import findings
from study_rows import evidence, given, machine

STUDIES = studies.every()
CHARTS = [(study, chart) for study in STUDIES.values() for chart in study.charts]
each_chart = pytest.mark.parametrize(("study", "chart"), CHARTS, ids=[chart.name for _, chart in CHARTS])
# No run reaches the accuracy; the rows of one test make no line.
UNDRAWN = {"simclr-accuracy", "gpt-loss"}
INPUTS = [("nothing", False), ("nothing", True), ("one machine", False), ("two machines", True)]
each_input = pytest.mark.parametrize(
    ("rows", "published"), INPUTS, ids=["nothing", "print alone", "one", "two and print"]
)


@functools.cache
def drawn(study, chart, rows, published):
    place = [one.name for one in STUDIES[study].charts].index(chart)
    return STUDIES[study].charts[place].draw(given(study, rows, published))


@each_chart
@each_input
def test_a_chart_draws_whatever_there_is(study, chart, rows, published):
    drawing = drawn(study.name, chart.name, rows, published)
    if rows == "two machines" and chart.name not in UNDRAWN:
        assert len(drawing.table) > 1
        assert drawing.figure
    if drawing.figure is None:  # nothing to compare: no figure of empty data, nor of a single bar
        return
    assert len(drawing.table) > 1 or chart.name == "sustained"
    drawing.figure.draw_without_rendering()  # a chart that does not fit its figure warns here
    for axes in drawing.figure.axes:
        title = " ".join(axes.get_title(loc="left").split())
        assert title
        assert title in drawing.alt


@each_chart
def test_a_charts_tables_have_the_same_columns_whatever_there_is(study, chart):
    every = [drawn(study.name, chart.name, rows, published) for rows, published in INPUTS]
    assert len({tuple(drawing.table) for drawing in every}) == 1
    for name in every[0].tables:
        assert len({tuple(drawing.tables[name]) for drawing in every}) == 1


@each_chart
def test_a_failure_before_the_first_window_is_drawn(study, chart):
    known = ("machine", "chip", "device", "framework", "variant", "status", "study", "run_id", "point", "session")
    known += ("source", "phase", "schema_version")
    failed = [row for row in machine(study.name) if row["status"] == "out_of_memory"]
    bare = [dict.fromkeys(row) | {name: row.get(name) for name in known} for row in failed]
    bare = [row | {"settings": {}, "repeat": 0, "index": 0} for row in bare]
    drawing = chart.draw(evidence(bare))
    if drawing.figure is not None:
        drawing.figure.draw_without_rendering()


@pytest.mark.parametrize("name", STUDIES)
@each_input
def test_a_finding_has_at_most_two_sentences_and_three_digits(name, rows, published):
    text = findings.finding(STUDIES[name], given(name, rows, published))
    assert 1 <= len(re.findall(r"\S.*?[.?!](?= [A-Z]|$)", text)) <= 2
    assert not re.search(r"[1-9]\d*\.\d{3}|\d[1-9]\d{3}", text.replace("100,000", ""))
