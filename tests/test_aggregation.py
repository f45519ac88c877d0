"""The article of all machines as a reader runs it, and one number in every place that shows it."""

import html
import json
import random
import re
from dataclasses import replace

import nbformat
import pandas
import pytest
from bs4 import BeautifulSoup

from benchbook.judging import statistics, wording
from benchbook.machine import sessions
from benchbook.record import estimates
from benchbook.report import aggregation, site, tables
from benchbook.rows import records
from benchbook.running import kernel, progress
from made.pages import dead_links, marks_of, read
from made.strangers import a_machine

pytestmark = pytest.mark.notebook
YOURS = "m003"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Yield a folder with the rows of eight machines, and what `benchbook report` makes of them."""
    folder, draw = tmp_path_factory.mktemp("outputs"), random.Random(90)
    for number in range(8):
        for name, content in a_machine(number, draw).items():
            path = folder / "runs" / f"m{number:03}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHBOOK_OUTPUTS", str(folder))
        for session in set(records.merge(folder / "runs" / YOURS)["session"]):
            sessions.remember(session)
        site.write()
        yield folder


def test_sphinx_warns_of_nothing_and_every_link_of_the_real_notebooks_resolves(outputs):
    assert dead_links(read(outputs / "report" / "index.html")) == []


@pytest.fixture(scope="module")
def merged(outputs):
    return aggregation.merge(outputs / "runs")


@pytest.fixture(scope="module")
def shown(outputs):
    """Return what the article's cells show, by kind of content."""
    cells = nbformat.read(kernel.executed() / site.AGGREGATED, as_version=4).cells
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return {
        kind: [each[kind] for each in data if kind in each]
        for kind in ("text/html", "text/markdown", "image/png")
    }


def test_the_article_has_short_tables_and_a_figure_for_each_study(shown):
    tables = [table for table in shown["text/html"] if "<table" in table]
    assert 3 <= len(tables) <= 6
    assert max(table.count("<tr") for table in tables) <= 21  # a heading and twenty lines
    assert len(shown["image/png"]) >= 2


def test_it_begins_with_the_readers_machine_and_marks_it_in_every_table(merged, shown):
    assert merged.machines["machine"].iloc[0] == YOURS
    named = [
        name
        for name in map(merged.evidence.names.machine, merged.machines["machine"])
        if "(yours)" in name
    ]
    assert named == [merged.evidence.names.machine(YOURS)]
    first = shown["text/markdown"][0]
    own = merged.evidence.measured.query("machine == @YOURS")["study"]
    assert first.count("**") == 2 * len(merged.yours) == 2 * own.nunique() > 0
    assert "(yours)" in first
    machines = next(table for table in shown["text/html"] if "memory_gib" in table)
    assert "(yours)" in BeautifulSoup(machines, "html.parser")("tr")[1].get_text()


def test_without_a_machine_of_the_readers_it_says_whose_the_answers_are(merged):
    strangers = replace(merged, evidence=replace(merged.evidence, yours=frozenset()))
    (first, whose), *rest = strangers.yours.items()
    assert first == "Nothing was measured in this checkout on this computer yet."
    assert re.match(r"The answers below are of .* and 5 more, measured 2026-", whose)
    assert rest
    assert not any(" this " in answer or "(yours)" in answer for _, answer in rest)


def test_each_figure_links_its_numbers_and_its_drawing(outputs, shown):
    page = BeautifulSoup((outputs / "report" / "90_aggregate.html").read_text(), "html.parser")
    links = [link["href"] for link in page("a", download=True)]
    assert len(links) == 2 * len(shown["image/png"])  # its numbers and its drawing
    assert [link for link in links if not (outputs / "report" / link).is_file()] == []
    assert page.find("a", href="claims.csv")


def test_a_number_in_two_places_is_one_number(outputs, merged, shown):
    """Compare data, terminal, figures' tables, pages and the article, for every point and every
    task."""
    report, figures = outputs / "report", outputs / "figures"
    points = pandas.read_csv(report / "points.csv").set_index(["machine", "study", "point"])
    summary = merged.evidence.summary.set_index(["machine", "study", "point"]).loc[points.index]
    for column in ("samples_per_second", "low", "high", "accuracy"):
        pandas.testing.assert_series_equal(points[column], summary[column], check_dtype=False)
    assert list(map(json.loads, points["settings"])) == summary["settings"].tolist()

    # A table on the page of all points has each point's number, in its own words.
    soup = BeautifulSoup((report / "points.html").read_text(), "html.parser")
    header, *lines = [
        [cell.get_text() for cell in row(["th", "td"])] for row in soup.find(id="summary")("tr")
    ]
    on_page = {
        line["rows"]: line for line in (dict(zip(header, line, strict=True)) for line in lines)
    }
    assert set(on_page) == {"/".join(key) for key in points.index}
    for key, point in points.iterrows():
        assert on_page["/".join(key)]["samples/s"] == tables.text(point["samples_per_second"])

    # The start page counts the points, and the terminal says each point's rate and bounds, which
    # have no other home.
    start = BeautifulSoup((report / "index.html").read_text(), "html.parser").get_text()
    assert f"{len(points)} points on" in start
    for key, point in summary[summary["samples_per_second"].notna()].iterrows():
        rate, low, high, unit = statistics.in_units(point)
        bounds = wording.bounds(low, high, point["interval"], wording.rate)
        assert f"{wording.rate(rate)} {unit}/s ({bounds})" in progress.result(
            (outputs / "runs").joinpath(*key)
        )

    # The start page and the data say one time of a task: of SimCLR's batches the fastest one's. The
    # figure has the article's batch.
    marks = marks_of(report)
    costs = pandas.read_csv(report / "costs.csv")
    drawn = pandas.read_csv(figures / "simclr-epochs.csv").query("source == 'published'")
    printed = costs.query("task == 'simclr' and source == 'published'")
    article = merged.evidence.printed("simclr_epochs")
    rates = (article["samples"] / article["seconds"]).groupby([article["chip"], article["device"]])
    fastest = [rates.max()[key] for key in zip(drawn["chip"], drawn["device"], strict=True)]
    assert sorted(printed["seconds"]) == pytest.approx(
        [200 * 49_920 / rate for rate in sorted(fastest)[::-1]]
    )
    assert max(printed["seconds"]) == pytest.approx(200 * 60 * drawn["minutes"].max())
    assert [mark["seconds"] for mark in marks] == pytest.approx(costs["seconds"].tolist(), rel=1e-3)
    assert html.escape(estimates.asked()["published"].iloc[0]) in " ".join(shown["text/html"])

    # The article counts the claims of the data.
    counts = pandas.read_csv(report / "claims.csv")["outcome"].value_counts()
    said = " ".join(shown["text/markdown"])
    assert all(f"**{count}** {outcome}" in said for outcome, count in counts.items())


def test_a_folder_that_is_none_is_no_report_without_rows(tmp_path):
    with pytest.raises(ValueError, match=r"runs_folder '.*typo' is not a folder"):
        aggregation.merge(tmp_path / "typo")
