"""The contract of every study: rows in; tables, charts, a finding and claims' quantities out, whatever was measured."""

import functools
import re

import pandas
import pytest

from benchbook import studies
from benchbook.studies import findings
from study_rows import evidence, given, machine

STUDIES = studies.every()
CHARTS = [(study, chart) for study in STUDIES.values() for chart in study.charts]
each_chart = pytest.mark.parametrize(("study", "chart"), CHARTS, ids=[chart.name for _, chart in CHARTS])
VALUES = {  # of each chart's table, between its low and high
    "ceilings": "rate",
    "mnist-epochs": "seconds",
    "mnist-speedup": "speedup",
    "mnist-step-time": "seconds_per_step",
    "vae-loss": "loss",
    "mobilenetv2-settings": "images_per_second",
    "mobilenetv2-loss": "loss",
    "simclr-epochs": "minutes",
    "simclr-accuracy": "accuracy",
    "support": "speedup",
    "segmentation-times": "ms_per_image",
    "resnet50-batches": "images_per_second",
    "resnet50-scaling": "efficiency",
    "resnet50-money": "per_million",
    "gpt-tokens": "tokens_per_second",
    "gpt-ladder": "ratio",
    "gpt-batches": "tokens_per_second",
    "your-network-rates": "samples_per_second",
    "your-network-batch-sizes": "samples_per_second",
    "your-network-elsewhere": "samples_per_second",
}
# No manifest holds masks; no run reaches the accuracy; the rows of one test make no line.
UNDRAWN = {"segmentation-masks", "resnet50-accuracy", "simclr-accuracy", "gpt-loss"}
# The quantities that an accelerator's rows make, and those of a CPU, for claims.
QUANTITIES = {
    "calibrate": set(),
    "mnist_speedup": {"cpu_seconds", "accelerator_seconds"},
    "vae_stability": {"cpu_trained", "diverged", "first_loss"},
    "mobilenetv2_energy": {"frozen_rate", "crashed_over_196"},
    "simclr_epochs": {
        f"{place}_{words}_seconds" for place in ("cpu", "accelerator") for words in ("epoch", "two_epochs")
    }
    | {"cpu_200_epochs_seconds", "accelerator_200_epochs_seconds", "amp_refused", "compile_refused"},
    "segmentation_scaling": set(),
    "resnet50_cost": {"real_rate", "best_accuracy", "epochs_to_best", "on_demand_per_hour"},
    "gpt_tokens": {"cpu_seconds", "accelerator_seconds", "ladder_tf32", "nanogpt_char_small_loss"},
    "your_network": set(),
}


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
@each_input
def test_bounds_are_around_their_values(study, chart, rows, published):
    table = drawn(study.name, chart.name, rows, published).table
    assert ("low" in table) == (chart.name in VALUES)
    triples = [("low", VALUES[chart.name], "high")] if chart.name in VALUES else []
    further = {"waited": "waited", "share": "share", "joules": "joules_per_image"}
    triples += [(f"{name}_low", value, f"{name}_high") for name, value in further.items() if f"{name}_low" in table]
    for low, value, high in triples:
        values = table[[low, value, high]].astype(float).dropna()
        assert len(values) or rows != "two machines"
        assert (values[low] <= values[value] * (1 + 1e-9)).all()
        assert (values[value] <= values[high] * (1 + 1e-9)).all()


@each_chart
def test_the_same_rows_give_the_same_files(study, chart, tmp_path):
    for folder in ("first", "second"):
        drawing = chart.draw(given(study.name, "two machines", True))
        drawing.save(tmp_path / folder, chart.name)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    if drawing.figure:
        assert {f"{chart.name}.{ending}" for ending in ("csv", "json", "svg")} <= set(files)
    for file in files:
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


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
def test_a_studys_quantities_are_those_of_its_claims(name):
    study, both = STUDIES[name], given(name, "two machines", False)
    found = study.quantities(both)
    assert QUANTITIES[name] <= {line["name"] for line in found}
    assert {line["machine"] for line in found} <= {"desk", "attic"}
    assert all(line["low"] <= line["value"] <= line["high"] for line in found)
    printed = {line["source"] for line in study.quantities(given(name, "nothing", True))}
    has_printed = name in ("gpt_tokens", "resnet50_cost")  # a ladder; the epochs of a curve
    assert printed == ({"published"} if has_printed else set())


@pytest.mark.parametrize("name", STUDIES)
@each_input
def test_a_finding_has_at_most_two_sentences_and_three_digits(name, rows, published):
    text = findings.finding(STUDIES[name], given(name, rows, published))
    assert 1 <= len(re.findall(r"\S.*?[.?!](?= [A-Z]|$)", text)) <= 2
    assert not re.search(r"[1-9]\d*\.\d{3}|\d[1-9]\d{3}", text.replace("100,000", ""))
    assert ("the fastest of 2 machines" in text) == (rows == "two machines" and name != "vae_stability")


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if study.epoch_seconds])
def test_an_epochs_seconds_are_known_by_machine_and_point(name):
    seconds = STUDIES[name].epoch_seconds(given(name, "two machines", True))
    assert {place for place, _ in seconds} == {"desk", "attic"}
    known = pandas.Series(seconds).dropna()
    assert len(known) > 3
    assert known.gt(0).all()
