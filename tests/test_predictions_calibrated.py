"""Machines made by hand that reach known shares of known ceilings, and one that was calibrated and not measured."""

import math

import pytest

from benchbook import predictions, statistics
from benchbook.predictions import TooLittle, calibrated
from benchbook.studies.segmentation_scaling import scaling
from rows import make_row, make_rows

FLOPS = 1e6


def measured(machine, rate, device="cpu", point="reference-{}-12345678", **columns):
    names = {"machine": machine, "device": device, "point": point.format(device), "run_id": f"run-{machine}"}
    names |= {"precision": "fp32", "flops_per_sample": FLOPS, "samples_per_second": rate}
    return make_row(**names | columns)


def calibration(machine, ceiling, device="cpu", **columns):
    names = {"machine": machine, "device": device, "point": "calibrate", "study": "calibrate", "phase": "calibrate"}
    names |= {"model": "matmul", "precision": "fp32", "flops_per_sample": 1e3, "samples_per_second": ceiling / 1e3}
    return make_row(**names | {"run_id": f"calibration-{machine}", "settings": '{"matrix_size": 8}'} | columns)


def shares(efficiencies, ceilings, device="cpu"):
    rows = []
    for number, (efficiency, ceiling) in enumerate(zip(efficiencies, ceilings, strict=True)):
        rows += [calibration(f"desk-{number}", ceiling, device)]
        rows += [measured(f"desk-{number}", efficiency * ceiling / FLOPS, device)]
    return rows


def lines(rows):
    frame = make_rows(rows)
    return calibrated.lines(statistics.summarise(frame), frame)


def test_by_hand():
    found = calibrated.predict([0.1, 0.2, 0.4], 1e12, 1e9)
    assert found.value == pytest.approx(200)
    reach = 2.919986 * math.log(2) * math.sqrt(4 / 3)
    assert math.log(found.high / found.value) == pytest.approx(reach, rel=1e-5)
    assert found.high / found.value == pytest.approx(found.value / found.low)
    assert (found.basis, found.num_guesses) == ("calibration", 3)


@pytest.mark.parametrize(
    ("efficiencies", "ceiling", "flops", "message"),
    [
        ([0.1, 0.2, 0.3], 0.0, 1.0, "ceiling 0.0; allowed: above 0"),
        ([0.1, 0.2, 0.3], 1.0, float("nan"), "flops_per_sample nan; allowed: above 0"),
        ([0.1, -0.2, 0.3], 1.0, 1.0, "efficiency -0.2; allowed: above 0"),
    ],
)
def test_what_is_not_above_0_is_an_error(efficiencies, ceiling, flops, message):
    with pytest.raises(ValueError, match=message):
        calibrated.predict(efficiencies, ceiling, flops)


def test_a_machine_with_a_calibration_and_no_run_gets_the_share_of_the_others():
    rows = [*shares([0.2] * 3, [1e9, 2e9, 4e9]), calibration("new", 8e9)]
    new = [line for line in lines(rows) if line["machine"] == "new"]
    assert len(new) == 1
    assert new[0]["measured"] is None
    assert new[0]["prediction"].value == pytest.approx(0.2 * 8e9 / FLOPS)
    table = predictions.table(make_rows(rows), statistics.summarise(make_rows(rows)))
    line = table[table["machine"] == "new"].iloc[0]
    assert (line["basis"], line["source"]) == ("calibration", "predicted")
    assert line["predicted"] == pytest.approx(1600)
    others = table[table["machine"].isin(["desk-0", "desk-1", "desk-2"]) & (table["basis"] == "calibration")]
    assert others.empty  # two others are too few to judge one of three by


def test_a_machine_is_judged_by_the_others_alone():
    both = [lines(shares([own, 0.1, 0.2, 0.4], [1e9] * 4))[0] for own in (0.2, 0.9)]
    assert [line["measured"] for line in both] == [pytest.approx(200), pytest.approx(900)]
    assert both[0]["prediction"] == both[1]["prediction"]
    assert both[0]["prediction"].value == pytest.approx(200)
    frame = make_rows(shares([0.3, 0.1, 0.2, 0.4], [1e9] * 4))
    judged = predictions.errors(predictions.table(frame, statistics.summarise(frame)), scaling.pairs(frame))
    line = judged.set_index("rule").loc["calibration"]
    assert (line["num_pairs"], line["num_publications"]) == (4, 1)
    product = 0.3 * 0.1 * 0.2 * 0.4
    by_hand = sorted(abs((product / own) ** (1 / 3) / own - 1) for own in (0.3, 0.1, 0.2, 0.4))
    assert line["median_error"] == pytest.approx((by_hand[1] + by_hand[2]) / 2)


def test_two_other_machines_are_too_few_and_the_reason_says_what_is_missing():
    rows = [*shares([0.2] * 2, [1e9, 2e9]), calibration("new", 8e9)]
    assert "2 of the 3 other machines" in next(line["reason"] for line in lines(rows) if line["machine"] == "new")
    with pytest.raises(TooLittle, match="2 of the 3 other machines"):
        calibrated.predict([0.1, 0.2], 1.0, 1.0)


def test_processors_tell_of_their_kind_and_precision_alone():
    others = shares([0.2] * 3, [1e9, 2e9, 4e9], "cuda")
    assert "0 of the 3" in next(
        line["reason"] for line in lines([*others, calibration("new", 8e9)]) if line["machine"] == "new"
    )
    half = calibration("new", 8e9, "mps", precision="fp16")
    assert not [line for line in lines([*others, half]) if line["machine"] == "new"]


def test_the_last_calibration_counts():
    old = calibration("new", 1e9, session="session-0", run_id="first")
    rows = [*shares([0.2] * 3, [1e9, 2e9, 4e9]), calibration("new", 8e9), old]
    assert [line["prediction"].value for line in lines(rows) if line["machine"] == "new"] == [pytest.approx(1600)]
