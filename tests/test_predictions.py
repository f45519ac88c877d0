"""Predictions: tested on what is published, in order, and refused where too little is known."""

import math
import re
from dataclasses import replace

import numpy
import pandas
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from benchbook.judging import wording
from benchbook.record import chips, observations, predict, prices, rules
from benchbook.record.predict import Question, Unknown
from benchbook.record.rules import ANSWER, BOTH, CHIP, IMAGES, LANGUAGE_MODELS, LEARNED, PLAIN, RATIO
from benchbook.studies import predictions
from benchbook.studies.study import Evidence
from rows import make_rows

# A buyer's questions: the precision is that of 16 bits which each chip's frameworks use, or fp32 on Apple's chips.
BUYER = {"Apple M4 Max": "fp32", "Apple M5": "fp32", "NVIDIA T4": "amp_fp16", "AMD RX 7900 XTX": "amp_fp16"}
BUYER |= dict.fromkeys(("RTX 5090", "RTX 5070 Ti", "GB10", "A100", "H100", "B200", "TPU v5e", "MI300X"), "bf16")
WORKS = ("resnet50", "simclr_epochs", "gpt2_124m", "LoRA")


@pytest.fixture(scope="module")
def errors():
    return rules.errors().set_index(["situation", "group", "rule"]).sort_index()


def test_leaving_a_chip_out_by_algebra_is_learning_without_it():
    model = rules.Regression(observations.images().sample(150, random_state=1).reset_index(drop=True))
    alike, noise = rules._covariance(model.known[:, None], model.known), rules.REST**2 * numpy.eye(150)
    ridge, products = KernelRidge(alpha=rules.REST**2, kernel="precomputed"), model.lines["product"]
    refitted = cross_val_predict(ridge, alike, model.residuals, cv=LeaveOneGroupOut(), groups=products)
    for places in products.groupby(products).indices.values():
        speeds, deviations = model.predict(model.known[places], places)
        assert speeds == pytest.approx(refitted[places] + model.known[places, -1], abs=1e-6)
        others = numpy.setdiff1d(numpy.arange(150), places)
        across = alike[numpy.ix_(places, others)]
        explained = across @ numpy.linalg.solve((alike + noise)[numpy.ix_(others, others)], across.T)
        assert deviations**2 == pytest.approx(numpy.diag(alike + noise)[places] - numpy.diag(explained), abs=1e-6)


def _off(line):
    """Return the error of the rule that answers."""
    return line[LEARNED if math.isnan(line[PLAIN]) else rules.chosen(*(line[name] for name in rules.GROUP))[0]]


@pytest.mark.parametrize(("situation", "error"), [(CHIP, 0.15), (BOTH, 0.28)])
def test_hidden_rates_are_predicted_better_than_by_the_plain_ratio(errors, situation, error):
    lines = errors.loc[situation, observations.RECORD]
    assert lines.loc[ANSWER, "median_error"] < lines.loc[RATIO, "median_error"]
    assert lines["pairs"].nunique() == 1, "both rules are tested on the same rates"
    every = rules.hidden()
    every = every[every["situation"].eq(situation) & every["kind"].eq(IMAGES)]
    measures = rules._measures(every.assign(off=[_off(line) for line in every.to_dict("records")]), "off")
    assert measures["median_error"] <= error, "also where the plain ratio has no answer"
    assert 0.88 <= measures["coverage"] <= 0.97


def test_a_range_is_wider_for_a_chip_unlike_those_on_record():
    known, beyond = (predict.rate(Question(chip, "resnet50", "bf16")) for chip in ("RTX 3090", "B200"))
    assert beyond.high / beyond.low > 1.5 * known.high / known.low
    table = rules.hidden()
    table = table[table["situation"].eq(BOTH) & table["network"].eq("resnet50")].groupby("product")["deviation"].max()
    assert table["NVIDIA B200"] > 1.5 * table["NVIDIA RTX 3090"]


def test_language_models_have_a_share_of_the_peak_with_its_own_error(errors):
    share = errors.loc[BOTH, LANGUAGE_MODELS, ANSWER]
    assert share["pairs"] >= 13
    assert share["median_error"] < 0.5
    assert share["coverage"] > 0.8
    table = observations.language_models()
    assert not table["precision"].str.contains("fp8").any()
    assert {"MPT Training Benchmarks", "Raschka LLM training speed"} < set(table["publication"])
    assert (table["speed"] < table["peak"]).all()
    assert table.groupby("work")["product"].nunique().min() >= observations.FEWEST_PRODUCTS


def test_no_precision_is_slower_than_a_wider_one_where_matrix_units_exist():
    names = chips.table().dropna(subset="matrix_tflops").index
    works = ["resnet50", "simclr_epochs", "segmentation_scaling", "mobilenet_v2", "vgg16", "gpt2_124m"]
    order = ("fp32", "tf32", "bf16")
    questions = [Question(chip, work, precision) for chip in names for work in works for precision in order]
    answers = iter(predict.rates(questions))
    for _ in range(len(questions) // 3):
        known = [answer for answer in (next(answers) for _ in order) if not isinstance(answer, Unknown)]
        for bound in ("low", "value", "high"):
            bounds = [getattr(answer, bound) for answer in known]
            assert bounds == pytest.approx(sorted(bounds), rel=1e-12)


def test_a_buyers_questions_are_answered_or_refused_with_a_reason():
    questions = [Question(chip, work, precision) for chip, precision in BUYER.items() for work in WORKS]
    answers = predict.rates(questions)
    refused = [str(answer) for answer in answers if isinstance(answer, Unknown)]
    assert len(answers) - len(refused) >= 30
    assert all("LoRA" in reason or "products on record" in reason for reason in refused)
    for answer in answers:
        if not isinstance(answer, Unknown):
            assert answer.low < answer.value < answer.high < predict.WIDEST**2 * answer.low
            assert re.search(r"median error is \d+%.* hidden\)", answer.basis), "the rule and the error of its group"


def test_the_regression_answers_only_where_it_beats_the_plain_ratio():
    table = rules.hidden()
    table = table[table[PLAIN].notna() & table["situation"].eq(CHIP) & table["kind"].eq(IMAGES)]
    answering = {}
    for (vendor, family), own in table.groupby(["vendor", "family"]):
        if len(own) >= rules.FEWEST and own["publication"].nunique() >= rules.FEWEST_PUBLICATIONS:
            learned, plain = ((own[rule] ** 2).mean() for rule in (LEARNED, PLAIN))
            answering[vendor, family] = rules.chosen(IMAGES, vendor, family, "no such network")[0]
            assert answering[vendor, family] == (PLAIN if plain <= learned else LEARNED)
    assert (answering["Apple", "fp32"], answering["NVIDIA", "half"]) == (PLAIN, LEARNED)
    assert predict.rate(Question("Apple M4 Max", "resnet50")).basis.startswith(RATIO)


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        (Question("Graphcore IPU GC200", "resnet50"), "no bandwidth was published"),
        (Question("T4", "mnist_speedup"), "operations an image"),
        (Question("T4", "mobilenetv2_energy", image_size=128), "MobileNetV2's last layer takes 196 million"),
        (Question("T4", "resnet5"), "did you mean resnet50"),
        (Question("T4"), "operations of an image"),
        (Question("T4", "resnet50", "tf32"), "TF32"),
        (Question("B200", "segmentation_scaling"), "too unlike the chips on record"),
        (Question("A100", "LoRA"), "LoRA is not predicted"),
        (Question("M4 Max", "gpt2_124m", "bf16"), "fewer than 5 products on record"),
    ],
)
def test_outside_what_is_known_it_is_refused_by_name(question, missing):
    with pytest.raises(Unknown, match=re.escape(missing)):
        predict.rate(question)


@pytest.mark.parametrize("operations", [0.0, -1.0, math.nan])
def test_operations_that_no_network_has_are_an_error(operations):
    with pytest.raises(ValueError, match="more than 0"):
        predict.rate(Question("T4", flops_per_sample=operations))


def test_a_refusal_still_has_the_nearest_published_figures():
    lines = predict.nearest(Question("TPU v5e", "gpt2_124m", "bf16"))
    assert len(lines) == predict.NEAREST
    assert lines["work"].str.contains("tokens").all()
    assert predict.nearest(Question("RTX 4090", "LoRA", "bf16"))["work"].str.contains("LoRA").all()
    best = predict.nearest(Question("RTX 4090", "resnet50", "amp_fp16")).iloc[0]
    assert (best["chip"], round(best["rate"])) == ("NVIDIA RTX 4090", 1301)
    assert "github" in best["source"]


def test_a_small_batch_takes_no_shorter_step_than_any_on_record():
    small = Question("H100 80GB SXM", "resnet50", "amp_fp16", batch_size=4)
    rate, usual = predict.rate(small), predict.rate(replace(small, batch_size=None))
    assert 4 / rate.high >= predict._shortest_step() * (1 - 1e-9)
    assert usual.value > 2 * rate.value
    assert predict.rate(replace(small, batch_size=64)).value > rate.value


def test_prices_are_missing_where_none_was_read():
    offers = prices.rental_offers("NVIDIA A100 80GB SXM")
    assert offers["provider"].is_unique
    assert (offers["usd_per_hour"] > 0).all()
    assert not {"AWS", "GCP", "Azure", "Lambda Labs"} & set(prices._offers()["provider"])  # each has one name
    assert dict(prices.rental_offers("NVIDIA T4")[["provider", "usd_per_hour"]].values)["Amazon Web Services"] == 0.53
    assert prices.rental_offers("NVIDIA RTX 5080").empty
    assert prices.purchase_prices("NVIDIA RTX 5090")["usd"].tolist() == [1999.0]
    assert "whole computer" in prices.purchase_prices("Apple M5")["includes"].iloc[0]
    assert prices.purchase_prices("Huawei Ascend 910").empty


def test_16_bits_without_matrix_units_are_a_family_of_their_own():
    names = ("P100", "M1", "V100", "T4")
    families = {chip: observations.chip_figures(chips.resolve(chip), "amp_fp16")["family"] for chip in names}
    plain = observations.PLAIN_HALF
    assert families == {"P100": plain, "M1": plain, "V100": "half", "T4": "half"}
    assert numpy.exp(observations.chip_figures("NVIDIA RTX 3090", "amp_fp16")["peak"]) == pytest.approx(71.37)


def test_one_question_has_one_answer_alone_or_among_others():
    questions = [Question(chip, "segmentation_scaling") for chip in ("Apple M1 Max", "T4", "Graphcore IPU GC200")]
    *known, unknown = predict.rates(questions)
    assert [rate.value for rate in known] == pytest.approx([predict.rate(one).value for one in questions[:2]])
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
    pairs = predictions.core_pairs(Evidence(make_rows([])))
    tensorflow = pairs["setting"].str.contains(
        "contributed | resnet50, 224 px | fp32 | tensorflow | resnet50-b128-tf", regex=False
    )
    (line,) = pairs[tensorflow & pairs["chip"].eq("Apple M1 Pro")].to_dict("records")
    assert line["chip_larger"] == "Apple M1 Max (32-core GPU)"
    assert (line["core_ratio"], line["speed_ratio"]) == (2, pytest.approx(135 / 57.9))
    architectures = (chips.table()["architecture"].loc[pairs[name]].tolist() for name in ("chip", "chip_larger"))
    assert next(architectures) == next(architectures)
    few = pandas.DataFrame({"core_ratio": [2.0, 4.0, 2.0], "speed_ratio": [2.0, 2.0, 1.6]})
    assert re.search(r"by 25 % \(median of 3 pairs .* within 10 % in 33 % of", predictions.core_sentence(few))


def test_the_chart_shows_the_judges_numbers(errors):
    (chart,) = predictions.CHARTS
    drawn = sorted(bar.get_width() for bar in chart.draw(Evidence(make_rows([]))).figure.axes[0].patches)
    shown = errors.loc[[CHIP, BOTH], observations.RECORD, :]
    assert drawn == pytest.approx(sorted(shown["median_error"]))
    first = errors.loc[(CHIP, observations.RECORD, ANSWER), "median_error"]
    assert wording.percent(first) in predictions.error_title(errors.reset_index())


# The last test, because it leaves nothing in the caches.
HIDDEN = [("NVIDIA H100", "bf16"), ("NVIDIA T4", "fp32"), ("NVIDIA V100", "fp16")]


@pytest.mark.parametrize(("chip", "precision"), HIDDEN)
def test_a_published_rate_that_is_hidden_is_in_the_answers_range(chip, precision, monkeypatch):
    lines = observations.images()
    family = observations.chip_figures(chips.resolve(chip), precision)["family"]
    own = lines[lines["product"].eq(chip) & lines["work"].eq("resnet50, 224 px") & lines["family"].eq(family)]
    caches = [each for module in (predict, rules) for each in vars(module).values() if hasattr(each, "cache_clear")]
    try:
        others = lines[lines["product"].ne(chip)].reset_index(drop=True)
        monkeypatch.setattr(observations, "images", lambda: others)
        for each in caches:
            each.cache_clear()
        answer = predict.rate(Question(chip, "resnet50", precision))
    finally:
        for each in caches:
            each.cache_clear()
    printed = own["rate"].groupby(own["publication"]).median().median()
    assert answer.low < printed < answer.high
    assert 0.5 < answer.value / printed < 2
