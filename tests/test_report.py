"""The pages, made from tiny figures and tables, read back as a browser would that runs no script."""

import csv
import itertools
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import nbformat
import pandas
import pytest
from bs4 import BeautifulSoup
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from benchbook import report, studies
from benchbook.record import articles
from benchbook.report import answers, executed, headline, tables
from benchbook.running import kernel
from benchbook.studies import figures
from benchbook.studies.study import Drawing, Evidence

pytestmark = pytest.mark.usefixtures("outputs")
FIGURES = tuple(chart.name for study in studies.every().values() for chart in study.charts)
PREDICTIONS = tuple(chart.name for chart in report.PREDICTIONS)
MARKUP = '<script>alert("x")</script> & <b>bold</b>'
SNAPSHOT = Path(__file__).parent / "report_snapshot.txt"
LARGEST_BYTES = {"index": 300_000, "points": 3_000_000}
VOID = {"meta", "link", "img", "br", "hr", "input"}
ADDRESSES = ("href", "src", "srcset", "action", "data")  # attributes that a browser fetches or opens


class Page(HTMLParser):
    """Text, links, tags and table cells of a page, whose every tag is closed: what rows hold closes nothing."""

    def __init__(self, path):
        super().__init__()
        self.open, markup = [], path.read_text(encoding="utf-8")
        self.feed(markup)
        assert self.open == []
        soup = BeautifulSoup(markup, "html.parser")  # comes with nbconvert
        tags = soup.find_all(True)
        self.tags, self.ids = [tag.name for tag in tags], [tag["id"] for tag in tags if "id" in tag.attrs]
        self.links = [tag[name] for tag in tags for name in ADDRESSES if name in tag.attrs]
        self.alts = [picture.get("alt") for picture in soup("img")]
        self.cells = [[cell.text for cell in line(["td", "th"])] for line in soup("tr")]
        self.text = soup.text

    def handle_starttag(self, tag, attributes):
        self.open += [tag] * (tag not in VOID)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def lines(self, *headers):
        """Return the lines of the first table that has these headers."""
        start = next(index for index, cells in enumerate(self.cells) if set(headers) <= set(cells))
        found = []
        for cells in self.cells[start + 1 :]:
            if len(cells) != len(self.cells[start]):
                break
            found.append(dict(zip(self.cells[start], cells, strict=True)))
        return found


def summary_line(**columns):
    line = {"machine": "desk", "chip": "Chip A", "study": "mnist_speedup", "point": "reference-cpu"}
    line |= {"variant": "reference", "device": "cpu", "framework": "torch", "framework_version": "2.10.0"}
    line |= {"dataset": "mnist", "batch_size": 64, "session": "20261120T101500Z-aaaa", "commit": "0123abc"}
    line |= {"samples_per_second": 1234.5, "low": 1200.0, "high": 1300.0, "interval": "interval", "num_windows": 6}
    line |= {"accuracy": 0.97891, "energy_per_sample": None, "verdict": "stable", "verdict_reasons": "[]"}
    line |= {"status": "ok", "message": None}
    return line | columns


OUTCOME = {"id": "speedup", "study": "mnist_speedup", "article": "An article, 2022"}
OUTCOME |= {"link": "https://example.org/article", "sentence": "A GPU is twice as fast."}
OUTCOME |= {"published": "1.95 to 2.05 x", "outcome": "out of reach", "why": "Needs an Apple M1."}
OUTCOME |= {"arithmetic": "33.4 / 19.6 = 1.704", "holds": "arithmetic does not hold"}
CLAIM = {"id": "speedup", "sentence": "A GPU is twice as fast.", "published": "1.95 to 2.05 x", "machine": "desk"}
CLAIM |= {"source": "published", "value": 1.704081632, "low": 1.7, "high": 1.71, "verdict": "contradicted"}
CLAIM |= {"reason": None, "arithmetic": "33.4 / 19.6 = 1.704"}
NOT_MEASURED = {"machine": None, "source": "measured", "value": None, "low": None, "high": None}
NOT_MEASURED |= {"verdict": "not measured here"}
PARITY = {"machine": "desk", "study": "mnist_speedup", "device": "cpu", "precision": "amp_bf16"}
PARITY |= {"framework": "torch", "framework_version": "2.10.0", "num_runs": 1, "num_steps": 20, "passed": True}
PARITY |= {"reason": "worst loss 1e-4"}
HEADLINE = {"machine": "desk", "chip": "Chip A", "source": "measured", "study": "mnist_speedup"}
HEADLINE |= {"variant": "reference", "device": "cpu", "dataset": "mnist", "images_per_second": 1234.5, "low": 1200.0}
HEADLINE |= {"high": 1300.0, "num_windows": 6, "verdict": "stable", "seconds_per_epoch": 486.0}
HEADLINE |= {"joules_per_image": 0.0123456, "energy_boundary": "wall", "dollars_per_million": None, "status": "ok"}
HEADLINE |= {"place": "Chip A, CPU"}
DRAWN = {"machine": "desk", "device": "cpu", "source": "measured", "dataset": "mnist", "num_windows": 6}


@pytest.fixture
def write_site(tmp_path):
    """Return a function that writes the pages from lines of the summary and other tables, and reads them."""

    def write(*lines, alt="A bar", title="Bars", names=FIGURES[:1], values=(DRAWN,), every=None, **others):
        folder = tmp_path / "figures"
        with figures.style():
            figure = Figure(figsize=(4, 2))
            figure.subplots().set_title(title)
        Drawing(figure, pandas.DataFrame(values, columns=list(DRAWN)), alt).save(folder, names[0])
        for name, kind in itertools.product(names[1:], ("svg", "csv", "json")):
            shutil.copy(folder / f"{names[0]}.{kind}", folder / f"{name}.{kind}")
        tables_of = {"summary": lines or [summary_line()], "claims": [CLAIM], "claim_outcomes": [OUTCOME]}
        for name, content in (tables_of | {"parity": [PARITY]} | others).items():
            figures.save_table(pandas.DataFrame(content), folder, name.replace("_", "-"))
        site = tmp_path / "report"
        if every is not None:
            answers.save(every, [], folder)
        report.write_pages(folder, site, executed.newest(tmp_path / "runs"))
        return SimpleNamespace(folder=site, **{path.stem: Page(path) for path in site.glob("[a-z]*.html")})

    return write


def write_notebook(
    runs, *outputs, machine="desk", point="reference-cpu", run="20261120T101500Z-aaaa", text="# Title", made_here=True
):
    """Write an executed notebook of one cell with these outputs where a run's lies; return its path."""
    folder = runs / machine / "mnist_speedup" / point
    folder.mkdir(parents=True, exist_ok=True)
    cell = new_code_cell("print(1)", id="code", outputs=list(outputs))
    notebook = new_notebook(cells=[new_markdown_cell(text, id="text"), cell])
    path = folder / f"{run}.ipynb"
    nbformat.write(notebook, path)
    if made_here:
        kernel.record(path)
    return path


def html_output(markup):
    return new_output("display_data", {"text/html": markup, "text/plain": "plain"})


@pytest.fixture(scope="module")
def every():
    """Return the marks of few machines, in all tasks."""
    marks, _ = answers.gather(evidence := Evidence(articles.rows()), headline.table(evidence, studies.every()), "desk")
    return [mark for mark in marks if "M1" in mark.name or "TPU v3" in mark.name]


def test_every_linked_file_stands_beside_its_page_and_every_anchor_in_it(write_site, tmp_path, every):
    write_notebook(tmp_path / "runs")
    others = {"headline": [HEADLINE], "machines": [{"machine": "desk"}], "prediction_errors": [{"rule": "cores"}]}
    site = write_site(names=(*FIGURES, *PREDICTIONS), every=every, **others).folder
    pages = sorted(site.rglob("*.html"))
    assert {path.parent.name for path in pages} == {"report", "machines", "claims", "notebooks"}
    for path in pages:
        page = Page(path)
        assert len(page.ids) == len(set(page.ids)), path
        for link in page.links:
            target = urlsplit(link)
            if not target.scheme:
                file = path.parent / unquote(target.path) if target.path else path
                assert file.is_file(), link
                choice = "=" in target.fragment
                assert choice or not target.fragment or target.fragment in Page(file).ids, link


def test_the_page_of_the_study_that_tries_precisions_shows_them_and_the_claims_of_events(write_site, every):
    kinds = itertools.product(("simclr_epochs", "mnist_speedup"), ("that it happens", "2 x"))
    claims = [OUTCOME | {"study": study, "published": said, "sentence": f"{study}: {said}."} for study, said in kinds]
    support = [{"machine": "desk", "precision": "amp_bf16", "status": "unsupported"}]
    pages = vars(write_site(every=every, support=support, claim_outcomes=claims))
    assert {name for name in pages if "works" in getattr(pages[name], "ids", ())} == {"simclr"}
    assert pages["simclr"].lines("precision")[0]["status"] == "unsupported"
    assert [claim["sentence"] in pages["simclr"].text for claim in claims] == [True, False, False, False]


def test_the_pages_ask_no_other_host_for_anything_and_have_a_library_with_its_licences(write_site, tmp_path):
    fetching = '<img src="https://example.org/x.png"><link rel="stylesheet" href="https://example.org"><p>here</p>'
    write_notebook(tmp_path / "runs", html_output(fetching))
    site = write_site(summary_line(message="see https://example.org", status="crashed"))
    for path in site.folder.rglob("*.html"):
        page = Page(path)
        assert page.tags.count("link") == 2
        for link in set(page.links) - {OUTCOME["link"]}:  # a claim's article is the reader's to open
            assert not urlsplit(link).scheme
            assert not urlsplit(link).netloc
            assert not link.startswith("/")
        assert not {"iframe", "object", "embed", "base"} & set(page.tags)
    style = (site.folder / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style
    library = (site.folder / "tables.js").read_text()
    assert "(c) 2019-2026 Marc Wouts" in library
    assert "SpryMedia Ltd - datatables.net/license" in library
    assert "Permission is hereby granted" in library


def test_every_page_has_the_bar_and_an_address_only_where_one_is_configured(write_site, tmp_path, monkeypatch):
    write_notebook(tmp_path / "runs")
    folder = write_site(headline=[HEADLINE]).folder
    pages = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.html")}
    assert {"index.html", "404.html", "claims/speedup.html"} < set(pages)
    for name, path in pages.items():
        root = "../" * name.count("/")
        assert [link for link in Page(path).links if link in (f"{root}{page}" for page in report.BAR.values())]
        assert "canonical" not in path.read_text()
        assert 'property="og:title"' in path.read_text()
    assert not (folder / "sitemap.xml").exists()
    monkeypatch.setenv("BENCHBOOK_ADDRESS", "https://example.org/benchbook/")
    write_site(headline=[HEADLINE])
    for name, path in pages.items():
        link = f'<link rel="canonical" href="https://example.org/benchbook/{name}">'
        assert (link in path.read_text()) == (name != "404.html")
    assert "https://example.org/benchbook/index.html" in Page(pages["404.html"]).links
    located = ElementTree.parse(folder / "sitemap.xml").getroot()
    listed = {place[0].text.removeprefix("https://example.org/benchbook/") for place in located}
    assert listed == set(pages) - {"404.html"}


@pytest.mark.parametrize("text", [MARKUP, "007", "NA", "@SUM(A1)", '=HYPERLINK("https://example.org","x")'])
def test_names_and_messages_of_rows_and_figures_are_text(write_site, tmp_path, text):
    def made(text):
        words = f"it is {text}"
        return write_site(
            summary_line(machine=text, chip=text, status="crashed", message=text, samples_per_second=-0.5),
            claim_outcomes=[OUTCOME | {"sentence": words, "why": words}],
            alt=f'"{text}',
            title=text,
            values=[DRAWN | {"machine": text}],
            headline=[HEADLINE | {"machine": text, "chip": text}],
            machines=[{"machine": text, "condition": words}],
            findings=[{"study": "mnist_speedup", "finding": words}],
            prediction_errors=[{"rule": words}],
            left_out=[{"fault": words}],
        )

    before, after = made("plain"), made(text)
    # finding, headline, figure and citation; claims: sentence, why; machines: name, condition; points: message too
    for name, least in (("studies", 7), ("claims", 2), ("machines", 2), ("points", 4)):
        assert vars(after)[name].tags == vars(before)[name].tags, name
        assert vars(after)[name].text.count(text) >= vars(before)[name].text.count(text) + least, name
    assert after.studies.alts == [f'"{text}. {text}.']
    assert f"Measured on {text} ({text}); CPU;" in after.studies.text
    assert after.studies.lines("machine")[0]["machine"] == f"Chip A, CPU {text}"
    assert after.points.lines("machine")[0]["machine"] == text
    assert report.left_out(tmp_path / "figures") == [f"it is {text}"]
    with (after.folder / "files" / "summary.csv").open(newline="") as file:
        line = next(csv.DictReader(file))
    harmless = f"'{text}" if text.startswith(("=", "@")) else text  # a spreadsheet would run it as a formula
    assert (line["machine"], line["message"], line["samples_per_second"]) == (harmless, harmless, "-0.5")


def test_the_pages_read_as_in_the_snapshot(write_site):
    """Two machines, one with a name; a failure, an unstable point, claims of each kind, and all tables."""
    confirmed = OUTCOME | {"id": "second", "sentence": "It is green.", "outcome": "confirmed", "link": None}
    unstable = {"verdict": "unstable", "verdict_reasons": '[["spread", 0.08]]'}
    unstable |= {"commit": "456def", "session": "20261121T090000Z-b"}
    site = write_site(
        summary_line(),
        summary_line(point="tuned-cpu", **unstable),
        summary_line(machine="attic", framework_version="2.9.0"),
        summary_line(point="reference-cuda", status="out_of_memory", message="allocating 9 GB", accuracy=None),
        names=(names := (*FIGURES[:3], *PREDICTIONS)),
        title="It takes 16 s, published 20 to 34 s",
        values=[DRAWN, DRAWN | {"num_windows": 18}, {"machine": "m1-mac-16gb", "source": "published"}],
        claims=[CLAIM, CLAIM | NOT_MEASURED, CLAIM | {"id": "second"}],
        claim_outcomes=[confirmed, OUTCOME],
        parity=[PARITY | {"passed": False}],
        machine_names=[{"machine": "desk", "name": "Chip A, 2 cores"}, {"machine": "attic", "name": "Chip B"}],
        findings=[{"study": "mnist_speedup", "finding": "It is the loader.", "basis": "Of six points."}],
        machines=[{"machine": "desk", "cores": 8, "memory_gib": 23.44, "condition": "On battery."}],
        prediction_errors=[{"rule": "cores", "pairs": 35, "median_error": 0.3125, "coverage": None}],
        headline=[HEADLINE, HEADLINE | {"machine": "m1", "place": "Apple M1, GPU", "source": "published"}],
        left_out=[{"fault": "Left out: a.csv: not a table of rows"}],
    )
    shown = (site.studies, site.claims)
    pages = [" ".join(line.split()) for page in shown for line in page.text.splitlines()]
    text = "\n".join(filter(None, pages)) + "\n"
    if not SNAPSHOT.exists():
        SNAPSHOT.write_text(text)
        pytest.fail(f"{SNAPSHOT.name} was written; read it, and commit it")
    assert text == SNAPSHOT.read_text(), f"if this is meant, delete {SNAPSHOT.name} and run the test twice"
    assert site.studies.tags.count("img") == len(names)
    assert site.studies.tags.index("img") < site.studies.tags.index("details")  # the first figure is open
    shown = [link for link in site.studies.links if link.startswith("files/") and link.endswith(".svg")][::3]
    assert shown == [f"files/{name}.svg" for name in names]


def test_numbers_have_four_digits_missing_ones_are_empty_and_measured_machines_are_first(write_site):
    attic = {"machine": "attic", "seconds_per_epoch": None, "energy_boundary": None, "status": "out_of_memory"}
    published = {"machine": "m1", "place": "Apple M1, GPU", "source": "published", "verdict": None}
    site = write_site(
        summary_line(),
        summary_line(machine="attic", samples_per_second=None, low=12.345678),
        headline=[HEADLINE | published, HEADLINE, HEADLINE | attic],
    )
    desk, attic = site.points.lines("machine")[:2]
    assert (desk["samples/s"], desk["accuracy"]) == ("1,234 1,200 to 1,300, n=6", "0.9789")
    assert desk["status"] == "ok"
    assert "J/sample" not in desk, "no line has any"
    assert attic["samples/s"] == " 12.35 to 1,300, n=6"
    head, other, printed = lines = site.studies.lines("machine", "one epoch")[:3]
    assert [line["machine"] for line in lines] == ["Chip A, CPU desk", "Chip A, CPU attic", "Apple M1, GPU published"]
    assert head["study"].startswith("MNIST ")
    shown = (head["one epoch"], head["samples/s"], head["J/sample"], head["verdict"])
    assert shown == ("8.10 min", "1,234 1,200 to 1,300, n=6", "0.01235 wall", "stable")
    assert (other["one epoch"], other["J/sample"], other["verdict"]) == ("", "0.01235", "out_of_memory")
    assert printed["verdict"] == ""
    assert "$ per million samples" not in other, "no line has any"
    for page in (site.studies, site.points):
        assert "nan" not in page.text.lower().split()
        assert "None" not in page.text


def test_a_site_can_be_made_before_anything_was_measured(tmp_path):
    folder = tmp_path / "figures"
    figures.save_table(pandas.DataFrame(columns=list(summary_line())), folder, "summary")
    figures.save_table(pandas.DataFrame([CLAIM]), folder, "claims")
    figures.save_table(pandas.DataFrame([OUTCOME]), folder, "claim-outcomes")
    site = report.write_pages(folder, tmp_path / "report").parent
    assert "1.95 to 2.05 x" in Page(site / "claims.html").text
    assert "Nothing was measured" in Page(site / "studies.html").text
    assert "Nothing was measured" in Page(site / "index.html").text
    assert "headline" not in Page(site / "studies.html").ids


def test_a_site_written_again_has_the_same_bytes_or_the_new_numbers_alone(write_site, tmp_path):
    def contents(site):
        return {path.relative_to(site.folder): path.read_bytes() for path in site.folder.rglob("*") if path.is_file()}

    write_notebook(tmp_path / "runs", html_output("<p>here</p>"), point="before")
    line = summary_line(machine="before")
    first = contents(write_site(line, headline=[HEADLINE]))
    assert len(first) > 10
    assert contents(write_site(line, headline=[HEADLINE])) == first
    (tmp_path / "runs" / "desk").rename(tmp_path / "away")
    site = write_site(summary_line(machine="after"))
    assert "before" not in site.points.text
    assert "after" in (site.folder / "files" / "summary.csv").read_text()
    assert list((site.folder / "notebooks").iterdir()) == []


def test_the_newest_run_of_each_point_has_a_page_where_this_computer_made_it_and_it_is_whole(write_site, tmp_path):
    runs = tmp_path / "runs"
    write_notebook(runs, run="20261120T101500Z-aaaa", text="# Older")
    write_notebook(runs, run="20261121T101500Z-aaaa", text="# Newer")
    write_notebook(runs, run="20261122T101500Z-bbbb", text="# Theirs", made_here=False)
    write_notebook(runs, machine="stranger", text="# Theirs", made_here=False)
    write_notebook(runs, point="tuned-cpu")
    changed, torn = (write_notebook(runs, point=point) for point in ("changed", "torn"))
    changed.write_text(changed.read_text().replace("# Title", "# Other"))
    torn.write_text('{"cells": [')
    kernel.record(torn)
    site = write_site()
    pages = sorted((site.folder / "notebooks").iterdir())
    assert [path.name.rpartition("-")[0] for path in pages] == [
        f"desk-mnist_speedup-{point}" for point in ("reference-cpu", "tuned-cpu")
    ]
    assert "Newer" in Page(pages[0]).text
    assert "desk: 2 notebooks" in site.method.text


@pytest.mark.parametrize("name", ["..x", "<b>&\"'", "a b#?%2e", "..%2f..%2fx", "=1+1", "é" * 60])
def test_a_folders_name_stays_inside_the_site_and_is_text(write_site, tmp_path, name):
    write_notebook(tmp_path / "runs", machine=name)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    site = write_site(summary_line(machine="../../x"))
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.relative_to(tmp_path).parts[0] for path in written} == {"figures", "report"}
    assert len(list((site.folder / "notebooks").iterdir())) == 1
    assert f"{name}: 1 notebook" in site.method.text
    links = [link for link in site.method.links if link.startswith("notebooks/")]
    assert [(site.folder / unquote(link)).is_file() for link in links] == [True]


def test_an_executed_notebook_shows_its_outputs_and_runs_nothing_of_them(write_site, tmp_path):
    picture = new_output("display_data", {"image/png": "iVBORw0KGgo=", "image/svg+xml": "<svg onload='x()'/>"})
    table = "<style scoped>td {}</style><table><thead><tr><th>head</th></tr></thead><tr><td>cell</td></tr></table>"
    hostile = (
        '<script>document.title="run"</script><p onclick="x()">kept</p><iframe src="https://example.org"></iframe>'
    )
    code = new_output("display_data", {"application/javascript": "document.title='run'", "text/plain": "script"})
    outputs = [picture, html_output(table), html_output(hostile), code]
    outputs += [new_output("stream", text=f"{tmp_path.home()}/secret <b>bold</b>\n")]
    outputs += [new_output("stream", name="stderr", text="10%|# | 1/10")]
    write_notebook(tmp_path / "runs", *outputs, text=f"# Title\n\n## Below\n\n{MARKUP} ![x](https://example.org/x.png)")
    (path,) = (write_site().folder / "notebooks").iterdir()
    page, content = Page(path), path.read_text()
    assert not {"script", "iframe", "svg"} & set(page.tags)
    assert "onclick" not in content
    assert page.alts == ["Figure drawn by the code above, under: Below"]
    assert page.cells == [["head"], ["cell"]]
    assert "kept" in page.text
    assert "~/secret <b>bold</b>" in page.text
    assert "1/10" not in page.text
    assert page.tags.count("h1") == 1


def test_a_page_of_very_many_points_shows_the_first_says_so_and_stays_below_three_megabytes(write_site):
    counts = range(tables.MOST_LINES + 1)
    many = [summary_line(machine=f"machine-{n % 50}", point=f"tuned-cpu-batch_size_{n}-0123abcd") for n in counts]
    head = [HEADLINE | {"machine": f"machine-{n % 50}"} for n in range(350)]
    site = write_site(*many, headline=head, names=FIGURES)
    assert len(site.points.lines("machine")) == tables.MOST_LINES
    assert f"{tables.MOST_LINES} of {tables.MOST_LINES + 1} lines" in site.points.text
    for path in site.folder.glob("*.html"):
        assert path.stat().st_size < LARGEST_BYTES.get(path.stem, 600_000)


def test_an_aggregation_that_fails_is_one_line_and_leaves_the_pages_of_before(tmp_path, monkeypatch):
    page, failing = tmp_path / "report" / "notebooks" / "90_aggregate.html", tmp_path / "failing.ipynb"
    page.parent.mkdir(parents=True)
    page.touch()
    kernelspec = {"name": "python3", "display_name": "Python", "language": "python"}
    cell = new_code_cell("raise OSError(28, 'No space left on device')")
    nbformat.write(new_notebook(cells=[cell], metadata={"kernelspec": kernelspec}), failing)
    monkeypatch.setattr(report.layout, "notebook", lambda study: failing)
    with pytest.raises(RuntimeError, match=r"^the aggregation failed: OSError: \[Errno 28\] No space left on device$"):
        report.write()
    assert list((tmp_path / "report").rglob("*.html")) == [page]


def test_a_second_report_in_the_same_folder_waits_for_the_first(tmp_path, monkeypatch):
    said = []

    def execute(notebook, aggregated, *_):
        said.append("begins")
        time.sleep(0.3)
        said.append("ends")

    monkeypatch.setattr(kernel, "execute", execute)
    monkeypatch.setattr(report, "write_pages", lambda figures, folder, notebooks: list(notebooks))
    with ThreadPoolExecutor() as threads:
        made = [threads.submit(report.write) for _ in range(2)]
    assert [each.result() for each in made] == [[tmp_path / "report" / report.AGGREGATED]] * 2
    assert said == ["begins", "ends"] * 2
