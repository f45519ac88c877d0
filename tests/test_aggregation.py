"""The article of all machines as a reader runs it, and one number in every place that shows it."""

import random

import nbformat
import pandas
import pytest

from benchbook import report, studies
from benchbook.commands import cli
from benchbook.judging import wording
from benchbook.studies.study import Evidence
from test_hostile_inputs import a_machine
from test_report import Page

pytestmark = pytest.mark.notebook


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return a folder with the rows of 25 machines, and what `benchbook report` makes of them."""
    folder, draw = tmp_path_factory.mktemp("outputs"), random.Random(90)
    for number in range(25):
        for name, content in a_machine(number, draw).items():
            path = folder / "runs" / f"m{number:03}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHBOOK_OUTPUTS", str(folder))
        report.write()
    return folder


@pytest.fixture(scope="module")
def shown(outputs):
    """Return what the article's cells show, by kind of content."""
    cells = nbformat.read(outputs / "report" / report.AGGREGATED, as_version=4).cells
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return {kind: [each[kind] for each in data if kind in each] for kind in ("text/html", "image/png")}


def test_the_article_has_short_tables_and_one_figure_for_each_study(shown):
    assert 3 <= len(shown["text/html"]) <= 6
    assert max(table.count("<tr") for table in shown["text/html"]) <= 21  # a heading and twenty lines
    assert 2 <= len(shown["image/png"]) <= len(studies.every())


def test_one_number_is_the_same_in_figure_page_notebook_data_and_terminal(outputs, shown, monkeypatch, capsys):
    """The shortest epoch of MNIST: the figure's table has it with all digits."""
    drawn = pandas.read_csv(outputs / "figures" / "mnist-epochs.csv")
    line = drawn[drawn["source"] == "measured"].sort_values("seconds").iloc[0]
    said = wording.duration(line["seconds"])

    data = pandas.read_csv(outputs / "report" / "data" / "answers.csv")
    measured = data[(data["task"] == "mnist") & (data["source"] == "measured")]
    assert measured["seconds"].min() == pytest.approx(line["seconds"])
    assert f"{said} to train one epoch of MNIST" in Page(outputs / "report" / f"machines/{line['machine']}.html").text
    cells = Page(outputs / "report" / "studies.html").lines("machine", "one epoch")
    assert wording.duration(line["seconds"], 3) in [cell["one epoch"] for cell in cells]
    assert any(f"<td>{said}: " in table for table in shown["text/html"])

    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(outputs))
    monkeypatch.setenv("COLUMNS", "200")
    evidence = Evidence.of_machine(line["machine"])
    cli._print_summary(evidence.summary, [evidence])
    assert said in [cell.strip() for cell in capsys.readouterr().out.replace("│", "|").split("|")]
