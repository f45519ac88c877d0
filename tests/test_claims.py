"""Claims, recomputed by hand from the published figures and judged against made-up machines."""

import itertools

import numpy
import pandas
import pytest

from benchbook import studies
from benchbook.judging import intervals
from benchbook.judging.intervals import Interval, Prior
from benchbook.machine import layout
from benchbook.record import articles, claims, naming
from benchbook.report import claims_chart
from benchbook.studies import quantities
from benchbook.studies.study import Evidence

QUANTITY = ["machine", "chip", "source", "name", "value", "low", "high", "interval"]
CLAIM = {
    "id": "speedup",
    "study": "mnist_speedup",
    "article": "an article",
    "sentence": "The GPU is 1.7 times as fast.",
    "machine": "m1",
    "other": "",
    "formula": "cpu_seconds / accelerator_seconds",
    "low": 1.695,
    "high": 1.705,
    "tolerance": 0.0,
    "unit": "x",
    "relation": "equal",
    "reason": "",
}


def machine(name, chip, source, cpu, accelerator=None):
    """Return a machine's quantities; each is (value, low, high), one that is None was not measured."""
    named = {"cpu_seconds": cpu, "accelerator_seconds": accelerator}
    kind = "interval" if source == "measured" else "rounding"
    return [(name, chip, source, key, *bounds, kind) for key, bounds in named.items() if bounds]


def judged(quantities, **changes):
    table = claims.table(pandas.DataFrame([CLAIM | changes]), pandas.DataFrame(quantities, columns=QUANTITY))
    return {(line["machine"], line["source"]): line["verdict"] for line in table.to_dict("records")}


PUBLISHED = machine("m1", "Apple M1", "published", (33.4, 33.35, 33.45), (19.6, 19.55, 19.65))


# By hand: value, then what the printed digits leave open, at its lowest and at its highest.
HOURS = 1_281_167 / 3600
RECOMPUTED = {
    "mnist-m1-speedup": (33.4 / 19.6, 33.35 / 19.65, 33.45 / 19.55),
    "mnist-p100-speedup": (34.2 / 20.4, 34.15 / 20.45, 34.25 / 20.35),
    "mnist-m1-like-p100": (19.6 / 20.4, 19.55 / 20.45, 19.65 / 20.35),
    "mnist-p100-slower": (20.4 / 19.6, 20.35 / 19.65, 20.45 / 19.55),
    "vae-first-loss": (550.842529, 550.8425285, 550.8425295),
    "vae-falls": (330.613251, 330.6132505, 330.6132515),
    "vae-rises": (4705.016602, 4705.0166015, 4705.0166025),
    "vae-explodes": (183532752, 183532751.5, 183532752.5),
    "vae-diverges": (1, 1, 1),
    "mobilenet-crash": (1, 1, 1),
    "simclr-gpu-epoch": (6.75, 13.45 / 2, 13.55 / 2),
    "simclr-cpu-epoch": (59.3, 118.55 / 2, 118.65 / 2),
    "simclr-a6000-epoch": (0.4885, 97.65 / 200, 97.75 / 200),
    "simclr-gpu-over-cpu": (59.3 / 6.75, 59.25 / 6.755, 59.35 / 6.745),
    "simclr-a6000": (6.75 / 0.49, 6.745 / 0.495, 6.755 / 0.485),
    "simclr-knn": (84.7, 84.65, 84.75),
    "simclr-memory": (1.5, 1.45, 1.55),
    "segmentation-hours": (32800 / 60, 32750 / 60, 32850 / 60),
    "segmentation-m1-max-guess": (82, 327.5 / 4, 328.5 / 4),
    "segmentation-m1-max-rtx": (82 / 24.6, 81.5 / 32.8, 82.5 / 16.4),
    "resnet-tpu-two-percent": (318600 / 3128 - 100, 318550 / 3128.5 - 100, 318650 / 3127.5 - 100),
    "resnet-mxnet-tpu": (328000 / 3186 - 100, 327500 / 3186.5 - 100, 328500 / 3185.5 - 100),
    "resnet-mxnet-tensorflow": (328000 / 3128 - 100, 327500 / 3128.5 - 100, 328500 / 3127.5 - 100),
    "resnet-tpu-accuracy": (76.4, 76.35, 76.45),
    "resnet-tpu-epochs": (86, 86, 86),
    "resnet-gpu-accuracy": (75.7, 75.65, 75.75),
    "resnet-gpu-epochs": (84, 84, 84),
    "resnet-accuracy-gap": (0.7, 0.6, 0.8),
    "resnet-epochs-757": (64, 64, 64),
    "resnet-nine-hours": (64 * HOURS / 2796, 64 * HOURS / 2796.5, 64 * HOURS / 2795.5),
    "resnet-cost-75.7": (64 * HOURS / 2796 * 6.7, 64 * HOURS / 2796.5 * 6.65, 64 * HOURS / 2795.5 * 6.75),
    "resnet-cost-76.4": (86 * HOURS / 2796 * 6.7, 86 * HOURS / 2796.5 * 6.65, 86 * HOURS / 2795.5 * 6.75),
    "simclr-vgg16-parameters": (138.357544,) * 3,
    "simclr-vgg16-operations": (15.47,) * 3,
    "simclr-resnet18-parameters": (11.689512,) * 3,
    "simclr-resnet18-operations": (1814,) * 3,
    "simclr-resnet50-parameters": (25.557032,) * 3,
    "simclr-resnet50-operations": (4089,) * 3,
    "segmentation-parameters": (20886706,) * 3,
    "resnet-gpu-real-data": (2839 / 2796, 2838.5 / 2796.5, 2839.5 / 2795.5),
    "resnet-gpu-cost-75.7": (84 * HOURS / 2839 * 12.2, 84 * HOURS / 2839.5 * 12.15, 84 * HOURS / 2838.5 * 12.25),
    "resnet-gpu-cost-75.7-reserved": (
        84 * HOURS / 2839 * 8.34,
        84 * HOURS / 2839.5 * 8.335,
        84 * HOURS / 2838.5 * 8.345,
    ),
    "resnet-slightly-better-on-demand": (
        3186 / 6.7 / (3128 / 12.2),
        3185.5 / 6.75 / (3128.5 / 12.15),
        3186.5 / 6.65 / (3127.5 / 12.25),
    ),
    "resnet-slightly-better-reserved": (
        3186 / 6.7 / (3128 / 8.34),
        3185.5 / 6.75 / (3128.5 / 8.335),
        3186.5 / 6.65 / (3127.5 / 8.345),
    ),
    "resnet-cirrascale": (7500 / 730, 7499.5 / 730, 7500.5 / 730),
}


FAILS = {"resnet-mxnet-tensorflow", "resnet-slightly-better-on-demand"}
CONTRADICTED_COUNTS = {"simclr-resnet18-operations", "simclr-resnet50-operations"}


@pytest.fixture(scope="module")
def published():
    return claims.read(layout.published() / "claims.csv")


@pytest.fixture(scope="module")
def printed():
    return quantities.gather(Evidence(articles.rows()), studies.every().values())


def test_a_claim_follows_from_the_published_rows_or_says_why_it_cannot(published, printed):
    table = claims.table(published, printed)
    own = table[table["source"] != "measured"].set_index("id")
    assert own.index.tolist() == published["id"].tolist()
    reasons = published.set_index("id")["reason"]
    assert set(reasons[reasons == ""].index) == set(RECOMPUTED)
    for claim, numbers in RECOMPUTED.items():
        assert own.loc[claim, ["value", "low", "high"]].tolist() == pytest.approx(numbers, rel=1e-9), claim
        if own.loc[claim, "source"] == "counted":
            assert own.loc[claim, "verdict"] == ("contradicted" if claim in CONTRADICTED_COUNTS else "confirmed")
        else:
            expected = "arithmetic does not hold" if claim in FAILS else "arithmetic holds"
            assert own.loc[claim, "verdict"] == expected, claim
    alone = own[own["reason"].eq(claims.DERIVED_REASON)]
    assert alone.index.tolist() == ["segmentation-m1-max-rtx"]
    unknown = own.loc[reasons[reasons != ""].index]
    assert set(unknown["verdict"]) == {claims.NOT_RECOMPUTED}
    assert unknown["value"].isna().all()
    assert unknown["reason"].tolist() == reasons[reasons != ""].tolist()


def test_a_claim_with_a_reason_has_no_published_ends_or_they_come_from_itself(published, printed):
    for claim in published[published["reason"] != ""].to_dict("records"):
        groups = dict(iter(printed.groupby("machine")))
        other = groups.get(claim["other"], printed[:0])
        both = pandas.concat([groups.get(claim["machine"], printed[:0]), other.assign(name="other_" + other["name"])])
        if claims.recompute(claim["formula"], both) is not None:  # to recompute it would go in a circle
            assert "derived from this sentence" in claim["reason"], claim["id"]


def test_every_claim_is_of_one_of_the_articles_and_has_a_name_of_its_own(published):
    assert len(published) == 64
    assert published["id"].is_unique
    assert published["article"].nunique() == 6
    assert set(published["study"]) <= {path.stem for path in layout.published_rows()}


def test_nothing_measured_leaves_every_claim_not_measured_here(published, printed):
    measured = claims.table(published, printed)
    assert set(measured.loc[measured["source"] == "measured", "verdict"]) == {claims.NOT_MEASURED}


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


def test_a_formula_with_an_unknown_name_has_no_value():
    quantities = pandas.DataFrame([("cpu_seconds", 6.0, 5.0, 7.0, "rounding")], columns=QUANTITY[3:])
    assert claims.recompute("cpu_seconds / accelerator_seconds", quantities) is None


@pytest.mark.parametrize(
    ("relation", "low", "high", "verdict"),
    [
        ("equal", 1.60, 1.69, "arithmetic does not hold"),
        ("equal", 1.60, 1.695, "arithmetic holds"),
        ("equal", 1.00, 3.00, "arithmetic holds"),
        ("equal", 1.70, 1.70, "arithmetic holds"),
        ("equal", 1.705, 1.80, "arithmetic holds"),
        ("equal", 1.71, 1.80, "arithmetic does not hold"),
        ("at_least", 1.60, 1.69, "arithmetic does not hold"),
        ("at_least", 1.60, 1.70, "arithmetic holds"),
        ("at_least", 1.71, 9.00, "arithmetic holds"),
    ],
)
def test_an_articles_arithmetic_holds_where_the_ranges_meet_or_where_more_is_allowed(relation, low, high, verdict):
    assert claims.judge_arithmetic(CLAIM | {"relation": relation}, low, high) == verdict


@pytest.mark.parametrize(
    ("relation", "low", "high", "verdict"),
    [
        ("equal", 1.60, 1.80, "confirmed"),
        ("equal", 1.594, 1.70, "undecided"),
        ("equal", 1.70, 1.81, "undecided"),
        ("equal", 0.20, 7.50, "undecided"),
        ("equal", 1.00, 1.594, "contradicted"),
        ("equal", 1.81, 1.90, "contradicted"),
        ("at_least", 1.60, 90.0, "confirmed"),
        ("at_least", 1.50, 90.0, "undecided"),
        ("at_least", 1.50, 1.59, "contradicted"),
    ],
)
def test_a_measurement_confirms_with_its_whole_interval(relation, low, high, verdict):
    claim = CLAIM | {"relation": relation, "tolerance": 0.1}
    assert claims.judge(claim, Interval((low + high) / 2, low, high, "interval")) == verdict
    assert claims.judge(claim, Interval((low + high) / 2, low, high, "range")) == "undecided"


@pytest.mark.parametrize(("truth", "most"), [(1.70, 0.05), (1.30, 1.0)])
def test_a_true_claim_is_seldom_contradicted_and_a_false_one_seldom_confirmed(truth, most):
    random, words = numpy.random.default_rng(5), []
    for _ in range(100):
        ends = []
        for rate in (truth, 1.0):
            levels = numpy.repeat(numpy.log(rate) + 0.05 * random.normal(size=3), 6)
            ends.append(intervals.interval(numpy.exp(levels), numpy.repeat([0, 1, 2], 6), Prior(0.05**2, 10.0, 0.1)))
        words.append(claims.judge(CLAIM | {"tolerance": 0.17}, intervals.divide(*ends)))
    assert words.count("contradicted") <= most * len(words)
    assert words.count("confirmed") <= (1.0 if truth == 1.70 else 0.05) * len(words)


def test_the_articles_own_machine_comes_first_and_a_measured_one_of_its_chip_is_judged():
    quantities = [
        *machine("a-mini", "Apple M1", "measured", (40.0, 39.0, 41.0), (20.0, 19.0, 21.0)),
        *PUBLISHED,
        *machine("a-book", "Apple M1", "measured", (34.0, 33.0, 35.0), (20.0, 19.0, 21.0)),
    ]
    verdicts = judged(quantities)
    assert list(verdicts.items()) == [
        (("m1", "published"), "arithmetic holds"),
        (("a-book", "measured"), "undecided"),
        (("a-mini", "measured"), "contradicted"),
    ]
    assert judged(quantities, tolerance=0.2)["a-book", "measured"] == "confirmed"


def test_a_published_figure_may_contradict_its_own_article():
    assert judged(PUBLISHED, low=1.85, high=1.95)["m1", "published"] == "arithmetic does not hold"


def test_a_machine_of_another_chip_is_shown_but_not_judged():
    quantities = [*PUBLISHED, *machine("new", "Apple M4", "measured", (9.0, 9.0, 9.0), (3.0, 3.0, 3.0))]
    table = claims.table(pandas.DataFrame([CLAIM]), pandas.DataFrame(quantities, columns=QUANTITY))
    line = table.set_index("machine").loc["new"]
    assert line[["value", "low", "high"]].tolist() == [3, 3, 3]
    assert line["verdict"].startswith("not comparable")


def test_without_the_articles_figures_no_chip_is_comparable():
    verdicts = judged(machine("a", "Apple M1", "measured", (34.0, 33.0, 35.0), (20.0, 19.0, 21.0)))
    assert list(verdicts) == [("a", "measured")]
    assert verdicts["a", "measured"].startswith("not comparable")


def test_a_machine_that_lacks_a_quantity_has_no_line_of_its_own():
    lacking = machine("a", "Apple M1", "measured", (34.0, 33.0, 35.0))
    whole = machine("b", "Apple M1", "measured", (34.0, 33.0, 35.0), (20.0, 19.0, 21.0))
    assert judged([*PUBLISHED, *lacking])["", "measured"] == claims.NOT_MEASURED
    assert set(judged([*PUBLISHED, *lacking, *whole])) == {("m1", "published"), ("b", "measured")}


def test_a_claim_that_nobody_measured_says_so():
    assert judged(PUBLISHED) == {("m1", "published"): "arithmetic holds", ("", "measured"): claims.NOT_MEASURED}
    assert judged([]) == {("", "measured"): claims.NOT_MEASURED}


def test_a_measured_machine_that_is_named_like_the_articles_does_not_replace_it():
    quantities = [*PUBLISHED, *machine("m1", "Apple M1", "measured", (60.0, 60.0, 60.0), (20.0, 20.0, 20.0))]
    assert judged(quantities) == {("m1", "published"): "arithmetic holds", ("m1", "measured"): "contradicted"}


TWO = {"machine": "m1", "other": "a6000", "formula": "cpu_seconds / other_cpu_seconds", "low": 3.0, "high": 3.5}
BOTH = [*PUBLISHED, *machine("a6000", "A6000", "published", (10.0, 9.95, 10.05))]


def test_a_claim_about_two_machines_takes_both_and_names_both():
    table = claims.table(pandas.DataFrame([CLAIM | TWO]), pandas.DataFrame(BOTH, columns=QUANTITY))
    line = table.set_index("machine").loc["m1 / a6000"]
    assert line[["value", "low", "high"]].tolist() == pytest.approx([3.34, 33.35 / 10.05, 33.45 / 9.95])
    assert line["verdict"] == "arithmetic holds"


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


def test_a_claim_about_two_machines_of_which_one_was_not_printed_has_no_verdict_of_its_own():
    assert judged(PUBLISHED, **TWO)["m1 / a6000", "published"] == claims.NOT_MEASURED


@pytest.mark.parametrize(("happened", "verdict"), [(1.0, "confirmed"), (0.0, "contradicted")])
def test_an_event_is_confirmed_where_it_happened(happened, verdict):
    event = {"formula": "diverged", "low": 1, "high": 1, "relation": "event"}
    lines = [
        ("m1", "Apple M1", source, "diverged", *(value,) * 3, "rounding")
        for source, value in (("published", 1.0), ("measured", happened))
    ]
    found = judged(lines, **event)
    assert found == {("m1", "published"): "arithmetic holds", ("m1", "measured"): verdict}


@pytest.mark.parametrize(("relation", "shown"), [("at_least", "at least 1.695 x"), ("event", "that it happens")])
def test_a_claim_of_another_relation_is_shown_in_words(relation, shown):
    table = claims.table(pandas.DataFrame([CLAIM | {"relation": relation}]), pandas.DataFrame(columns=QUANTITY))
    assert set(table["published"]) == {shown}


def test_the_claimed_range_is_shown_with_its_unit():
    table = claims.table(pandas.DataFrame([CLAIM]), pandas.DataFrame(PUBLISHED, columns=QUANTITY))
    assert set(table["published"]) == {"1.695 to 1.705 x"}
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
    return claims_chart.outcomes(table, NAMES).iloc[0]


SLOW, FAST = ((34.0, 33.99, 34.01), (20.0, 19.99, 20.01)), ((34.0, 33.9, 34.1), (10.0, 9.9, 10.1))


def test_a_claim_is_out_of_reach_until_its_chip_was_measured():
    line = outcome(PUBLISHED)
    assert (line["outcome"], line["why"]) == (claims_chart.OUT_OF_REACH, "It takes an Apple M1.")
    assert line["arithmetic"] == claims.HOLDS
    other = outcome(PUBLISHED, machine("mine", "AMD EPYC", "measured", *SLOW))
    assert other["outcome"] == claims_chart.OUT_OF_REACH
    assert "another chip" in other["why"]


def test_a_measurement_decides_and_machines_that_disagree_do_not():
    good, bad = (machine(name, "Apple M1", "measured", *rates) for name, rates in (("m1", SLOW), ("m1b", FAST)))
    confirmed = outcome(PUBLISHED, good)
    assert confirmed["outcome"] == claims.CONFIRMED
    assert "Apple M1" in confirmed["why"]
    assert "1.7" in confirmed["why"]
    assert outcome(PUBLISHED, bad)["outcome"] == claims.CONTRADICTED
    assert outcome(PUBLISHED, good, bad)["outcome"] == claims.UNDECIDED


def test_the_picture_has_every_claim_under_what_is_to_be_made_of_it():
    drawing = claims_chart.CHART.draw(Evidence(articles.rows()))
    printed = claims.read(layout.published() / "claims.csv")
    assert set(drawing.table["id"]) == set(printed["id"])
    counts, written = drawing.figure.axes
    texts = " ".join(text.get_text() for text in written.texts).replace("\n", " ")
    assert [words for words in printed["sentence"] if words not in texts] == []
    assert sum(int(text.get_text()) for text in counts.texts) == len(printed)
    looks = claims_chart.LOOKS.values()
    assert len({marker for marker, _ in looks}) == len({colour for _, colour in looks}) == len(claims_chart.OUTCOMES)
