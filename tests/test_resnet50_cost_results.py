"""Tables of the ResNet-50 study against sums done by hand; charts that draw whatever there is."""

import json

import pandas
import pytest
from matplotlib.figure import Figure

from benchbook import articles, figures, layout, records
from benchbook.studies.resnet50_cost import charts, tables
from benchbook.studies.resnet50_cost import money as costs
from rows import make_row, make_rows

PRICES = articles.prices()
PUBLISHED = records.read(layout.published() / "resnet50_cost.csv")


def point(batch_size=64, rates=(90.0, 100.0, 110.0), device_count=1, status="ok", stated=None, **columns):
    """Return the rows of a run: windows, or a failure."""
    name = f"{columns.get('variant', 'reference')}-{batch_size}-{device_count}-{columns.get('dataset', 'synthetic')}"
    common = {
        "study": "resnet50_cost",
        "model": "resnet50",
        "precision": "fp32",
        "device": "cuda",
        "dataset": "synthetic",
        "image_size": 224,
        "batch_size": batch_size,
        "device_count": device_count,
        "node_count": 1,
        "flops_per_sample": 1e9,
        "settings": json.dumps(stated or {}),
        **dict.fromkeys(("point", "run_id", "session"), name),
    } | columns
    if status != "ok":
        return [make_row(**common, status=status, samples=None, seconds=None, samples_per_second=None)]
    return [make_row(**common, index=index, samples_per_second=rate) for index, rate in enumerate(rates)]


def calibration(rate, session, device="cuda"):
    work = {"model": "matmul", "phase": "calibrate", "precision": "fp32", "flops_per_sample": 1e9}
    return make_row(
        study="calibrate",
        point="c",
        run_id=f"c-{session}",
        session=session,
        device=device,
        samples_per_second=rate,
        **work,
    )


def run(accuracies, joules=10.0, stated=None, run_id="r"):
    """Return an accuracy run of epochs of 100 seconds."""
    common = point(dataset="pictures", stated=stated)[0] | {"run_id": run_id, "point": run_id, "session": run_id}
    rows = []
    for epoch, accuracy in enumerate(accuracies, start=1):
        energy = {"energy_joules": joules, "energy_method": "nvml", "energy_boundary": "board"} if joules else {}
        rows.append(common | {"epoch": epoch, "index": epoch, "seconds": 100.0} | energy)
        test = {"phase": "evaluate", "epoch": epoch, "index": epoch, "accuracy": accuracy, "seconds": 7.0}
        rows.append(common | test)
    return rows


def table(*parts, published=False):
    rows = make_rows([row for part in parts for row in part])
    return tables.points(pandas.concat([rows, PUBLISHED], ignore_index=True) if published else rows)


def only(found, **equal):
    for name, value in equal.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


def test_the_share_of_the_ceiling_is_of_all_devices_of_the_same_session():
    one, four = point(), point(256, (300.0,), 4)
    ceilings = [[calibration(400.0, part[0]["session"])] for part in (one, four)]
    found = table(one, four, point(32), *ceilings)
    assert only(found, device_count=1, batch_size=64)["efficiency"] == pytest.approx(100 / 400)
    assert only(found, device_count=4)["efficiency"] == pytest.approx(300 / 1600)
    assert pandas.isna(only(found, batch_size=32)["efficiency"])
    processes = point(device="cpu", device_count=2)
    shared = table(processes, [calibration(400.0, processes[0]["session"], "cpu")])
    assert shared["efficiency"].tolist() == pytest.approx([100 / 400])  # they share one CPU, and its ceiling


def test_the_largest_and_the_fastest_batch_and_the_first_that_memory_did_not_hold():
    parts = point(64), point(128, (150.0,)), point(256, (140.0,)), point(512, status="out_of_memory")
    line = tables.batches(table(*parts, point(1024, status="out_of_memory"))).iloc[0]
    assert (line["largest_batch"], line["out_of_memory_batch"], line["fastest_batch"]) == (256, 512, 128)
    assert line["images_per_second"] == 150
    swapped = tables.batches(table(*parts), frozenset({("desk", 256)})).iloc[0]
    assert swapped["largest_batch"] == 128
    assert pandas.isna(tables.batches(table(point(64))).iloc[0]["out_of_memory_batch"])


def test_scaling_is_against_one_device_with_the_same_images_each():
    found = tables.scaling(table(point(64), point(256, (180.0,)), point(256, (320.0, 360.0, 400.0), 4)))
    line = found.iloc[0]
    assert (line["kind"], line["ratio"], line["efficiency"]) == ("weak", 3.6, 0.9)
    assert (line["low"], line["high"]) == pytest.approx((320 / 110 / 4, 400 / 90 / 4))
    strong = tables.scaling(table(point(256, (180.0,)), point(256, (360.0,), 4))).iloc[0]
    assert (strong["kind"], strong["efficiency"]) == ("strong", 0.5)
    cores = tables.scaling(table(point(8, (10.0,), device="cpu"), point(8, (9.0,), 2, device="cpu"))).iloc[0]
    assert (cores["ratio"], cores["efficiency"]) == (0.9, 0.9)
    assert tables.scaling(table(point(64), point(256, (1.0,), 2))).empty


def test_a_million_images_cost_what_the_rate_and_the_price_say():
    found = costs.money(table(point(stated={"price_per_hour": 3.6}), published=True), PRICES)
    line = only(found, machine="desk")
    assert (line["kind"], line["per_million"], line["rate_per_dollar"]) == ("stated by the run", 10.0, 100 / 3.6)
    assert (line["low"], line["high"]) == pytest.approx((1e6 / 110 * 0.001, 1e6 / 90 * 0.001))
    reserved = only(found, machine="aws-p3-8xlarge", kind="reserved", dataset="synthetic", source="secondary")
    assert round(reserved["rate_per_dollar"]) == 375
    tpu = only(found, machine="cloud-tpu-v2-8", dataset="imagenet")
    assert tpu["per_million"] == pytest.approx(1e6 / 2796 / 3600 * 6.7)
    assert costs.money(table(point()), PRICES).empty


def test_electricity_is_a_cost_and_a_bought_machine_pays_after_some_hours():
    stated = {"purchase_price": 2000.0, "electricity_per_kwh": 0.3}
    windows = [row | {"energy_joules": 12_800.0, "energy_method": "nvml"} for row in point(stated=stated)]
    windows = [row | {"energy_boundary": "board", "idle_watts": 10.0} for row in windows]
    found = table(windows, published=True)
    line = only(costs.money(found, PRICES), machine="desk")
    watts = 12_800 / 640 * 100
    assert line["per_hour"] == pytest.approx(watts / 1000 * 0.3)
    hours = only(costs.break_even(found, PRICES), rented="cloud-tpu-v2-8")["hours"]
    assert hours == float("inf")  # a TPU's hour at a thirtieth of the work costs less than this machine's electricity
    dear = only(costs.break_even(found, PRICES.assign(amount=PRICES["amount"] * 100)), rented="cloud-tpu-v2-8")
    assert dear["hours"] == pytest.approx(2000 / (670 * 100 / 3186 - 0.6))


def test_time_energy_and_money_to_an_accuracy_are_read_off_the_raw_curve():
    rows = make_rows(run([0.2, 0.6, 0.5, 0.7], stated={"price_per_hour": 36.0}))
    found = costs.curves(rows, PRICES)
    assert found["hours"].tolist() == pytest.approx([hour / 36 for hour in (1, 2, 3, 4)])
    assert found["dollars"].tolist() == pytest.approx([1, 2, 3, 4])
    reached = costs.to_target(found, 0.55).iloc[0]
    assert (reached["epoch"], reached["hours"], reached["joules"], reached["dollars"]) == pytest.approx(
        (2, 2 / 36, 20, 2)
    )
    missed = costs.to_target(found, 0.71).iloc[0]
    assert missed[["epoch", "hours", "joules", "dollars"]].isna().all()
    assert missed["best_accuracy"] == 0.7
    unread = costs.curves(make_rows(run([0.2], joules=None)), PRICES)
    assert unread[["joules", "dollars"]].isna().all().all()


def test_the_articles_dollars_to_its_accuracies_come_out():
    found = costs.curves(PUBLISHED, PRICES)
    cost = {(line["machine"], line["epoch"]): line["dollars"] for line in found.to_dict("records")}
    assert round(cost["cloud-tpu-v2-8", 64]) == 55
    assert round(cost["cloud-tpu-v2-8", 86]) == 73
    assert costs.to_target(found, 0.757).set_index("machine")["epoch"].to_dict() == {
        "aws-p3-8xlarge": 84,
        "cloud-tpu-v2-8": 64,
    }


def everything():
    rows = [*point(64), *point(128, (150.0,)), *point(256, status="out_of_memory"), *point(256, (320.0,), 4)]
    rows += [*run([0.2, 0.6], stated={"price_per_hour": 2.0}), calibration(400.0, rows[0]["session"])]
    return pandas.concat([make_rows(rows), PUBLISHED], ignore_index=True)


@pytest.mark.parametrize("rows", [make_rows([]), PUBLISHED, make_rows(point()), everything()], ids=len)
def test_every_chart_draws_what_there_is(rows):
    found, learned = tables.points(rows), costs.curves(rows, PRICES)
    drawn = [(charts.draw_rates, found), (charts.draw_efficiency, found), (charts.draw_scaling, tables.scaling(found))]
    drawn += [(charts.draw_money, costs.money(found, PRICES))]
    drawn += [(lambda axes, what, by=by: charts.draw_accuracy(axes, what, by), learned) for by in ("hours", "dollars")]
    for draw, what in drawn:
        with figures.style():
            axes = Figure(figsize=(12, 6)).subplots()
            draw(axes, what)
            axes.figure.draw_without_rendering()
        assert axes.get_title(loc="left")
        assert axes.get_xlabel()


def test_titles_say_what_was_measured():
    found = tables.points(everything())
    assert charts.rates_title(found) == "Up to 320 images/s (reference, cuda, batch 256)"
    assert "nothing measured" in charts.rates_title(tables.points(PUBLISHED))
    assert charts.money_title(costs.money(tables.points(PUBLISHED), PRICES)).startswith(
        "A million images: published 0."
    )


def test_a_runs_reading_names_its_devices():
    text = tables.reading(make_rows(point(256, (300.0,), 4)))
    assert "4 x cuda" in text
    assert "median of 300.0 images a second" in text
