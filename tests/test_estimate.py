"""Money, by hand and as the articles print it."""

import math

import pandas
import pytest

from benchbook.record import articles, estimate

IMAGENET = 1_281_167


@pytest.fixture(scope="module")
def rows():
    published = articles.rows()
    return published[published["study"] == "resnet50_cost"]


@pytest.fixture(scope="module")
def prices():
    table = articles.prices()
    return {(line["machine"], line["kind"]): line for line in table.to_dict("records")}


def rate(rows, machine, dataset):
    timed = rows[(rows["machine"] == machine) & (rows["dataset"] == dataset) & (rows["framework"] == "tensorflow")]
    return float(timed["samples_per_second"].dropna().iloc[0])


@pytest.mark.parametrize(
    ("machine", "accuracy", "kind", "hours", "dollars"),
    [  # as printed, or as figures.csv derives it
        ("cloud-tpu-v2-8", 0.757, "on_demand", 8.15, 55),
        ("cloud-tpu-v2-8", 0.764, "on_demand", 10.95, 73),
        ("aws-p3-8xlarge", 0.757, "on_demand", 10.53, 128.5),
        ("aws-p3-8xlarge", 0.757, "reserved", 10.53, 87.8),
    ],
)
def test_the_articles_hours_and_cost_to_an_accuracy_come_out(rows, prices, machine, accuracy, kind, hours, dollars):
    epochs = estimate.epochs_to_accuracy(rows[rows["machine"] == machine], accuracy)
    found = estimate.run_hours(epochs, IMAGENET, rate(rows, machine, "imagenet"))
    assert round(found, 2) == hours
    assert round(found * estimate.hourly(prices[machine, kind]), 1 if machine.startswith("aws") else 0) == dollars


def test_the_articles_images_a_second_for_each_dollar_an_hour_come_out(rows, prices):
    gpu = rate(rows, "aws-p3-8xlarge", "synthetic")
    reserved = estimate.hourly(prices["aws-p3-8xlarge", "reserved"])
    assert round(gpu / reserved) == 375
    # The two that the article did not print, as figures.csv lists them.
    on_demand = estimate.hourly(prices["aws-p3-8xlarge", "on_demand"])
    assert round(gpu / on_demand, 1) == 256.4
    tpu = rate(rows, "cloud-tpu-v2-8", "synthetic")
    assert round(tpu / estimate.hourly(prices["cloud-tpu-v2-8", "on_demand"]), 1) == 475.5


def test_a_month_is_a_twelfth_of_a_year(prices):
    assert estimate.hourly(prices["cirrascale-4xv100", "reserved"]) == pytest.approx(7500 * 12 / 8760)
    with pytest.raises(ValueError, match="'kwh'; allowed: hour, month"):
        estimate.hourly({"amount": 0.3, "per": "kwh"})


def test_a_million_images_at_a_thousand_a_second_take_a_thousand_seconds():
    assert estimate.cost_per_million(1000, 3.6) == pytest.approx(1.0)
    # 360 W for 1,000 s are 0.1 kWh.
    assert estimate.cost_per_million(1000, estimate.electricity(360, per_kwh=0.3)) == pytest.approx(0.03)


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


def test_a_price_in_another_currency_is_no_price_in_dollars():
    listed = articles.prices()
    euros = listed.assign(currency="EUR")
    assert estimate.price_of_hour("cloud-tpu-v2-8", None, estimate.on_demand(listed)) == 6.7
    assert math.isnan(estimate.price_of_hour("cloud-tpu-v2-8", None, estimate.on_demand(euros)))
    assert estimate.in_dollars(euros).empty


@pytest.mark.parametrize(("boundary", "words"), [("board", "GPU's board alone"), ("soc", "chip"), ("wall", "")])
def test_electricity_that_was_not_read_at_the_wall_says_what_it_leaves_out(boundary, words):
    note = estimate.wall_note(boundary)
    assert words in note
    assert bool(note) == (boundary != "wall")


def test_every_published_price_has_a_source_a_date_and_says_what_it_includes():
    table = articles.prices()
    assert (table[["machine", "currency", "includes", "date", "source"]] != "").all(axis=None)
