"""The public record: nothing is lost, what contradicts itself is refused by name."""

import json

import pandas
import pytest

from benchbook.machine import layout
from benchbook.record import articles, chips
from benchbook.rows import networks


@pytest.fixture(scope="module")
def figures():
    return articles.read()


def two(**changes):
    """Return two rates of one network on two chips, the second changed, as the record describes
    them."""
    line = {
        "study": "related", "article": "A", "machine": "x", "device": "GPU", "chip": "Tesla V100-SXM2-16GB",
        "framework": "PyTorch 2.0", "precision": "fp32", "metric": "throughput", "value": "370", "unit": "img/s",
        "origin": "exact", "source": "https://example.org", "note": "licence MIT",
        "settings": json.dumps({"model": "ResNet-50", "phase": "train", "image_size": 224, "device_count": 1})
    }  # fmt: skip
    return articles.described(
        pandas.DataFrame([line, line | {"chip": "T4", "value": "100"} | changes])
    )


def test_every_figure_has_a_source_that_is_described_and_a_chip_of_the_list(figures):
    assert len(figures) == 1905
    described = pandas.read_csv(layout.published() / "record" / "sources.csv")
    assert set(figures["article"]) == set(described["article"])
    assert described["means"].notna().all()
    unlisted = figures["chip"][~figures["chip"].isin(chips.table().index)]
    assert unlisted.str.contains("not stated").all()
    assert figures["source"].ne("").all()


def test_what_is_refused_has_one_of_these_reasons(figures):
    assert set(figures["refused"]) - {""} == {
        "above the chip's published bandwidth",
        "the source has this figure for another network (EfficientNet-B0)",
        "the same figure in another source",
        "one table under two networks",
        "the chip is not stated",
        "over ten times the chip's arithmetic: padded or shorter samples are counted as 2,048 tokens",
    }


@pytest.mark.parametrize(
    ("network", "parameters", "looked_up"),
    [
        ("gpt2_124m", 124_439_808, 1024 * 768),
        ("gpt2_355m", 354_823_168, 1024 * 1024),
        ("nanogpt_char", 10_745_088, 256 * 384),
    ],
)
def test_a_token_takes_6n_operations_and_12ldt_in_attention(network, parameters, looked_up):
    line = networks.table().loc[network]
    assert line["parameters"] == parameters
    for length in (64, line["sequence_length"]):
        token = 6 * (parameters - looked_up) + 12 * line["layers"] * line["width"] * length
        assert networks.describe(network, None, length).flops_per_sample == pytest.approx(
            length * token, rel=1e-12
        )


@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
def test_the_largest_batch_is_the_last_that_fits(precision):
    network = networks.describe("resnet50")
    least, batch = network.largest_batches(16, precision)
    held = networks.USABLE * 16 * 2**30
    assert batch / networks.MOST_OVER_COUNT["images"] - 1 < least < batch
    assert (
        network.memory_bytes(batch, precision) <= held < network.memory_bytes(batch + 1, precision)
    )
    assert network.largest_batches(0.1, precision) == (0, 0)
    larger = networks.describe("resnet50", image_size=448)
    assert larger.activation_bytes == 4 * network.activation_bytes
    assert networks.Network("own").largest_batches(16, precision) is None


def test_lightlys_published_peaks_are_predicted(figures):
    """They are no part of the fit: SimCLR at two batch sizes, on a GPU."""
    peaks = figures[figures["metric"].eq("peak_gpu_memory")]
    network = networks.describe("simclr_resnet18")
    assert len(peaks) == 3
    for line in peaks.to_dict("records"):
        assert network.memory_bytes(line["batch_size"], "fp32") == pytest.approx(
            1e9 * line["value"], rel=0.17
        )


def test_mlperf_is_marked_unofficial_and_sources_without_a_licence_are_named(figures):
    mlperf = figures["article"].str.startswith("MLPerf")
    assert figures.loc[mlperf, "caveats"].str.contains("not verified by MLCommons").all()
    assert not figures.loc[~mlperf, "caveats"].str.contains("MLCommons").any()
    bare = figures["note"].str.contains("no licence")
    assert figures.loc[bare, "caveats"].str.contains("states no licence").all()
    line = figures[bare].iloc[0].to_dict()
    assert line["source"] in articles.citation(line)
    assert "licence" in articles.citation(line)


TOKENS = {"model": "llama3_3b", "phase": "train", "sequence_length": 2048, "device_count": 1}
TOKENS = {"chip": "GB10", "precision": "bf16", "settings": json.dumps(TOKENS), "unit": "tokens/s"}
COPY = {"metric": "memory_bandwidth", "unit": "GB/s", "settings": "{}"}
SAME = {"chip": "V100 16GB SXM2", "value": "370.5"}


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, ""),
        (
            {"value": "800"},
            "above the chip's published peak",
        ),  # a T4 has 8.1 TFLOP/s; that many take 19.6
        (TOKENS | {"value": "3000"}, ""),
        (TOKENS | {"value": "82739.2"}, "above the chip's published peak"),
        (COPY | {"value": "310"}, ""),
        (COPY | {"value": "831"}, "above the chip's published bandwidth"),
        (SAME | {"article": "B"}, ""),  # two publications that agree are two measurements
        ({"chip": "T4 (not stated)"}, "the chip is not stated"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_by_name(changes, refused):
    assert list(two(**changes)["refused"]) == ["", refused]
