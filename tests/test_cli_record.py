"""The commands that ask the public record, as a user types them."""

import re

import pytest

from benchbook.judging import wording
from benchbook.record import chips, predict, prices
from rows import windows, write


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
    rate = predict.rate(predict.Question("RTX 4090", "resnet50_cost", "amp_fp16"))
    lines = unwrapped(run(*question))
    assert "Predicted, not measured" in lines[0]
    assert f"{rate.low:,.0f} to {rate.high:,.0f} images/s" in lines[1]
    assert lines[2].startswith(f"sure     {rate.basis}"[:70])
    least, most = (wording.duration(1_281_167 / bound, 2) for bound in (rate.high, rate.low))
    assert f"{least} to {most} for 1,281,167 images" in lines[3]
    assert f"{wording.price(0.5 * 1_281_167 / rate.high / 3600, 2)} to " in lines[4]
    assert "your price" in lines[4]
    assert "1,301 images/s" in lines[-1]


def test_sizes_and_images_of_the_question_count(run):
    sizes = {"image_size": 128.0, "batch_size": 8.0}
    options = [
        word
        for name, size in sizes.items()
        for word in (f"--{name.replace('_', '-')}", f"{size:g}")
    ]
    asked = ("H100 80GB SXM", "resnet50", "amp_fp16")
    rate = predict.rate(predict.Question(*asked, **sizes))
    words = [
        word
        for pair in zip(("--chip", "--work", "--precision"), asked, strict=True)
        for word in pair
    ]
    lines = unwrapped(run("predict", *words, *options, "--images", "1000"))
    assert f"{rate.low:,.0f} to {rate.high:,.0f} images/s" in lines[1]
    assert lines[3].endswith("for 1,000 images")
    for name in sizes:
        assert predict.rate(predict.Question(*asked, **sizes | {name: None})).value != rate.value


@pytest.mark.parametrize("chip", ["RTX 4090", "Apple M1", "H100", "P100"])
def test_an_answer_wraps_in_eighty_columns_and_cuts_nothing(run, chip):
    lines = run("predict", "--chip", chip, "--work", "resnet50").splitlines()
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)  # an address is longer
    assert all(line[8] == " " != line[9] for line in lines[1:]), "a wrapped line keeps its columns"
    text = " ".join(" ".join(lines).split())
    bought = prices.in_words(chips.resolve(chip))["buy"]
    assert f"buy {bought}" in text
    assert "..." not in text


def test_chips_are_compared_by_published_pairs_where_no_machine_has_the_name(outputs, run):
    write(*windows([100.0] * 6, device="mps", device_name="Apple M4"))
    for one in ("Apple M4", "desk"):
        text = run("compare", one, "RTX 4090")
        assert (
            "NVIDIA RTX 4090 over Apple M4: 14 times (no bounds; 1 work in 1 publication, fp32 or tf32)"
            in text
        )
        assert "14 times: ResNet-50" in text
        assert "GPU-Insights" in text
    refused = run("compare", "RTX 3060", "RTX 4090", status=2)
    assert "no publication trained the same work on NVIDIA RTX 3060 and NVIDIA RTX 4090" in refused
    refused = run("compare", "RTX 6000", "M1", status=2)
    assert re.search(
        r"'RTX 6000' has no rows; allowed: .*; or a chip: chip 'RTX 6000' names several", refused
    )


def test_a_language_model_is_answered_in_tokens_and_its_memory_is_a_range(run):
    text = run("predict", "--chip", "RTX 4090", "--work", "gpt2_124m", "--precision", "amp_bf16")
    rate = predict.rate(predict.Question("RTX 4090", "gpt2_124m", "amp_bf16"))
    assert f"{1024 * rate.low:,.0f} to {1024 * rate.high:,.0f} tokens/s" in text
    assert "images" not in text
    assert "flash attention" in text
    least, most = map(int, re.search(r"at most (\d+) to (\d+) fit", text).groups())
    assert 30 <= least <= 34 < most  # 22.51 GB were published of 32 sequences


def test_not_all_of_a_macs_memory_is_the_gpus(run):
    texts = [
        run("predict", "--chip", chip, "--work", "resnet50") for chip in ("Apple M1", "V100 16GB")
    ]
    own, other = (int(re.search(r"to (\d+) fit in 16 GB", text)[1]) for text in texts)
    assert own < 0.7 * other


def test_without_words_the_help_is_printed(run):
    assert "Usage: benchbook" in run()


def test_what_cannot_be_answered_is_refused_before_any_work(run):
    refused = run("predict", "--chip", "T4", "--work", "lora", status=2)
    assert "LoRA: fewer than 5 products on record" in refused
    assert re.search(r"; the nearest on record: [\d,]+ tokens/s: NVIDIA .* LoRA", refused)
