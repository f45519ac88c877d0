"""The contract of every study: rows in; tables, charts and a finding out, whatever was measured.
Numbers: golden."""

import functools
import json
import random
import re

import numpy
import pandas
import pytest

from benchbook import studies
from benchbook.report import closing
from benchbook.studies.mnist_speedup import study as mnist
from benchbook.studies.results.evidence import Evidence
from benchbook.studies.simclr_epochs import study as simclr
from benchbook.studies.vae_stability import study as vae
from made import edges
from made.study_rows import evidence, given, is_short, machine, point, tried

STUDIES = studies.every()
CHARTS = [(study, chart) for study in STUDIES.values() for chart in study.charts]
each_chart = pytest.mark.parametrize(
    ("study", "chart"), CHARTS, ids=[f"{study.name}-{chart.name}" for study, chart in CHARTS]
)
# No run reaches the accuracy; the rows of one test make no line.
UNDRAWN = {"simclr-accuracy", "gpt-loss"}
INPUTS = [("nothing", False), ("nothing", True), ("one machine", False), ("two machines", True)]
each_input = pytest.mark.parametrize(
    ("rows", "published"), INPUTS, ids=["nothing", "print alone", "one", "two and print"]
)


@functools.cache
def drawn(study, chart, rows, published):
    place = [one.name for one in STUDIES[study].charts].index(chart)
    named = study if rows == "one machine" else ""  # a notebook names it, the report does not
    return STUDIES[study].charts[place].draw(given(study, rows, published), named)


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
        assert is_short(title)
        assert title in drawing.alt


@each_chart
def test_a_charts_tables_have_the_same_columns_whatever_there_is(study, chart):
    every = [drawn(study.name, chart.name, rows, published) for rows, published in INPUTS]
    assert len({tuple(drawing.table) for drawing in every}) == 1
    for name in every[0].tables:
        assert len({tuple(drawing.tables[name]) for drawing in every}) == 1


@each_chart
def test_a_failure_before_the_first_window_is_drawn(study, chart):
    known = (
        "machine",
        "chip",
        "device",
        "framework",
        "variant",
        "status",
        "study",
        "run_id",
        "point",
        "session",
    )
    known += ("source", "phase", "schema_version")
    failed = [row for row in machine(study.name) if row["status"] == "out_of_memory"]
    bare = [dict.fromkeys(row) | {name: row.get(name) for name in known} for row in failed]
    bare = [row | {"settings": {}, "repeat": 0, "index": 0} for row in bare]
    drawing = chart.draw(evidence(bare))
    if drawing.figure is not None:
        drawing.figure.draw_without_rendering()


@pytest.mark.parametrize("name", STUDIES)
def test_quantities_do_not_depend_on_the_order_of_runs(name):
    rows = given(name).rows
    runs = [own for _, own in rows.groupby("run_id")]
    random.Random(59).shuffle(runs)
    made = [
        STUDIES[name].quantities(Evidence(each))
        for each in (rows, pandas.concat(runs, ignore_index=True))
    ]
    first, turned = (
        sorted(json.dumps(line, default=str, sort_keys=True) for line in lines) for lines in made
    )
    assert turned == first


@pytest.mark.parametrize("name", STUDIES)
@each_input
def test_an_answer_has_at_most_three_sentences_and_three_digits(name, rows, published):
    said = closing.sentences(given(name, rows, published), STUDIES[name])
    assert 1 <= len(said) <= 3
    assert not re.search(
        r"[1-9]\d*\.\d{3}|\d[1-9]\d{3}", re.sub(", 20..:|batch 1024", "", " ".join(said))
    )


def title(drawing, panel=0):
    return drawing.figure.axes[panel].get_title(loc="left")


def test_the_epoch_chart_draws_each_epoch_once_and_its_parts_end_where_it_does():
    drawing = mnist.STUDY.lead.draw(
        evidence(edges.loader([1200]), edges.loader([2400], "resident"), published=True)
    )
    table, bars = drawing.table, drawing.figure.axes[0].patches
    parts = table[["setup_seconds", "train_seconds", "evaluate_seconds"]].to_numpy(float).ravel()
    printed = table.loc[table["source"] == "published", "seconds"]
    drawn = sorted(bar.get_width() for bar in bars if bar.get_width() > 0)
    assert drawn == pytest.approx(sorted([*parts[~numpy.isnan(parts)], *printed]))
    ends = {round(bar.get_x() + bar.get_width(), 6) for bar in bars}
    assert {round(seconds, 6) for seconds in table["seconds"]} <= ends
    assert [text.get_text().strip() for text in drawing.figure.axes[0].texts][:2] == [
        "19.6 seconds",
        "20.4 seconds",
    ]


def test_pictures_and_the_reading_say_how_far_off_they_are():
    images = numpy.zeros((5, 28, 28))
    for reconstructed, said in ((images + 0.25, "0.250"), (images * numpy.nan, "5 of 5")):
        drawn = {"test image": images, "reconstruction": reconstructed, "sample": images}
        assert said in title(vae.pictures(drawn))
    assert "0.50 apart" in title(
        simclr.pairs(numpy.zeros((3, 4, 4, 3)), numpy.full((3, 4, 4, 3), 0.5))
    )
    losses = point("vae_stability", losses=[150.0, 130.0, 106.4])
    drawn = title(vae.STUDY.lead.draw(evidence(losses)))
    assert re.findall(r"\bis (\d+) after", drawn.replace("\n", " ")) == ["106"]
    own = point("simclr_epochs", (64, 60, 62), accuracy=0.25)
    shares = {75.0: "takes 17 % (15 to 20; one process)", 62.0: "not distinguishable from 0"}
    for rate, said in shares.items():
        assert said in simclr.reading(evidence(own, tried(own[3], "resident", (rate,))))
