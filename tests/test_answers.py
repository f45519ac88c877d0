"""What a task costs on each machine: marks from rows, record and predictions, their money, sentences and data."""

import datetime
import json
import math
from dataclasses import replace

import jsonschema
import pandas
import pytest

from benchbook import report, studies
from benchbook.record import articles, estimate, networks
from benchbook.record.forecast import Forecaster, Question, Range, of_the_record
from benchbook.report import answers, headline
from benchbook.report.answers import accuracy, derive, marks, page
from benchbook.report.answers.tasks import IMAGENET, TASKS, task
from benchbook.studies.study import Evidence
from rows import make_row, make_rows

RATE = 400.0


@pytest.fixture(scope="module")
def every():
    """Return the marks over two machines' MobileNetV2, one at another image size, one failure, and all published."""
    mobilenet = {"study": "mobilenetv2_energy", "framework": "tensorflow", "image_size": 128, "dataset": "cifar10"}
    runs = [("desk", "run-1", {}), ("desk", "run-2", {}), ("small", "run-3", {"image_size": 64})]
    lines = [
        make_row(
            machine=machine, run_id=run, index=index, samples_per_second=RATE * (1 + index / 100), **mobilenet | own
        )
        for machine, run, own in runs
        for index in range(6)
    ]
    failed = make_row(machine="broken", run_id="run-4", status="crashed", message="no", **mobilenet)
    failed |= dict.fromkeys(("samples", "seconds", "input_seconds", "samples_per_second"))
    rows = pandas.concat([make_rows([*lines, failed]), articles.rows()], ignore_index=True)
    return answers.gather(evidence := Evidence(rows), headline.table(evidence, studies.every()), "desk")


def of(every, key, **named):
    """Return the marks of a task whose fields have these values."""
    return [mark for mark in every if mark.task == key and all(getattr(mark, n) == v for n, v in named.items())]


def test_a_measured_mark_is_the_tasks_images_over_the_rate_with_the_bounds_of_its_windows(every):
    (mark,) = of(every, "mobilenetv2", place="desk")
    assert mark.seconds == pytest.approx(1e6 / (RATE * 1.025))  # the median of the windows
    assert mark.low == pytest.approx(1e6 / (RATE * 1.05))
    assert mark.high == pytest.approx(1e6 / RATE)
    assert mark.here
    assert mark.stands_on.startswith("2 starts, 12 windows")
    assert not of(every, "mobilenetv2", place="broken")


def test_another_image_size_stands_apart_and_is_in_no_sentence(every):
    (small,) = of(every, "mobilenetv2", place="small")
    assert "64 px instead of 128" in small.apart
    assert not small.here
    fast = replace(small, seconds=1e-3)
    assert said([fast, *of(every, "mobilenetv2")]) == said(of(every, "mobilenetv2"))


def test_the_pages_get_the_marks_that_the_aggregation_made(every, tmp_path):
    assert answers.load(tmp_path) == []
    answers.save(every, tmp_path)
    assert answers.load(tmp_path) == list(every)


def test_a_prediction_stands_only_where_nothing_is_published(every):
    published, predicted = (of(every, "resnet50", source=source, count=1) for source in ("published", "predicted"))
    taken = {(mark.chip, mark.family) for mark in published}
    assert ("NVIDIA RTX 4090", "half") in taken
    assert predicted
    assert not taken & {(mark.chip, mark.family) for mark in predicted}
    assert not of(every, "mnist", source="predicted")  # too unlike the record


def test_what_the_record_says_is_kept_until_tables_code_or_observations_change(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    made = derive.read()
    assert derive.read(of_the_record()) == json.loads((tmp_path / derive.FILE).read_text()) == made
    monkeypatch.setattr(derive, "make", lambda forecaster: {"chips": "made again"})
    assert derive.read() == made
    further = of_the_record().model.observations.tail(1).assign(rate=1.0)
    assert derive.read(Forecaster(further))["chips"] == "made again"
    before = derive.inputs(None)
    (tmp_path / "model.py").write_text("NOISE = 0.5")
    monkeypatch.setattr(derive, "CODE", (*derive.CODE, tmp_path))
    assert derive.inputs(None) != before == {"made_from": made["made_from"]}


def test_the_pages_say_what_the_forecaster_says(every):
    shown = [mark for mark in every if mark.source == "predicted" and mark.task == "segmentation"]
    mark = next(mark for mark in shown if mark.chip == "Apple M1 Max")
    this = task(mark.task)
    rate = of_the_record().rate(Question(mark.chip, this.work, "fp32", image_size=this.image_size))
    assert mark.seconds == pytest.approx(this.images / rate.value, rel=0.001)
    assert mark.high == pytest.approx(this.images / rate.low, rel=0.001)


def test_published_times_of_the_record_are_the_medians_of_their_publications():
    line = next(line for line in derive.read()["published"] if line["publications"] > 1)
    assert line["low"] <= line["seconds"] <= line["high"]
    assert len(line["sources"]) <= line["figures"]
    assert derive.read()["operations"][0] < networks.describe("resnet50").flops_per_sample


def made(**fields):
    """Return a mark that takes an hour, rented for 2 dollars an hour or bought for 26,280, at 1 kW."""
    plain = {"task": "resnet50", "place": "box", "name": "box", "machine": "box", "kind": "other", "source": "measured"}
    plain |= {"family": "fp32", "seconds": 3600.0, "low": 3000.0, "high": 4000.0, "bounds": "range", "stands_on": "x"}
    plain |= {
        "joules": 3.6e6,
        "energy_note": "read at: wall",
        "rent": 2.0,
        "rent_note": "an offer",
        "purchase": 26_280.0,
    }
    return marks.Mark(**plain | {"purchase_note": "2024-01-01, the chip alone"} | fields)


def test_money_is_rent_the_share_of_a_purchase_and_electricity():
    mark, terms = made(), marks.Terms(years=3, hours_per_day=12, usd_per_kwh=0.5)
    assert mark.rented == pytest.approx(2.0)
    assert mark.bought(terms) == pytest.approx(26_280 / (3 * 365 * 12) + 0.5)
    assert made(joules=None).bought(terms) == pytest.approx(26_280 / (3 * 365 * 12))
    assert made(rent=None).rented is None
    assert made(purchase=None).bought() is None
    assert mark.break_even(made(seconds=7200.0), terms) == pytest.approx(26_280 / (2 * 2.0 - 0.5))
    assert mark.break_even(made(rent=0.1), terms) == math.inf


def said(compared, key="resnet50"):
    """Return the sentences of a task by their first letters, each as the macros it is made of and their numbers."""

    class Spy(dict):
        def __missing__(self, name):
            return lambda *numbers: "|".join([name, *map(str, numbers)]) + "\n"

    made = page.sentences(task(key), compared, Spy())
    return [[part.split("|") for part in text.splitlines() if part != "."] for _, text in made]


def test_each_sentence_names_the_least_and_what_it_rests_on():
    fast = made(name="fast", seconds=60.0, stands_on="two runs", rent=999.0, joules=None)
    cheap = made(name="cheap", rent=0.1, joules=9e6, rent_note="by Alice")
    frugal = made(name="frugal", joules=1.0, rent=None, purchase=None)
    does, basis = task("resnet50").does, "measured on another computer, two runs"
    first = ["fastest", "fast", "60 s", does, basis]
    assert said([fast, cheap, frugal]) == [
        [first],
        [["cheapest", "cheap", "$0.10", "$0.10", "by Alice"]],
        [["least_energy", "frugal", "0.28 mWh", "2", "read at: wall"]],
        [["pays", "fast", "$26,300", "2024-01-01", "cheap", "4,380"], ["uncounted"]],
    ]
    here = replace(cheap, here=True, stand_in="on shapes", purchase=None)
    guess = made(name="guess", seconds=1.0, rent=0.01, joules=None, source="predicted")
    told = said([fast, here, guess])  # what was measured comes first
    assert told[0] == [first, ["slower", "this machine (on shapes)", "60 min", "60"], ["predicted", "guess", "1.0 s"]]
    assert told[1][0][:2] == ["cheapest", "cheap"]
    assert told[3] == [["worth", "this machine (on shapes)", "$0.10", "cheap"]]
    assert said([guess])[1][0][:2] == ["cheapest_predicted", "guess"]
    assert said([replace(fast, joules=9e9), replace(cheap, rent=1e-3)])[3][0][0] == "never"
    assert said([]) == [[["no_machine"]], [["no_rent"]], [["no_energy"]], [["no_comparison"]]]
    assert said([replace(fast, purchase=None)])[3] == [["no_purchase"]]


def test_the_page_and_its_script_have_one_set_of_sentences(every):
    answer = content("segmentation", every)
    template = answer["constants"]["sentences"]["fastest"]
    starts = [
        template.format(name=mark.name, time="@", basis="").partition("@")[0] for mark in of(every, "segmentation")
    ]
    first = answer["sentences"][0][1].unescape()
    assert any(first.startswith(start) for start in starts)
    assert "the article's" in first
    assert "the article's" in template  # which the script shows as it is: no entity stands in it


def content(key, every):
    return page.content(task(key), every, report._environment(), {})


@pytest.mark.parametrize("values", [[5.0], [0.02, 3e7], [10.0, 60.0], [1e-5, 1e12]])
def test_an_axis_holds_all_values_in_order(values):
    ticks = page.steps(values, page.TIME)
    assert 2 <= len(ticks) <= page.MOST_TICKS + 2
    shares = [page.share(value, ticks) for value in sorted(values)]
    assert shares == sorted(shares)
    assert all(0 <= share <= 100 for share in shares)
    assert page.share(math.sqrt(ticks[0] * ticks[-1]), ticks) == 50  # halfway, on a scale of logarithms


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


def test_what_is_not_predicted_says_why(every):
    for key in ("mnist", "mobilenetv2"):
        ((reason, chips),) = content(key, every)["refused"]
        assert "operations an image; works on record take" in reason
        assert chips == []
    refused = dict(content("resnet50", every)["refused"])
    assert "Google TPU v4" in refused["Not predicted in fp32: no fp32 figure was published (chips.csv)"]
    assert of(every, "resnet50", chip="Google TPU v4", family="half", source="predicted")


def test_times_to_an_accuracy_are_predicted_at_the_pace_of_published_ones():
    times = pandas.DataFrame(
        {
            "chip": ["NVIDIA V100 32GB", "NVIDIA T4", "NVIDIA A100 40GB", "NVIDIA A100 40GB"],
            "device_count": [8.0, 1.0, 4.0, 999.0],
            "metric": accuracy.METRIC,
            "value": [IMAGENET * epochs / 8 / 100 / 60 for epochs in (20, 8 * 30, 2 * 40, 1)],
            "unit": "min",
            "refused": "",
        }
    )

    rate = Range(100.0, 50.0, 200.0, "the model")
    worth = accuracy.epochs_worth(times, dict.fromkeys(times["chip"], rate))
    assert worth.to_dict() == pytest.approx({"NVIDIA V100": 20, "NVIDIA T4": 30, "NVIDIA A100": 40})  # 999 are too many
    seconds = accuracy.predict(rate, worth)
    assert seconds.value == pytest.approx(30 * IMAGENET / 100)
    far = math.exp(
        math.hypot(math.log(2), math.log(math.sqrt(30 * 40) / 20))
    )  # of the rate, and of the V100 from the others
    assert (seconds.low, seconds.high) == pytest.approx((seconds.value / far, seconds.value * far))


def test_rent_is_the_median_of_the_offers_and_says_their_range(every):
    (mark,) = of(every, "resnet50", chip="NVIDIA H100 80GB SXM", count=1, family="half")
    offers = estimate.rented(mark.chip, datetime.date.today())
    strange = pandas.concat([offers, offers.assign(provider="Salad", usd_per_hour=0.01)])
    assert estimate.usual_rent(strange) == estimate.usual_rent(offers)
    assert estimate.usual_rent(offers.assign(provider="Salad", usd_per_hour=0.01)) == 0.01  # there are no others
    offers = estimate.usual(offers)
    assert mark.rent == pytest.approx(offers["usd_per_hour"].median(), rel=0.001)
    assert f"the median of {len(offers)} listed offers" in mark.rent_note
    assert f"${offers['usd_per_hour'].min():.2g}" in mark.rent_note
    bought = of_the_record().ask(Question(mark.chip, "resnet50"), datetime.date.today()).bought.iloc[0]
    assert bought["hours_to_break_even"] == pytest.approx(bought["usd"] / offers["usd_per_hour"].median())


@pytest.fixture(scope="module")
def own_network():
    """Return the marks over a network of one's own, in two batch sizes, and a stand-in for MNIST."""
    network = {"study": "your_network", "model": "mine", "flops_per_sample": 4e9, "dataset": "example"}
    lines = [
        make_row(machine="desk", point=f"b{size}", run_id=f"b{size}", index=index, samples_per_second=rate, **network)
        for size, rate in ((8, 50.0), (16, 100.0))
        for index in range(6)
    ]
    lines += [make_row(machine="desk", run_id="m", index=index, dataset="digits-28px") for index in range(6)]
    rows = pandas.concat([make_rows(lines), articles.rows()], ignore_index=True)
    return answers.gather(evidence := Evidence(rows), headline.table(evidence, studies.every()), "desk")


def test_a_network_of_ones_own_stands_as_measured_at_its_own_operations(own_network):
    (mark,) = of(own_network, "own", source="measured")
    assert (mark.seconds, mark.here, mark.counted) == (1e6 / 100, True, 4e9)  # of its fastest point
    assert "4 billion operations" in mark.apart.replace("4.0", "4")
    assert (
        content("own", own_network)["first_operations"] == "4e+09"
    )  # what is predicted beside it is for its operations


def test_data_that_stand_in_are_named_on_the_mark(own_network):
    (mark,) = of(own_network, "mnist", source="measured")
    assert "8 x 8 scans of digits" in mark.name
    assert not any("scans" in other.name for other in of(own_network, "mnist", source="published"))
