"""Pairs of chips made by hand, a law they follow exactly, and the published ones."""

import json
import math

import pandas
import pytest

from benchbook import articles
from benchbook.predictions import cores
from rows import make_row, make_rows


def printed(machine, chip, rate, publication="A test", work="net-b1", device_name=None, **columns):
    row = {
        "study": "related",
        "machine": machine,
        "chip": chip,
        "device": "metal",
        "device_name": device_name or chip,
        "source": "published",
        "reference": f"{publication}; somewhere",
        "point": work,
        "run_id": f"published-{machine}",
        "samples": None,
        "seconds": None,
        "samples_per_second": rate,
    }
    return make_row(**row | columns)


def law(exponent, publications=4):
    """Return pairs whose speed is the cores to a power: an M1 of 8 and an M1 Max of 24 or 32, one a publication."""
    rows = []
    for number, gpu_cores in zip(range(publications), (32, 24, 32, 24), strict=False):
        names = {"publication": f"Test {number}", "run_id": f"published-{number}"}
        rows.append(printed(f"small-{number}", "Apple M1", 8.0, device_name="Apple M1 (8-core GPU)", **names))
        large = 8.0 * (gpu_cores / 8) ** exponent
        rows.append(
            printed(
                f"large-{number}", "Apple M1 Max", large, device_name=f"Apple M1 Max ({gpu_cores}-core GPU)", **names
            )
        )
    return make_rows(rows)


def test_the_rule_is_right_where_speed_follows_cores_and_its_error_is_known_where_not():
    right, half = cores.pairs(law(1.0)), cores.pairs(law(0.5))
    assert right["rule"].tolist() == [4.0, 3.0, 4.0, 3.0]
    assert right["rule_error"].tolist() == pytest.approx([0, 0, 0, 0])
    assert half["rule_error"].tolist() == pytest.approx([1, math.sqrt(3) - 1] * 2)
    assert half["measured"].tolist() == pytest.approx([2, math.sqrt(3)] * 2)


def test_a_calibration_finds_the_law_and_is_blind_to_the_publication_it_judges():
    table = cores.pairs(law(0.5))
    assert table["calibrated_error"].abs().max() < 1e-9
    rows = law(0.5)
    odd = rows["machine"] == "large-0"
    rows.loc[odd, "samples_per_second"] = 80.0
    first = cores.pairs(rows).iloc[0]
    assert first["calibrated"] == pytest.approx(2)  # of the others alone
    assert first["measured"] == pytest.approx(10)
    assert cores.pairs(law(0.5, 2))["calibrated"].isna().all()


def test_a_fit_by_hand_and_its_interval():
    found = cores.fit([2, 4, 8], [2, 2, 8])  # in powers of two: 1, 2, 3 against 1, 1, 3
    assert found.exponent == pytest.approx((1 + 2 + 9) / 14)
    left = [math.log(2) * (y - found.exponent * x) for x, y in ((1, 1), (2, 1), (3, 3))]
    assert found.spread == pytest.approx(math.sqrt(sum(part**2 for part in left) / 2))
    value, low, high = found.predict(4)
    assert value == pytest.approx(4 ** (12 / 14))
    assert high / value == pytest.approx(value / low)
    assert math.log(high / value) == pytest.approx(4.30265 * found.spread * math.sqrt(4 / 3), rel=1e-4)
    with pytest.raises(ValueError, match="2 pairs; allowed: 3 or more"):
        cores.fit([2, 3], [2, 3])


def test_chips_without_printed_cores_have_a_range_and_others_none():
    assert cores.core_counts("Apple M1", "Apple M1 (7-core GPU)") == (7, 7)
    assert cores.core_counts("Apple M1", "Apple M1") == (7, 8)
    assert cores.core_counts("NVIDIA V100", "NVIDIA V100") is None
    rows = make_rows([printed("a", "Apple M1", 10.0), printed("b", "Apple M1 Max", 20.0)])
    line = cores.pairs(rows).iloc[0]
    assert (line["rule_low"], line["rule_high"]) == (24 / 8, 32 / 7)
    assert line["rule"] == pytest.approx(math.sqrt(24 / 8 * 32 / 7))
    assert line["larger_cores"] == "24 or 32"


def test_only_the_same_work_of_one_publication_and_generation_makes_a_pair():
    small = printed("a", "Apple M1", 10.0)
    for other in (
        printed("b", "Apple M1 Max", 20.0, work="other-b1"),
        printed("b", "Apple M1 Max", 20.0, publication="Another"),
        printed("b", "Apple M3 Max", 20.0),
        printed("b", "Apple M1", 20.0),
        printed("b", "Apple M1 Max", 20.0, device="cpu"),
        printed("b", "Apple M1 Max", 20.0, source="derived"),
    ):
        assert cores.pairs(make_rows([small, other])).empty


def test_seconds_are_turned_round_and_their_printed_digits_bound_them():
    settings = json.dumps({"rounding": {"seconds": 0.5}})
    common = {"phase": "total", "settings": settings}
    rows = [
        printed("a", "Apple M1", None, seconds=20.0, **common),
        printed("b", "Apple M1 Pro", None, seconds=10.0, **common),
    ]
    line = cores.pairs(make_rows(rows)).iloc[0]
    assert line["measured"] == pytest.approx(2)
    assert (line["measured_low"], line["measured_high"]) == pytest.approx((19.5 / 10.5, 20.5 / 9.5))


def test_training_alone_counts_where_a_publication_printed_more():
    rows = []
    for machine, chip, train, total in (("a", "Apple M1", 10.0, 50.0), ("b", "Apple M1 Pro", 5.0, 45.0)):
        rows += [printed(machine, chip, None, seconds=total, phase="total")]
        rows += [printed(machine, chip, None, seconds=train, phase="train")]
    assert cores.pairs(make_rows(rows))["measured"].tolist() == [2.0]


def test_measured_points_of_two_machines_are_a_pair():
    common = {"study": "segmentation_scaling", "device": "metal", "point": "same", "framework": "tensorflow"}
    rows = [
        make_row(**common, machine="a", chip="Apple M1", device_name="Apple M1", samples_per_second=3.0, run_id="a"),
        make_row(
            **common, machine="b", chip="Apple M1 Pro", device_name="Apple M1 Pro", samples_per_second=6.0, run_id="b"
        ),
    ]
    line = cores.pairs(make_rows(rows)).iloc[0]
    assert (line["publication"], line["source"], line["measured"]) == ("measured here", "measured", 2.0)


def test_the_published_pairs_are_those_counted_by_hand():
    table = cores.pairs(articles.rows())
    assert table.groupby("publication").size().to_dict() == {
        "Raschka M1 GPU (May 2022) LeNet5 MNIST": 1,
        "Raschka M1 GPU (May 2022) MLP MNIST": 2,
        "mrdbourke m1-machine-learning-test (2021)": 6,
        "mrdbourke mac-ml-speed-test (Dec 2023)": 18,
        "tlkh tf-metal-experiments contributed": 8,
    }
    line = table[
        (table["work"] == "resnet50-b128-tf-metal") & (table["smaller"] == "tlkh-contributed-m1-pro-14c")
    ].iloc[0]
    assert (line["measured"], line["rule"]) == (pytest.approx(135 / 57.9), pytest.approx(32 / 14))
    assert table["measured"].between(table["measured_low"], table["measured_high"]).all()


def test_nothing_makes_no_pair_and_no_calibration():
    table = cores.pairs(make_rows([]))
    assert table.empty
    assert list(table.columns) == cores.COLUMNS
    assert cores.calibrated(table) is None
    assert isinstance(table, pandas.DataFrame)
