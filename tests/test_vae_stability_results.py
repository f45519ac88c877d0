"""Tables of the autoencoder study against sums done by hand; charts that draw whatever there is."""

import json
import warnings

import numpy
import pandas
import pytest
from matplotlib.figure import Figure

from benchbook import figures, layout, parity, records
from benchbook.studies.vae_stability import charts as vae
from rows import make_row, make_rows

STUDY = {
    "study": "vae_stability",
    "model": "vae",
    "precision": "fp32",
    "framework_version": "2.10.0",
    "batch_size": 128,
}


def windows(losses, device="cpu", run_id="run-1", **columns):
    common = STUDY | {"device": device, "point": f"reference-{device}", "run_id": run_id} | columns
    return [
        make_row(**common, index=index, epoch=index + 1, samples=60_000, loss=loss, status=status(loss))
        for index, loss in enumerate(losses)
    ]


def steps(errors, device="cpu", precision="fp32", run_id="run-1", first=0, **columns):
    settings = dict.fromkeys(("gradient_cosine", "gradient_norm_ratio", "worst_cosine", "worst_norm_ratio"), 1.0)
    common = STUDY | {"device": device, "point": f"reference-{device}", "run_id": run_id, "precision": precision}
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


def status(number):
    return "ok" if numpy.isfinite(number) else "diverged"


def published():
    return records.read(layout.published() / "vae_stability.csv")


def frame(*groups, with_published=False):
    rows = make_rows([row for group in groups for row in group])
    return pandas.concat([rows, published()], ignore_index=True) if with_published else rows


def axes_of(draw, *values):
    with figures.style(), warnings.catch_warnings():
        axes = Figure().subplots()
        draw(axes, *values)
        axes.figure.savefig("/dev/null", format="svg")
    return axes


def title(axes):
    return axes.get_title(loc="left")


def test_published_rows_are_the_articles_log():
    curve = vae.loss_curves(published())
    assert curve["loss"].tolist()[:4] == [550.842529, 330.613251, 4705.016602, 183532752.0]
    assert pandas.isna(curve["loss"].iloc[4])
    assert curve["status"].tolist() == ["ok"] * 4 + ["diverged"]
    assert curve["images_seen"].tolist() == [64, 1344, 2624, 3904, 5 * 60_000 + 40_960 + 64]
    assert set(curve["epoch"]) == {1, 6}


def test_a_window_stands_at_its_middle_and_a_points_runs_give_their_median():
    runs = [windows(losses, run_id=f"run-{losses[0]}") for losses in ([150.0, 120.0], [160.0, 110.0], [190.0, 100.0])]
    curve = vae.loss_curves(frame(*runs))
    assert curve["images_seen"].tolist() == [30_000, 90_000]
    assert curve["loss"].tolist() == [160.0, 110.0]


def test_compared_steps_are_windows_of_one_batch_before_the_training():
    curve = vae.loss_curves(frame(steps([0.0, 0.1]), steps([0.2], precision="amp_bf16", first=2), windows([150.0])))
    first = curve[curve["loader"] == "first steps"]
    assert first["images_seen"].tolist() == [64, 192]
    assert first["loss"].tolist() == pytest.approx([500.0, 550.0])
    assert curve.loc[curve["loader"] == "loader", "images_seen"].tolist() == [30_000]


def test_a_loss_that_is_no_number_is_missing_and_diverged():
    curve = vae.loss_curves(frame(windows([150.0, numpy.inf])))
    assert curve["loss"].isna().tolist() == [False, True]
    assert curve["status"].tolist() == ["ok", "diverged"]


def test_parity_curves_are_of_one_run_a_device_and_precision():
    rows = frame(steps([0, 1e-4]), steps([0, 2e-4], run_id="run-2"), steps([1e-2], precision="amp_bf16", first=2))
    compared = vae.parity_curves(rows)
    assert compared["precision"].tolist() == ["amp_bf16", "fp32", "fp32"]
    assert compared["loss_error"].tolist() == pytest.approx([1e-2, 0, 2e-4])
    assert compared["tolerance"].tolist() == [3e-2, 1e-3, 1e-3]
    assert not compared["apart"].any()


def test_the_loss_chart_says_where_it_ends_and_what_was_published():
    axes = axes_of(vae.draw_losses, vae.loss_curves(frame(windows([150.0, 106.4]), with_published=True)))
    assert title(axes) == "Loss: cpu 106.4 in epoch 2; published on mps: 550.8 to 1.8e+08, then NaN"
    assert [text.get_text() for text in axes.texts] == ["not finite, epoch 6"]


def test_the_loss_chart_says_when_a_device_diverged():
    curves = vae.loss_curves(frame(windows([150.0, 106.0]), windows([numpy.nan], "mps", "run-2")))
    assert "cpu 106.0 in epoch 2; mps not finite in epoch 1" in title(axes_of(vae.draw_losses, curves))


def test_charts_say_when_nothing_was_measured():
    assert "nothing measured here yet" in title(axes_of(vae.draw_losses, vae.loss_curves(published())))
    none = vae.parity_curves(frame())
    assert title(axes_of(vae.draw_parity, none)) == "Nothing compared with float64 yet"
    axes_of(vae.draw_step_losses, none)
    axes_of(vae.draw_losses, vae.loss_curves(frame()))


def test_the_parity_chart_names_the_first_step_apart():
    rows = frame(steps([0, 1e-5, 1e-5]), steps([0, 2e-3, 5e-3], "mps", run_id="run-2"))
    assert title(axes_of(vae.draw_parity, vae.parity_curves(rows))) == "mps, fp32: apart at step 2"
    axes = axes_of(vae.draw_parity, vae.parity_curves(frame(steps([0, 1e-5, 1e-5]))))
    assert title(axes) == "Within tolerance for 3 steps; at most 1e-05 off"
    assert parity.verdicts(rows)["parted_at"].fillna(0).tolist() == [0, 2]


def test_pictures_stand_in_three_rows():
    images = numpy.zeros((5, 28, 28))
    axes = axes_of(vae.draw_images, images, images + 0.25, images)
    assert axes.images[0].get_array().shape == (84, 140)
    assert "0.250 off" in title(axes)
    assert "5 of 5 reconstructions are not numbers" in title(
        axes_of(vae.draw_images, images, images * numpy.nan, images)
    )


def test_the_reading_is_made_of_the_runs_rows():
    test = make_row(**STUDY, phase="evaluate", loss=105.2)
    assert vae.reading(frame(windows([150.0, 106.4]), [test])) == (
        "After 120,000 images, in epoch 2 (cpu, fp32, mnist), the loss per image was 106.40; on test images 105.20."
    )
    assert "no longer a number in epoch 1" in vae.reading(frame(windows([numpy.nan])))


def test_the_same_rows_give_the_same_bytes(tmp_path):
    for folder in ("first", "second"):
        curves = vae.loss_curves(frame(windows([150.0, 106.4]), with_published=True))
        figure = axes_of(vae.draw_losses, curves).figure
        figures.save(figure, curves, tmp_path / folder, "vae-loss", "words")
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "second" / file.name).read_bytes()
