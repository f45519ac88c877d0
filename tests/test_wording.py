"""Numbers and doubts as a reader says them."""

import numpy
import pandas
import pytest

from benchbook.judging import wording
from benchbook.judging.verdicts import Verdict

NUMBERS = {
    78.54: "79",
    9.96: "10",
    0.517: "0.52",
    99.7: "100",
    100.6: "101",
    1093.1: "1,090",
    17710.0: "17,700",
}
NUMBERS |= {
    183_532_752.0: "184 million",
    999_900.0: "1.0 million",
    0: "0",
    -0.0304: "-0.030",
    1: "1.0",
}
TIMES = {
    0.0054: "5.4 ms",
    46.2: "46 s",
    3012: "50 min",
    263_728.9: "3.1 days",
    31_000: "8.6 h",
    0: "0 s",
}
TIMES |= {numpy.nan: "not known yet"}
RATES = {1093.1: "1,093", 10: "10", 9.96: "10", 0.517: "0.52"}
PRICES = {0.00057: "under $0.01", 2.489: "$2.49", 26.9: "$27", 1234.5: "$1,230"}


@pytest.mark.parametrize(
    ("say", "texts"),
    [
        (wording.number, NUMBERS),
        (wording.duration, TIMES),
        (wording.rate, RATES),
        (wording.four_digits, {0.51725: "0.5172", 78.54: "78.54", 12_345.6: "12,346", 0: "0"}),
        (wording.price, PRICES),
        (lambda dollars: wording.price(dollars, 3), {2.489: "$2.49"}),
        (lambda number: wording.count(number, "window"), {1: "1 window", 6: "6 windows"}),
        (
            lambda unit: wording.quantity([0.0062, 0.0042, 0.0093], unit),
            {"s": ["6.2 ms", "4.2", "9.3"], "%": ["0.62 %", "0.42", "0.93"]},
        ),
        (
            lambda unit: wording.quantity([0.49, 6.75], unit, 3),
            {"minutes": ["0.49 minutes", "6.75"], "$": ["$0.49", "$6.75"]},
        ),
        (
            lambda unit: wording.quantity([0.0872, 0.0901], unit, 3),
            {"hours": ["5.23 minutes", "5.41"], "images": ["0.0872 images", "0.0901"]},
        ),
        (
            lambda kind: wording.bounds(1, 20, kind),
            {"interval": "95 % interval 1.0 to 20", "range": "range 1.0 to 20"},
        ),
        (
            lambda low: wording.span(pandas.Series([0.224, low]), wording.percent),
            {0.2: "20 to 22 %"},
        ),
        (
            lambda high: wording.half_width({"low": 1.0, "high": high}),
            {1.21: "±10%", 16.0: "over ±100%"},
        ),
        (
            lambda low: wording.span(pandas.Series([low, 3558.0]), wording.duration),
            {29.3: "0.48 to 59 min"},
        ),
    ],
)
def test_a_quantity_has_one_form(say, texts):
    assert {value: say(value) for value in texts} == texts


def test_a_number_is_never_further_off_than_its_digits_allow():
    for value in numpy.geomspace(1e-4, 1e6, 500):
        said = float(wording.number(value).replace(",", "").replace(" million", "e6"))
        assert said == pytest.approx(value, rel=0.051 if value < 100 else 0.0051)


def test_one_start_and_an_unstable_point_are_doubted_and_a_sound_one_is_not():
    varied = Verdict((("spread", 0.11), ("drift", 0.06), ("thermal",), ("few_steps", 1, 3)))
    said = ["one process", "its speed varied", "it was too hot for full speed"]
    assert wording.doubts({"interval": "range", "verdict": varied}) == said
    assert wording.doubts({"interval": "interval", "verdict": Verdict(), "status": "ok"}) == []
    assert wording.doubts({"variant": "tuned, not confirmed"}) == ["tuning not confirmed"]


def test_columns_in_which_every_line_is_empty_are_left_out():
    table = pandas.DataFrame(
        {"a": [1, None], "b": [None, None], "c": ["", ""], "d": ["", "x"], "e": [0, 0]}
    )
    assert wording.filled(table).columns.tolist() == ["a", "d", "e"]
    assert wording.filled(table.iloc[:0]).columns.tolist() == table.columns.tolist()
