"""Tables of the ResNet-50 study against sums done by hand; charts that draw whatever there is."""

import json

import pandas
import pytest

from benchbook.judging.verdicts import Verdict
from benchbook.machine import layout
from benchbook.record import articles
from benchbook.rows import records
from benchbook.studies.resnet50_cost import charts, money, tables
from benchbook.studies.resnet50_cost.results import STUDY
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

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


def evidence(*parts, published=False):
    rows = make_rows([row for part in parts for row in part])
    return Evidence(pandas.concat([rows, PUBLISHED], ignore_index=True) if published else rows)


def table(*parts):
    return tables.points(evidence(*parts))


def only(lines, **equal):
    for name, value in equal.items():
        lines = lines[lines[name] == value]
    assert len(lines) == 1
    return lines.iloc[0]


def test_the_share_of_the_ceiling_is_of_all_devices_of_the_same_session():
    one, four = point(), point(256, (300.0,), 4)
    ceilings = [[calibration(400.0, part[0]["session"])] for part in (one, four)]
    shares = table(one, four, point(32), *ceilings)
    assert only(shares, device_count=1, batch_size=64)["efficiency"] == pytest.approx(100 / 400)
    assert only(shares, device_count=4)["efficiency"] == pytest.approx(300 / 1600)
    assert pandas.isna(only(shares, batch_size=32)["efficiency"])
    processes = point(device="cpu", device_count=2)
    shared = table(processes, [calibration(400.0, processes[0]["session"], "cpu")])
    assert shared["efficiency"].tolist() == pytest.approx([100 / 400])  # they share one CPU, and its ceiling


def test_the_largest_and_the_fastest_batch_and_the_first_that_memory_did_not_hold():
    parts = point(64), point(128, (150.0,)), point(256, (140.0,)), point(512, status="out_of_memory")
    line = tables.batches(table(*parts, point(1024, status="out_of_memory"))).iloc[0]
    assert (line["largest_batch"], line["out_of_memory_batch"], line["fastest_batch"]) == (256, 512, 128)
    assert line["images_per_second"] == 150
    judged = table(*parts)
    held = [Verdict((("swap",),)) if size == 256 else Verdict() for size in judged["batch_size"]]
    swapped = judged.assign(verdict=held)
    assert tables.batches(swapped).iloc[0]["largest_batch"] == 128
    assert pandas.isna(tables.batches(table(point(64))).iloc[0]["out_of_memory_batch"])


def test_scaling_is_against_one_device_with_the_same_images_each():
    line = tables.scaling(table(point(64), point(256, (180.0,)), point(256, (320.0, 360.0, 400.0), 4))).iloc[0]
    assert (line["kind"], line["ratio"], line["efficiency"]) == ("weak", 3.6, 0.9)
    assert 320 / 110 / 4 <= line["low"] < 0.9 < line["high"] <= 400 / 90 / 4
    strong = tables.scaling(table(point(256, (180.0,)), point(256, (360.0,), 4))).iloc[0]
    assert (strong["kind"], strong["efficiency"]) == ("strong", 0.5)
    cores = tables.scaling(table(point(8, (10.0,), device="cpu"), point(8, (9.0,), 2, device="cpu"))).iloc[0]
    assert (cores["ratio"], cores["efficiency"]) == (0.9, 0.9)
    assert tables.scaling(table(point(64), point(256, (1.0,), 2))).empty


def test_a_million_images_cost_what_the_rate_and_the_price_say():
    costs = money.costs(evidence(point(stated={"price_per_hour": 3.6}), published=True))
    line = only(costs, machine="desk")
    assert (line["kind"], line["per_million"], line["rate_per_dollar"]) == ("stated by the run", 10.0, 100 / 3.6)
    assert (line["low"], line["high"]) == pytest.approx((1e6 / 110 * 0.001, 1e6 / 90 * 0.001))
    reserved = only(costs, machine="aws-p3-8xlarge", kind="reserved", dataset="synthetic", source="secondary")
    assert round(reserved["rate_per_dollar"]) == 375
    tpu = only(costs, machine="cloud-tpu-v2-8", dataset="imagenet")
    assert tpu["per_million"] == pytest.approx(1e6 / 2796 / 3600 * 6.7)
    assert money.costs(evidence(point())).empty


def test_electricity_is_a_cost_and_a_bought_machine_pays_after_some_hours():
    stated = {"purchase_price": 2000.0, "electricity_per_kwh": 0.3}
    windows = [row | {"energy_joules": 12_800.0, "energy_method": "nvml"} for row in point(stated=stated)]
    windows = [row | {"energy_boundary": "board", "idle_watts": 10.0} for row in windows]
    both = evidence(windows, published=True)
    line = only(money.costs(both), machine="desk")
    watts = 12_800 / 640 * 100
    assert line["per_hour"] == pytest.approx(watts / 1000 * 0.3)
    hours = only(money.break_even(both), rented="cloud-tpu-v2-8")["hours"]
    assert hours == float("inf")  # a TPU's hour at a thirtieth of the work costs less than this machine's electricity
    dear = Evidence(both.rows, prices=both.prices.assign(amount=both.prices["amount"] * 100))
    hours = only(money.break_even(dear), rented="cloud-tpu-v2-8")["hours"]
    assert hours == pytest.approx(2000 / (670 * 100 / 3186 - 0.6))


def test_joules_of_a_board_are_priced_with_a_word_and_those_of_the_wall_without():
    stated = {"purchase_price": 2000.0, "electricity_per_kwh": 0.3}
    for boundary, method, words in (("board", "nvml", "GPU's board alone"), ("wall", "meter", "")):
        energy = {"energy_joules": 12_800.0, "energy_method": method, "energy_boundary": boundary}
        both = evidence([row | energy for row in point(stated=stated)], published=True)
        cost = only(money.costs(both), machine="desk")
        assert (cost["kind"], cost["energy_boundary"], cost["energy_method"]) == ("electricity", boundary, method)
        hours = only(money.break_even(both), rented="cloud-tpu-v2-8")
        for line in (cost, hours):
            assert words in line["note"]
            assert bool(line["note"]) == (boundary != "wall")
        rented = only(money.costs(both), machine="cloud-tpu-v2-8", dataset="synthetic")
        assert pandas.isna(rented["energy_boundary"])
        assert rented["note"] == ""


def test_prices_in_euros_are_no_dollars():
    listed = articles.prices().assign(currency="EUR")
    assert money.costs(Evidence(evidence(point(), published=True).rows, prices=listed)).empty


def test_a_measured_accuracy_judges_claims_of_epochs_and_cost():
    own = {"device_count": 4, "dataset": "imagenet", "device": "tpu", "device_name": "TPU v2", "chip": "TPU v2"}
    own |= {"dataset_samples": 1_281_167, "batch_size": 1024}
    rows = [row | own for row in run([0.5, 0.757, 0.764], stated={"price_per_hour": 6.7})]
    values = {(line["name"], line["source"]): line["value"] for line in STUDY.quantities(evidence(rows))}
    assert values["best_accuracy", "measured"] == 0.764
    assert (values["epochs_to_best", "measured"], values["epochs_to_757", "measured"]) == (3, 2)
    assert values["on_demand_per_hour", "measured"] == 6.7


def test_time_energy_and_money_to_an_accuracy_are_read_off_the_raw_curve():
    curve = money.curves(evidence(run([0.2, 0.6, 0.5, 0.7], stated={"price_per_hour": 36.0})))
    assert curve["hours"].tolist() == pytest.approx([hour / 36 for hour in (1, 2, 3, 4)])
    assert curve["dollars"].tolist() == pytest.approx([1, 2, 3, 4])
    reached = money.to_target(curve, 0.55).iloc[0]
    ends = ["epoch", "hours", "joules", "dollars"]
    assert reached[ends].tolist() == pytest.approx([2, 2 / 36, 20, 2])
    missed = money.to_target(curve, 0.71).iloc[0]
    assert missed[ends].isna().all()
    assert missed["best_accuracy"] == 0.7
    unread = money.curves(evidence(run([0.2], joules=None)))
    assert unread[["joules", "dollars"]].isna().all().all()


def test_the_articles_dollars_to_its_accuracies_come_out():
    curves = money.curves(Evidence(PUBLISHED))
    cost = {(line["machine"], line["epoch"]): line["dollars"] for line in curves.to_dict("records")}
    assert round(cost["cloud-tpu-v2-8", 64]) == 55
    assert round(cost["cloud-tpu-v2-8", 86]) == 73
    epochs = money.to_target(curves).set_index("machine")["epoch"].to_dict()
    assert epochs == {"aws-p3-8xlarge": 84, "cloud-tpu-v2-8": 64}


def everything():
    rows = [*point(64), *point(128, (150.0,)), *point(256, status="out_of_memory"), *point(256, (320.0,), 4)]
    rows += [*run([0.2, 0.6], stated={"price_per_hour": 2.0}), calibration(400.0, rows[0]["session"])]
    return pandas.concat([make_rows(rows), PUBLISHED], ignore_index=True)


@pytest.mark.parametrize("rows", [make_rows([]), PUBLISHED, make_rows(point()), everything()], ids=len)
def test_every_chart_draws_what_there_is(rows):
    for chart in STUDY.charts:
        drawing = chart.draw(Evidence(rows))
        assert drawing.picture
        assert all(axes.get_title(loc="left") and axes.get_xlabel() for axes in drawing.figure.axes)


def test_titles_say_what_was_measured():
    title = charts.rates_title(tables.points(Evidence(everything())))
    assert title == "ResNet-50 trains up to 320 images a second (GPU, batch 256)"
    printed = Evidence(PUBLISHED)
    assert "nothing measured" in charts.rates_title(tables.points(printed))
    assert charts.costs_title(money.costs(printed)).startswith(
        "A million images cost 0.58 to 1.2 US dollars at published"
    )


def test_the_points_are_made_once_for_all_charts(monkeypatch):
    calls, efficiency = [], tables.ceilings.efficiency
    monkeypatch.setattr(tables.ceilings, "efficiency", lambda *both: calls.append(1) or efficiency(*both))
    evidence = Evidence(everything())
    for chart in STUDY.charts:
        chart.draw(evidence)
    assert len(calls) == 1
