"""Claims and their quantities: recomputed from published figures, and judged against made-up machines."""

import itertools

import pandas
import pytest

from benchbook import studies
from benchbook.judging.intervals import Interval
from benchbook.machine import layout
from benchbook.record import articles, claims, naming
from benchbook.report import claim_outcomes
from benchbook.studies import quantities
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

QUANTITY = ["machine", "chip", "source", "name", "value", "low", "high", "interval"]
CLAIM = {"id": "speedup", "study": "mnist_speedup", "article": "an article", "sentence": "It is 1.7 times as fast."}
CLAIM |= {"machine": "m1", "other": "", "formula": "cpu_seconds / accelerator_seconds", "low": 1.695, "high": 1.705}
CLAIM |= {"tolerance": 0.0, "unit": "x", "relation": "equal", "reason": ""}


def machine(name, chip, source, cpu, accelerator=None):
    """Return a machine's quantities; each is (value, low, high), one that is None was not measured."""
    named = {"cpu_seconds": cpu, "accelerator_seconds": accelerator}
    kind = "interval" if source == "measured" else "rounding"
    return [(name, chip, source, key, *bounds, kind) for key, bounds in named.items() if bounds]


def judged(quantities, **changes):
    table = claims.table(pandas.DataFrame([CLAIM | changes]), pandas.DataFrame(quantities, columns=QUANTITY))
    return {(line["machine"], line["source"]): line["verdict"] for line in table.to_dict("records")}


PUBLISHED = machine("m1", "Apple M1", "published", (33.4, 33.35, 33.45), (19.6, 19.55, 19.65))


@pytest.fixture(scope="module")
def published():
    return claims.read(layout.published() / "claims.csv")


@pytest.fixture(scope="module")
def printed():
    return quantities.gather(Evidence(articles.rows()), studies.every().values())


def test_a_claim_follows_from_the_published_rows_or_says_why_it_cannot(published, printed):
    """And the values, bounds and verdicts are those of the golden set."""
    own = claims.table(published, printed).query("source != 'measured'").set_index("id")
    reasons = published.set_index("id")["reason"]
    assert own.index.tolist() == published["id"].tolist()
    assert own["value"].notna().tolist() == reasons.eq("").tolist()
    unknown = own.loc[reasons[reasons != ""].index]
    assert set(unknown["verdict"]) == {claims.NOT_RECOMPUTED}
    assert unknown["reason"].tolist() == reasons[reasons != ""].tolist()
    assert own.index[own["reason"].eq(claims.DERIVED_REASON)].tolist() == ["segmentation-m1-max-rtx"]


def test_only_claims_that_were_computed_have_an_arithmetic_that_holds_or_not(published, printed):
    computed = printed[printed["name"].str.startswith("ladder_") | printed["name"].eq("reserved_per_hour")]
    computed = {*computed["name"], *printed.loc[printed["source"] == claims.COUNTED, "name"]}
    read_off = published["formula"].str.fullmatch(r"[a-z]\w*( [*/] (100|1e\d))?")  # a figure, perhaps in another unit
    read_off &= ~published["formula"].str.split().str[0].isin(computed)
    own = claims.table(published, printed).query("source != 'measured'").set_index("id")
    assert read_off.sum() > 15
    assert set(own.loc[published.loc[read_off, "id"], "verdict"]) == {claims.NOT_RECOMPUTED}


def test_a_claim_with_a_reason_has_no_published_ends_or_they_come_from_itself(published, printed):
    for claim in published[~published["reason"].isin(["", "one figure, nothing to recompute"])].to_dict("records"):
        groups = dict(iter(printed.groupby("machine")))
        other = groups.get(claim["other"], printed[:0])
        both = pandas.concat([groups.get(claim["machine"], printed[:0]), other.assign(name="other_" + other["name"])])
        if claims.recompute(claim["formula"], both) is not None:  # to recompute it would go in a circle
            assert "derived from this sentence" in claim["reason"], claim["id"]


def count(model, image_size=None):
    """Return parameters, or multiply-adds of one image, of a network without memory behind it."""
    import torch
    import torchvision
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        network = torchvision.models.get_model(model)
        if image_size is None:
            return sum(parameter.numel() for parameter in network.parameters())
        with FlopCounterMode(display=False) as counter:
            network(torch.zeros(1, 3, image_size, image_size))
    return counter.get_total_flops() / 2


def test_the_counts_that_claims_are_held_against_are_those_of_the_networks(printed):
    counted = printed[printed["source"] == "counted"].set_index("name")["value"]
    for model in ("vgg16", "resnet18", "resnet50"):
        assert counted[f"{model}_parameters"] == count(model)
        assert counted[f"{model}_operations"] == pytest.approx(count(model, 224), rel=1e-3)


def test_the_bounds_of_a_formula_are_those_of_all_corners():
    bounds = {"a": (2.0, 1.0, 3.0), "b": (5.0, 4.0, 8.0), "c": (-1.0, -2.0, 0.5)}
    quantities = pandas.DataFrame([(name, *rest, "range") for name, rest in bounds.items()], columns=QUANTITY[3:])
    corners = [a / b - a * c for a, b, c in itertools.product((1.0, 3.0), (4.0, 8.0), (-2.0, 0.5))]
    found = claims.recompute("a / b - a * c", quantities)
    assert (found.value, found.low, found.high) == pytest.approx((2 / 5 + 2, min(corners), max(corners)))
    assert found.kind == "range"


def test_a_quantity_whose_name_is_part_of_another_does_not_disturb_it():
    lines = [("seconds", 1.0, 0.0, 100.0, "rounding"), ("cpu_seconds", 6.0, 5.0, 7.0, "rounding")]
    found = claims.recompute("cpu_seconds * 2", pandas.DataFrame(lines, columns=QUANTITY[3:]))
    assert (found.value, found.low, found.high) == (12, 10, 14)


@pytest.mark.parametrize(
    ("relation", "low", "high", "holds", "verdict"),
    [
        ("equal", 1.60, 1.80, True, "confirmed"),
        ("equal", 1.60, 1.69, False, "confirmed"),
        ("equal", 1.60, 1.695, True, "confirmed"),
        ("equal", 1.705, 1.80, True, "confirmed"),
        ("equal", 1.71, 1.80, False, "confirmed"),
        ("equal", 1.594, 1.70, True, "undecided"),
        ("equal", 1.70, 1.81, True, "undecided"),
        ("equal", 0.20, 7.50, True, "undecided"),
        ("equal", 1.00, 1.594, False, "contradicted"),
        ("equal", 1.81, 1.90, False, "contradicted"),
        ("at_least", 1.60, 1.69, False, "confirmed"),
        ("at_least", 1.60, 90.0, True, "confirmed"),
        ("at_least", 1.50, 90.0, True, "undecided"),
        ("at_least", 1.71, 9.00, True, "confirmed"),
        ("at_least", 1.50, 1.59, False, "contradicted"),
    ],
)
def test_arithmetic_holds_where_ranges_meet_and_a_measurement_confirms_with_its_whole_interval(
    relation, low, high, holds, verdict
):
    claim = CLAIM | {"relation": relation, "tolerance": 0.1}
    assert claims.judge_arithmetic(claim, low, high) == (claims.HOLDS if holds else claims.FAILS)
    assert claims.judge(claim, Interval((low + high) / 2, low, high, "interval")) == verdict
    assert claims.judge(claim, Interval((low + high) / 2, low, high, "range")) == "undecided"


def test_the_articles_own_machine_comes_first_and_a_measured_one_of_its_chip_is_judged():
    quantities = [
        *machine("a-mini", "Apple M1", "measured", (40.0, 39.0, 41.0), (20.0, 19.0, 21.0)),
        *machine("m1", "Apple M1", "measured", (60.0, 60.0, 60.0), (20.0, 20.0, 20.0)),  # named like the article's
        *PUBLISHED,
        *machine("a-book", "Apple M1", "measured", (34.0, 33.0, 35.0), (20.0, 19.0, 21.0)),
    ]
    verdicts = judged(quantities)
    assert list(verdicts.items()) == [
        (("m1", "published"), "arithmetic holds"),
        (("a-book", "measured"), "undecided"),
        (("a-mini", "measured"), "contradicted"),
        (("m1", "measured"), "contradicted"),
    ]
    assert judged(quantities, tolerance=0.2)["a-book", "measured"] == "confirmed"


TWO = {"machine": "m1", "other": "a6000", "formula": "cpu_seconds / other_cpu_seconds", "low": 3.0, "high": 3.5}
BOTH = [*PUBLISHED, *machine("a6000", "A6000", "published", (10.0, 9.95, 10.05))]


def test_a_claim_about_two_machines_is_held_against_pairs_of_their_chips():
    measured = [
        *machine("book", "Apple M1", "measured", (40.0, 40.0, 40.0)),
        *machine("tower", "A6000", "measured", (10.0, 10.0, 10.0)),
        *machine("desk", "Another", "measured", (10.0, 10.0, 10.0)),
    ]
    assert judged(BOTH + measured, **TWO) == {
        ("m1 / a6000", "published"): "arithmetic holds",
        ("book / tower", "measured"): "contradicted",
    }
    assert judged(PUBLISHED, **TWO)["m1 / a6000", "published"] == claims.NOT_MEASURED  # one was not printed


@pytest.mark.parametrize(
    ("relation", "shown"),
    [("equal", "1.695 to 1.705 x"), ("at_least", "at least 1.695 x"), ("event", "that it happens")],
)
def test_what_is_claimed_is_shown_in_words_with_its_unit(relation, shown):
    table = claims.table(pandas.DataFrame([CLAIM | {"relation": relation}]), pandas.DataFrame(columns=QUANTITY))
    assert set(table["published"]) == {shown}
    assert set(table["sentence"]) == {CLAIM["sentence"]}


@pytest.mark.parametrize("change", [{"relation": "about"}, {"low": 1.8}, {"tolerance": -1.0}])
def test_a_claim_with_an_unknown_relation_or_bounds_in_the_wrong_order_is_refused(tmp_path, change):
    path = tmp_path / "claims.csv"
    pandas.DataFrame([CLAIM, CLAIM | {"id": "odd"} | change]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"claims\.csv: claim odd: allowed are relation equal, at_least, event"):
        claims.read(path)


def test_joules_of_a_claim_say_how_and_where_they_were_read():
    energy = {"formula": "other_joules / joules", "machine": "m1", "other": "v100", "low": 5.5, "high": 6.0}
    present = [("m1", "Apple M1", "published", "is_present", 1, 1, 1, "rounding", None)]
    present += [("v100", "NVIDIA V100", "published", "is_present", 1, 1, 1, "rounding", None)]
    measured = [("book", "Apple M1", "measured", "joules", 1.0, 0.95, 1.05, "interval", "apple_ioreport, soc")]
    measured += [("cloud", "NVIDIA V100", "measured", "joules", 5.8, 5.7, 5.9, "interval", "nvml, board")]
    quantities = pandas.DataFrame(present + measured, columns=[*QUANTITY, "note"])
    claim = CLAIM | energy | {"tolerance": 1.0, "reason": "it prints the ratio alone"}
    line = claims.table(pandas.DataFrame([claim]), quantities).set_index("source").loc["measured"]
    assert line["verdict"] == "confirmed"
    assert line["reason"] == "joules: apple_ioreport, soc; other_joules: nvml, board"


NAMES = naming.Names({"m1": naming.Name("Apple M1", None, 16), "mine": naming.Name("AMD EPYC", 2)}, {})


def outcome(*quantities, **changes):
    table = claims.table(
        pandas.DataFrame([CLAIM | changes]),
        pandas.DataFrame([value for part in quantities for value in part], columns=QUANTITY),
    )
    return claim_outcomes.table(table, NAMES).iloc[0]


SLOW, FAST = ((34.0, 33.99, 34.01), (20.0, 19.99, 20.01)), ((34.0, 33.9, 34.1), (10.0, 9.9, 10.1))


def test_a_claim_is_out_of_reach_until_its_chip_was_measured():
    line = outcome(PUBLISHED)
    assert (line["outcome"], line["why"]) == (claim_outcomes.OUT_OF_REACH, "Needs an Apple M1.")
    assert (line["holds"], line["arithmetic"]) == (claims.HOLDS, "33.4 / 19.6 = 1.704")
    other = outcome(PUBLISHED, machine("mine", "AMD EPYC", "measured", *SLOW))
    assert other["outcome"] == claim_outcomes.OUT_OF_REACH
    assert "not on the article's chip" in other["why"]


def test_a_measurement_decides_and_machines_that_disagree_do_not():
    good, bad = (machine(name, "Apple M1", "measured", *rates) for name, rates in (("m1", SLOW), ("m1b", FAST)))
    confirmed = outcome(PUBLISHED, good)
    assert confirmed["outcome"] == claims.CONFIRMED
    assert "Apple M1" in confirmed["why"]
    assert "1.7" in confirmed["why"]
    assert outcome(PUBLISHED, bad)["outcome"] == claims.CONTRADICTED
    assert outcome(PUBLISHED, good, bad)["outcome"] == claims.UNDECIDED


def test_every_published_claim_has_one_outcome_its_article_and_its_arithmetic():
    evidence = Evidence(articles.rows())
    outcomes = claim_outcomes.table(claim_outcomes.judged(evidence), evidence.names).set_index("id")
    printed = claims.read(layout.published() / "claims.csv").set_index("id")
    assert sorted(outcomes.index) == sorted(printed.index)
    assert set(outcomes["outcome"]) <= set(claim_outcomes.OUTCOMES)
    assert outcomes["article"].to_dict() == printed["article"].to_dict()
    assert outcomes.loc["simclr-no-amp", "link"].startswith("https://")


NO_PRICES = articles.prices()[:0]
RESNET = {"study": "resnet50_cost", "dataset": "synthetic", "batch_size": 1024, "device_count": 4}


def of(*rows, prices=NO_PRICES):
    evidence = Evidence(make_rows([make_row(**row) for row in rows]), prices=prices)
    table = quantities.gather(evidence, [studies.every()["resnet50_cost"]])
    own = table[table["source"] != "counted"]
    return {(line["machine"], line["name"]): line for line in own.to_dict("records")}


def test_the_chip_of_a_machine_with_a_gpu_is_the_gpu_and_four_of_them_are_compared():
    gpu = RESNET | {"device": "cuda", "device_name": "NVIDIA V100", "samples_per_second": 3000.0}
    line = of(gpu)["desk", "synthetic_rate"]
    assert (line["chip"], line["value"]) == ("NVIDIA V100", 3000)
    assert of(gpu | {"device_count": 1}) == {}


def test_a_chips_boards_are_one_chip_so_that_a_measured_p100_judges_the_articles():
    server = {"dataset": "mnist", "device": "cuda"}
    boards = {"one": "Tesla P100-PCIE-16GB", "two": "NVIDIA Tesla P100-SXM2-16GB"}
    phases = ({}, {"phase": "evaluate", "index": 1})
    whole = [make_row(**server, machine=m, run_id=m, device_name=b, **p) for m, b in boards.items() for p in phases]
    rows = pandas.concat([make_rows(whole), articles.rows()], ignore_index=True)
    table = quantities.gather(Evidence(rows), [studies.every()["mnist_speedup"]])
    seconds = table[table["name"] == "accelerator_seconds"].set_index("machine")["chip"]
    assert seconds[[*boards, "p100-server-256gb"]].tolist() == ["NVIDIA P100"] * 3


def test_a_machine_whose_figures_were_not_printed_is_there_with_its_chip(printed):
    there = printed[printed["name"] == quantities.PRESENT].set_index("machine")["chip"]
    assert there[["colab-v100", "macbook-air-13-m2"]].tolist() == ["NVIDIA V100", "Apple M2"]


@pytest.mark.parametrize(("values", "kind"), [((0.7, 0.8), "range"), ((0.7, 0.8, 0.75), "interval")])
def test_a_number_that_runs_measured_once_each_has_students_t_over_runs(values, kind):
    line = quantities.of_runs({"machine": "m", "chip": "c", "source": "measured"}, "accuracy", values)
    assert line["value"] == pytest.approx(0.75)
    from scipy import stats  # its import takes a second

    half = stats.t.ppf(0.975, 2) * 0.05 / 3**0.5 if kind == "interval" else 0.05
    assert (line["low"], line["high"]) == pytest.approx((0.75 - half, 0.75 + half))
    assert line["interval"] == kind


def test_a_price_is_a_quantity_an_hour_with_the_bounds_of_its_digits():
    line = of(prices=articles.prices())["cirrascale-4xv100", "reserved_per_hour"]
    assert [line["value"], line["low"], line["high"]] == pytest.approx([7500 / 730, 7499.5 / 730, 7500.5 / 730])


def test_no_published_machine_has_two_quantities_of_one_name(printed):
    assert not printed.duplicated(["machine", "name"]).any()


@pytest.mark.parametrize(
    ("value", "half", "settings"),
    [(33.4, 0.05, {}), (34, 0.5, {}), (0.328, 0.0005, {}), (3558.0, 3, {"rounding": {"seconds": 3}})],
)
def test_a_figure_stands_for_half_a_unit_of_its_last_digit_or_for_the_rounding_of_its_own_unit(value, half, settings):
    bounds = articles.bounds({"seconds": value, "settings": settings}, "seconds")
    assert bounds == pytest.approx((value - half, value + half))
