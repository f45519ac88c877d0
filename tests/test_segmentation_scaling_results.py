"""Tables of the segmentation study against sums done by hand; charts draw whatever there is, the same each time."""

import json

import numpy
import pandas
import pytest
from matplotlib.figure import Figure

from benchbook.record import articles, naming
from benchbook.studies import datasets
from benchbook.studies.segmentation_scaling import charts, tables
from benchbook.studies.segmentation_scaling import masks as encoded
from benchbook.studies.segmentation_scaling.results import STUDY
from benchbook.studies.study import Evidence
from rows import make_row, make_rows


def point(rates=(0.5, 0.4, 0.25), device="cpu", variant="reference", **columns):
    """Return the rows of a run: windows at these rates, then a validation."""
    name = f"{variant}-{device}"
    common = {
        "study": "segmentation_scaling",
        "model": "unet_triangles",
        "framework": "tensorflow",
        "variant": variant,
        "device": device,
        "point": name,
        "run_id": name,
        "session": name,
        "precision": "fp32",
        "compiled": False,
        "dataset": "triangles-512px",
        "dataset_samples": 500,
        "batch_size": 16,
        "image_size": 512,
        "settings": json.dumps({"width": 1.0}),
        "peak_memory_bytes": 3 * 2**30,
    } | columns
    rows = [make_row(**common, index=i, samples_per_second=rate) for i, rate in enumerate(rates)]
    return [*rows, make_row(**common, phase="evaluate", accuracy=0.875, accuracy_metric="iou")]


def image_times(*measured, published=False):
    """Return the table of these rows, and of the article's where `published`."""
    printed = articles.rows()
    printed = printed[printed["study"] == tables.NAME].to_dict("records") if published else []
    return tables.image_times(Evidence(make_rows([*printed, *measured])))


def test_ms_an_image_with_bounds_hours_memory_and_iou():
    line = image_times(*point()).iloc[0]
    assert (line["ms_per_image"], line["low"], line["high"]) == (2500, 2000, 4000)
    assert line["hours"] == pytest.approx(100_000 * 2.5 / 3600)
    assert (line["peak_gibibytes"], line["iou"], line["note"]) == (3, 0.875, "")


def test_the_iou_is_that_of_the_last_epoch_and_the_median_of_repeats():
    rows = point()[:-1]
    test = point()[-1]
    for repeat, ends in enumerate([(0.1, 0.5), (0.2, 0.75), (0.3, 1.0)]):
        rows += [
            make_row(**test | {"repeat": repeat, "index": index, "epoch": index + 1, "accuracy": end})
            for index, end in enumerate(ends)
        ]
    assert image_times(*rows)["iou"].tolist() == [0.75]


def test_the_articles_figures_stand_beside_marked_as_of_other_code():
    table = image_times(*point(), published=True)
    printed = table[table["source"] != "measured"].set_index("machine")
    assert printed["ms_per_image"].to_dict() == pytest.approx(
        {"macbook-air-m1": 328, "m1-max-guess": 82, "quadro-rtx-6000": 24.6}
    )
    assert set(printed["note"]) == {"other code, not comparable"}
    assert printed.loc["macbook-air-m1", "hours"] == pytest.approx(9.11, abs=0.005)  # 9 h 06 min
    assert (table["source"] == "measured").sum() == 1


@pytest.mark.parametrize("change", [{"image_size": 128}, {"settings": json.dumps({"width": 0.5})}])
def test_a_smaller_network_is_named_and_no_title_boasts_of_it(change):
    table = image_times(*point(**change))
    assert table["note"].tolist() == ["a smaller network"]
    assert "not measured here yet" in charts.times_title(table, NAMES)


def test_a_point_that_failed_has_no_time_but_a_status():
    failed = make_row(**point()[0] | {"status": "out_of_memory", "samples_per_second": None, "samples": None})
    line = image_times(failed).iloc[0]
    assert pandas.isna(line["ms_per_image"])
    assert line["status"] == "out_of_memory"


def test_a_point_that_failed_before_its_size_was_known_is_drawn_without_it():
    row = make_row(study=tables.NAME, status="crashed", batch_size=None, samples_per_second=None, samples=None)
    axes = charts.times(Evidence(make_rows([row]))).figure.axes[0]
    assert axes.get_yticklabels()[0].get_text() == "Chip A, CPU\ntorch, reference"


def test_masks_come_back_from_a_manifest_over_their_images(tmp_path):
    data = datasets.triangles(5, 2, 256)
    kept = {"start": [encoded.encode(0 * mask) for mask in data.test_labels]}
    kept["end"] = [encoded.encode(mask) for mask in data.test_labels]
    folder = tmp_path / "desk" / "segmentation_scaling" / "a-point"
    folder.mkdir(parents=True)
    parameters = {"num_images": 5, "num_test_images": 2, "image_size": 256}
    for run_id, content in (
        ("20260101T000000Z-aa", {"masks": kept, "parameters": parameters}),
        ("20260102T000000Z-bb", {"masks": {"start": kept["start"]}, "parameters": parameters}),
    ):
        (folder / f"{run_id}.json").write_text(json.dumps(content))
    (point,) = tables.kept_masks(tmp_path)
    assert (point["machine"], point["point"]) == ("desk", "a-point")
    numpy.testing.assert_array_equal(point["end"], point["truth"])
    numpy.testing.assert_array_equal(point["truth"], data.test_labels[:, ::2, ::2])
    assert tables.overlaps([point])[["image", "start", "end"]].to_numpy().tolist() == [[0, 0, 1], [1, 0, 1]]
    assert tables.best([point | {"end": point["start"]}, point]) is point
    assert "0.00 before training and by 1.00 after" in charts.masks_title(point)
    panels = Figure().subplots(2, 2)
    charts.draw_masks(panels, point)
    assert panels[1, 0].get_xlabel() == "end: IoU 1.00"
    assert charts.masks(Evidence(make_rows([]), folder=tmp_path)).picture


def test_a_mask_is_thinned_and_comes_back():
    mask = numpy.random.default_rng(1).random((512, 512)) < 0.3
    numpy.testing.assert_array_equal(encoded.decode(encoded.encode(mask)), mask[::4, ::4])
    small = mask[:64, :64]
    numpy.testing.assert_array_equal(encoded.decode(encoded.encode(small)), small)
    with pytest.raises(ValueError, match="a mask of 8 pixels; allowed: a square"):
        encoded.decode("AA==")


def test_titles_say_what_the_rows_say():
    title = charts.times_title(image_times(*point(), published=True), NAMES)
    assert title == "An image takes 2.5 s to train on a Chip A"


NAMES = naming.of(make_rows(point()), None)
LONG_SETTINGS = json.dumps({"sustained_minutes": 1.0, "width": 1.0})
LONG = point((0.3, 0.3, 0.3, 0.2), variant="tuned", settings=LONG_SETTINGS, seconds=30.0, samples=9)[:-1]


@pytest.mark.parametrize("rows", [[], point(), [*point(), *LONG]], ids=["none", "one point", "sustained"])
def test_every_chart_draws_whatever_there_is(rows):
    evidence = Evidence(make_rows(rows))
    for chart in STUDY.charts:
        drawing = chart.draw(evidence)
        assert drawing.picture if drawing.figure else chart.name == "segmentation-masks"  # no manifest holds any
