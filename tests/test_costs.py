"""What a task costs on each machine, from rows, record and predictions."""

import re

import pandas
import pytest
import yaml

from benchbook.judging import wording
from benchbook.record import articles, prices
from benchbook.report import costs
from benchbook.studies.results.evidence import Evidence
from made.rows import make_rows, windows


def with_published(lines) -> Evidence:
    return Evidence(pandas.concat([make_rows(lines), articles.rows()], ignore_index=True))


@pytest.fixture(scope="module")
def every():
    """Return the costs of what is published alone."""
    return costs.table(Evidence(articles.rows()), (), {})


def of(every, key, **named):
    """Return the lines of a task whose columns have these values."""
    return list(
        every[
            every["task"].eq(key) & every[list(named)].eq(pandas.Series(named)).all(axis=1)
        ].itertuples()
    )


def test_predictions_follow_as_ranges_for_chips_without_figures(every):
    for task in costs.tasks():
        own = of(every, task.key)
        places = [(line.source == "predicted", line.seconds) for line in own]
        assert places == sorted(places)
        known = {
            (line.chip, line.family)
            for line in own
            if line.source != "predicted" and line.devices == 1
        }
        predicted = [line for line in own if line.source == "predicted"]
        assert not known & {(line.chip, line.family) for line in predicted}
        assert all(line.low < line.seconds < line.high for line in predicted)
        assert all(" to " in line.time and line.time.endswith(", predicted") for line in predicted)
        assert bool(predicted) == (task.key == "resnet50")


def test_a_line_has_memory_what_fits_and_dated_prices(every):
    four, *_ = of(every, "gpt2", name="NVIDIA A100 80GB", family="half")
    assert four.memory_gb == 80
    assert re.match(r"([\d,]+ to |at most )?[\d,]+ sequences? a step|not one ", four.fits)
    one, eight = (
        of(every, "resnet50", chip="NVIDIA H100 80GB SXM", devices=n, family="half")[0]
        for n in (1, 8)
    )
    assert re.search(r"an hour \(\d+ providers, newest 20\d\d-\d\d", one.hour)
    assert re.match(r"\$[\d,]+ \(20\d\d-\d\d", one.buy)
    assert one.hour != eight.hour
    assert (one.buy[-8:], eight.buy[-12:]) == (", module", ", 8 x module")
    assert one.pays == eight.pays
    assert one.rent.startswith("$")


@pytest.mark.parametrize(
    ("chip", "bought"),
    yaml.safe_load(r"""
- [Apple M4 Max, "none of this configuration; \\$2,000 \\(2025-03.*\\), whole computer: Mac Studio, 36 GB"]
- [Apple M4 Max (32-core GPU), "\\$2,000 \\(2025-03.*\\), whole computer: Mac Studio, 36 GB"]
- [Apple M1, "none of this configuration; .*8 GB"]
- [Apple M4 Pro, "none of this configuration; .*Mac mini"]  # whose memory its source does not state
- [NVIDIA RTX 5090, "\\$2,000 \\(20\\d\\d-\\d\\d.*\\), card$"]
- [NVIDIA A100 80GB SXM, "\\$17,300 \\(2025-03.*\\), 1/8 of a baseboard$"]
- [NVIDIA H100 80GB SXM, "\\$31,200 \\(2025-03.*\\), module$"]
- [NVIDIA A40, "\\$5,840 \\(2025-03.*\\), card$"]
- [NVIDIA RTX 4090, "\\$1,600 \\(2022-09.*\\), card$"]  # a newer one may be of a bare chip
- [NVIDIA GH200, "\\$46,700 \\(2024-10.*\\), board or server, not stated$"]
"""),
)
def test_a_price_is_of_exactly_the_shown_configuration_or_names_another(chip, bought):
    assert re.match(bought, prices.in_words(chip)["buy"])


def test_an_old_price_says_so_and_the_hours_that_pay_are_price_over_rent():
    words = prices.in_words("NVIDIA T4")
    assert words["hour"] == "$0.53 an hour (4 providers, newest 2024-02, over 18 months old)"
    assert "buy" not in words
    rent = prices.usual_rent("NVIDIA RTX 4090")
    hours = prices.hours_to_pay(prices.purchase_prices("NVIDIA RTX 4090")["usd"].iloc[0], rent)
    assert prices.in_words("NVIDIA RTX 4090")["pays"].startswith(
        f"{wording.number(hours)} hours of use"
    )


STEADY = {
    "study": "resnet50_cost",
    "image_size": 224,
    "dataset": "imagenet",
    "precision": "fp32",
    "run_id": "a",
}
FAST = {"point": "fast", "run_id": "b"}


@pytest.mark.parametrize(
    ("rates", "columns", "rate"),
    [
        ([200.0] * 6, {"batch_size": 512}, 200),
        ([200.0] * 6, {"dataset": "synthetic"}, 100),
        ([200.0, 800.0, 210.0, 790.0, 220.0, 780.0], {}, 100),
        ([200.0] * 6, {"settings": {"num_parity_steps": 3}}, 100),  # which no step proves
        ([200.0] * 6, {"image_size": 64}, 100),
        ([200.0] * 6, {"status": "interrupted"}, 100),
    ],
    ids=["fastest", "other data", "unstable", "unproven", "other work", "failed"],
)
def test_of_several_points_the_fastest_that_may_speak_is_shown(rates, columns, rate):
    half = STEADY | {"point": "half", "precision": "bf16"}
    rows = [
        *windows([100.0] * 6, **STEADY),
        *windows(rates, **STEADY | FAST | columns),
        *windows([50.0] * 6, **half),
    ]
    own = costs.of_study(costs.tasks()[0], with_published(rows), {})
    known = [line["estimate"] for line in own if line["machine"] == "desk"]
    assert all(each.high / each.low > 1.4 for each in known)  # the next process may be as far off
    seconds = {line["family"]: line["seconds"] for line in own if line["machine"] == "desk"}
    assert seconds["fp32"] == pytest.approx(costs.tasks()[0].samples / rate)
    assert seconds["half"] == pytest.approx(
        costs.tasks()[0].samples / 50
    )  # each family of precisions has its own
