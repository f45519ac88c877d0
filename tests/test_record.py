"""The public record: nothing is lost, what contradicts itself is refused by name."""

import json
import re

import pandas
import pytest

from benchbook import record
from benchbook.machine import layout
from benchbook.record import articles, chips

HEADER = ",".join(articles.COLUMNS).encode() + b"\n"


@pytest.fixture(scope="module")
def figures():
    return record.read()


def write(tmp_path, **changes):
    """Return a ledger of two rates of one network on two chips, the second changed."""
    line = {
        "study": "related", "article": "A", "machine": "x", "device": "GPU", "chip": "Tesla V100-SXM2-16GB",
        "framework": "PyTorch 2.0", "precision": "fp32", "metric": "throughput", "value": "370", "unit": "img/s",
        "origin": "exact", "source": "https://example.org", "note": "licence MIT",
        "settings": json.dumps({"model": "ResNet-50", "phase": "train", "image_size": 224, "device_count": 1}),
    }  # fmt: skip
    path = tmp_path / "ledger.csv"
    pandas.DataFrame([line, line | {"chip": "T4", "value": "100"} | changes]).to_csv(path, index=False)
    return path


def test_every_figure_has_a_source_that_is_described_and_a_chip_of_the_list(figures):
    assert len(figures) == 1325
    assert set(figures["article"]) == set(record.sources()["article"])
    assert record.sources()["figures"].sum() == 1325
    unlisted = set(figures["chip"]) - set(chips.table().index)
    assert unlisted == {"NVIDIA RTX A6000 or other (not stated)"}
    assert figures["source"].ne("").all()


def test_what_is_refused_is_counted_by_reason_and_the_rest_is_kept(figures):
    refused = record.refused()
    assert refused["figures"].sum() == figures["refused"].ne("").sum()
    assert set(refused["refused"]) == {
        "above the chip's printed bandwidth",
        "the source has this figure for another network (EfficientNet-B0)",
        "the same figure in another source",
        "one table under two networks",
        "the chip is not stated",
    }


def test_mlperf_is_marked_unofficial_and_sources_without_a_licence_are_named(figures):
    mlperf = figures["article"].str.startswith("MLPerf")
    assert figures.loc[mlperf, "mark"].str.contains("not verified by MLCommons").all()
    assert not figures.loc[~mlperf, "mark"].str.contains("MLCommons").any()
    bare = figures["note"].str.contains("no licence")
    assert figures.loc[bare, "mark"].str.contains("cited one by one").all()
    line = figures[bare].iloc[0].to_dict()
    assert line["source"] in record.citation(line)
    assert "licence" in record.citation(line)


def test_fp32_of_an_ampere_gpu_that_may_be_tf32_is_tf32_and_of_an_older_one_fp32(figures, tmp_path):
    printed = figures[figures["precision"] == "fp32 or tf32 (not stated)"]
    assert printed["chip"].map(chips.has_tf32).all()
    assert set(printed["computed"]) == {"tf32"}
    assert printed["mark"].str.contains("TF32").all()
    older = articles.read(write(tmp_path, precision="fp32 or tf32 (not stated)"))
    assert list(older["computed"]) == ["fp32", "fp32"]
    assert not older["mark"].str.contains("TF32").any()


def test_a_rate_above_the_chips_peak_is_refused(tmp_path):
    # A T4 has 8.1 TFLOP/s; 800 images a second of ResNet-50 take 19.6.
    possible = articles.read(write(tmp_path))
    assert list(possible["refused"]) == ["", ""]
    impossible = articles.read(write(tmp_path, value="800"))
    assert list(impossible["refused"]) == ["", "above the chip's printed peak"]


def test_a_copy_faster_than_the_chips_memory_is_refused(tmp_path):
    copy = {"metric": "memory_bandwidth", "unit": "GB/s", "settings": "{}"}
    assert list(articles.read(write(tmp_path, **copy, value="310"))["refused"]) == ["", ""]
    assert (
        list(articles.read(write(tmp_path, **copy, value="831"))["refused"])[1] == "above the chip's printed bandwidth"
    )


def test_a_figure_of_another_source_is_kept_once(tmp_path):
    same = {"chip": "V100 16GB SXM2", "value": "370.5"}
    once = articles.read(write(tmp_path, **same, article="B"))
    assert list(once["refused"]) == ["", ""], "two publications that agree are two measurements"
    laboratory = (
        "Lambda GPU benchmark table (csv_v1_v2)",
        "Lambda deeplearning-benchmark (PyTorch, NVIDIA DeepLearningExamples)",
    )
    path = write(tmp_path, **same, article=laboratory[0])
    pandas.read_csv(path).replace({"A": laboratory[1]}).to_csv(path, index=False)
    assert "the same figure in another source" in list(articles.read(path)["refused"])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "not a table"),
        (b"\xff\n", "UTF-8"),
        (b"," * 9_000_000, "columns"),
        (HEADER + b",,,,,,,,,,,,,\n" * 600_000, "600,001 lines"),
        (HEADER + b",,,,,,,,,,,,,\n" * 2, "line 2: column article is empty"),
        (HEADER + b'"' + b"," * 9_000_000, "not a table"),
    ],
)
def test_a_ledger_that_cannot_be_one_is_named(tmp_path, content, named):
    path = tmp_path / "ledger.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + re.escape(named)):
        articles.read(path)


def test_a_ledger_that_lacks_a_column_or_has_broken_settings_is_named(tmp_path):
    path = write(
        tmp_path,
        settings="[1]",
    )
    with pytest.raises(ValueError, match="line 3"):
        articles.read(path)
    pandas.read_csv(path).drop(columns="unit").to_csv(path, index=False)
    with pytest.raises(ValueError, match="unit"):
        articles.read(path)


def test_tables_of_the_record_stay_small():
    size = sum(path.stat().st_size for path in layout.published().rglob("*.csv"))
    assert size < 1_700_000
