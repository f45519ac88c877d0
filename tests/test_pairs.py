"""Published pairs: the works that a publication trained on two chips, and what follows from
them."""

import math

import pandas
import pytest
import yaml

from benchbook.machine import layout
from benchbook.record import articles, chips, pairs


@pytest.mark.parametrize(
    ("chip", "other", "article", "slow", "fast"),
    yaml.safe_load("""
- [Apple M3, NVIDIA A100, Raschka ch07 instruction fine-tuning, 3.73, 0.39]  # minutes
- [NVIDIA L4, NVIDIA A100, Raschka ch07 instruction fine-tuning, 1.83, 0.86]
- [Apple M1, NVIDIA RTX 4090, GPU-Insights results (xiaoran007), 94.8, 2430.0]  # images a second
- [Apple M4, NVIDIA A100, GPU-Insights results (xiaoran007), 174.2, 2747.8]
- [Apple M1 Max, NVIDIA RTX 3090, Capelle W&B M1Pro report (2021-22), 408.0, 2460.0]
"""),
)
def test_works_that_one_author_trained_on_two_chips_are_found(chip, other, article, slow, fast):
    lines = pairs.between(chip, other)
    line = lines[
        lines["article"].eq(article) & lines["value"].eq(slow) & lines["value_over"].eq(fast)
    ].iloc[0]
    assert line["ratio"] == pytest.approx(max(slow / fast, fast / slow))
    back = pairs.between(other, chip)
    assert sorted(1 / back["ratio"]) == pytest.approx(sorted(lines["ratio"]))


def test_a_work_is_the_same_in_all_that_is_stated_and_used_figures_alone_count():
    works, figures = pairs.works(), articles.read()
    assert works.groupby(list(pairs.KEY))["product"].nunique().min() >= 2
    assert not works.duplicated([*pairs.KEY, "product"]).any()  # the fastest of several batch sizes
    refused = figures[figures["refused"].ne("")]
    both = works.merge(refused, on=["article", "metric", "unit", "chip", "value"])
    assert both.empty
    assert (
        not works["article"].str.startswith("MLPerf").any()
    )  # whose submissions are different code
    assert set(works["product"]) <= set(map(chips.product, chips.table().index))


def of(*ratios):
    return pandas.DataFrame(
        [{"ratio": ratio, "publication": name, "family": "half"} for name, ratio in ratios]
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([("a", 2.0)], "2.0 times (no bounds; 1 work in 1 publication, 16 bits)"),
        (
            [("a", 2.0), ("a", 4.0)],
            "3.0 times (range 2.0 to 4.0; 2 works in 1 publication, 16 bits)",
        ),
    ],
)
def test_one_publication_has_no_interval(lines, words):
    assert pairs.in_words(of(*lines), pairs.ratio(of(*lines))) == words


def test_publications_count_once_and_have_an_interval():
    lines = of(*[("a", 2.0)] * 9, ("b", 2.0), ("c", 4.0), ("d", 4.0))
    number = pairs.ratio(lines)
    assert number.value == pytest.approx(math.sqrt(8))
    assert number.kind == "interval"
    assert number.low < 2.1
    words = pairs.in_words(lines, pairs.ratio(lines))
    assert words.startswith("2.8 times (")
    assert words.endswith("; 12 works in 4 publications, 16 bits)")


def test_what_people_compare_is_in_the_readme():
    asked = pairs.asked()
    assert len(asked) == len(pairs.ASKED)
    readme = (layout.root() / "README.md").read_text()
    assert all(f"| {' | '.join(line)} |\n" in readme for line in asked.itertuples(index=False))
