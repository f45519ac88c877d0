"""Predictions: tested on what is published, in order, and refused where too little is known."""

import importlib
import itertools
import math
import re
import sys

import numpy
import pandas
import pytest

from benchbook.machine import layout
from benchbook.record import chips, observations, predict, rules
from benchbook.record.predict import Estimate, Question, Unknown
from benchbook.rows import networks
from benchbook.studies.segmentation_scaling import study as segmentation
from made import golden_files

FIGURES = ["fp32_tflops", "fp16_tflops", "matrix_tflops", "bandwidth_gb_s"]
ORDER, BOUNDS = ("fp32", "tf32", "bf16"), ["low", "value", "high"]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(layout.root() / "benchmarks"))
    try:
        return importlib.import_module("predictions")
    finally:
        del sys.path[0]


@pytest.fixture(scope="module")
def errors(script):
    return script.errors().set_index("group").sort_index()


@pytest.fixture(scope="module")
def asked():
    """Return a question for each of all chips, works on record and precisions."""
    lines = observations.images()
    products = lines.groupby("work")["product"].nunique()
    known = lines[lines["work"].isin(products.index[products >= observations.FEWEST_PRODUCTS])]
    works = {
        (line.network, line.image_size if line.image_size > 0 else 0) for line in known.itertuples()
    }
    names = chips.table()["bandwidth_gb_s"].dropna().index
    return {
        (chip, (name, size), precision): Question(chip, name, precision, image_size=size or None)
        for chip, (name, size), precision in itertools.product(names, sorted(works), ORDER)
    }


@pytest.fixture(scope="module")
def answers(asked):
    """Return a line for each answer."""
    found = zip(asked, predict.rates([*asked.values()]), strict=True)
    lines = [
        (*key, *(getattr(rate, bound) for bound in BOUNDS))
        for key, rate in found
        if isinstance(rate, Estimate)
    ]
    return pandas.DataFrame(lines, columns=["chip", "work", "precision", *BOUNDS])


def test_a_hidden_rate_is_learned_without_it():
    lines = observations.images().sample(150, random_state=1).reset_index(drop=True)
    model = rules.Regression(lines)
    for places in list(lines.groupby("product").indices.values())[:12]:
        known = lines.drop(index=places)
        speeds, deviations = model.predict(lines.iloc[places], places)
        alone = rules.Regression(known).predict(lines.iloc[places])
        assert numpy.allclose((speeds, deviations), alone), "also of a name that is not on record"


def test_hidden_rates_are_predicted_better_than_by_the_plain_ratio(errors):
    record, large = errors.loc[observations.RECORD], errors[errors["pairs"] >= 20]
    assert record["median_error"] < 0.215 < 0.25 < record["ratio_error"]
    assert len(large) >= 6
    assert (large["median_error"] <= large["ratio_error"] + 0.03).all()
    assert record["coverage"] == pytest.approx(0.9, abs=0.06)


def test_the_committed_errors_are_those_of_the_record(errors):
    committed = rules.errors().set_index("group")
    pandas.testing.assert_frame_equal(
        committed.sort_index(), errors, rtol=1e-6
    )  # else: make derived


def test_the_script_that_fits_the_constants_finds_them_again(script):
    tried = {
        rest: script.likelihood(rules.CONSTANTS | {"rest": rest})
        for rest in (0.2, rules.CONSTANTS["rest"], 0.8)
    }
    assert max(tried, key=tried.get) == rules.CONSTANTS["rest"]
    assert script.hidden()["group"].eq("NVIDIA, half").sum() >= 140


def test_no_answer_is_above_its_chips_peak_or_wider_than_allowed(answers):
    assert len(answers) > 3500
    operations = [
        networks.describe(name, size or None).flops_per_sample or numpy.nan
        for name, size in answers["work"]
    ]
    peaks = (
        1e12 * numpy.array([*map(chips.peak, answers["chip"], answers["precision"])]) / operations
    )
    assert not (answers["high"] > peaks * (1 + 1e-9)).any()
    assert answers["value"].between(answers["low"], answers["high"]).all()


def test_no_range_is_over_a_factor_of_8_before_it_is_cut(asked):
    targets = [predict._targets(question) for question in asked.values()]
    targets = [of_question[0] for of_question in targets if isinstance(of_question, list)]
    _, deviations = rules.regression().predict(pandas.DataFrame(targets))
    assert 3 < math.exp(2 * rules.DEVIATIONS * deviations.max()) <= 8  # else: refuse these


def test_no_precision_is_slower_than_a_wider_one_where_matrix_units_exist(answers):
    names = chips.table().dropna(subset="matrix_tflops").index
    known = answers[answers["chip"].isin(names)]
    for bound in BOUNDS:
        rates = known.pivot(index=["chip", "work"], columns="precision", values=bound)[
            [*ORDER]
        ].ffill(axis=1)
        assert not (rates < rates.shift(axis=1) * (1 - 1e-12)).any(axis=None)


def test_a_newer_chip_with_at_least_as_much_of_everything_is_not_slower(answers):
    table = chips.table()
    figures = (
        table[FIGURES]
        .fillna(0)
        .assign(released=pandas.to_datetime(table["released"]).astype("int64"))
        .to_numpy()
    )
    vendors, own = table["vendor"].to_numpy(), numpy.eye(len(table), dtype=bool)
    more = (figures[:, None] >= figures).all(axis=2) & (vendors[:, None] == vendors) & ~own
    rates = (
        answers.pivot(index="chip", columns=["work", "precision"], values=BOUNDS)
        .reindex(table.index)
        .to_numpy()
    )
    newer, older = numpy.nonzero(more)
    ratios = rates[newer] / rates[older]
    assert numpy.isfinite(ratios).sum() > 90_000
    assert not (ratios < 1 - 1e-9).any()


@pytest.mark.parametrize(
    ("asked", "missing"), [each for each in golden_files.questions() if each[1]]
)
def test_outside_what_is_known_it_is_refused_by_name_with_the_nearest_published_rate(
    asked, missing
):
    question = Question(**asked)
    with pytest.raises(Unknown, match=re.escape(missing)) as refused:
        predict.rate(question)
    nearest = r"[\d,]+ (images|tokens)/s: .* \(.+\)" if question.work not in ("", "resnet5") else ""
    assert re.fullmatch(nearest, refused.value.nearest)


def test_the_nearest_figures_are_of_the_same_work_and_chip_if_any():
    lines = predict.nearest(Question("TPU v5e", "gpt2_124m", "bf16"))
    assert len(lines) == predict.NEAREST
    assert lines["work"].str.contains("tokens").all()
    assert predict.nearest(Question("RTX 4090", "LoRA", "bf16"))["work"].str.contains("LoRA").all()
    best = predict.nearest(Question("RTX 4090", "resnet50", "amp_fp16")).iloc[0]
    assert (best["chip"], round(best["rate"])) == ("NVIDIA RTX 4090", 1301)
    assert "github" in best["source"]


def test_one_question_has_one_answer_alone_or_among_others():
    questions = [Question(chip, "vgg16") for chip in ("Apple M1 Max", "T4", "Graphcore IPU GC200")]
    *known, unknown = predict.rates(questions)
    assert [rate.value for rate in known] == pytest.approx(
        [predict.rate(one).value for one in questions[:2]]
    )
    assert isinstance(unknown, Unknown)


def test_rates_of_one_device_are_learnt_from_and_of_boards_where_no_chip_is_sold_alone():
    lines = observations.images()
    assert lines["refused"].eq("").all()
    details = lines["details"].map(lambda own: bool(own.get("padded") or own.get("recomputed")))
    assert not details.any()
    boards = lines.loc[lines["device_count"].ne(1), "chip"]
    assert len(boards)
    assert boards.map(chips.has_matrix_units_alone).all(), "other chips are timed alone"


def test_the_rule_of_cores_is_compared_with_pairs_of_one_publication():
    pairs = segmentation.core_pairs()
    own = pairs[
        pairs["publication"].str.startswith("tlkh")
        & pairs["work"].str.startswith("resnet50, 224 px")
    ]
    (line,) = own[own["chip"].eq("Apple M1 Pro")].to_dict("records")
    assert line["chip_over"] == "Apple M1 Max (32-core GPU)"
    assert (line["core_ratio"], line["ratio"]) == (2, pytest.approx(135 / 57.9))
    architectures = (
        chips.table()["architecture"].loc[pairs[name]].tolist() for name in ("chip", "chip_over")
    )
    assert next(architectures) == next(architectures)
    few = pandas.DataFrame({"core_ratio": [2.0, 4.0, 2.0], "ratio": [2.0, 2.0, 1.6]})
    assert re.search(
        r"by 25 % \(median of 3 pairs .* within 10 % in 33 % of", segmentation.core_sentence(few)
    )
