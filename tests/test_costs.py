"""What a task costs on each machine, from rows, record and predictions."""

import re

import pandas
import pytest

from benchbook.judging import wording
from benchbook.record import articles, prices
from benchbook.report import costs
from benchbook.studies.results.evidence import Evidence
from made.rows import make_row, make_rows, windows
from made.study_rows import point


def with_published(lines) -> Evidence:
    return Evidence(pandas.concat([make_rows(lines), articles.rows()], ignore_index=True))


@pytest.fixture(scope="module")
def every():
    """Return the costs of segmentation at two image sizes, a failure, SimCLR, a language model,
    and all published."""
    study = {
        "study": "segmentation_scaling",
        "image_size": 512,
        "dataset": "triangles-512px",
        "precision": "fp32",
    }
    study |= {"settings": {"width": 1.0}}
    lines = [*windows([2.0 + i / 10 for i in range(6)], **study)]
    lines += windows([90.0] * 3, machine="small", run_id="run-3", **study | {"image_size": 64})
    lines += windows(
        [90.0] * 3, machine="narrow", run_id="run-5", **study | {"settings": {"width": 0.25}}
    )
    failed = make_row(machine="broken", run_id="run-4", status="crashed", message="no", **study)
    failed |= dict.fromkeys(("samples", "seconds", "input_seconds", "samples_per_second"))
    simclr = {"study": "simclr_epochs", "image_size": 32, "dataset": "cifar10", "batch_size": 128}
    lines += [
        *windows([80.0] * 3, run_id="simclr", **simclr),
        *windows([80.0] * 3, run_id="simclr-2", **simclr),
    ]
    lines += point("gpt_tokens", [40.0] * 6, device="cuda", test=False)
    lines += point("gpt_tokens", [90.0] * 6, device="cuda", test=False, settings={"lora_rank": 8})
    return costs.table(with_published([*lines, failed]), ["desk"], {"desk": 16.0})


def of(every, key, **named):
    """Return the lines of a task whose columns have these values."""
    return list(
        every[
            every["task"].eq(key) & every[list(named)].eq(pandas.Series(named)).all(axis=1)
        ].itertuples()
    )


def test_a_measured_time_is_the_tasks_images_over_the_rate_with_the_bounds_of_its_windows(every):
    (line,) = of(every, "segmentation", source="measured")  # not the smaller ones, nor the failure
    assert (line.machine, line.memory_gb) == ("desk", 16.0)
    assert line.low < line.seconds < line.high
    assert line.here
    assert line.seconds == pytest.approx(100_000 / 2.25)
    assert line.interval == "range"  # of one process
    own = line.estimate  # the next process may be as far off
    assert own.high / own.low > 1.4 > line.high / line.low
    assert line.sources == "rows in outputs/runs/desk/segmentation_scaling/reference-cpu"
    (simclr,) = of(every, "simclr", source="measured")  # whole batches of the article's epoch
    assert simclr.seconds == pytest.approx(200 * 49_920 / 80)
    assert simclr.interval == "interval"  # from two processes
    (gpt,) = of(every, "gpt2", source="measured")  # adapters are other work
    assert gpt.seconds == pytest.approx(1e9 / 1024 / 40)


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


def test_a_network_that_was_not_released_has_no_time(every):
    assert {line.source for line in of(every, "segmentation")} == {"measured"}


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
    unpriced = every[every["chip"].eq("")]
    assert unpriced[["hour", "buy", "pays", "rent"]].isna().all(axis=None)


def test_several_figures_are_kept(every):
    assert all(
        float(line.each.partition("|")[0]) <= line.seconds * 1.001
        for line in every.itertuples()
        if isinstance(line.each, str)
    )


@pytest.mark.parametrize(
    ("chip", "bought"),
    [
        (
            "Apple M4 Max",
            r"none of this configuration; \$2,000 \(2025-03.*\), whole computer: Mac Studio, 36 GB",
        ),
        (
            "Apple M4 Max (32-core GPU)",
            r"\$2,000 \(2025-03.*\), whole computer: Mac Studio, 36 GB",
        ),
        ("Apple M1", "none of this configuration; .*8 GB"),
        (
            "Apple M4 Pro",
            "none of this configuration; .*Mac mini",
        ),  # whose memory its source does not state
        ("NVIDIA RTX 5090", r"\$2,000 \(20\d\d-\d\d.*\), card$"),
        ("NVIDIA A100 80GB SXM", r"\$17,300 \(2025-03.*\), 1/8 of a baseboard$"),
        ("NVIDIA H100 80GB SXM", r"\$31,200 \(2025-03.*\), module$"),
        ("NVIDIA A40", r"\$5,840 \(2025-03.*\), card$"),
        ("NVIDIA RTX 4090", r"\$1,600 \(2022-09.*\), card$"),  # a newer one may be of a bare chip
        ("NVIDIA GH200", r"\$46,700 \(2024-10.*\), board or server, not stated$"),
    ],
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
    seconds = {line["family"]: line["seconds"] for line in own if line["machine"] == "desk"}
    assert seconds["fp32"] == pytest.approx(costs.tasks()[0].samples / rate)
    assert seconds["half"] == pytest.approx(
        costs.tasks()[0].samples / 50
    )  # each family of precisions has its own
