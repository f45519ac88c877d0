"""Predictions: judged on what is published, refused outside what is known, and never better than they are."""

import datetime
import math
import re
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import numpy
import pandas
import pytest

from benchbook import record
from benchbook.machine import layout
from benchbook.record import chips, estimate, model, rates
from benchbook.record.forecast import Forecaster, Question, of_the_record
from benchbook.record.model import NOISE, SPREADS, Model
from benchbook.record.rates import Unknown
from benchbook.studies import predictions
from benchbook.studies.study import Evidence
from rows import COMMITTED, make_rows

TODAY = datetime.date(2026, 11, 22)


@pytest.fixture(scope="module")
def forecaster():
    return of_the_record()


@pytest.fixture(scope="module")
def errors():
    table = predictions.errors(Evidence(make_rows([])))
    return table.set_index(["situation", "group", "rule"]).sort_index()


def test_leaving_a_chip_out_by_algebra_is_learning_without_it(forecaster):
    lines = forecaster.model.observations.sample(120, random_state=1).reset_index(drop=True)
    hidden = numpy.flatnonzero(lines["product"] == lines["product"].mode()[0])
    quick = Model(lines).predict_hidden(hidden)
    slow = Model(lines.drop(index=hidden)).predict(lines.iloc[hidden])
    assert numpy.array(quick) == pytest.approx(numpy.array(slow), rel=1e-6)


def test_the_record_is_predicted_as_well_as_is_said(errors):
    for situation, error, half in (
        (model.CHIP, 0.14, 1.45),
        (model.PUBLICATION, 0.25, 2.5),
        (model.BOTH, 0.25, 2.5),
    ):
        lines = errors.loc[situation, rates.RECORD]
        own, rules = lines.loc[predictions.MODEL], lines.drop(index=predictions.MODEL)
        assert own["median_error"] <= error
        assert own["half_width"] <= half
        assert 0.85 <= own["coverage"] <= 0.95
        assert (rules[["median_error", "half_width"]] > own[["median_error", "half_width"]]).all(axis=None)
        assert rules["pairs"].drop("ratio of cores").eq(own["pairs"]).all()


def test_language_models_are_predicted_as_well_as_is_said_and_change_nothing_of_images(forecaster):
    sequences = forecaster.sequences
    assert set(sequences.published["place"]) <= set(sequences.lines.index)
    assert forecaster.model.observations["sequence_length"].isna().all()
    for situation, error in ((model.PUBLICATION, 0.5), (model.BOTH, 0.5)):
        said = model.error_measures(sequences.published[sequences.published["situation"].eq(situation)])
        assert said["pairs"] == len(sequences.lines)
        assert said["median_error"] < error
        assert said["coverage"] > 0.8


def test_what_is_no_whole_training_of_a_counted_network_says_nothing_of_one():
    figures = record.read()
    reasons = rates.of_record(figures[figures["sequence_length"].notna()])[1]
    for word in ("second time", "shorter than", "not counted"):
        assert reasons.str.contains(word).any()
    assert not rates.of_publications()["network"].str.contains("LoRA").any()


def test_intervals_hold_nine_tenths_over_publications(forecaster):
    by_publication = forecaster.published.groupby(["situation", "publication"])["hit"].mean()
    assert by_publication.groupby("situation").mean().between(0.85, 0.95).all()


def test_one_publication_with_many_lines_counts_as_much_as_any_other():
    scores = pandas.Series([*[1.0] * 900, *range(2, 12)], dtype=float)
    publications = pandas.Series(["many"] * 900 + [f"few {number}" for number in range(10)])
    assert model.quantile(scores, publications) == 10.0  # of eleven publications ten stay below
    assert model.quantile(scores, publications.index) == 1.0


def test_one_known_rate_of_a_chip_narrows_its_interval(forecaster):
    """And the judge says by how much: the same lines, without and with one rate of their publication."""
    table = forecaster.published.set_index(["situation", "place"])
    known, hidden = table.loc[model.ONE_KNOWN], table.loc[model.PUBLICATION]
    both = known.index.intersection(hidden.index)
    assert len(both) > 300
    assert (known.loc[both, "deviation"] < hidden.loc[both, "deviation"]).all()
    widths = [(lines.loc[both, "high"] - lines.loc[both, "low"]).median() for lines in (known, hidden)]
    assert widths[0] < widths[1]


def test_the_constants_are_those_that_the_script_fits():
    fitted = runpy.run_path(Path(__file__).parents[1] / "benchmarks" / "fit_spreads.py")["fit"]
    lines = rates.of_publications()
    spreads = fitted(lines[lines["sequence_length"].isna()])
    assert spreads == pytest.approx({name: (SPREADS | NOISE)[name] for name in spreads}, rel=0.02)


def test_a_question_is_answered_with_interval_basis_prices_and_what_was_published(forecaster):
    answer = forecaster.ask(Question("RTX 4090", "resnet50_cost", "amp_fp16"), TODAY)
    assert answer.rate.low < 1301.15 < answer.rate.high  # what Lambda's log says of one
    assert answer.seconds.value == pytest.approx(1_281_167 / answer.rate.value)
    assert answer.seconds.low == pytest.approx(1_281_167 / answer.rate.high)
    assert re.match(r"\d+ known rates of NVIDIA RTX 4090, and \d+ of ResNet-50, 224 px", answer.rate.basis)
    cost = answer.rented.iloc[0]
    assert cost["dollars"] == pytest.approx(answer.seconds.value / 3600 * cost["usd_per_hour"])
    assert (answer.rented["age_years"] > 1).all()
    assert "github" in answer.nearest["source"].iloc[0]
    assert answer.joules_per_image is None, "nobody measured its power in training"
    assert "median" in answer.error


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        (Question("Graphcore IPU GC200", "resnet50"), "no bandwidth was published"),
        (Question("T4", "mnist_speedup"), "operations an image"),
        (Question("T4", "mobilenetv2_energy", image_size=128), "MobileNetV2's last layer takes 196 million"),
        (Question("T4", "no such network"), "no such network"),
        (Question("T4"), "operations of an image"),
        (Question("T4", "resnet50", "tf32"), "TF32"),
        (Question("T4", "resnet50", count=16), "16 devices"),
    ],
)
def test_outside_what_is_known_it_is_refused_by_name(forecaster, question, missing):
    with pytest.raises(Unknown, match=missing):
        forecaster.rate(question)


def test_an_answer_says_where_intervals_hold_too_rarely(forecaster):
    (note,) = (note for note in forecaster.ask(Question("P100", "resnet50", "fp16"), TODAY).notes if "hidden" in note)
    assert rates.PLAIN_HALF in note
    assert "held only 65%" in note
    assert not any("hidden" in note for note in forecaster.ask(Question("V100", "resnet50", "fp16"), TODAY).notes)


def test_a_small_batch_takes_no_shorter_step_than_any_on_record(forecaster):
    small = Question("H100 80GB SXM", "resnet50", "amp_fp16", batch_size=4)
    rate, usual = forecaster.rate(small), forecaster.rate(replace(small, batch_size=None))
    assert 4 / rate.value == pytest.approx(forecaster.shortest_step)
    assert rate.low < rate.value <= rate.high == pytest.approx(4 / forecaster.shortest_step)
    assert "no step on record is shorter" in rate.basis
    assert forecaster.rate(replace(small, count=8)).high == pytest.approx(8 * rate.high)
    assert usual.value > 2 * rate.value
    assert forecaster.rate(replace(small, batch_size=64)).value > rate.value


def test_joules_come_from_measured_watts_with_their_boundary(forecaster):
    joules = forecaster.ask(Question("A100 40GB SXM", "resnet50", "tf32"), TODAY).joules_per_image
    assert "all GPU boards (NVML)" in joules.basis
    other = Question("A100 40GB SXM", precision="tf32", flops_per_sample=24.5e9)
    assert forecaster.ask(other, TODAY).joules_per_image is None, "its power was measured in other works alone"
    assert forecaster.watts
    assert all(20 < drawn.least <= drawn.median <= drawn.most < 1000 for drawn in forecaster.watts.values())


def test_prices_have_an_age_say_what_they_include_and_are_missing_where_none_was_read():
    offers = estimate.rental_offers("NVIDIA A100 80GB SXM", TODAY)
    assert offers["provider"].is_unique
    assert (offers["usd_per_hour"] > 0).all()
    assert offers["includes"].ne("").all()
    assert estimate.rental_offers("NVIDIA RTX 5090", TODAY).empty
    assert estimate.purchase_prices("NVIDIA RTX 5090", TODAY)["usd"].tolist() == [1999.0]
    assert estimate.purchase_prices("Huawei Ascend 910", TODAY).empty


def test_what_a_machine_was_measured_to_reach_takes_the_place_of_what_is_printed():
    ceilings = pandas.DataFrame(
        {
            "machine": "desk", "device": "cuda", "session": "1", "framework": "torch",
            "model": ["matmul", "matmul", "copy"], "precision": ["fp32", "fp16", None], "rate": [1e13, 5e13, 4e11],
        }
    )  # fmt: skip
    best = rates.best_rates(ceilings)
    figures = rates.measured_figures(best, {"machine": "desk", "device": "cuda", "precision": "amp_fp16"})
    assert figures["family"] == rates.HALF
    point, plain = {"machine": "m", "device": "d", "precision": "fp16"}, {"fp32": 1e13, "fp16": 1.1e13, "copy": 4e11}
    assert rates.measured_figures({("m", "d"): plain}, point)["family"] == rates.PLAIN_HALF
    assert numpy.exp(figures["peak"]) == pytest.approx(50)
    assert numpy.exp(figures["bandwidth"]) == pytest.approx(400)
    assert best.keys() == {("desk", "cuda")}
    assert rates.measured_figures({("m", "d"): {"fp32": 1e13}}, point) is None


def test_a_rate_that_a_machine_was_measured_at_moves_its_prediction(forecaster):
    own = forecaster.model.observations
    own = own[own["chip"].eq("NVIDIA RTX 4090")].head(1).assign(publication=rates.HERE, setting="here")
    slow = Forecaster(own.assign(rate=own["rate"] / 4, flops_per_sample=1e6, origin=rates.HERE))
    with pytest.raises(Unknown, match="operations an image"):  # what is measured here widens no range
        slow.rate(Question("RTX 4090", "mnist_speedup"))
    question = Question("RTX 4090", "resnet50", "amp_fp16")
    assert slow.rate(question).value < 0.9 * forecaster.rate(question).value


def test_16_bits_without_matrix_units_are_a_family_of_their_own():
    families = {chip: rates.chip_figures(chip, "amp_fp16")["family"] for chip in ("P100", "M1", "V100", "T4")}
    assert families == {"P100": rates.PLAIN_HALF, "M1": rates.PLAIN_HALF, "V100": "half", "T4": "half"}
    assert numpy.exp(rates.chip_figures("RTX 3090", "amp_fp16")["peak"]) == pytest.approx(71.37)


@pytest.mark.parametrize("work", ["resnet50_cost", "segmentation_scaling"])
def test_16_bits_are_not_slower_than_fp32_and_a_cut_card_no_faster_than_the_full_one(forecaster, work):
    apple = [chip for chip in chips.SHOWN if chip.startswith("Apple")]
    measured = {"Apple M1"}  # of which fp16 was measured, slower than fp32
    for chip in set(apple) - measured:
        half, plain = (forecaster.rate(Question(chip, work, precision)) for precision in ("amp_fp16", "fp32"))
        assert half.value >= plain.value
    full, cut = (forecaster.rate(Question(chip, work, "amp_fp16")) for chip in ("RTX 4090", "RTX 4090 D"))
    assert full.value > cut.value


def test_one_question_has_one_answer_alone_or_among_others(forecaster):
    questions = [Question(chip, "segmentation_scaling") for chip in ("Apple M1 Max", "T4", "Graphcore IPU GC200")]
    *known, unknown = forecaster.rates(questions)
    assert [rate.value for rate in known] == pytest.approx([forecaster.rate(one).value for one in questions[:2]])
    assert isinstance(unknown, Unknown)


def test_every_unusable_rate_of_the_record_has_a_reason():
    figures = record.read()
    lines, reasons = rates.of_record(figures)
    single = figures.index[figures["rate"].gt(0) & figures["device_count"].eq(1)]
    assert sorted([*lines.index, *reasons.index]) == list(single)
    assert reasons.ne("").all()
    assert len(lines) > len(reasons)


def test_a_hidden_chip_is_predicted_without_its_own_rates(forecaster):
    figures = record.read()
    own = figures["chip"].eq("NVIDIA RTX 3090") & figures["network"].eq("resnet50")
    targets, _ = rates.of_record(figures[own])
    targets.loc[targets.index[-1], "publication"] = "a publication that the record lacks"
    faster = targets.assign(rate=3 * targets["rate"])
    lines, again = (model.predict_product(each, forecaster.model, forecaster.published) for each in (targets, faster))
    assert again["mean"].tolist() == pytest.approx(lines["mean"].tolist())
    assert (again["printed"] - lines["printed"]).tolist() == pytest.approx([math.log(3)] * len(lines))
    assert list(lines["situation"]) == [model.CHIP] * (len(lines) - 1) + [model.BOTH]


def test_the_table_of_our_studies_has_a_rate_or_a_reason_for_every_chip(forecaster):
    table = predictions.predictions(forecaster)
    assert len(table) == len(predictions.WORKS) * len(chips.SHOWN)
    assert table["predicted"].notna().ne(table["reason"].notna()).all()
    assert table.loc[table["study"] == "mnist_speedup", "reason"].str.contains("operations|is printed").all()
    assert (table["low"].dropna() < table["predicted"].dropna()).all()


def test_the_rule_of_cores_is_compared_with_pairs_of_one_publication():
    pairs = predictions.core_pairs(Evidence(make_rows([])))
    tensorflow = pairs["setting"].str.contains("contributed | resnet50-b128-tf |", regex=False)
    (line,) = pairs[tensorflow & pairs["chip"].eq("Apple M1 Pro")].to_dict("records")
    assert line["chip_larger"] == "Apple M1 Max (32-core GPU)"
    assert (line["core_ratio"], line["speed_ratio"]) == (2, pytest.approx(135 / 57.9))
    architectures = (chips.table()["architecture"].loc[pairs[name]].tolist() for name in ("chip", "chip_larger"))
    assert next(architectures) == next(architectures)


def test_the_chart_shows_the_judges_numbers(errors):
    (chart,) = predictions.CHARTS
    axes = chart.draw(Evidence(make_rows([]))).figure.axes[0]
    shown = errors.loc[model.BOTH, rates.RECORD, :]["median_error"]
    assert sorted(bar.get_width() for bar in axes.patches) == pytest.approx(sorted(shown))
    assert f"{100 * shown[predictions.MODEL]:.0f} %" in axes.get_title(loc="left")


def test_rows_that_were_measured_here_are_learnt_from_where_there_are_any(outputs, forecaster):
    assert predictions.learn(Evidence.of_machine()) is forecaster
    shutil.copytree(COMMITTED, layout.runs(COMMITTED.name))
    lines = predictions.learn(Evidence.of_machine()).model.observations
    here = lines[lines["origin"] == rates.HERE]
    assert set(here["vendor"]) == {"CPU"}, "the rows in the repository are of a CPU, by its own calibration"
    assert here["peak"].nunique() == 1
