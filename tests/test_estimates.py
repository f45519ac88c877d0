"""Estimates and ratios: the best evidence, with intervals that hold for hidden publications."""

import importlib
import sys
from dataclasses import replace

import pandas
import pytest

from benchbook.machine import layout
from benchbook.record import estimates, observations
from benchbook.record.estimates import MEASURED, PREDICTED, PUBLISHED, Estimate, Ratio
from benchbook.record.predict import Question
from benchbook.rows import networks


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(layout.root() / "benchmarks"))
    try:
        return importlib.import_module("estimates")
    finally:
        del sys.path[0]


@pytest.fixture(scope="module")
def tested(script):
    return script.told_of_pairs(script.answers()).set_index(["pairs of", "rule"])


def test_the_committed_factors_are_those_of_the_script(script):
    made = script.bounds(script.figures(), script.hidden_pairs())
    committed = pandas.read_csv(script.BOUNDS)
    pandas.testing.assert_frame_equal(made, committed, rtol=1e-4, check_dtype=False)


def percent(table, group, rule, column):
    return float(table.loc[(group, rule), column].rstrip("%")) / 100


def test_intervals_hold_and_far_ratios_are_decided_on_hidden_publications(script, tested):
    rules = script.PRINTED, script.OLDER, script.BANDWIDTHS
    hold, decided, answered = (
        [percent(tested, "all", rule, column) for rule in rules]
        for column in ("90 % intervals that hold", "of these decided", "answered")
    )
    assert hold[0] == pytest.approx(0.9, abs=0.03)
    assert decided[0] >= 0.8 > 0.5 > max(decided[1:])
    assert answered[0] == 1 > 0.5 > answered[1]
    assert percent(tested, "with an Apple chip", script.PRINTED, "90 % intervals that hold") > 0.85
    assert percent(tested, "with an Apple chip", script.PRINTED, "of these decided") >= 0.8
    assert script.figures_that_hold() >= 0.9


def test_publications_that_were_found_later_lie_within_what_was_printed_before(script):
    figures = script.told_of_figures(script.later_figures()).set_index("figures of")
    held = "90 % intervals that hold"
    assert figures.loc[PUBLISHED, "figures"] >= 60
    assert all(float(figures.loc[name, held].rstrip("%")) >= 90 for name in (PUBLISHED, "others"))
    told = script.told_of_pairs(script.answers(script.LATER)).set_index(["pairs of", "rule"])
    assert percent(told, "all", script.PRINTED, held) >= 0.9
    off = [
        percent(told, "all", rule, "median error") for rule in (script.PRINTED, script.BANDWIDTHS)
    ]
    assert off[0] < 0.6 * off[1]


def test_each_publication_weighs_one(script):
    values = pandas.Series([1.0] * 90 + [5.0, 9.0])
    publications = pandas.Series(["a"] * 90 + ["b", "c"])
    assert script.quantile(values, publications, 0.5) == 5
    assert script.share(values.gt(2), publications) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((80.0, 40.0, 160.0), "b is about 80 times as fast as a (40 to 160), by c"),
        ((1 / 80, 1 / 160, 1 / 40), "a is about 80 times as fast as b (40 to 160), by c"),
        ((1.02, 0.7, 1.5), "b is about as fast as a (0.70 to 1.50 times), by c"),
        ((2.5, 0.8, 7.5), "b may be 0.80 to 7.5 times as fast as a (middle 2.5), by c"),
    ],
)
def test_a_sentence_says_no_more_than_its_interval(numbers, words):
    assert Ratio(*numbers, "kind", "by c").in_words("b", "a") == words


def test_the_narrowest_tested_evidence_answers():
    pairs_of = estimates.ratio(
        *estimates.find([Question(chip, "resnet50", "tf32") for chip in ("RTX 3090", "A100")])
    )
    m1, a100 = estimates.find([Question("M1", "resnet50"), Question("A100", "resnet50", "tf32")])
    found = estimates.ratio(m1, a100)
    assert (found.kind, found.value) == (estimates.FIGURES, pytest.approx(a100.value / m1.value))
    guessed = estimates.ratio(replace(m1, kind=PREDICTED), a100)
    assert (guessed.kind, guessed.value) == (
        estimates.SPECIFICATIONS,
        pytest.approx(a100.expected / m1.expected),
    )
    assert guessed.high / guessed.low > found.high / found.low
    assert pairs_of.kind in (estimates.PAIRS, estimates.FIGURES)
    own = Estimate(2.0, 1.9, 2.1, MEASURED, chip="AMD EPYC")
    mine = estimates.ratio(own, a100)
    assert mine.value == pytest.approx(a100.value / 2)
    assert mine.high / mine.low > a100.high / a100.low
    assert mine.value / estimates.ratio(a100, own).value == pytest.approx(mine.value**2)


def test_every_published_rate_of_a_study_is_in_the_one_query():
    printed = observations.of_articles()
    printed = printed[printed["refused"].eq("") & printed["image_size"].gt(0)]
    assert {"Apple M1 CPU", "Apple M1", "NVIDIA RTX A6000"} <= set(printed["chip"])
    for line in printed[printed["rate"].gt(0)].to_dict("records"):
        work = networks.describe(line["network"], line["image_size"])
        key = line["chip"], int(line["device_count"]), observations.family_of(line["computed"])
        assert line["rate"] in estimates.published(work)[key].each, key
    [found] = estimates.find([Question("M1 CPU", "mnist_speedup")])
    assert found.value == pytest.approx(60_000 / 33.4)


def test_what_people_compare_is_in_the_readme():
    asked = estimates.asked()
    assert len(asked) == len(estimates.ASKED)
    readme = (layout.root() / "README.md").read_text()
    assert all(f"| {' | '.join(line)} |\n" in readme for line in asked.itertuples(index=False))
