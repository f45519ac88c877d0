"""Claims, recomputed by hand from the published figures and judged against made-up machines."""

import itertools

import pandas
import pytest

from benchbook import claims, layout, records
from benchbook.figures import mnist

QUANTITY = ["machine", "chip", "source", "name", "value", "low", "high"]
CLAIM = {
    "id": "speedup",
    "study": "mnist_speedup",
    "article": "an article",
    "sentence": "The GPU is 1.7 times as fast.",
    "machine": "m1",
    "formula": "cpu_seconds / accelerator_seconds",
    "low": 1.695,
    "high": 1.705,
    "unit": "x",
    "relation": "equal",
}


def machine(name, chip, source, cpu, accelerator=None):
    """Return a machine's quantities; each is (value, low, high), one that is None was not measured."""
    named = {"cpu_seconds": cpu, "accelerator_seconds": accelerator}
    return [(name, chip, source, key, *bounds) for key, bounds in named.items() if bounds]


def judged(quantities, **changes):
    table = claims.table(pandas.DataFrame([CLAIM | changes]), pandas.DataFrame(quantities, columns=QUANTITY))
    return {(line["machine"], line["source"]): line["verdict"] for line in table.to_dict("records")}


PUBLISHED = machine("m1", "Apple M1", "published", (33.4, 33.35, 33.45), (19.6, 19.55, 19.65))


def test_the_published_claims_follow_from_the_published_rows():
    rows = records.read(layout.published() / "mnist_speedup.csv")
    table = claims.table(claims.read(layout.published() / "claims.csv"), mnist.quantities(rows)).set_index("id")
    own = table[table["source"] == "published"]
    expected = {
        "mnist-m1-speedup": (33.4 / 19.6, 33.35 / 19.65, 33.45 / 19.55),
        "mnist-p100-speedup": (34.2 / 20.4, 34.15 / 20.45, 34.25 / 20.35),
    }
    assert set(own.index) >= set(expected)
    for claim, numbers in expected.items():
        assert own.loc[claim, ["value", "low", "high"]].tolist() == pytest.approx(numbers, rel=1e-12)
        assert own.loc[claim, "verdict"] == "confirmed"


def test_every_published_claim_is_judged_on_its_own_machine_and_not_measured_without_rows():
    published = claims.read(layout.published() / "claims.csv")
    rows = records.merge(sorted(layout.published().glob("*_*.csv")))
    mnist_claims = published[published["study"] == "mnist_speedup"]
    table = claims.table(mnist_claims, mnist.quantities(rows))
    own = table[table["source"] != "measured"]
    assert own["id"].tolist() == mnist_claims["id"].tolist()
    assert own["machine"].tolist() == mnist_claims["machine"].tolist()
    assert set(table.loc[table["source"] == "measured", "verdict"]) == {claims.NOT_MEASURED}


def test_the_bounds_of_a_formula_are_those_of_all_corners():
    bounds = {"a": (2.0, 1.0, 3.0), "b": (5.0, 4.0, 8.0), "c": (-1.0, -2.0, 0.5)}
    quantities = pandas.DataFrame([(name, *rest) for name, rest in bounds.items()], columns=QUANTITY[3:])
    corners = [a / b - a * c for a, b, c in itertools.product((1.0, 3.0), (4.0, 8.0), (-2.0, 0.5))]
    found = claims.recompute("a / b - a * c", quantities)
    assert found == pytest.approx((2 / 5 + 2, min(corners), max(corners)))


def test_a_quantity_whose_name_is_part_of_another_does_not_disturb_it():
    quantities = pandas.DataFrame([("seconds", 1.0, 0.0, 100.0), ("cpu_seconds", 6.0, 5.0, 7.0)], columns=QUANTITY[3:])
    assert claims.recompute("cpu_seconds * 2", quantities) == (12, 10, 14)


def test_a_formula_with_an_unknown_name_has_no_value():
    quantities = pandas.DataFrame([("cpu_seconds", 6.0, 5.0, 7.0)], columns=QUANTITY[3:])
    assert claims.recompute("cpu_seconds / accelerator_seconds", quantities) is None


@pytest.mark.parametrize(
    ("relation", "low", "high", "verdict"),
    [
        ("equal", 1.60, 1.69, "contradicted"),
        ("equal", 1.60, 1.695, "confirmed"),
        ("equal", 1.00, 3.00, "confirmed"),
        ("equal", 1.70, 1.70, "confirmed"),
        ("equal", 1.705, 1.80, "confirmed"),
        ("equal", 1.71, 1.80, "contradicted"),
        ("at_least", 1.60, 1.69, "contradicted"),
        ("at_least", 1.60, 1.70, "confirmed"),
        ("at_least", 1.71, 9.00, "confirmed"),
    ],
)
def test_a_claim_is_confirmed_where_the_ranges_meet_or_where_more_is_allowed(relation, low, high, verdict):
    assert claims.judge(CLAIM | {"relation": relation}, low, high) == verdict


def test_the_articles_own_machine_comes_first_and_a_measured_one_of_its_chip_is_judged():
    quantities = [
        *machine("a-mini", "Apple M1", "measured", (40.0, 39.0, 41.0), (20.0, 19.0, 21.0)),
        *PUBLISHED,
        *machine("a-book", "Apple M1", "measured", (34.0, 33.0, 35.0), (20.0, 19.0, 21.0)),
    ]
    verdicts = judged(quantities)
    assert list(verdicts.items()) == [
        (("m1", "published"), "confirmed"),
        (("a-book", "measured"), "confirmed"),
        (("a-mini", "measured"), "contradicted"),
    ]


def test_a_published_figure_may_contradict_its_own_article():
    assert judged(PUBLISHED, low=1.85, high=1.95)["m1", "published"] == "contradicted"


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


def test_a_machine_that_lacks_a_quantity_has_not_measured_the_claim():
    quantities = [*PUBLISHED, *machine("a", "Apple M1", "measured", (34.0, 33.0, 35.0))]
    assert judged(quantities)["a", "measured"] == claims.NOT_MEASURED


def test_a_claim_that_nobody_measured_says_so():
    assert judged(PUBLISHED) == {("m1", "published"): "confirmed", ("", "measured"): claims.NOT_MEASURED}
    assert judged([]) == {("", "measured"): claims.NOT_MEASURED}


def test_a_measured_machine_that_is_named_like_the_articles_does_not_replace_it():
    quantities = [*PUBLISHED, *machine("m1", "Apple M1", "measured", (60.0, 60.0, 60.0), (20.0, 20.0, 20.0))]
    assert judged(quantities) == {("m1", "published"): "confirmed", ("m1", "measured"): "contradicted"}


def test_the_claimed_range_is_shown_with_its_unit():
    table = claims.table(pandas.DataFrame([CLAIM]), pandas.DataFrame(PUBLISHED, columns=QUANTITY))
    assert set(table["published"]) == {"1.695 to 1.705 x"}
    assert set(table["sentence"]) == {CLAIM["sentence"]}


@pytest.mark.parametrize("change", [{"relation": "about"}, {"low": 1.8}])
def test_a_claim_with_an_unknown_relation_or_bounds_in_the_wrong_order_is_refused(tmp_path, change):
    path = tmp_path / "claims.csv"
    pandas.DataFrame([CLAIM, CLAIM | {"id": "odd"} | change]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"claims\.csv: claim odd: allowed are relation equal or at_least"):
        claims.read(path)
