"""Claims and their quantities: recomputed from published figures, and judged against made-up
machines."""

import itertools
import math

import pandas
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from benchbook import studies
from benchbook.judging import intervals, wording
from benchbook.judging.intervals import Interval
from benchbook.record import articles, claims, naming, prices
from benchbook.report import claim_outcomes
from benchbook.studies.results import quantities
from benchbook.studies.results.evidence import Evidence
from made import golden_files
from made.rows import make_row, make_rows

QUANTITY = ["machine", "chip", "source", "name", "value", "low", "high", "interval"]
CLAIM = yaml.safe_load("""
{id: speedup, study: mnist_speedup, article: an article, sentence: It is 1.7 times as fast., machine: m1, other: "",
 formula: cpu_seconds / accelerator_seconds, low: 1.695, high: 1.705, tolerance: 0.0, unit: x, relation: equal,
 reason: "", unjudged: ""}
""")


def machine(name, chip, source, cpu, accelerator=None):
    """Return a machine's quantities; each is (value, low, high), one that is None was not
    measured."""
    named = {"cpu_seconds": cpu, "accelerator_seconds": accelerator}
    kind = "interval" if source == "measured" else "rounding"
    return [(name, chip, source, key, *bounds, kind) for key, bounds in named.items() if bounds]


def judged(quantities, **changes):
    table = claims.table(
        pandas.DataFrame([CLAIM | changes]), pandas.DataFrame(quantities, columns=QUANTITY)
    )
    return {(line["machine"], line["source"]): line["verdict"] for line in table.to_dict("records")}


PUBLISHED = machine("m1", "Apple M1", "published", (33.4, 33.35, 33.45), (19.6, 19.55, 19.65))


@pytest.fixture(scope="module")
def published():
    return claims.read()


@pytest.fixture(scope="module")
def printed():
    return quantities.gather(Evidence(articles.rows()), studies.every().values())


@pytest.mark.parametrize(
    ("saved", "hours"), [((12.0, 0.0), 500), ((12.0, 4.0), 750), ((4.0, 4.0), math.inf)]
)
def test_a_purchase_pays_after_its_price_over_the_rent_saved(saved, hours):
    assert prices.hours_to_pay(6000.0, *saved) == hours
    formula = "hours_to_pay(price, rent, cost)"
    lines = [
        (name, value, value, value, "rounding")
        for name, value in zip(("rent", "cost"), saved, strict=True)
    ]
    lines.append(("price", 6000.0, 5400.0, 6600.0, "rounding"))
    found = claims.recompute(formula, pandas.DataFrame(lines, columns=QUANTITY[3:]))
    assert (found.value, found.low, found.high) == pytest.approx((hours, 0.9 * hours, 1.1 * hours))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    ends=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    tolerance=st.integers(0, 2),
    relation=st.sampled_from(["equal", "at_least"]),
)
def test_confirmed_is_inside_contradicted_is_outside_and_anything_wider_is_undecided(
    ends, tolerance, relation
):
    (least, most), (low, high) = sorted(ends[:2]), sorted(ends[2:])
    claim = {"relation": relation, "low": least, "high": most, "tolerance": tolerance}
    top = most if relation == "equal" else math.inf
    inside = [least - tolerance <= value <= top + tolerance for value in range(low, high + 1)]
    verdict = (
        claims.CONFIRMED
        if all(inside)
        else claims.UNDECIDED
        if any(inside)
        else claims.CONTRADICTED
    )
    assert claims.judge(claim, Interval(low, low, high, "interval")) == verdict
    assert claims.judge(claim, Interval(low, low, high, "range")) == claims.UNDECIDED
    meets = any(least <= value <= top for value in range(low, high + 1))
    assert claims.judge_arithmetic(claim, low, high) == (claims.HOLDS if meets else claims.FAILS)


def test_the_articles_own_machine_comes_first_and_a_measured_one_of_its_chip_is_judged():
    measured = (40.0, 39.0, 41.0), (20.0, 19.0, 21.0)
    named = ("a-mini", "m1")  # one of them as the article's
    quantities = [
        *itertools.chain(*(machine(name, "Apple M1", "measured", *measured) for name in named)),
        *PUBLISHED,
    ]
    published, *others = judged(quantities).items()
    assert published == (("m1", "published"), "arithmetic holds")
    assert others == [((name, "measured"), "contradicted") for name in named]


TWO = yaml.safe_load(
    "{machine: m1, other: a6000, formula: cpu_seconds / other_cpu_seconds, low: 3.0, high: 3.5}"
)
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
    assert (
        judged(PUBLISHED, **TWO)["m1 / a6000", "published"] == claims.NOT_MEASURED
    )  # one was not printed


def test_joules_of_a_claim_say_how_and_where_they_were_read():
    energy = {
        "formula": "other_joules / joules",
        "machine": "m1",
        "other": "v100",
        "low": 5.5,
        "high": 6.0,
    }
    present = [("m1", "Apple M1", "published", "is_present", 1, 1, 1, "rounding", None)]
    present += [("v100", "NVIDIA V100", "published", "is_present", 1, 1, 1, "rounding", None)]
    measured = [
        (
            "book",
            "Apple M1",
            "measured",
            "joules",
            1.0,
            0.95,
            1.05,
            "interval",
            "apple_ioreport, soc",
        )
    ]
    measured += [
        ("cloud", "NVIDIA V100", "measured", "joules", 5.8, 5.7, 5.9, "interval", "nvml, board")
    ]
    quantities = pandas.DataFrame(present + measured, columns=[*QUANTITY, "note"])
    claim = CLAIM | energy | {"tolerance": 1.0, "reason": "it prints the ratio alone"}
    line = claims.table(pandas.DataFrame([claim]), quantities).set_index("source").loc["measured"]
    assert line["verdict"] == "confirmed"
    assert line["reason"] == "joules: apple_ioreport, soc; other_joules: nvml, board"


NAMES = naming.Names(
    {"m1": naming.Name("Apple M1", None, 16), "mine": naming.Name("AMD EPYC", 2)}, {}
)


def outcome(*quantities, **changes):
    table = claims.table(
        pandas.DataFrame([CLAIM | changes]),
        pandas.DataFrame([value for part in quantities for value in part], columns=QUANTITY),
    )
    return claim_outcomes.table(table, NAMES).iloc[0]


SLOW, FAST = ((34.0, 33.99, 34.01), (20.0, 19.99, 20.01)), ((34.0, 33.9, 34.1), (10.0, 9.9, 10.1))


def test_a_claim_is_out_of_reach_until_its_chip_was_measured():
    line = outcome(PUBLISHED, tolerance=0.17)
    assert (line["outcome"], line["why"]) == (claim_outcomes.OUT_OF_REACH, "Needs an Apple M1.")
    never = outcome(PUBLISHED)  # no session's interval is as narrow as 1.695 to 1.705
    assert never["outcome"] == claim_outcomes.OUT_OF_REACH
    assert never["why"] == wording.sentence(claims.NEVER_REASON)
    assert (line["holds"], line["arithmetic"]) == (claims.HOLDS, "33.4 / 19.6 = 1.704")
    other = outcome(PUBLISHED, machine("mine", "AMD EPYC", "measured", *SLOW))
    assert other["outcome"] == claim_outcomes.OUT_OF_REACH
    assert "not on the article's chip" in other["why"]


def test_a_measurement_decides_and_machines_that_disagree_do_not():
    good, bad = (
        machine(name, "Apple M1", "measured", *rates)
        for name, rates in (("m1", SLOW), ("m1b", FAST))
    )
    confirmed = outcome(PUBLISHED, good)
    assert confirmed["outcome"] == claims.CONFIRMED
    assert "Apple M1" in confirmed["why"]
    assert "1.7" in confirmed["why"]
    assert outcome(PUBLISHED, bad)["outcome"] == claims.CONTRADICTED
    assert outcome(PUBLISHED, good, bad)["outcome"] == claims.UNDECIDED


def test_an_interval_wider_than_the_claimed_range_can_contradict_it_and_says_that_it_cannot_confirm_it():
    unsure = machine("m1b", "Apple M1", "measured", (34.0, 30.0, 38.0), (20.0, 18.0, 22.0))
    line = outcome(PUBLISHED, unsure)
    assert line["outcome"] == claims.UNDECIDED
    assert line["why"].endswith(f"; {claims.WIDE_REASON}.")
    assert claims.WIDE_REASON not in outcome(PUBLISHED, unsure, tolerance=2.0)["why"]


def test_every_published_claim_has_one_outcome_its_article_and_its_arithmetic():
    evidence = Evidence(articles.rows())
    outcomes = claim_outcomes.table(claim_outcomes.judged(evidence), evidence.names).set_index("id")
    printed = claims.read().set_index("id")
    assert sorted(outcomes.index) == sorted(printed.index)
    assert set(outcomes["outcome"]) <= set(claim_outcomes.OUTCOMES)
    assert outcomes["article"].to_dict() == printed["article"].to_dict()
    assert outcomes.loc["simclr-no-amp", "link"].startswith("https://")
    why = outcomes["why"]
    assert why["resnet-gpu-real-data"] == "Needs 4 NVIDIA V100 and 4 Google TPU v2."
    assert why["resnet-tpu-two-percent"] == wording.sentence(claims.NEVER_REASON)


NO_PRICES = articles.prices()[:0]
RESNET = {
    "study": "resnet50_cost",
    "dataset": "synthetic",
    "batch_size": 1024,
    "device_count": 4,
    "precision": "amp_fp16",
}


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
    for name, count in (
        ("TPU v2", 8),
        ("TPU v3", 8),
        ("TPU v4", 4),
    ):  # a chip of v2 and v3 is two devices of JAX
        tpu = gpu | {"device": "tpu", "device_name": name}
        assert [bool(of(tpu | {"device_count": each})) for each in (4, 8)] == [
            count == 4,
            count == 8,
        ]


def test_a_chips_boards_are_one_chip_so_that_a_measured_p100_judges_the_articles():
    server = {"dataset": "mnist", "device": "cuda"}
    boards = {"one": "Tesla P100-PCIE-16GB", "two": "NVIDIA Tesla P100-SXM2-16GB"}
    phases = ({}, {"phase": "evaluate", "index": 1})
    whole = [
        make_row(**server, machine=m, run_id=m, device_name=b, **p)
        for m, b in boards.items()
        for p in phases
    ]
    rows = pandas.concat([make_rows(whole), articles.rows()], ignore_index=True)
    table = quantities.gather(Evidence(rows), [studies.every()["mnist_speedup"]])
    seconds = table[table["name"] == "accelerator_seconds"].set_index("machine")["chip"]
    assert seconds[[*boards, "p100-server-256gb"]].tolist() == ["NVIDIA P100"] * 3


def test_a_machine_whose_figures_were_not_printed_is_there_with_its_chip(printed):
    there = printed[printed["name"] == quantities.PRESENT].set_index("machine")["chip"]
    assert there[["colab-v100", "macbook-air-13-m2"]].tolist() == ["NVIDIA V100", "Apple M2"]


def test_no_published_machine_has_two_quantities_of_one_name(printed):
    assert not printed.duplicated(["machine", "name"]).any()


@pytest.mark.parametrize(
    ("value", "half", "settings"),
    [
        (33.4, 0.05, {}),
        (34, 0.5, {}),
        (0.328, 0.0005, {}),
        (3558.0, 3, {"rounding": {"seconds": 3}}),
    ],
)
def test_a_figure_stands_for_half_a_unit_of_its_last_digit_or_for_the_rounding_of_its_own_unit(
    value, half, settings
):
    bounds = articles.bounds({"seconds": value, "settings": settings}, "seconds")
    assert bounds == pytest.approx((value - half, value + half))


def test_the_quantities_of_each_claim_are_made_of_rows_or_it_says_why_not(published):
    lines = golden_files.read(golden_files.FOLDER / "studies.json")
    tables = [key for key in lines if " quantities | " in key]
    tables += [
        key
        for line in lines.values()
        if isinstance(line.get("found"), dict)
        for key in line["found"]
    ]
    made = {key.partition(" #")[0].rpartition(" | ")[2] for key in tables}
    made |= {"purchase_price", "hours_to_pay", "e9"}
    own = published[published["machine"].ne("") & published["unjudged"].eq("")]
    assert set(own["formula"].str.findall(r"[a-z]\w*").explode().str.removeprefix("other_")) <= made


def wanted(claim):
    """Return a value of a claim's formula that confirms it, and one that contradicts it."""
    if claim["relation"] == "event":
        return 1.0, 0.0
    low, high = claim["low"] - claim["tolerance"], claim["high"] + claim["tolerance"]
    if claim["relation"] == "at_least":
        return 2 * low, low / 2
    return (math.sqrt(low * high) if low > 0 else high / 2), 2 * high


def reaching(formula, value):
    """Return values of a formula's quantities at which it has this value."""
    names = claims.names_in(formula)
    numbers = {name: 1.0 + place for place, name in enumerate(names)}
    compute = eval(f"lambda {', '.join(names)}: {formula}", {"hours_to_pay": prices.hours_to_pay})
    if value in (0, 1) and len(names) == 1:
        return {names[0]: next(each for each in (0.0, 1.0) if compute(each) == value)}
    varied = next(name for name in names if not name.startswith("other_"))
    changed = lambda log: numbers | {varied: math.exp(log)}  # noqa: E731
    root = optimize.brentq(lambda log: compute(**changed(log)) - value, -40, 40)
    return changed(root)


def narrowest(name, value):
    """Return a quantity's value and bounds: the sessions' parts alone, if it has any."""
    parts = 0 if value in (0, 1) else sum(claims.RATES[w] for w in claims.RATES if w in name)
    width = math.exp(intervals.half_width(parts * intervals.UNPAIRED.session**2, math.inf, 1))
    return value, value / width, value * width, "interval" if parts else "rounding"


def test_each_claim_can_be_contradicted_and_confirmed_unless_it_says_never(published, printed):
    chips = printed.drop_duplicates("machine").set_index("machine")["chip"]
    judgeable = published[published["machine"].ne("") & published["unjudged"].eq("")]
    for claim in judgeable.to_dict("records"):
        own = printed[printed["machine"].isin([claim["machine"], claim["other"]])][QUANTITY]
        machine = " / ".join(f"{claim[role]} here" for role in ("machine", "other") if claim[role])
        verdicts = []
        for value in wanted(claim):
            lines = own.values.tolist()
            for name, number in reaching(claim["formula"], value).items():
                role = "other" if name.startswith("other_") else "machine"
                head = (f"{claim[role]} here", chips[claim[role]], "measured")
                lines.append((*head, name.removeprefix("other_"), *narrowest(name, number)))
            found = judged(lines, **claim)
            verdicts += [verdict for (name, _), verdict in found.items() if name == machine]
        confirmed = claims.CONFIRMED if claims.can_be_confirmed(claim) else claims.UNDECIDED
        assert verdicts == [confirmed, claims.CONTRADICTED], claim["id"]


def test_two_values_of_one_quantity_decide_nothing():
    first, second = (machine("m1b", "Apple M1", "measured", *rates) for rates in (SLOW, FAST))
    for both in ((first, second), (second, first)):
        line = outcome(PUBLISHED, *both)
        assert line["outcome"] == claims.UNDECIDED
        assert "more than one value of accelerator_seconds, cpu_seconds" in line["why"]


def test_a_claim_that_no_measurement_can_judge_says_so_and_asks_for_no_machine():
    for measured in ((), machine("m1b", "Apple M1", "measured", *SLOW)):
        line = outcome(PUBLISHED, measured, unjudged="nothing here measures it")
        assert (line["outcome"], line["why"]) == (
            claim_outcomes.OUT_OF_REACH,
            "Nothing here measures it.",
        )
        assert line["holds"] == claims.HOLDS
