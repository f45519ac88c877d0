"""The commands that ask the public record, as a user types them."""

import re
import subprocess
import sys

import pytest

from benchbook.judging import wording
from benchbook.record import articles, predict
from benchbook.rows import records


@pytest.fixture
def run(command):
    """Return a function to what a command prints, which succeeds unless another status is given."""

    def printed(*words, status=0):
        ended, said = command(*words)
        assert ended == status, said
        return said

    return printed


def test_chips_are_listed_with_their_figures(run):
    printed = run("chips", "4090")
    assert "4 chips" in printed
    assert "1599" in printed, "a price is not cut"
    assert "nan" not in printed, "a figure that no source has is empty"


def test_an_answer_is_the_predicted_rate_with_what_follows_from_it(run):
    question = ("predict", "--chip", "RTX 4090", "--work", "resnet50_cost", "--precision", "amp_fp16", "--price", "0.5")
    rate = predict.rate(predict.Question("RTX 4090", "resnet50_cost", "amp_fp16"))
    lines = run(*question).splitlines()
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
    options = [word for name, size in sizes.items() for word in (f"--{name.replace('_', '-')}", f"{size:g}")]
    asked = ("H100 80GB SXM", "resnet50", "amp_fp16")
    rate = predict.rate(predict.Question(*asked, **sizes))
    words = [word for pair in zip(("--chip", "--work", "--precision"), asked, strict=True) for word in pair]
    lines = run("predict", *words, *options, "--images", "1000").splitlines()
    assert f"{rate.low:,.0f} to {rate.high:,.0f} images/s" in lines[1]
    assert lines[3].endswith("for 1,000 images")
    for name in sizes:
        assert predict.rate(predict.Question(*asked, **sizes | {name: None})).value != rate.value


@pytest.mark.parametrize("chip", ["RTX 4090", "Apple M1", "H100", "P100"])
def test_an_answer_has_eight_lines_of_eighty_columns(run, chip):
    lines = run("predict", "--chip", chip, "--work", "resnet50").splitlines()
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 80
    assert all(line[8] == " " != line[9] for line in lines[1:]), "a cut line keeps its columns"


def test_a_language_model_is_answered_in_tokens_and_its_memory_is_a_range(run):
    text = run("predict", "--chip", "RTX 4090", "--work", "gpt2_124m", "--precision", "amp_bf16")
    rate = predict.rate(predict.Question("RTX 4090", "gpt2_124m", "amp_bf16"))
    assert f"{1024 * rate.low:,.0f} to {1024 * rate.high:,.0f} tokens/s" in text
    assert "images" not in text
    assert "flash attention" in text
    least, most = map(int, re.search(r"at most (\d+) to (\d+) fit", text).groups())
    assert 30 <= least <= 34 < most  # 22.51 GB were published of 32 sequences


def test_not_all_of_a_macs_memory_is_the_gpus(run):
    texts = [run("predict", "--chip", chip, "--work", "resnet50") for chip in ("Apple M1", "V100 16GB")]
    own, other = (int(re.search(r"to (\d+) fit in 16 GB", text)[1]) for text in texts)
    assert own < 0.7 * other


def test_without_words_the_help_is_printed(run):
    assert "Usage: benchbook" in run()


def test_what_cannot_be_answered_is_refused_before_any_work(run):
    assert "RTX 4090" in run("predict", "--chip", "RTX 9090", "--work", "resnet50", status=2)
    assert "did you mean resnet50" in run("predict", "--chip", "T4", "--work", "resnet5", status=2)
    refused = run("predict", "--chip", "T4", "--work", "lora", status=2)
    assert "LoRA: fewer than 5 products on record" in refused
    assert re.search(r"; the nearest on record: [\d,]+ tokens/s: NVIDIA .* LoRA", refused)
    assert "no work was given" in run("predict", "--chip", "T4", status=2)
    assert "no --chip" in run("predict", status=2)


def test_asking_needs_no_framework(tmp_path):
    records.as_text(articles.rows()).to_csv(tmp_path / "rows.csv", index=False)
    asked = [["chips", "4090"], ["predict", "--chip", "T4", "--work", "resnet50"], ["validate", f"{tmp_path}/rows.csv"]]
    for name in ("torch", "torchvision", "tensorflow", "keras", "jax", "kornia", "zeus"):
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError(__name__, name=__name__)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from benchbook.commands.cli import app\n"
    code += f"for words in {asked!r}: app(words, standalone_mode=False)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert all(word in ended.stdout for word in ("RTX 4090", "Predicted", "are valid"))
