"""What is said of a network of one's own: the fastest batch, what loading costs, what other chips would take."""

import pytest

from benchbook.record.predictions.answer import of_the_record
from benchbook.studies import prediction_tables as learning
from benchbook.studies.study import Evidence
from benchbook.studies.your_network import charts, results, sizes, tables
from rows import make_row, make_rows

OWN = {"study": "your_network", "point": "reference-cpu-1234abcd", "variant": "reference", "model": "resnet18"}
OWN |= {"framework": "torch", "device": "cpu", "precision": "fp32", "batch_size": 16, "image_size": 224}
OWN |= {"dataset": "photographs", "num_workers": 2, "flops_per_sample": 1.1e10, "dataset_samples": 320}


def window(number: int, rate: float, **more) -> dict:
    times = {"samples": 160, "seconds": 160 / rate, "samples_per_second": rate, "input_seconds": 16 / rate}
    return make_row(**OWN | {"phase": "train", "index": number} | times | more)


@pytest.fixture(scope="module")
def evidence():
    rows = [window(number, 10.0) for number in range(3)]
    for number, (size, rate) in enumerate([(4, 8.0), (4, 9.0), (64, 12.0), (64, 12.5)]):
        tried = {"phase": "calibrate", "settings": {"tried": sizes.TRIED}, "batch_size": size}
        rows.append(window(number, rate, **tried))
    tried = {"phase": "calibrate", "index": 4, "settings": {"tried": sizes.TRIED}, "batch_size": 256}
    none = dict.fromkeys(("samples", "seconds", "samples_per_second", "input_seconds"))
    rows.append(make_row(**OWN | tried | none | {"status": "out_of_memory", "message": "planted"}))
    rows += [window(5 + number, 12.5, phase="calibrate", settings={"tried": "resident"}) for number in range(2)]
    return Evidence(make_rows(rows))


def test_the_fastest_and_the_largest_batch_are_named_and_what_memory_lacks_is_a_line(evidence):
    table = tables.batch_sizes(evidence)
    assert table["batch_size"].tolist() == [4, 64, 256]
    assert table["samples_per_second"].tolist()[:2] == [8.5, 12.25]
    assert table["status"].tolist() == ["ok", "ok", "out_of_memory"]
    assert tables.rates(evidence)["status"].tolist() == ["ok"]  # a batch that was only tried is no failure of the point
    said = " ".join(drawing.alt for drawing in results.STUDY.draw(evidence))
    assert "resnet18 is fastest at 64 samples a step; 64 is the largest that worked" in said


def test_what_a_ready_batch_would_save_is_told_of_images_that_are_loaded(evidence):
    [line] = tables.shares(evidence).to_dict("records")
    assert line["waited"] == pytest.approx(0.1)
    assert line["share"] == pytest.approx(1 - 10 / 12.5)


def test_other_chips_are_predicted_from_the_operations_and_not_mixed_with_what_was_measured(evidence):
    table = tables.elsewhere(evidence)
    [measured] = table[table["source"] == "measured"].to_dict("records")
    assert measured["hours"] == pytest.approx(tables.IMAGES / 10 / 3600)
    others = table[table["source"] == "predicted"].set_index("where")
    assert set(others.index) == set(tables.CHIPS)
    assert others["samples_per_second"].notna().all()
    assert (others["low"] < others["samples_per_second"]).all()
    assert others.loc["NVIDIA A100", "hours"] < others.loc["NVIDIA T4", "hours"]
    assert others.loc["NVIDIA A100", "dollars"] > 0
    assert others.loc["Apple M1", ["dollars"]].isna().all()  # nobody on record rents it by the hour


def test_a_network_whose_operations_were_not_counted_is_not_predicted():
    rows = [window(number, 10.0) | {"flops_per_sample": None} for number in range(3)]
    assert tables.elsewhere(Evidence(make_rows(rows)))["source"].tolist() == ["measured"]


def test_nothing_measured_is_nothing_drawn():
    assert results.STUDY.draw(Evidence(make_rows([make_row()]))) == []


def test_the_record_is_asked_about_this_machine_without_it_and_says_whether_it_came_near(monkeypatch):
    monkeypatch.setattr(learning, "learn", lambda evidence: of_the_record())  # chips are another test's
    calibration = {"study": "calibrate", "phase": "calibrate", "point": "x-cpu-1", "device": "cpu"}
    calibration |= {"samples": 1, "seconds": 1.0, "samples_per_second": 1.0, "batch_size": None}
    product = calibration | {"model": "matmul", "flops_per_sample": 4e11, "precision": "fp32"}
    rows = [product, calibration | {"model": "copy", "bytes_per_sample": 2e10, "index": 1}]
    for model, rate, machine in (("near", 10.0, "desk"), ("far", 1e4, "desk"), ("elsewhere", 10.0, "not-calibrated")):
        own = {"model": model, "machine": machine, "point": f"reference-cpu-{model}", "run_id": model}
        rows += [window(number, rate, **own) for number in range(3)]
    table = tables.elsewhere(Evidence(make_rows([make_row(**row) for row in rows])))
    lines = table[table["source"] == tables.HELD_OUT].set_index("model")
    assert lines["where"].to_dict() == {"near": "desk", "far": "desk", "elsewhere": "not-calibrated"}
    assert lines.loc["near", "low"] < lines.loc["near", "samples_per_second"] < lines.loc["near", "high"]
    assert (
        lines.loc["near", "samples_per_second"] == lines.loc["far", "samples_per_second"]
    )  # blind to what was measured
    said = {model: charts.held_out(of_it) for model, of_it in table.groupby("model")}
    assert "what was measured lies within" in said["near"]
    assert "what was measured lies outside" in said["far"]
    assert "not-calibrated was not calibrated: make study STUDIES=calibrate" in said["elsewhere"]
    assert "desk is predicted" not in charts.elsewhere_title(table)
