"""Quantities of claims, from measured rows made by hand and from the published ones."""

import pandas
import pytest

from benchbook import studies
from benchbook.record import articles
from benchbook.studies import quantities
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

NO_PRICES = articles.prices()[:0]
SIMCLR = {"study": "simclr_epochs", "dataset": "cifar10", "batch_size": 128, "run_id": "r", "point": "p"}
VAE = {"study": "vae_stability", "precision": "fp32", "model": "vae"}
RESNET = {"study": "resnet50_cost", "dataset": "synthetic", "batch_size": 1024, "device_count": 4}


def of(*rows, prices=NO_PRICES):
    table = quantities.gather(
        Evidence(make_rows([make_row(**row) for row in rows]), prices=prices), studies.every().values()
    )
    own = table[table["source"] != "counted"]
    return {(line["machine"], line["name"]): line for line in own.to_dict("records")}


def test_the_simclr_epoch_adds_the_evaluation_to_390_steps_of_128():
    windows = [SIMCLR | {"index": index, "samples_per_second": rate} for index, rate in enumerate((96.0, 100.0, 104.0))]
    test = SIMCLR | {"phase": "evaluate", "seconds": 0.1, "samples": 600, "samples_per_second": 6000.0}
    line = of(*windows, test)["desk", "cpu_epoch_seconds"]
    seconds = [49_920 / rate + 10 for rate in (100, 104, 96)]
    assert [line["value"], line["low"], line["high"]] == pytest.approx(seconds)


def test_what_a_gpu_refused_to_train_simclr_in_is_an_event():
    cell = SIMCLR | {"phase": "calibrate", "settings": '{"tried": "matrix"}', "compiled": False, "device": "mps"}
    works = cell | {"precision": "fp32"}
    refused = cell | {"precision": "amp_bf16", "status": "unsupported", "samples_per_second": None, "index": 1}
    assert of(works, refused)["desk", "amp_refused"]["value"] == 1
    assert of(works | {"device": "cpu"}, refused | {"device": "cpu"}) == {}


def test_a_simclr_point_of_another_batch_or_variant_or_without_an_evaluation_is_none():
    test = SIMCLR | {"phase": "evaluate", "seconds": 10.0}
    for change in ({"batch_size": 512}, {"variant": "tuned"}, {"dataset": "shapes"}):
        assert of(SIMCLR | change, test | change) == {}
    assert of(SIMCLR) == {}


@pytest.mark.parametrize(
    ("device", "status", "name", "value"),
    [("mps", "diverged", "diverged", 1), ("mps", "ok", "diverged", 0), ("cpu", "ok", "cpu_trained", 1)],
)
def test_a_loss_that_ran_away_or_did_not_is_an_event(device, status, name, value):
    line = of(VAE | {"device": device, "status": status})["desk", name]
    assert (line["value"], line["low"], line["high"]) == (value, value, value)


def test_the_chip_of_a_machine_with_a_gpu_is_the_gpu_and_four_of_them_are_compared():
    gpu = RESNET | {"device": "cuda", "device_name": "NVIDIA V100", "samples_per_second": 3000.0}
    line = of(gpu)["desk", "synthetic_rate"]
    assert (line["chip"], line["value"]) == ("NVIDIA V100", 3000)
    assert of(gpu | {"device_count": 1}) == {}


@pytest.mark.parametrize("name", ["Tesla P100-PCIE-16GB", "NVIDIA Tesla P100-SXM2-16GB"])
def test_a_chips_boards_are_one_chip_so_that_a_measured_p100_judges_the_articles(name):
    server = {"dataset": "mnist", "device_name": name, "device": "cuda", "machine": "server"}
    whole = [make_row(**server), make_row(**server, phase="evaluate", index=1)]
    table = quantities.gather(
        Evidence(pandas.concat([make_rows(whole), articles.rows()], ignore_index=True)), studies.every().values()
    )
    measured = table[(table["source"] == "measured") & (table["name"] == "accelerator_seconds")]
    printed = table[(table["machine"] == "p100-server-256gb") & (table["name"] == "accelerator_seconds")]
    assert measured["chip"].tolist() == printed["chip"].tolist() == ["NVIDIA P100"]


def test_a_machine_whose_figures_were_not_printed_is_there_with_its_chip():
    table = quantities.gather(Evidence(articles.rows()), studies.every().values())
    there = table[table["name"] == quantities.PRESENT].set_index("machine")["chip"]
    assert there[["colab-v100", "macbook-air-13-m2"]].tolist() == ["NVIDIA V100", "Apple M2"]


@pytest.mark.parametrize(("values", "kind"), [((0.7, 0.8), "range"), ((0.7, 0.8, 0.75), "interval")])
def test_a_number_that_runs_measured_once_each_has_students_t_over_runs(values, kind):
    line = quantities.of_runs({"machine": "m", "chip": "c", "source": "measured"}, "accuracy", values)
    assert line["value"] == pytest.approx(0.75)
    from scipy import stats  # its import takes a second

    half = stats.t.ppf(0.9825, 2) * 0.05 / 3**0.5 if kind == "interval" else 0.05
    assert (line["low"], line["high"]) == pytest.approx((0.75 - half, 0.75 + half))
    assert line["interval"] == kind


def test_a_price_is_a_quantity_an_hour_with_the_bounds_of_its_digits():
    line = of(prices=articles.prices())["cirrascale-4xv100", "reserved_per_hour"]
    assert [line["value"], line["low"], line["high"]] == pytest.approx([7500 / 730, 7499.5 / 730, 7500.5 / 730])


def test_no_published_machine_has_two_quantities_of_one_name():
    table = quantities.gather(Evidence(articles.rows()), studies.every().values())
    assert not table.duplicated(["machine", "name"]).any()
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()


@pytest.mark.parametrize(
    ("value", "half"), [(33.4, 0.05), (34, 0.5), (0.328, 0.0005), (3186.0, 0.5), (183532752.0, 0.5)]
)
def test_a_printed_figure_stands_for_half_a_unit_of_its_last_digit_around_it(value, half):
    row = {"seconds": value, "settings": {}}
    assert articles.bounds(row, "seconds") == pytest.approx((value - half, value + half))


def test_a_figure_printed_in_another_unit_says_how_far_its_digits_reach():
    row = {"seconds": 3558.0, "settings": {"rounding": {"seconds": 3}}}
    assert articles.bounds(row, "seconds") == (3555, 3561)
