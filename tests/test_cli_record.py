"""The commands that ask the public record, as a user types them."""

import json
import subprocess
import sys

import pytest

from benchbook.record import articles, chips
from benchbook.rows import records


@pytest.fixture
def run(command):
    """Return a function to what a command prints, which succeeds unless another status is given."""

    def printed(*words, status=0):
        ended, said = command(*words)
        assert ended == status, said
        return said

    return printed


def test_chips_are_listed_with_their_figures_and_as_json_with_their_sources(run):
    lines = json.loads(run("chips", "4090", "--json"))
    assert {line["chip"] for line in lines} == set(chips.search("4090")["chip"])
    assert all(line["source"] for line in lines)
    assert "3 chips" in run("chips", "4090")


def test_an_answer_is_the_same_as_text_and_as_json(run):
    question = ("predict", "--chip", "RTX 4090", "--work", "resnet50_cost", "--precision", "amp_fp16", "--price", "0.5")
    answer = json.loads(run(*question, "--json"))
    rate = answer["rate"]
    assert rate["low"] < rate["value"] < rate["high"]
    assert [offer["usd_per_hour"] for offer in answer["rented"]] == [0.5]
    assert answer["rented"][0]["dollars"] == pytest.approx(0.5 * answer["seconds"]["value"] / 3600)
    text = run(*question)
    assert f"{rate['value']:,.0f} images/s" in text
    assert "PREDICTED, not measured" in text
    assert all(line["source"] in text for line in answer["nearest"]), "each figure has its source beside it"


def test_a_language_model_is_answered_in_tokens_with_a_judged_error(run):
    question = ("predict", "--chip", "A100 80GB SXM", "--work", "gpt2_124m", "--precision", "amp_bf16")
    answer = json.loads(run(*question, "--json"))
    assert answer["question"]["sequence_length"] == 1024
    tokens = 1024 * answer["rate"]["value"]
    assert answer["seconds"]["value"] == pytest.approx(1e9 / tokens)
    text = run(*question)
    assert f"{tokens:,.0f} tokens/s" in text
    assert "images" not in text
    assert answer["error"] in text
    assert all(line["work"] == "gpt2_124m, 1,024 tokens" for line in answer["nearest"])
    ((size, batch),) = answer["largest_batches"].items()
    assert f"{batch} in {float(size):g} GB" in text
    assert "keeps the chip busy" in text
    assert " 2 per step" in run(*question, "--batch-size", "2")


def test_without_words_the_help_is_printed(run):
    assert "Usage: benchbook" in run()


def test_what_cannot_be_answered_is_refused_before_any_work(run):
    assert "RTX 9090" in run("predict", "--chip", "RTX 9090", "--work", "resnet50", status=2)
    assert "no work was given" in run("predict", "--chip", "T4", status=2)
    assert "no --chip" in run("predict", status=2)


@pytest.mark.parametrize("words", [["chips", "4090"], ["predict", "--chip", "T4", "--work", "resnet50"], ["validate"]])
def test_asking_needs_no_framework(words, tmp_path):
    if words == ["validate"]:
        records.as_text(articles.rows()).to_csv(tmp_path / "rows.csv", index=False)
        words = ["validate", str(tmp_path / "rows.csv")]
    for name in ("torch", "torchvision", "tensorflow", "keras", "jax", "kornia", "zeus"):
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError(__name__, name=__name__)")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from benchbook.commands.cli import app; app({words!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
