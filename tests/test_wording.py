"""Numbers and hedges as a reader says them."""

import numpy
import pandas
import pytest

from benchbook.judging import wording
from benchbook.judging.verdicts import Verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (78.54, "79"), (9.96, "10"), (0.517, "0.52"), (99.7, "100"), (100.6, "101"), (1093.1, "1,090"),
        (17710.0, "17,700"), (183_532_752.0, "184 million"), (999_900.0, "1.0 million"), (0, "0"), (-0.0304, "-0.030"),
        (1, "1.0"),
    ],
)  # fmt: skip
def test_a_number_has_two_or_three_significant_digits(value, text):
    assert wording.number(value) == text


def test_a_number_is_never_further_off_than_its_digits_allow():
    for value in numpy.geomspace(1e-4, 1e6, 500):
        said = float(wording.number(value).replace(",", "").replace(" million", "e6"))
        assert said == pytest.approx(value, rel=0.051 if value < 100 else 0.0051)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0054, "5.4 ms"), (46.2, "46 s"), (3012, "50 min"), (263_728.9, "3.1 days"), (31_000, "8.6 h"), (0, "0 s")],
)
def test_a_time_has_the_unit_that_fits(seconds, text):
    assert wording.duration(seconds) == text


def test_a_time_has_as_many_digits_as_asked_for_and_may_be_missing():
    said = [wording.duration(seconds, 3) for seconds in (0.0123, 119, 120, 32_760)]
    assert said == ["12.3 ms", "119 s", "2.00 min", "9.10 h"]
    assert wording.duration(numpy.nan) == "not known yet"


def test_a_rate_a_price_and_bounds_have_one_form_each():
    assert [wording.rate(rate) for rate in (1093.1, 10, 9.96, 0.517)] == ["1,093", "10", "10", "0.52"]
    prices = [wording.price(dollars) for dollars in (0.00057, 2.489, 26.9, 1234.5)]
    assert prices == ["under $0.01", "$2.49", "$27", "$1,230"]
    assert wording.price(2.489, 3) == "$2.49"
    assert [wording.count(number, "window") for number in (1, 6)] == ["1 window", "6 windows"]
    assert wording.bounds(0.1234, 20, "interval") == "95 % interval 0.12 to 20"
    assert wording.bounds(1, 2, "range") == "range 1.0 to 2.0"


def test_a_span_names_its_unit_once():
    assert wording.span(pandas.Series([0.224, 0.2]), wording.percent) == "20 to 22 %"
    assert wording.span(pandas.Series([29.3, 3558.0]), wording.duration) == "29 s to 59 min"


def test_one_start_and_an_unstable_point_are_hedged_and_a_sound_one_is_not():
    varied = Verdict((("spread", 0.11), ("drift", 0.06), ("thermal",)))
    point = {"num_kernels": 1, "interval": "range", "verdict": varied}
    assert wording.hedged([point]) == " (one start only; its speed varied; it was too hot for full speed)"
    assert wording.hedged([{"num_kernels": 3, "interval": "interval", "verdict": Verdict(), "status": "ok"}]) == ""
    assert "tuning not confirmed" in wording.hedged([{"variant": "tuned, not confirmed"}])
    both = Verdict((("spread", 0.09), ("few_steps", 1, 3)))
    assert wording.hedges({"verdict": both}) == ["its speed varied", "not fully checked against float64"]
    assert wording.hedged([point | {"verdict": None}, {"interval": "range"}]) == " (one start only)"
    assert wording.hedged([{"interval": "range"}], "", "drawn shapes") == " (drawn shapes; few repeats)"


def test_columns_in_which_every_line_is_empty_are_left_out():
    table = pandas.DataFrame({"a": [1, None], "b": [None, None], "c": ["", ""], "d": ["", "x"], "e": [0, 0]})
    assert wording.filled(table).columns.tolist() == ["a", "d", "e"]
    assert wording.filled(table.iloc[:0]).columns.tolist() == table.columns.tolist()
