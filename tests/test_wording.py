"""Numbers and doubts as a reader says them."""

import numpy
import pandas
import pytest
import yaml

from benchbook.judging import wording

# A function of wording, what it is given, and what it says.
FORMS = yaml.safe_load("""
- [number, [78.54], "79"]
- [number, [9.96], "10"]
- [number, [0.517], "0.52"]
- [number, [99.7], "100"]
- [number, [100.6], "101"]
- [number, [1093.1], "1,090"]
- [number, [17710.0], "17,700"]
- [number, [183532752.0], 184 million]
- [number, [999900.0], 1.0 million]
- [number, [0], "0"]
- [number, [-0.0304], "-0.030"]
- [number, [1], "1.0"]
- [duration, [0.0054], 5.4 ms]
- [duration, [46.2], 46 s]
- [duration, [3012], 50 min]
- [duration, [263728.9], 3.1 days]
- [duration, [31000], 8.6 h]
- [duration, [0], 0 s]
- [duration, [.nan], not known yet]
- [rate, [1093.1], "1,093"]
- [rate, [10], "10"]
- [rate, [9.96], "10"]
- [rate, [0.517], "0.52"]
- [four_digits, [0.51725], "0.5172"]
- [four_digits, [78.54], "78.54"]
- [four_digits, [12345.6], "12,346"]
- [four_digits, [0], "0"]
- [price, [0.00057], under $0.01]
- [price, [2.489], $2.49]
- [price, [26.9], $27]
- [price, [1234.5], "$1,230"]
- [price, [2.489, 3], $2.49]
- [count, [1, window], 1 window]
- [count, [6, window], 6 windows]
- [quantity, [[0.0062, 0.0042, 0.0093], s], [6.2 ms, "4.2", "9.3"]]
- [quantity, [[0.0062, 0.0042, 0.0093], "%"], [0.62 %, "0.42", "0.93"]]
- [quantity, [[0.49, 6.75], minutes, 3], [0.49 minutes, "6.75"]]
- [quantity, [[0.49, 6.75], $, 3], [$0.49, $6.75]]
- [quantity, [[0.0872, 0.0901], hours, 3], [5.23 minutes, "5.41"]]
- [quantity, [[0.0872, 0.0901], images, 3], [0.0872 images, "0.0901"]]
- [quantity, [[2.0e+15], TFLOP/s], ["2,000 TFLOP/s"]]
- [quantity, [[999.7e+9], TFLOP/s], [1.0 TFLOP/s]]
- [quantity, [[5.9e+10], TFLOP/s], [0.059 TFLOP/s]]
- [quantity, [[0], TFLOP/s], [0 TFLOP/s]]
- [bounds, [1, 20, interval], 95 % interval 1.0 to 20]
- [bounds, [1, 20, range], range 1.0 to 20]
- [half_width, [{low: 1.0, high: 1.21}], ±10%]
- [half_width, [{low: 1.0, high: 16.0}], over ±100%]
""")


@pytest.mark.parametrize(("say", "given", "text"), FORMS)
def test_a_quantity_has_one_form(say, given, text):
    assert getattr(wording, say)(*given) == text


def test_a_span_has_its_unit_once():
    assert wording.span(pandas.Series([0.224, 0.2]), wording.percent) == "20 to 22 %"
    assert wording.span(pandas.Series([29.3, 3558.0]), wording.duration) == "0.48 to 59 min"


def test_a_number_is_never_further_off_than_its_digits_allow():
    for value in numpy.geomspace(1e-4, 1e6, 500):
        said = float(wording.number(value).replace(",", "").replace(" million", "e6"))
        assert said == pytest.approx(value, rel=0.051 if value < 100 else 0.0051)


def test_columns_in_which_every_line_is_empty_are_left_out():
    lines = {"a": [1, None], "b": [None, None], "c": ["", ""], "d": ["", "x"], "e": [0, 0]}
    table = pandas.DataFrame(lines)
    assert [*wording.filled(table)] == ["a", "d", "e"]
    assert [*wording.filled(table[:0])] == [*table]
