"""Tables of the MobileNetV2 study against sums done by hand; charts that draw whatever there is, the same each time."""

import json

import numpy
import pandas
import pytest

from benchbook.record import articles
from benchbook.studies.mobilenetv2_energy import tables
from benchbook.studies.mobilenetv2_energy.results import STUDY
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

RATES, JOULES, LOSSES = (0, 0), (0, 1), (1, 0)  # of the study's charts, and of a chart's panels


def point(rates=(50.0, 60.0, 80.0), losses=(2.0, 1.0, 0.5), accuracy=0.6, joules=None, **columns):
    """Return the rows of a run: windows of 100 images, a test, and how it ended where it failed."""
    names = ("trainable", "learning_rate", "weights")
    settings = {
        name: columns.pop(name, default) for name, default in zip(names, (False, 5e-4, "imagenet"), strict=True)
    }
    ended = columns.pop("ended", None)
    common = {
        "study": "mobilenetv2_energy",
        "model": "mobilenetv2",
        "variant": "reference",
        "device": "cpu",
        "framework": "tensorflow",
        "dataset": "cifar10",
        "dataset_samples": 50_000,
        "batch_size": 64,
        "image_size": 128,
        "settings": json.dumps(settings),
        "epoch": 1,
    } | columns
    name = common.get("point") or "-".join(str(part) for part in (common, settings))
    common |= {"point": name, "run_id": columns.get("run_id", name), "session": columns.get("session", name)}
    energy = {"energy_joules": joules, "energy_method": "nvml", "energy_boundary": "board"} if joules else {}
    rows = [
        make_row(**common | {"samples": 100, "samples_per_second": rate, "loss": loss, "index": i}, **energy)
        for i, (rate, loss) in enumerate(zip(rates, losses, strict=False))
    ]
    if ended:
        empty = dict.fromkeys(("samples", "seconds", "input_seconds", "samples_per_second"))
        return [*rows, make_row(**common | empty | {"phase": "warmup", "status": ended, "message": "the kernel died"})]
    tested = {"samples": 1000, "samples_per_second": 500.0, "accuracy": accuracy, "accuracy_metric": "top1"}
    return [*rows, make_row(**common | tested | {"phase": "evaluate"})]


CRASHED = point(rates=(), image_size=224, trainable=True, device="metal", ended="crashed")
PUBLISHED = make_row(
    study="mobilenetv2_energy",
    machine="m1",
    chip="Apple M1",
    source="published",
    phase="total",
    device="metal",
    framework="tensorflow",
    dataset="cifar10",
    batch_size=64,
    image_size=128,
    settings='{"trainable": false, "learning_rate": 0.0005}',
    samples=500_000,
    seconds=2129.0,
    samples_per_second=None,
    run_id="published",
    point="reference-gpu",
)
PUBLISHED_CRASH = (
    PUBLISHED
    | {
        "run_id": "published-crash",
        "point": "crash",
        "phase": "train",
        "status": "crashed",
        "settings": '{"image_size_over": 196}',
        "message": "segmentation fault",
    }
    | dict.fromkeys(("samples", "seconds", "batch_size", "image_size"))
)
INPUTS = {
    "nothing": [],
    "published": [PUBLISHED, PUBLISHED_CRASH],
    "one point": point(),
    "only a failure": CRASHED,
    "all": [
        *point(),
        *point(framework="jax", losses=(2.0, float("nan")), rates=(5.0, 6.0), weights="random"),
        *point(framework="torch", device="cuda", trainable=True, joules=50.0, rates=(900.0, 1000.0)),
        *point(framework="torch", device="cuda", variant="tuned", dataset="shapes-32px", learning_rate=1e-4),
        *CRASHED,
        PUBLISHED,
        PUBLISHED_CRASH,
    ],
}


def evidence(rows):
    return Evidence(make_rows(rows))


def settings(rows):
    return tables.settings(evidence(rows))


def drawn(chart, rows):
    place, panel = chart
    return STUDY.charts[place].draw(evidence(rows)).figure.axes[panel]


def title(axes):
    return axes.get_title(loc="left").replace("\n", " ")


def words(axes):
    return [text.get_text().strip() for text in axes.texts]


def test_a_setting_is_its_median_rate_and_its_joules_over_its_images():
    line = settings(point(joules=50.0)).iloc[0]
    assert line[["images_per_second", "low", "high", "num_windows"]].tolist() == [60, 50, 80, 3]
    assert line["joules_per_image"] == pytest.approx(0.5)
    assert line[["boundary", "accuracy", "status"]].tolist() == ["board", 0.6, "ok"]
    assert line[["trainable", "learning_rate", "weights", "image_size"]].tolist() == [False, 5e-4, "imagenet", 128]
    assert settings(point())["joules_per_image"].isna().all()


def test_of_two_points_alike_the_longer_counts_whatever_session_it_is_of():
    quick = point(rates=(10.0,), point="quick", run_id="2-later")
    whole = point(rates=(20.0, 20.0), point="paper", run_id="1-earlier")
    assert settings(quick + whole)["images_per_second"].tolist() == [20]
    failed = point(rates=(), point="failed", ended="timeout")
    assert settings(failed + quick)["images_per_second"].tolist() == [10]


def test_a_failed_point_is_a_line_with_its_end_and_no_rate():
    line = settings(CRASHED).iloc[0]
    assert line[["status", "message", "image_size", "batch_size"]].tolist() == ["crashed", "the kernel died", 224, 64]
    assert pandas.isna(line["images_per_second"])
    killed_midway = settings(point(rates=(50.0,), ended="crashed")).iloc[0]
    assert killed_midway[["images_per_second", "status"]].tolist() == [50, "crashed"]


def test_a_point_that_failed_before_it_had_data_is_drawn_without_them():
    unknown = ("dataset", "image_size", "batch_size", "precision", "settings", "samples", "samples_per_second")
    row = make_row(study="mobilenetv2_energy", status="crashed") | dict.fromkeys(unknown)
    labels = drawn(RATES, [row]).get_yticklabels()
    assert [label.get_text() for label in labels] == ["Chip A\ntorch CPU"]


def test_a_published_time_is_a_rate_that_stands_for_half_its_last_digit():
    line = settings([PUBLISHED]).iloc[0]
    rates = [500_000 / seconds for seconds in (2129, 2129.5, 2128.5)]
    assert line[["images_per_second", "low", "high"]].tolist() == pytest.approx(rates)


def test_the_published_settings_are_the_articles_crash_and_the_replicas_three_times():
    printed = tables.settings(Evidence(articles.rows()))
    assert sorted(printed["images_per_second"].dropna()) == pytest.approx([500_000 / s for s in (2129, 1882, 1878)])
    assert printed.loc[printed["status"] == "crashed", "image_size_over"].tolist() == [196]


def test_frameworks_stand_beside_each_other_in_one_order():
    rows = [row for name in ("torch", "jax", "tensorflow") for row in point(framework=name)]
    assert settings(rows)["framework"].tolist() == ["tensorflow", "jax", "torch"]


def test_a_curve_is_each_windows_loss_at_its_middle_the_median_of_runs():
    twice = [row | {"run_id": "b", "loss": 4.0} if row["phase"] == "train" else row for row in point(point="p")]
    curve = tables.losses(
        evidence(point(point="p", session="p", run_id="a") + [row | {"session": "p"} for row in twice])
    )
    assert curve["images_seen"].tolist() == [50, 150, 250]
    assert curve["loss"].tolist() == pytest.approx([3.0, 2.5, 2.25])
    assert curve["accuracy"].tolist() == [0.6] * 3


def test_only_first_repeats_and_measured_rows_make_a_curve():
    again = [row | {"repeat": 1} for row in point(point="p")]
    assert len(tables.losses(evidence([*point(point="p"), *again, PUBLISHED]))) == 3
    assert tables.losses(evidence(CRASHED)).empty


@pytest.mark.parametrize(
    ("columns", "verdict", "reason"),
    [
        ({}, "converged", "loss 75% lower, accuracy +50% over chance"),
        ({"losses": (2.0, 1.95, 1.94)}, "did not converge", "loss 3% lower, accuracy +50% over chance"),
        ({"accuracy": 0.24}, "did not converge", "loss 75% lower, accuracy +14% over chance"),
        ({"losses": (2.0, float("nan"))}, "did not converge", "the loss was not finite"),
        ({"rates": (9.0,)}, "not judged", "one window"),
        ({"weights": "random"}, "not judged", "random weights"),
    ],
)
def test_convergence_is_judged_by_the_stated_rule(columns, verdict, reason):
    rows = point(**columns)
    broken = [row | {"status": "diverged"} if row.get("loss") != row.get("loss") else row for row in rows]
    line = tables.convergence(evidence(broken)).iloc[0]
    assert line[["verdict", "reason"]].tolist() == [verdict, reason]


def test_only_frozen_points_are_judged_and_points_alike_each_for_itself():
    assert tables.convergence(evidence(point(trainable=True))).empty
    short, long = point(point="a", losses=(1.0, 0.9)), point(point="b", losses=(4.0, 3.9, 3.8))
    curve = tables.convergence(evidence(short + long))
    assert curve["first_loss"].tolist() == [1.0, 4.0]
    assert curve["last_loss"].tolist() == [0.9, 3.8]


def test_the_sentence_on_convergence_counts_and_names_learning_rates():
    rows = [*point(), *point(learning_rate=1e-3, losses=(2.0, 2.0)), *point(weights="random")]
    text = tables.convergence_sentence(tables.convergence(evidence(rows)))
    assert text.startswith("Of 2 frozen points 1 did not converge, at learning rate 0.001")
    assert "not judged" in tables.convergence_sentence(tables.convergence(evidence([])))


def quantities(*rows):
    claimed = STUDY.quantities(evidence([row for part in rows for row in part]))
    return {line["name"]: line["value"] for line in claimed}


def test_quantities_are_of_the_articles_setting_on_an_accelerator():
    metal = {"device": "metal", "machine": "mac"}
    curve = quantities(
        point(**metal),
        point(**metal, trainable=True, joules=50.0, rates=(10.0, 10.0, 10.0)),
        point(**metal, batch_size=32),
        point(**metal, framework="torch"),
        point(**metal, dataset="shapes-32px"),
        point(rates=(1.0, 1.0)),
    )
    assert curve == {"frozen_rate": 60, "rate": 10, "joules_per_image": 0.5, "frozen_diverged": 0}


def test_a_quantity_has_the_bounds_of_its_windows():
    rows = point(device="metal", trainable=True, joules=50.0, rates=(10.0, 20.0))
    rows[1]["energy_joules"] = 80.0
    claimed = {line["name"]: line for line in STUDY.quantities(evidence(rows))}
    assert [claimed["rate"][name] for name in ("low", "high", "interval")] == [10, 20, "range"]
    joules = [claimed["joules_per_image"][name] for name in ("low", "high", "interval")]
    assert joules == [pytest.approx(0.5), pytest.approx(0.8), "range"]


def test_a_crash_counts_over_196_pixels_alone_and_only_where_it_was_tried():
    metal = {"device": "metal", "trainable": True}
    assert quantities(CRASHED) == {"crashed_over_196": 1}
    assert quantities(point(**metal, image_size=224), point(**metal, image_size=256)) == {"crashed_over_196": 0}
    assert quantities(point(**metal, image_size=160, rates=(), ended="crashed")) == {}
    assert quantities(point(**metal, image_size=224, rates=(), ended="unavailable", dataset=None)) == {}
    assert quantities(point(**metal, image_size=224, rates=(), ended="interrupted")) == {}


def test_a_frozen_network_that_did_not_converge_is_an_event():
    stuck = point(device="metal", losses=(2.0, 2.0))
    assert quantities(stuck)["frozen_diverged"] == 1
    assert "frozen_diverged" not in quantities(point(device="metal", learning_rate=1e-4, losses=(2.0, 2.0)))


@pytest.mark.parametrize("rows", INPUTS)
@pytest.mark.parametrize("chart", STUDY.charts, ids=lambda chart: chart.name)
def test_every_chart_draws_what_there_is(chart, rows):
    drawing = chart.draw(evidence(INPUTS[rows]))
    drawing.figure.draw_without_rendering()  # a chart that does not fit its figure warns here
    assert title(drawing.figure.axes[0]) in drawing.alt


@pytest.mark.parametrize("chart", STUDY.charts, ids=lambda chart: chart.name)
def test_the_same_rows_give_the_same_picture(chart):
    first, second = (chart.draw(evidence(INPUTS["all"])).picture for _ in range(2))
    assert first == second


def test_bars_say_how_fast_how_it_ended_and_what_joules_cover():
    rates = drawn(RATES, INPUTS["all"])
    assert {"60, n=3", "950, n=2", "crashed", "235"} <= set(words(rates))
    assert "950 images a second (torch, GPU)" in title(rates)
    joules = drawn(JOULES, INPUTS["all"])
    assert {"0.5 J (board), n=2", "no sensor", "not printed"} <= set(words(joules))
    assert "0.50 J" in title(joules)
    labels = [label.get_text() for label in rates.get_yticklabels()]
    assert any("drawn shapes" in label and "tuned" in label and "rate 0.0001" in label for label in labels)
    assert any("over 196 px" in label for label in labels)


@pytest.mark.parametrize(
    ("chart", "rows", "words"),
    [
        (RATES, [], "not measured"),
        (RATES, CRASHED, "All 1 settings of MobileNetV2 failed"),
        (JOULES, [], "No sensor"),
        (LOSSES, CRASHED, "nothing measured"),
    ],
)
def test_titles_say_when_nothing_was_measured_or_a_stand_in(chart, rows, words):
    assert words in title(drawn(chart, rows))


def test_losses_name_each_curve_with_its_test_accuracy():
    axes = drawn(LOSSES, INPUTS["all"])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "tensorflow CPU, last layer, 128 px, batch 64, n=3: test 60%" in labels
    assert "torch GPU, last layer, 128 px, batch 64, rate 0.0001, tuned, drawn shapes, n=3: test 60%" in labels
    assert len(labels) == 4
    both = drawn(LOSSES, [*point(), *point(machine="other")]).get_legend().get_texts()
    assert [text.get_text().partition(",")[0] for text in both] == ["Chip A (desk)", "Chip A (other)"]
    assert axes.get_ylim()[0] == 0
    guess = axes.lines[-1].get_ydata()[0]
    assert guess == pytest.approx(numpy.log(10))
