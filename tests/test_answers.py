"""What a task costs on each machine: marks from rows, record and predictions, their money, sentences and data; and how
a notebook ends with them."""

import datetime
import json
from dataclasses import replace

import jsonschema
import pandas
import pytest

from benchbook import studies
from benchbook.record import articles, estimate
from benchbook.record.forecast import Question, of_the_record
from benchbook.report import answers, headline
from benchbook.report.answers import closing, from_record, from_rows
from benchbook.report.answers.marks import BY_KEY, PRESETS, TASKS
from benchbook.studies.study import Evidence
from rows import make_row, make_rows, windows
from study_rows import evidence, point

RATE = 400.0
RESNET = ("resnet50", "resnet50-accuracy")


@pytest.fixture(scope="module")
def every(both):
    return both[0]


@pytest.fixture(scope="module")
def both():
    """Return the marks, and what is not predicted, of MobileNetV2 at two image sizes, a failure, a network of one's own
    in two batch sizes, a stand-in for MNIST, SimCLR in another batch size than its article's, and all published."""
    mobilenet = {"study": "mobilenetv2_energy", "framework": "tensorflow", "image_size": 128, "dataset": "cifar10"}
    runs = [("desk", "run-1", {}), ("desk", "run-2", {}), ("small", "run-3", {"image_size": 64})]
    rates = [RATE * (1 + index / 100) for index in range(6)]
    lines = [
        row for machine, run, own in runs for row in windows(rates, machine=machine, run_id=run, **mobilenet | own)
    ]
    failed = make_row(machine="broken", run_id="run-4", status="crashed", message="no", **mobilenet)
    failed |= dict.fromkeys(("samples", "seconds", "input_seconds", "samples_per_second"))
    network = {"study": "your_network", "model": "mine", "flops_per_sample": 4e9, "dataset": "example"}
    for size, rate in ((8, 50.0), (16, 100.0)):
        lines += windows([rate] * 6, run_id=f"b{size}", point=f"b{size}", **network)
    lines += windows([320.0] * 6, run_id="digits", point="digits", dataset="digits-28px")
    lines += windows([80.0] * 6, run_id="simclr", study="simclr_epochs", image_size=32, dataset="cifar10", batch_size=8)
    rows = pandas.concat([make_rows([*lines, failed]), articles.rows()], ignore_index=True)
    marks, refused = answers.gather(evidence := Evidence(rows), headline.table(evidence, studies.every()), "desk")
    return answers.priced(marks, datetime.date.today()), refused


def of(every, key, **named):
    """Return the marks of a task whose fields have these values."""
    return [mark for mark in every if mark.task == key and all(getattr(mark, n) == v for n, v in named.items())]


def test_a_measured_mark_is_the_tasks_images_over_the_rate_with_the_bounds_of_its_windows(every):
    (mark,) = of(every, "mobilenetv2", place="desk")
    assert mark.seconds == pytest.approx(1e6 / (RATE * 1.025))  # the median of the windows
    assert mark.low < mark.seconds < mark.high
    (small,) = of(every, "mobilenetv2", place="small")  # one start: the range of its windows
    assert (small.low, small.high) == pytest.approx((1e6 / (RATE * 1.05), 1e6 / RATE))
    assert mark.here
    assert mark.based_on.startswith("2 starts, 12 windows")
    assert not of(every, "mobilenetv2", place="broken")
    assert ("64 px instead of 128" in small.difference, small.here) == (True, False)
    (digits,) = of(every, "mnist", source="measured")
    assert "8 x 8 scans of digits" in digits.name
    assert not any("scans" in other.name for other in of(every, "mnist", source="published"))
    (simclr,) = of(every, "simclr", source="measured")  # its article's epoch was not timed
    assert simclr.seconds == 200 * 50_000 / 80


def test_the_pages_get_the_marks_that_the_aggregation_made(every, tmp_path):
    assert answers.load(tmp_path) == ([], [])
    answers.save(every, [{"task": "mnist"}], tmp_path)
    assert answers.load(tmp_path) == (list(every), [{"task": "mnist"}])


def test_the_batch_that_fits_is_the_networks_whatever_is_asked_of_it(every):
    fits = {key: of(every, key, chip="NVIDIA T4", source="predicted", family="half")[0].fits for key in RESNET}
    assert fits["resnet50"] == fits["resnet50-accuracy"] != ""


def test_the_predicted_operations_enclose_those_of_the_networks_to_choose_from():
    assert from_record.OPERATIONS[0] < min(PRESETS.values()) < max(PRESETS.values()) < from_record.OPERATIONS[-1]


def test_energy_is_of_this_work_or_missing_and_an_estimate_says_so(every):
    known = [mark for mark in every if mark.joules is not None]
    assert {mark.task for mark in known if mark.source != "measured" and mark.estimated} <= {
        "resnet50",
        "resnet50-accuracy",
    }
    assert all(mark.estimated for mark in known if mark.source == "predicted")
    assert any(mark.estimated for mark in known)


def test_a_marketplaces_rent_says_so_and_what_nobody_sold_has_no_price(every):
    offers = pandas.DataFrame({"provider": ["vast.ai"], "usd_per_hour": [0.2], "date": ["2025-01-01"]})
    none = pandas.DataFrame()
    assert answers.prices(offers, none)["rent"] == 0.2
    assert answers.prices(offers, none)["marketplace"]
    assert answers.prices(offers, none)["rent_note"].startswith("vast.ai, ")
    assert not answers.prices(offers.assign(provider="Azure"), none)["marketplace"]
    assert "rent" not in answers.prices(none, none)
    one, eight = (of(every, "resnet50", chip="NVIDIA H100 80GB SXM", count=n, family="half")[0] for n in (1, 8))
    assert (eight.rent, eight.purchase) == (8 * one.rent, 8 * one.purchase)
    assert any(mark.rent for mark in every if mark.kind == "Google TPU")
    assert all(mark.purchase is None for mark in every if mark.kind == "Google TPU")


def content(key, every, refused=()):
    return answers.content(BY_KEY[key], every, list(refused))


def test_a_page_has_one_row_for_each_chip_and_number_of_devices(every):
    rows = content("resnet50", every)["rows"]
    names = [row["mark"].name for row in rows]
    assert len(names) == len(set(names))
    (line,) = [row for row in rows if row["mark"].name == "NVIDIA RTX 4090"]
    assert {mark["family"] for mark in line["data"]["marks"]} == {"fp32", "half"}
    assert line["mark"].seconds == min(mark.seconds for mark in of(every, "resnet50", name="NVIDIA RTX 4090"))
    assert [row["mark"].seconds for row in rows] == sorted(row["mark"].seconds for row in rows)
    mentioned = content("mnist", every)["constants"]["elsewhere"]["NVIDIA RTX 4090"]
    assert list(BY_KEY).index("resnet50") in mentioned


def test_a_name_that_several_machines_have_is_marked_on_their_pages(every):
    named = {"one": "Chip A", "two": "Chip A", "three": "Chip B"}
    marks = [replace(every[0], place=place, machine=name) for place, name in named.items()]
    assert [line["several"] for line in answers.machines(marks)] == [True, True, False]


def test_the_data_follow_their_schema_and_a_wrong_line_does_not(every):
    table = answers.lines(every)
    document = json.loads(answers.as_json(table, "a licence", "a citation"))
    jsonschema.validate(document, answers.schema())
    assert {line["task"] for line in document["answers"]} == {each.key for each in TASKS}
    document["answers"][0]["seconds"] = 0
    with pytest.raises(jsonschema.ValidationError, match="seconds"):
        jsonschema.validate(document, answers.schema())
    rows = answers.as_csv(table).splitlines()
    assert len(rows) == len(table) + 1


def test_what_is_not_predicted_says_why(both):
    marks, refused = both
    for key in ("mnist", "mobilenetv2"):
        ((reason, chips),) = content(key, marks, refused)["refused"]
        assert "operations an image; works on record take" in reason
        assert chips == []
    reasons = dict(content("resnet50", marks, refused)["refused"])
    assert "Google TPU v4" in reasons["Not predicted in fp32: no fp32 figure was published (chips.csv)"]
    assert of(marks, "resnet50", chip="Google TPU v4", family="half", source="predicted")


def test_rent_is_the_median_of_the_offers_and_says_their_range(every):
    (mark,) = of(every, "resnet50", chip="NVIDIA H100 80GB SXM", count=1, family="half")
    offers = estimate.rental_offers(mark.chip, datetime.date.today())
    strange = pandas.concat([offers, offers.assign(provider="Salad", usd_per_hour=0.01)])
    assert estimate.usual_offers(strange).equals(estimate.usual_offers(offers))
    assert len(estimate.usual_offers(offers.assign(provider="Salad"))) == len(offers)  # there are no others
    offers = estimate.usual_offers(offers)
    assert mark.rent == pytest.approx(offers["usd_per_hour"].median(), rel=0.001)
    assert mark.rent_note.startswith(f"{len(offers)} listed offers, ")
    assert f"${offers['usd_per_hour'].min():.2f}" in mark.rent_note
    bought = of_the_record().ask(Question(mark.chip, "resnet50"), datetime.date.today()).bought.iloc[0]
    assert bought["hours_to_break_even"] == pytest.approx(bought["usd"] / offers["usd_per_hour"].median())


def test_a_network_of_ones_own_stands_as_measured_at_its_own_operations(every):
    (mark,) = of(every, "own", source="measured")
    assert (mark.seconds, mark.here, mark.counted) == (1e6 / 100, True, 4e9)  # of its fastest point
    assert "4 billion operations" in mark.difference.replace("4.0", "4")
    (row,) = [row for row in content("own", every)["rows"] if row["mark"] == mark]
    assert row["data"]["counted"] == 4e9


def test_a_measured_language_model_has_marks_and_its_adapters_have_none():
    lines = point("gpt_tokens", [40.0] * 6, device="cuda", test=False)
    lines += point("gpt_tokens", [90.0] * 6, device="cuda", test=False, settings={"lora_rank": 8})
    (mark,) = from_rows.of_networks(Evidence(make_rows(lines)), "desk")
    assert (mark.task, mark.here) == ("gpt2", True)
    assert mark.seconds == pytest.approx(1e9 / 1024 / 40)
    assert replace(mark, memory_gb=24.0, family="fp32").fits.startswith("up to 2")
    assert replace(mark, memory_gb=1.0, family="fp32").fits.startswith("no: ")
    assert mark.fits == ""  # no memory is known of it


def test_a_notebook_ends_with_its_own_points_rate_bounds_and_joules_or_how_it_failed():
    energy = {"energy_joules": 320.0, "energy_method": "nvml", "energy_boundary": "board", "idle_watts": 12.0}
    trained = windows((250.0, 320.0, 400.0), precision="bf16", **energy)
    failed = make_row(point="other", status="out_of_memory", samples=None, samples_per_second=None)
    every = evidence(trained, [failed], published=True)
    text = closing.sentences(every, make_rows(trained))
    assert text.startswith("This point (reference, PyTorch, CPU, bf16, MNIST) trains 320 images a second (range 250 to")
    assert " 400, n=3; one start only)" in text
    assert "Energy: 0.5 J an image" in text
    assert "has no measured window: out of memory." in closing.sentences(every, make_rows([failed]))
