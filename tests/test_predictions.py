"""Speeds made by a law that is known, what is hidden from a prediction, what is refused, and the published rows."""

import json
import math

import numpy
import pandas
import pytest

from benchbook import articles, predictions, statistics
from benchbook.predictions import OTHER, PREDICTED, SAME, Pairs, TooLittle, speeds
from benchbook.studies.segmentation_scaling import scaling
from rows import make_row, make_rows


def printed(network, chip, rate, publication="A test", **columns):
    row = {
        "study": "related",
        "machine": f"{publication}-{chip}",
        "chip": chip,
        "device": "metal",
        "device_name": chip,
        "source": "published",
        "reference": f"{publication}; somewhere",
        "run_id": f"published-{chip}",
        "point": f"{network}-b{columns.get('batch_size', 64)}",
        "model": network,
        "samples": None,
        "seconds": None,
        "samples_per_second": rate,
    }
    return make_row(**row | columns)


def table(rows):
    frame = make_rows(rows)
    return speeds.table(frame, statistics.summarise(frame))


def law(num_chips=4, num_networks=4, spread=0.0, kept=1.0, **columns):
    """Return rows whose speed is an effect of the network times one of the chip, with noise; some are left out."""
    random = numpy.random.default_rng(5)
    rows = []
    for network in range(num_networks):
        for chip in range(num_chips):
            rate = 10.0 * 3.0**network * 1.5**chip * math.exp(random.normal(0, spread))
            if random.random() <= kept:
                rows.append(printed(f"net-{network}", f"Chip {chip}", rate, **columns))
    return rows


def settings(num_batches=4, num_chips=4):
    """Return one network at several batches, whose chips differ more the larger the batch."""
    rows = []
    for batch in range(num_batches):
        for chip in range(num_chips):
            rate = 100.0 * 1.3 ** (chip * (1 + 0.1 * batch))
            rows.append(printed("net-9", f"Chip {chip}", rate, batch_size=2 ** (batch + 3)))
    return rows


def name_of(known, network):
    return known.loc[known["network"] == network, "work"].iloc[0]


def test_planted_effects_are_found_where_one_is_missing():
    rows = [row for row in law() if (row["model"], row["chip"]) != ("net-2", "Chip 3")]
    known = table(rows)
    found = Pairs(known).predict("Chip 3 GPU", name_of(known, "net-2"))
    assert found.value == pytest.approx(10 * 9 * 1.5**3)
    assert (found.basis, found.num_guesses) == (OTHER, 9)  # three other chips, three other networks
    assert found.low == pytest.approx(found.high)  # without noise


@pytest.mark.parametrize("factor", [0.01, 100])
@pytest.mark.parametrize("blind", [False, True])
def test_what_is_held_out_moves_neither_its_prediction_nor_its_interval(factor, blind):
    rows = law(5, 5, spread=0.3) + settings()
    before = table(rows)
    work = name_of(before, "net-2")
    for row in rows:
        if (row["model"], row["chip"]) == ("net-2", "Chip 3"):
            row["samples_per_second"] *= factor
    after = table(rows)
    assert before["speed"].tolist() != after["speed"].tolist()
    assert Pairs(before).predict("Chip 3 GPU", work, blind) == Pairs(after).predict("Chip 3 GPU", work, blind)


def test_blind_to_a_network_nothing_that_was_done_with_it_counts():
    rows = law(5, 5, spread=0.3)
    rows += [printed("net-2", f"Chip {chip}", 5.0 + chip, batch_size=256, publication="Another") for chip in range(5)]
    before = table(rows)
    work = name_of(before[before["publication"] == "A test"], "net-2")
    for row in rows:
        if (row["model"], row["chip"]) == ("net-2", "Chip 3"):
            row["samples_per_second"] *= 100
    after = table(rows)
    both = [Pairs(known).predict("Chip 3 GPU", work, blind=True) for known in (before, after)]
    assert both[0] == both[1]
    assert Pairs(before).predict("Chip 3 GPU", work).value != Pairs(after).predict("Chip 3 GPU", work).value


def test_a_work_that_somebody_else_did_too_is_no_further_work():
    rows = law(5, 5, spread=0.3)
    rows += [printed("net-2", f"Chip {chip}", 5.0 + chip, publication="Another") for chip in range(5)]
    before = table(rows)
    work = name_of(before[before["publication"] == "A test"], "net-2")
    rows[-2]["samples_per_second"] *= 100  # Chip 3's
    assert Pairs(table(rows)).predict("Chip 3 GPU", work) == Pairs(before).predict("Chip 3 GPU", work)


def test_the_closest_batch_of_the_same_network_tells_most():
    known = table(settings() + law(4, 3))
    batches = known[known["network"] == "net-9"]
    work = batches.loc[batches["batch_size"] == 64, "work"].iloc[0]
    found = Pairs(known).predict("Chip 3 GPU", work)
    assert found.basis == SAME
    closest = batches[batches["batch_size"] == 32].set_index("processor")["speed"]
    asked = batches[batches["work"] == work].set_index("processor")["speed"].drop("Chip 3 GPU")
    assert found.value == pytest.approx((asked * closest["Chip 3 GPU"] / closest).median())
    assert found.num_guesses == 3


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_intervals_hold_what_they_say_on_known_noise(spread):
    rows = law(12, 20, spread, kept=0.6)
    frame = make_rows(rows)
    found = predictions.table(frame, statistics.summarise(frame))
    held = found[found["basis"] == OTHER]
    assert len(held) > 100
    assert 0.84 <= held["measured"].between(held["low"], held["high"]).mean() <= 0.95
    judged = predictions.errors(found, scaling.pairs(frame)).set_index("rule").loc[OTHER]
    assert 0.5 * spread < judged["median_error"] < 1.2 * spread
    word = "kept" if judged["median_error"] <= 0.15 else "missed"
    assert f"wished 15% or less, {word})" in judged["finding"]


def test_too_little_is_refused_and_names_that_are_not_known_are_told():
    known = table(law(2, 3))
    work = name_of(known, "net-0")
    with pytest.raises(TooLittle, match="2 of the 3 guesses"):
        Pairs(known).predict("Chip 0 GPU", work)
    with pytest.raises(TooLittle, match="8 of the 9 errors"):
        Pairs(table(law(3, 4))).predict("Chip 2 GPU", work)
    with pytest.raises(ValueError, match="'Chip 9 GPU' is not known; allowed: 'Chip 0 GPU', 'Chip 1 GPU'"):
        Pairs(known).predict("Chip 9 GPU", work)
    with pytest.raises(ValueError, match="'another' is not known"):
        Pairs(known).predict("Chip 0 GPU", "another")


def test_tiny_networks_tell_nothing_of_larger_ones():
    rows = [printed(network, f"Chip {chip}", 1.0 + chip) for network in ("mlp", "lenet5", "vae") for chip in range(4)]
    rows += [printed("resnet50", f"Chip {chip}", 9.0) for chip in range(3)]
    known = table(rows)
    with pytest.raises(TooLittle, match="0 of the 3 guesses"):
        Pairs(known).predict("Chip 3 GPU", name_of(known, "resnet50"))


def test_no_line_repeats_another():
    total = json.dumps({"includes": "evaluation"})
    rows = [
        printed("net", "Apple M1", 10.0, run_id="old", framework_version="1.9.1"),
        printed("net", "Apple M1", 30.0, framework_version="1.10"),
        printed("net", "Apple M1", None, seconds=5.0, samples=10, phase="total", settings=total),
        printed("net", "Apple M1", 50.0, machine="other", framework_version="1.10"),
        printed("net", "Apple M1 Max", 80.0),
        printed("net", "Apple M2", 99.0, source="derived"),
        printed("net", "Apple M2", 99.0, phase="evaluate"),
        printed("net", "Apple M2", 99.0, run_id="untold", device=None),
    ]
    known = table(rows)
    assert known[["processor", "speed"]].to_numpy().tolist() == [["Apple M1 GPU", 40.0], ["Apple M1 Max GPU", 80.0]]


def test_a_total_counts_where_more_processors_have_it():
    rows = [printed("net", "Apple M1", 10.0)]
    rows += [printed("net", chip, None, seconds=4.0, samples=8, phase="total") for chip in ("Apple M1", "Apple M2")]
    assert table(rows)["speed"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("device", "chip", "device_name", "count", "name"),
    [
        ("cuda", "AMD EPYC", "Tesla V100-SXM2-16GB", 1, "V100"),
        ("cuda", "NVIDIA V100", "NVIDIA V100 16GB", 4, "4 x V100"),
        ("cuda", "AMD EPYC", "NVIDIA H100 80GB HBM3", 1, "H100"),
        ("cuda", "NVIDIA RTX 3090", "NVIDIA GeForce RTX 3090", 1, "RTX 3090"),
        ("mps", "Apple M1 Max", "Apple M1 Max (32-core GPU)", 1, "Apple M1 Max GPU"),
        ("metal", "Apple M1 Max", "Apple M1 Max", 1, "Apple M1 Max GPU"),
        ("cpu", "Apple M1", "Apple M1", 1, "Apple M1 CPU"),
        ("cpu", "AMD EPYC", "AMD EPYC", 1, "desk CPU"),
    ],
)
def test_one_processor_has_one_name_whoever_wrote_it(device, chip, device_name, count, name):
    assert speeds.processor(device, chip, device_name, "desk", count) == name


def test_measured_machines_share_works_across_devices():
    rows = []
    for number in range(4):
        for network in range(4):
            names = {"machine": f"desk-{number}", "chip": "Chip", "point": f"reference-cpu-{network}abc"}
            rows.append(make_row(**names, model=f"net-{network}", samples_per_second=10.0 * (number + 1) * 2**network))
    rows = [row for row in rows if (row["machine"], row["model"]) != ("desk-3", "net-1")]
    frame = make_rows(rows)
    found = predictions.table(frame, statistics.summarise(frame))
    line = found[(found["source"] == PREDICTED) & found["predicted"].notna()].iloc[0]
    assert (line["processor"], line["predicted"]) == ("desk-3 CPU", pytest.approx(80.0))
    assert pandas.isna(line["measured"])


def test_refusals_are_one_line_for_a_work_and_a_reason():
    rows = [*law(3, 3), printed("odd", "Chip 9", 5.0, study="segmentation_scaling")]
    frame = make_rows(rows)
    found = predictions.table(frame, statistics.summarise(frame))
    refused = found[found["reason"].notna()]
    assert refused["processor"].tolist() == ["Chip 0 GPU, Chip 1 GPU, Chip 2 GPU"]
    assert refused["reason"].tolist() == ["0 of the 3 guesses that it needs"]
    assert refused[["predicted", "low", "high", "measured"]].isna().all(axis=None)


@pytest.fixture(scope="module")
def published():
    rows = articles.rows()
    found = predictions.table(rows, statistics.summarise(rows))
    return found, predictions.errors(found, scaling.pairs(rows))


def test_the_published_rows_judge_predictions_and_cores_on_the_same_pairs(published):
    _, judged = published
    every = judged[judged["judged_on"] == "all held out"].set_index("rule")
    assert every["num_pairs"].to_dict() == {OTHER: 57, SAME: 98, "calibration": 0}
    assert every["coverage"].dropna().between(0.8, 0.98).all()
    for _, group in judged[judged["judged_on"] != "all held out"].groupby("judged_on"):
        assert len(group) == 3
        assert group["num_pairs"].nunique() == 1
    assert every.loc["calibration", "finding"] == "Calibration: nothing measured to judge it by."


def test_of_the_articles_studies_what_nobody_measured_is_predicted_or_refused(published):
    found, _ = published
    ahead = found[found["source"] == PREDICTED]
    line = ahead[(ahead["study"] == "segmentation_scaling") & (ahead["processor"] == "Apple M1 Max GPU")].iloc[0]
    assert line["low"] < line["predicted"] < line["high"]
    assert (line["basis"], line["unit"]) == (OTHER, "samples/s")
    assert set(ahead.loc[ahead["reason"].notna(), "study"]) >= {"resnet50_cost"}
    assert ahead["measured"].isna().all()
    assert (ahead["predicted"].isna() == ahead["reason"].notna()).all()


def test_nothing_makes_no_prediction_and_says_so():
    frame = make_rows([])
    found = predictions.table(frame, statistics.summarise(frame))
    judged = predictions.errors(found, scaling.pairs(frame))
    assert found.empty
    assert judged["num_pairs"].tolist() == [0, 0, 0]
    assert predictions.sentence(judged).count("nothing measured to judge it by") == 3
