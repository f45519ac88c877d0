"""The commands that ask the public record, as a user types them."""

import json
import re
import shlex

import pytest
import yaml

from benchbook.judging import wording
from benchbook.record import chips, estimates, predict, prices, words
from benchbook.report import costs
from made.rows import windows, write


@pytest.fixture
def run(command):
    """Return a function to what a command prints, which succeeds unless another status is given."""

    def printed(*words, status=0):
        ended, said = command(*words)
        assert ended == status, said
        return said

    return printed


def unwrapped(text):
    return text.replace("\n" + " " * 9, " ").splitlines()


def test_chips_are_listed_with_their_figures(run):
    printed = run("chips", "4090")
    assert "4 chips" in printed
    assert "1599" in printed, "a price is not cut"
    assert "nan" not in printed, "a figure that no source has is empty"


@pytest.mark.parametrize(
    ("name", "peak", "is_doubled"),
    [
        *(("RX 7900 XTX", "61.39", True), ("RX 9070 XT", "48.66", True)),
        *(("MI300X", "163.4", True), ("RX 6900 XT", "23.04", False), ("4090", "82.58", False)),
    ],
)
def test_a_peak_with_dual_issue_says_so_where_it_is_shown(run, name, peak, is_doubled):
    printed = run("chips", name)
    assert (f"{peak}*" in printed, "dual issue" in printed) == (is_doubled, is_doubled)
    assert peak in printed


def test_an_answer_is_the_predicted_rate_with_what_follows_from_it(run):
    question = (
        "predict",
        "--chip",
        "RTX 4090",
        "--work",
        "resnet50_cost",
        "--precision",
        "amp_fp16",
        "--price",
        "0.5",
    )
    (rate,) = estimates.find([predict.Question("RTX 4090", "resnet50_cost", "amp_fp16")])
    lines = unwrapped(run(*question))
    assert "Published, not measured here" in lines[0]
    assert f"{rate.value:,.0f} images/s (90 %: {rate.low:,.0f} to {rate.high:,.0f})" in lines[1]
    assert lines[2] == f"sure     {rate.basis}"
    seconds = [1_281_167 / bound for bound in (rate.value, rate.high, rate.low)]
    assert f"{wording.duration_within(*seconds)} for 1,281,167 images" in lines[3]
    assert f"{wording.price(0.5 * seconds[0] / 3600, 2)} (" in lines[4]
    assert "your price" in lines[4]
    assert any(line.startswith("source   Lambda") for line in lines)


@pytest.mark.parametrize("chip", ["RTX 4090", "Apple M1", "H100", "P100"])
def test_an_answer_wraps_in_eighty_columns_and_cuts_nothing(run, chip):
    lines = run("predict", "--chip", chip, "--work", "resnet50").splitlines()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)  # an address is longer
    assert all(line[8] == " " != line[9] for line in lines[1:]), "a wrapped line keeps its columns"
    text = " ".join(" ".join(lines).split())
    bought = prices.in_words(chips.resolve(chip))["buy"]
    assert f"buy {bought}" in text
    assert "..." not in text


def test_chips_are_compared_by_the_narrowest_evidence(run):
    text = run("compare", "M4", "RTX 4090")
    m1, m4, card = estimates.find(
        [predict.Question(name, "resnet50") for name in ("M1", "M4")]
        + [predict.Question("RTX 4090", "resnet50", "amp_fp16")]  # the fastest of each
    )
    assert estimates.ratio(m4, card).in_words("NVIDIA RTX 4090", "Apple M4") in text
    assert "14 times: ResNet-50" in text, "the pair of one author is named with its work"
    assert "GPU-Insights" in text
    told = json.loads(run("compare", "M1", "RTX 4090", "H100 80GB SXM", "--json"))
    sides = {each["name"]: each for each in told["sides"]}
    assert sides["Apple M1"]["seconds"] == pytest.approx(costs.tasks()[0].samples / m1.value)
    ratio = estimates.ratio(m1, card)
    found = next(each for each in told["ratios"] if each["name"] == "NVIDIA RTX 4090")
    assert [found[key] for key in ("value", "low", "high")] == pytest.approx(
        [ratio.value, ratio.low, ratio.high]
    )
    assert len(told["ratios"]) == 2


def test_one_precision_for_all_chips_is_a_choice(run):
    m4, card = estimates.find(
        [
            predict.Question(name, "resnet50", "tf32" * (name != "M4") or "fp32")
            for name in ("M4", "RTX 4090")
        ]
    )
    text = run("compare", "M4", "RTX 4090", "--precision", "fp32")
    assert estimates.ratio(m4, card).in_words("NVIDIA RTX 4090", "Apple M4") in text
    half = json.loads(run("compare", "A100", "RTX 4090", "--precision", "amp_bf16", "--json"))
    assert {each["family"] for each in half["sides"]} == {"half"}
    refused = run("compare", "M4", "RTX 4090", "--precision", "fp8", status=2)
    assert "precision 'fp8'; allowed: fp32" in refused


def test_what_the_record_says_is_json_as_well(run):
    options = (
        "--precision amp_fp16 --image-size 128 --batch-size 8 --price 0.5 --images 1000 --json"
    )
    told = json.loads(
        run("predict", "--chip", "H100 80GB SXM", "--work", "resnet50", *shlex.split(options))
    )
    sizes = ({"image_size": 128.0, "batch_size": 8.0}, {"image_size": 128.0}, {"batch_size": 8.0})
    asked = [predict.Question("H100 80GB SXM", "resnet50", "amp_fp16", **own) for own in sizes]
    rate, *others = estimates.find(asked)
    assert all(each.value != rate.value for each in others)
    assert list(told["rate"].values()) == pytest.approx([rate.value, rate.low, rate.high])
    assert told["usd"]["value"] == pytest.approx(0.5 * 1000 / rate.value / 3600)
    assert told["seconds"]["low"] < told["seconds"]["value"] < told["seconds"]["high"]
    assert (told["unit"], told["images"]) == ("images/s", 1000)
    assert told["sources"] == []  # it is predicted
    tokens = json.loads(
        run("predict", "--chip", "A100", "--work", "gpt2_124m", "--precision", "bf16", "--json")
    )
    assert (tokens["unit"], tokens["tokens"]) == ("tokens/s", 1e9)
    [published] = estimates.find([predict.Question("A100", "gpt2_124m", "bf16")])
    assert tokens["sources"] == published.sources.split(" | ")
    listed = json.loads(run("chips", "4090", "--json"))["chips"]
    assert [each["chip"] for each in listed] == [each["chip"] for each in words.chips("4090")]
    assert None in [value for each in listed for value in each.values()]  # not known: not NaN


def test_a_machine_is_compared_with_a_chip_by_what_was_measured(outputs, run):
    rows = {"study": "resnet50_cost", "image_size": 224, "dataset": "imagenet", "precision": "fp32"}
    write(*windows([100.0] * 6, **rows, run_id="a"), *windows([100.0] * 6, **rows, run_id="b"))
    told = json.loads(
        next(
            line
            for line in run("compare", "desk", "RTX 4090", "--json").splitlines()
            if line.startswith("{")
        )
    )
    own, card = told["sides"]
    assert (own["source"], card["source"]) == ("measured", "published")
    assert told["ratios"][0]["value"] == pytest.approx(own["seconds"] / card["seconds"])
    assert "NVIDIA RTX 4090" in run("compare", "desk", "RTX 4090")


@pytest.mark.parametrize(
    ("names", "said"),
    yaml.safe_load("""
- [[M1, M1], "allowed: two or more different names"]
- [[M1, Apple M1], "Apple M1 twice; allowed: different machines or chips"]
- [[M1], "allowed: two or more different names"]
- [[M1, RTX 4090, "--work", lenet], "work 'lenet'; allowed: resnet50, "]
- [[RTX 6000, M1], "'RTX 6000' has no rows; allowed: .*; or a chip: chip 'RTX 6000' names several"]
"""),
)
def test_names_that_cannot_be_compared_are_refused(run, names, said):
    assert re.search(said, run("compare", *names, status=2))


def test_a_language_model_without_an_answer_has_the_nearest_figure_and_pairs(run):
    asked = ("predict", "--work", "gpt2_124m", "--precision", "amp_bf16", "--chip")
    refused = run(*asked, "RTX 4090", status=2)
    assert "no rate of a language model is predicted" in refused
    assert re.search(r"the nearest on record: [\d,]+ tokens/s: NVIDIA", refused)
    text = run(*asked, "A100")
    assert re.search(r"tokens/s \(90 %: [\d,]+ to [\d,]+\)", text)
    assert "images" not in text
    assert "flash attention" in text
    text = run("compare", "M3", "L4", "--work", "gpt2")
    assert "NVIDIA L4 is about 6.5 times as fast as Apple M3" in text
    assert "no time; nearest published " in text
    assert "Raschka ch07" in text


def test_not_all_of_a_macs_memory_is_the_gpus(run):
    texts = [
        run("predict", "--chip", chip, "--work", "resnet50") for chip in ("Apple M1", "V100 16GB")
    ]
    own, other = (int(re.search(r"to (\d+) fit in 16 GB", text)[1]) for text in texts)
    assert own < 0.7 * other


def test_without_words_the_help_is_printed(run):
    assert "Usage: benchbook" in run()
