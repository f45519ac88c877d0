"""Prices, and the epochs to an accuracy."""

import pandas
import pytest

from benchbook.record import articles, estimate


def test_an_accuracy_is_read_off_the_raw_curve_and_never_continued():
    accuracies = [0.1, 0.5, 0.4, 0.6]
    rows = pandas.DataFrame({"phase": "evaluate", "epoch": range(1, 5), "accuracy": accuracies})
    rows = pandas.concat([rows, pandas.DataFrame({"phase": ["train"], "epoch": [1], "accuracy": [0.9]})])
    assert estimate.epochs_to_accuracy(rows, 0.45) == 2
    assert estimate.epochs_to_accuracy(rows, 0.6) == 4
    assert estimate.epochs_to_accuracy(rows, 0.61) is None


@pytest.mark.parametrize(
    ("column", "value", "allowed"),
    [
        ("kind", "gift", "purchase"),
        ("per", "day", "month"),
        ("amount", 0, "above 0"),
        ("currency", "usd", "USD"),
        ("currency", "$", "EUR"),
        ("currency", "", "USD"),
        ("per", "kwh", "hour, month"),
        ("date", "2018-13-01", "to today"),
        ("date", "2018-02-30", "to today"),
        ("date", "20180426", "to today"),
        ("date", "2031-01-01", "to today"),
        ("date", "1918-04-26", "from 2010-01-01"),
        ("date", "", "a day"),
    ],
)
def test_a_price_of_an_unknown_kind_is_refused(tmp_path, column, value, allowed):
    path = tmp_path / "prices.csv"
    articles.prices().assign(**{column: value}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=allowed):
        articles.prices(path)
