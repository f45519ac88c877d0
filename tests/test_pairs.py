"""Published pairs: the works that a publication trained on two chips, and what follows from
them."""

import sys

from benchbook.machine import layout
from benchbook.record import articles, chips, pairs

sys.path.append(str(layout.root() / "benchmarks"))
import pairs_page


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


def test_the_page_of_pairs_has_each_two_products_once_and_is_that_of_the_record():
    page = (layout.root() / "docs" / "pairs.md").read_text(encoding="utf-8")
    assert page == pairs_page.page(), "run `make derived`"
    lines = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    sides = pairs.table()[["product", "product_over"]].drop_duplicates()
    assert {frozenset(each) for each in sides.itertuples(index=False)} == {
        frozenset((first.removeprefix("| "), second)) for first, second, *_ in lines
    }
