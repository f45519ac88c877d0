"""Tables of the autoencoder study against sums done by hand; charts that draw whatever there is."""

import json

import numpy
import pandas
import pytest

from benchbook.record import articles
from benchbook.studies.study import Evidence
from benchbook.studies.vae_stability import charts, tables
from benchbook.studies.vae_stability.results import STUDY
from rows import make_row, make_rows

COLUMNS = {
    "study": "vae_stability",
    "model": "vae",
    "precision": "fp32",
    "framework_version": "2.10.0",
    "batch_size": 128,
}


def windows(losses, device="cpu", run_id="run-1", **columns):
    common = COLUMNS | {"device": device, "point": f"reference-{device}", "run_id": run_id} | columns
    return [
        make_row(**common, index=index, epoch=index + 1, samples=60_000, loss=loss, status=status(loss))
        for index, loss in enumerate(losses)
    ]


def steps(errors, device="cpu", precision="fp32", run_id="run-1", first=0, **columns):
    settings = dict.fromkeys(("gradient_cosine", "gradient_norm_ratio", "worst_cosine", "worst_norm_ratio"), 1.0)
    common = COLUMNS | {"device": device, "point": f"reference-{device}", "run_id": run_id, "precision": precision}
    return [
        make_row(
            **common | columns,
            phase="parity",
            index=first + index,
            samples=128,
            seconds=None,
            samples_per_second=None,
            loss=500.0 * (1 + error),
            status=status(error),
            settings=json.dumps(settings | {"step": index + 1, "reference_loss": 500.0}),
        )
        for index, error in enumerate(errors)
    ]


def test_the_first_steps_of_an_accelerator_are_quantities_that_claims_name():
    rows = evidence(steps([0.0] * 11, "mps", dataset="mnist"), steps([0.1] * 11, "cpu", dataset="mnist"))
    values = {line["name"]: line["value"] for line in tables.step_losses(rows)}
    assert values == {"first_loss": 500.0, "loss_after_10_steps": 500.0}
    assert tables.step_losses(evidence(steps([0.0], "mps", dataset="digits"))) == []


def status(number):
    return "ok" if numpy.isfinite(number) else "diverged"


def evidence(*groups, published=False):
    rows = make_rows([row for group in groups for row in group])
    return Evidence(pandas.concat([rows, articles.rows()], ignore_index=True) if published else rows)


def drawn(place, *groups, published=False):
    """Return the axes and the drawing of one of the study's charts, which can be saved."""
    drawing = STUDY.charts[place].draw(evidence(*groups, published=published))
    assert drawing.picture
    return drawing.figure.axes[0], drawing


def title(axes):
    return axes.get_title(loc="left")


def test_published_rows_are_the_articles_log():
    curve = tables.losses(evidence(published=True))
    assert curve["loss"].tolist()[:4] == [550.842529, 330.613251, 4705.016602, 183532752.0]
    assert pandas.isna(curve["loss"].iloc[4])
    assert curve["status"].tolist() == ["ok"] * 4 + ["diverged"]
    assert curve["images_seen"].tolist() == [64, 1344, 2624, 3904, 5 * 60_000 + 40_960 + 64]
    assert set(curve["epoch"]) == {1, 6}


def test_a_window_stands_at_its_middle_and_a_points_runs_give_their_median():
    runs = [windows(losses, run_id=f"run-{losses[0]}") for losses in ([150.0, 120.0], [160.0, 110.0], [190.0, 100.0])]
    curve = tables.losses(evidence(*runs))
    assert curve["images_seen"].tolist() == [30_000, 90_000]
    assert curve["loss"].tolist() == [160.0, 110.0]


def test_compared_steps_are_windows_of_one_batch_before_the_training():
    curve = tables.losses(evidence(steps([0.0, 0.1]), steps([0.2], precision="amp_bf16", first=2), windows([150.0])))
    first = curve[curve["loader"] == "first steps"]
    assert first["images_seen"].tolist() == [64, 192]
    assert first["loss"].tolist() == pytest.approx([500.0, 550.0])
    assert curve.loc[curve["loader"] == "loader", "images_seen"].tolist() == [30_000]


def test_a_loss_that_is_no_number_is_missing_and_diverged():
    curve = tables.losses(evidence(windows([150.0, numpy.inf])))
    assert curve["loss"].isna().tolist() == [False, True]
    assert curve["status"].tolist() == ["ok", "diverged"]


def test_parity_curves_are_of_one_run_a_device_and_precision():
    rows = (steps([0, 1e-4]), steps([0, 2e-4], run_id="run-2"), steps([1e-2], precision="amp_bf16", first=2))
    compared = tables.compared_steps(evidence(*rows))
    assert compared["precision"].tolist() == ["amp_bf16", "fp32", "fp32"]
    assert compared["loss_error"].tolist() == pytest.approx([1e-2, 0, 2e-4])
    assert compared["tolerance"].tolist() == [3e-2, 1e-3, 1e-3]
    assert not compared["apart"].any()


def test_the_loss_chart_says_where_it_ends_and_what_was_published():
    axes, _ = drawn(0, windows([150.0, 106.4]), published=True)
    assert "106 an image in epoch 2 on a Chip A" in title(axes)
    assert "to 184 million and then to NaN in epoch 6" in title(drawn(0, published=True)[0])
    assert [text.get_text() for text in axes.texts] == ["not finite, epoch 6"]


def test_the_loss_chart_says_when_a_device_diverged():
    axes, _ = drawn(0, windows([150.0, 106.0]), windows([numpy.nan], "mps", "run-2"))
    assert "is NaN in epoch 1 on a Chip A's GPU and is 106 an image in epoch 2 on a Chip A" in title(axes)


def test_charts_say_when_nothing_was_measured():
    assert "nothing measured" in title(drawn(0)[0])
    assert "Nothing compared" in title(drawn(1)[0])


def test_the_parity_chart_names_the_first_step_apart():
    apart, drawing = drawn(1, steps([0, 1e-5, 1e-5]), steps([0, 2e-3, 5e-3], "mps", run_id="run-2"))
    assert "GPU, fp32: too far from float64 at step 2" in title(apart)
    assert drawing.tables["parity"]["parted_at"].fillna(0).tolist() == [0, 2]
    together, _ = drawn(1, steps([0, 1e-5, 1e-5]))
    assert "0.0010 % of float64 for 3 steps" in title(together)


def test_pictures_stand_in_three_rows():
    images = numpy.zeros((5, 28, 28))
    axes = charts.pictures(images, images + 0.25, images).figure.axes[0]
    assert axes.images[0].get_array().shape == (84, 140)
    assert "0.250 off" in title(axes)
    assert "5 of 5" in title(charts.pictures(images, images * numpy.nan, images).figure.axes[0])


def test_the_reading_is_made_of_the_runs_rows():
    test = make_row(**COLUMNS, phase="evaluate", loss=105.2)
    text = charts.reading(make_rows([*windows([150.0, 106.4]), test]))
    numbers = ("120,000 images", "epoch 2", "cpu, fp32, mnist", "106.40", "105.20")
    assert [number for number in numbers if number not in text] == []
    assert "no longer a number in epoch 1" in charts.reading(make_rows(windows([numpy.nan])))


def test_events_are_of_the_articles_own_run():
    runs = windows([150.0, 106.0]), windows([numpy.nan], "mps", "run-2"), windows([numpy.nan], "cuda", dataset="digits")
    happened = STUDY.quantities(evidence(*runs))
    assert {line["name"]: line["value"] for line in happened} == {"cpu_trained": 1, "diverged": 1}


def test_the_same_rows_give_the_same_picture():
    first, second = (drawn(0, windows([150.0, 106.4]), published=True)[1].picture for _ in range(2))
    assert first == second
