"""The page, made from tiny figures and tables, read back as a browser would."""

import json
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pandas
import pytest
from matplotlib.figure import Figure

from benchbook import figures, report

FIGURES = tuple(name for names in report.FIGURES.values() for name in names)
MARKUP = '<script>alert("x")</script> & <b>bold</b>'


class Page(HTMLParser):
    """Text, links, tags and table cells of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.tags, self.cells, self.alts, self.text, self.style = [], [], [], [], "", ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src", "srcset", "action", "data")]
        self.alts += [value for name, value in attributes if name == "alt"]
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_data(self, data):
        if self.tags[-1:] == ["style"]:
            self.style += data
        self.text += data
        if self.cells and self.cells[-1] and data.strip():
            self.cells[-1][-1] += data

    def handle_endtag(self, tag):
        if tag == "table":
            self.cells.append([])

    def line(self, first):
        """Return the table line that begins with this text, by its table's headers."""
        index = next(index for index, cells in enumerate(self.cells) if cells[:1] == [first])
        header = max(i for i in range(index) if self.cells[i][:1] in (["machine"], ["claim"]))
        return dict(zip(self.cells[header], self.cells[index], strict=True))


def summary_line(**columns):
    line = {
        "machine": "desk",
        "study": "mnist_speedup",
        "point": "reference-cpu",
        "variant": "reference",
        "device": "cpu",
        "dataset": "mnist",
        "batch_size": 64,
        "samples_per_second": 1234.5,
        "low": 1200.0,
        "high": 1300.0,
        "interval": "interval",
        "num_windows": 6,
        "accuracy": 0.97891,
        "energy_per_sample": None,
        "status": "ok",
        "message": None,
    }
    return line | columns


CLAIM = {
    "id": "speedup",
    "sentence": "A GPU is twice as fast.",
    "published": "1.95 to 2.05 x",
    "machine": "desk",
    "source": "measured",
    "value": 1.704081632,
    "low": None,
    "high": None,
    "verdict": "confirmed",
}


PARITY = {
    "machine": "desk",
    "study": "mnist_speedup",
    "device": "cpu",
    "precision": "amp_bf16",
    "framework": "torch",
    "framework_version": "2.10.0",
    "num_runs": 1,
    "num_steps": 20,
    "passed": True,
    "reason": "worst loss 1e-4",
}


@pytest.fixture
def write_page(tmp_path):
    """Return a function that writes a page from lines of the summary and a claim, and reads it."""

    def write(*lines, claim=CLAIM, alt="A bar.", title="Bars", names=FIGURES[:1], parity=PARITY, values=(1.0,)):
        folder = tmp_path / "figures"
        for name in names:
            with figures.style():
                figure = Figure(figsize=(4, 2))
                figure.subplots().set_title(title)
            figures.save(figure, pandas.DataFrame({"value": values}), folder, name, alt)
        figures.save_table(pandas.DataFrame(lines or [summary_line()]), folder, "summary")
        figures.save_table(pandas.DataFrame([claim]), folder, "claims")
        figures.save_table(pandas.DataFrame([parity] if parity else [], columns=list(PARITY)), folder, "parity")
        return Page(report.write_page(folder, tmp_path / "report"))

    return write


def test_every_linked_file_stands_beside_the_page(write_page, tmp_path):
    page = write_page(names=FIGURES)
    assert len(page.links) > 4 * len(FIGURES)
    for link in page.links:
        assert (tmp_path / "report" / unquote(urlsplit(link).path)).is_file(), link


def test_a_figure_without_rows_is_a_line_and_no_empty_axes(write_page):
    page = write_page(names=FIGURES[:2], title="Nobody measured it", values=())
    assert page.text.count("Nobody measured it") == 2
    assert not [link for link in page.links if link.endswith(".svg")]


def test_the_page_asks_no_other_host_for_anything(write_page, tmp_path):
    page = write_page(summary_line(message="see https://example.org", status="crashed"))
    for link in page.links:
        assert not urlsplit(link).scheme
        assert not urlsplit(link).netloc
        assert not link.startswith("/")
    assert "url(" not in page.style
    assert "@import" not in page.style
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)


def test_no_markup_comes_from_rows_or_figures(write_page):
    tags = write_page(summary_line(status="crashed", message="plain")).tags
    page = write_page(
        summary_line(machine=MARKUP, status="crashed", message=MARKUP),
        claim=CLAIM | {"sentence": MARKUP},
        alt=f'"{MARKUP}',
        title=MARKUP,
    )
    assert page.tags == tags
    assert page.line(MARKUP) is not None
    assert page.text.count(MARKUP) >= 4  # machine, message, claim, caption
    assert set(page.alts) == {f'"{MARKUP}'}


def test_numbers_have_four_digits_and_missing_ones_are_empty(write_page):
    page = write_page(summary_line(), summary_line(machine="attic", samples_per_second=None, low=12.345678))
    line = page.line("desk")
    assert (line["images/s"], line["low"], line["accuracy"]) == ("1,234", "1,200", "0.9789")
    assert (line["J/image"], line["status"], line["windows"]) == ("", "ok", "6")
    assert (page.line("attic")["images/s"], page.line("attic")["low"]) == ("", "12.35")
    claim = page.line("A GPU is twice as fast.")
    assert (claim["value"], claim["low"], claim["verdict"]) == ("1.704", "", "confirmed")
    assert "nan" not in page.text.lower().split()
    assert "None" not in page.text


@pytest.mark.parametrize("name", ["2024", "007", "NA", "1e5"])
def test_a_machine_whose_name_looks_like_a_number_or_nothing_keeps_it(write_page, name):
    page = write_page(summary_line(machine=name, status="crashed", message="null"), claim=CLAIM | {"machine": name})
    assert page.line(name)["status"] == "crashed"
    assert page.line("A GPU is twice as fast.")["machine"] == name
    assert f"{name}, reference-cpu: crashed null" in page.text


def test_failed_points_are_listed_with_their_message(write_page):
    failed = summary_line(
        point="reference-cuda", status="out_of_memory", message="allocating 9 GB", accuracy=None, low=None
    )
    page = write_page(summary_line(), failed, summary_line(point="late", status="timeout"))
    assert "Points that failed" in page.text
    assert "desk, reference-cuda: out_of_memory allocating 9 GB" in page.text
    assert "desk, late: timeout" in page.text
    assert page.tags.count("li") == 2


def test_without_a_failure_there_is_no_list_of_them(write_page):
    assert "failed" not in write_page().text


def test_figures_stand_in_their_order_and_one_that_was_not_drawn_is_left_out(write_page):
    page = write_page(names=FIGURES[:2])
    assert page.tags.count("img") == 2
    assert [link for link in page.links if link.endswith(".svg")][::2] == [f"files/{name}.svg" for name in FIGURES[:2]]
    assert page.alts == ["A bar."] * 2


def test_a_page_can_be_made_before_anything_was_measured(tmp_path):
    folder = tmp_path / "figures"
    figures.save_table(pandas.DataFrame(columns=["machine", "study", "point"]), folder, "summary")
    figures.save_table(pandas.DataFrame([CLAIM]), folder, "claims")
    figures.save_table(pandas.DataFrame(columns=list(PARITY)), folder, "parity")
    page = Page(report.write_page(folder, tmp_path / "report"))
    assert page.line("A GPU is twice as fast.")["claimed"] == "1.95 to 2.05 x"
    assert page.tags.count("table") == 2


def test_a_page_written_again_shows_the_new_numbers_alone(write_page, tmp_path):
    write_page(summary_line(machine="before"))
    page = write_page(summary_line(machine="after"))
    assert "before" not in page.text
    assert "after" in (tmp_path / "report" / "files" / "summary.csv").read_text()


def test_the_caption_is_the_figures_title(write_page, tmp_path):
    page = write_page(title="It takes 16 s, published 20 to 34 s")
    assert page.text.count("It takes 16 s, published 20 to 34 s") == 1
    description = json.loads((tmp_path / "figures" / f"{FIGURES[0]}.json").read_text())
    assert description == {"title": "It takes 16 s, published 20 to 34 s", "alt": "A bar.", "empty": False}


def test_a_study_stands_under_the_question_of_its_notebook_and_without_figures_not_at_all(write_page):
    text = write_page(names=("vae-loss",)).text
    assert "does its loss run away" in text
    assert "or is it the loader?" not in text


@pytest.mark.parametrize(("passed", "word"), [(True, "yes"), (False, "no")])
def test_parity_verdicts_are_told_with_their_reason(write_page, passed, word):
    page = write_page(parity=PARITY | {"passed": passed})
    line = next(cells for cells in page.cells if "worst loss 1e-4" in cells)
    assert line[line.index("20") + 1] == word


def test_without_parity_rows_there_is_no_section_of_it(write_page):
    assert "float64" not in write_page(parity=None).text.partition("How it was measured")[0]
