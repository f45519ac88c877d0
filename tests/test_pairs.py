"""Published pairs: the works that a publication trained on two chips, and what follows from
them."""

import sys

import pytest
import yaml

from benchbook.machine import layout
from benchbook.record import articles, chips, pairs

sys.path.append(str(layout.root() / "benchmarks"))
import pairs_page


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


def test_two_chips_of_one_vendor_pair_in_one_build():
    table = pairs.table()
    same = table["build"].eq(table["build_over"])
    assert (same | table["vendor"].ne(table["vendor_over"])).all()
    assert not same.all()  # a Mac's build is another than a card's
    own = pairs.between("RTX 3090", "A100")
    own = own[own["family"].eq("fp32")]  # in 3d-unet-benchmarks the fastest are of unlike builds
    assert not own["publication"].str.contains("3d-unet").any()


def test_the_page_of_pairs_has_each_two_products_once_and_is_that_of_the_record():
    page = (layout.root() / "docs" / "pairs.md").read_text(encoding="utf-8")
    assert page == pairs_page.page(), "run `make derived`"
    lines = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    sides = pairs.table()[["product", "product_over"]].drop_duplicates()
    assert {frozenset(each) for each in sides.itertuples(index=False)} == {
        frozenset((first.removeprefix("| "), second)) for first, second, *_ in lines
    }
