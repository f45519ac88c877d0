"""The site, built by Sphinx from rows and executed notebooks, read back as a browser would that
runs no script."""

import base64
import csv
import functools
import hashlib
import io
import itertools
import json
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import nbformat
import pandas
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_notebook, new_output

from benchbook.machine import context, layout, sessions
from benchbook.record import articles
from benchbook.report import aggregation, costs, pages, site, tables
from benchbook.report import pages as points_pages
from benchbook.running import kernel
from benchbook.studies.charts.drawing import Drawing
from benchbook.studies.results.evidence import Evidence
from made import study_rows
from made.pages import PIXEL, dead_links, html_output, links, marks_of, read, write_notebook
from made.processes import ended_after
from made.rows import contents, make_row, make_rows, windows

pytestmark = pytest.mark.usefixtures("outputs")
MARKUP = '<script>alert("x")</script><img src=x onerror="alert(1)">'
HOST = "https://example.org"
OTHER_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR42mP8//8/AwMDAA7/Av8BviLeAAAAAElFTkSuQmCC"
NOTEBOOK = "01_mnist_speedup.ipynb"
FREE_TEXTS = (
    "machine",
    "chip",
    "model",
    "message",
    "commit",
    "session",
    "device_name",
    "dataset",
    "point",
)
TABLES = ["claims.csv", "costs.csv", "data.json", "points.csv"]


def rows_of(**columns) -> pandas.DataFrame:
    """Return rows of a point that trained and of one that crashed, with these columns."""
    failed = make_row(run_id="run-2", point="tuned-cpu", status="crashed", message="out of luck")
    return make_rows(
        [*windows([300.0, 310.0, 305.0], **columns), failed | study_rows.NOTHING | columns]
    )


@functools.cache
def published() -> dict:
    """Return the costs and claims of what is published alone."""
    evidence = Evidence(articles.rows())
    return {
        "costs": costs.table(evidence, (), {}),
        "claims": aggregation.Aggregation(evidence, {}, []).claims,
    }


def merge(rows, left_out=(), manifests=None) -> aggregation.Aggregation:
    """Return the aggregation of some rows; costs and claims are those without them, which are
    computed once."""
    every = pandas.concat([rows, articles.rows()], ignore_index=True)
    merged = aggregation.Aggregation(Evidence(every), manifests or {}, list(left_out))
    vars(merged).update(published() | {"drawings": {}})
    return merged


def made(place: Path, merged, *notebooks: Path) -> SimpleNamespace:
    """Build a site in a folder from an aggregation and executed notebooks, and read it."""
    merged.write(place / "figures")
    return read(site.build(place / "figures", place / "report", notebooks))


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return `made` in this test's folder, of documents that are titles alone but for the
    words."""
    docs = tmp_path / "project" / "docs"
    docs.mkdir(parents=True)
    for path in site.layout.root().iterdir():
        if path.name != "docs":
            (docs.parent / path.name).symlink_to(path)
    for path in (site.layout.root() / "docs").glob("*.md"):
        text = path.read_text() if path.stem == "words" else f"# {path.stem}\n"
        (docs / path.name).write_text(text)
    monkeypatch.setattr(site.layout, "root", lambda: tmp_path / "project")
    return functools.partial(made, tmp_path)


def a_strangers_notebook(path: Path) -> Path:
    """Write a notebook whose every output would run, load or include something."""
    picture = new_output(
        "display_data", {"image/png": PIXEL, "image/svg+xml": "<svg onload='x()'/>"}
    )
    drawn = new_output(
        "display_data",
        {"image/png": OTHER_PIXEL},
        metadata={"image/png": {"alt": f"Bars {MARKUP}"}},
    )
    table = "<style scoped>td {}</style><table><thead><tr><th></th></tr></thead><tr><td>cell</td></tr></table>"
    hostile = f'{MARKUP}<p onclick="x()" style="x">kept</p><iframe src="{HOST}"></iframe><a href="javascript:x()">y</a>'
    script = new_output(
        "display_data", {"application/javascript": "document.title='run'", "text/plain": "as text"}
    )
    words = f"**bold** {MARKUP} \\<i>slash</i> ![x]({HOST}/x.png)\n\n"
    words += "```python\nimport this\n```\n\n```{include} /etc/hosts\n```"
    markdown = new_output("display_data", {"text/markdown": words})
    outputs = [picture, drawn, html_output(table), html_output(hostile), script, markdown]
    outputs += [
        new_output("stream", text=f"{Path.home()}/secret {site.layout.root()}/x <b>plain</b>\n")
    ]
    outputs += [new_output("stream", name="stderr", text="10%|# | 1/10")]
    outputs += [new_output("stream", text="20%|# | 2/10\r100%|#| 10/10\nthe end\n")]
    outputs += [new_output("error", ename="ValueError", evalue=MARKUP, traceback=["\x1b[31mraise"])]
    cell = f"# Title\n\n## Below\n\n{MARKUP} ![x]({HOST}/x.png)\n\n```{{include}} /etc/hostname\nkept as code\n```"
    cell += "\n\n{download}`/etc/hosts`"
    return write_notebook(path, *outputs, text=cell)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a site of two points, one of which failed, with three notebooks that would load
    things and two bad ones."""
    place = tmp_path_factory.mktemp("whole")
    fetching = f'<img src="{HOST}/x.png"><link rel="stylesheet" href="{HOST}"><p>here</p>'
    executed = [
        write_notebook(place / name, html_output(fetching))
        for name in ("90_aggregate.ipynb", NOTEBOOK)
    ]
    executed.append(a_strangers_notebook(place / "04_outputs.ipynb"))
    cells = '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "code"}]}'
    for name, content in {"02_torn.ipynb": '{"cells": [', "03_other.ipynb": cells}.items():
        executed.append(place / name)
        executed[-1].write_text(content)
    lines = [row | {"samples_per_second": 1234.5678} for row in windows([1.0] * 3)]
    failed = (
        make_row(run_id="run-2", point="tuned-cpu", status="crashed", message=f"see {HOST}")
        | study_rows.NOTHING
    )
    return made(place, merge(make_rows([*lines, failed])), *executed)


def text(page: BeautifulSoup) -> str:
    return " ".join(page.article.get_text(" ").split())


def test_the_site_is_complete_and_a_browser_loads_nothing_of_another_host(whole):
    names = {"index", "points", "search", "90_aggregate", "01_mnist_speedup"}
    names |= {"02_torn", "03_other", "04_outputs"}
    documents = {path.stem for path in (site.layout.root() / "docs").glob("*.md")}
    assert set(whole.pages) == {f"{name}.html" for name in names} | {
        f"docs/{name}.html" for name in documents
    }
    assert (
        "Measures a loop from the calls of tick" in whole.pages["docs/api.html"].text
    )  # a docstring
    for name, page in whole.pages.items():
        loaded = [
            tag[key]
            for tag in page(["script", "link", "img"])
            for key in ("src", "href")
            if key in tag.attrs
        ]
        loaded = [address for address in loaded if not address.startswith("data:")]
        assert [
            address for address in loaded if urlsplit(address).scheme or address.startswith("/")
        ] == [], name
        assert not page(["iframe", "object", "embed", "base"]), name
    assert (
        sorted(
            path.name
            for path in whole.folder.glob("*[csv|json]")
            if path.suffix in (".csv", ".json")
        )
        == TABLES
    )
    hostile = "04_outputs"  # whose code is in no language that Sphinx knows
    assert [line for line in dead_links(whole) if hostile not in line] == []
    assert len(marks_of(whole.folder)) > 100
    assert (
        sum(path.stat().st_size for path in whole.folder.glob("_static/*.js")) < 500_000
    )  # 1.5 MB with DataTables


def test_a_pages_policy_allows_its_own_files_and_the_themes_one_inline_script(whole):
    for name, page in whole.pages.items():
        policy = page.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
        assert "default-src 'none'" in policy
        assert not re.search(r"https?:|\*|unsafe-eval|script-src[^;]*(data:|unsafe)", policy), name
        inline = [
            tag.string
            for tag in page("script")
            if "src" not in tag.attrs and tag.get("type") is None
        ]
        for script in inline:
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy, name
        assert len(inline) == 1


def test_free_texts_of_rows_and_manifests_are_text_on_every_page(build):
    hostile = f"{MARKUP} {{{{ x }}}} `` ```{{include}} /etc/passwd"
    machine = dict.fromkeys(("chip", "system", hostile), hostile) | {"accelerators": [hostile]}
    environment = {"python": hostile, "packages": {"torch": hostile}}
    manifest = {"machine": machine, "environment": environment, "commit": hostile, hostile: hostile}
    rows = rows_of(**dict.fromkeys(FREE_TEXTS, hostile))
    after = build(merge(rows, [f"a file: {hostile}"], {"run-1": manifest}))
    for page in after.pages.values():
        assert not page.find(attrs={"onerror": True})
        assert not page.find(["script", "img"], string=re.compile("alert"))
        assert "root:" not in page.text
    squeezed = " ".join(hostile.split())
    assert "1 of 2 processes failed: crashed (" in text(after.pages["points.html"])
    assert f"a file: {squeezed}" in text(after.pages["points.html"])
    assert text(after.pages["points.html"]).count(squeezed) >= 3  # message, data set, system
    with (after.folder / "points.csv").open(newline="", encoding="utf-8") as file:
        assert {line["message"] for line in csv.DictReader(file) if line["message"]} == {
            f"1 of 2 processes failed: crashed ({hostile})"
        }


def test_a_notebooks_outputs_are_shown_and_nothing_of_them_runs(whole):
    page = whole.pages["04_outputs.html"]
    article = page.article
    assert not article(["script", "iframe", "style"])
    assert not [
        tag
        for tag in article.find_all(True)
        if {"onclick", "onerror", "onload", "style"} & set(tag.attrs)
    ]
    assert [image["alt"] for image in article("img")] == ["Picture under: Below", f"Bars {MARKUP}"]
    assert article.find("span", class_="kn").get_text() == "import"  # code is highlighted
    assert not article("i")
    assert not any(link.startswith("javascript") for link in links(page))
    assert article.find("div", class_="wide").get_text(strip=True) == "cell"
    assert article.strong.get_text() == "bold"
    for shown in (
        "kept",
        "as text",
        "~/secret benchbook/x <b>plain</b>",
        f"ValueError: {MARKUP}",
        "kept as code",
    ):
        assert shown in text(page)
    assert not any(f"{number}/10" in text(page).split() for number in (1, 2))
    assert "100%|#| 10/10" in text(page)
    assert not list(whole.folder.rglob("hosts"))


def test_a_notebook_that_cannot_be_read_is_named_and_the_others_are_there(whole):
    shown = {
        name: text(whole.pages[f"{name}.html"])
        for name in ("01_mnist_speedup", "02_torn", "03_other")
    }
    cannot = {
        name: f"{name}.ipynb # This notebook cannot be shown" in words
        for name, words in shown.items()
    }
    assert cannot == {"01_mnist_speedup": False, "02_torn": True, "03_other": True}


def test_notebooks_made_here_replace_examples_and_rows_of_others_bring_none(
    outputs, monkeypatch, tmp_path
):
    monkeypatch.setattr(site.layout, "root", lambda: tmp_path)
    examples = tmp_path / "outputs" / "examples"
    for name in (NOTEBOOK, "02_vae_stability.ipynb"):
        write_notebook(examples / name)
    write_notebook(outputs / "runs" / "stranger" / "vae_stability" / "point" / "run.ipynb")
    write_notebook(kernel.executed() / NOTEBOOK)
    assert site.notebooks() == [kernel.executed() / NOTEBOOK, examples / "02_vae_stability.ipynb"]


@pytest.mark.parametrize(
    ("place", "session", "first"),
    [
        ("outputs/examples", None, "*An example, executed on Chip A, 8 cores, on 2026-11-22; "),
        (
            "outputs/executed",
            "20261123T000000Z-1",
            "*Executed on another computer, on 2026-11-23; ",
        ),
        ("outputs/executed", "mine", ""),
    ],
)
def test_a_page_that_was_executed_elsewhere_says_so_in_its_first_words(
    outputs, monkeypatch, tmp_path, place, session, first
):
    monkeypatch.setattr(site.layout, "root", lambda: tmp_path)
    sessions.remember("mine")
    path = write_notebook(tmp_path / place / NOTEBOOK, text="# Title\nWhy?")
    notebook = json.loads(path.read_text())
    notebook["metadata"][site.MADE] = {"machine": "Chip A, 8 cores", "day": "2026-11-22"}
    path.write_text(json.dumps(notebook))
    if session:
        path.with_suffix(".owner").write_text(f"{session} point\n")
    site._write_notebook(path, tmp_path / "source", NOTEBOOK[3:-6])
    shown = json.loads((tmp_path / "source" / NOTEBOOK).read_text())["cells"][0]["source"]
    command = f"`make study STUDIES={NOTEBOOK[3:-6]}` makes yours.*"
    own = f"\n\n{first}{command}" if first else ""
    assert "".join(shown) == f"# Title{own}\nWhy?"


def test_a_page_begins_with_the_answer_of_the_reference_and_links_the_other_points(
    build, outputs, tmp_path
):
    for session, point, variant, said in (
        ("one", "reference-cpu", "reference", "It takes 3 s."),
        ("one", "reference-cpu-batch_size_8", "reference", "9 s."),
        ("one", "tuned-cpu", "tuned", "2 s."), ("two", "reference-cpu", "reference", "It takes 4 s.")
    ):  # fmt: skip
        shown = [
            new_output("stream", text="Session\n"),
            new_output(
                "display_data",
                {"text/markdown": f"**{said}** More."},
                metadata={"text/markdown": {"sentence": said}},
            ),
        ]
        for name in ("windows", "mnist-epochs"):  # only the latter is a table of the report
            about = {"image/png": {"alt": "figure", "table": name}}
            shown += [
                new_output("display_data", {"image/png": ""}, metadata=about),
                html_output("<small>note</small>"),
            ]
        path = write_notebook(
            tmp_path / "run.ipynb",
            *shown,
            html_output("<p>table</p>"),
            text="# Title\nWhy a window?",
            source="show(a)",
            tags=["answer"],
        )
        with context.changed(session=session):
            kernel.keep(path, "mnist_speedup", point, variant == "reference")
    merged = merge(make_rows(windows([1.0] * 3)))
    merged.drawings["mnist-epochs"] = Drawing(None, pandas.DataFrame({"a": [1]}), "")
    after = build(merged, *site.notebooks())
    assert dead_links(after) == []
    pages, page = after.pages, after.pages["01_mnist_speedup.html"]
    [table] = page.select("a[download]")
    assert (table["href"], table.parent.text.split()[0]) == ("mnist-epochs.csv", "note")
    shown = page.article.find_all(["img", "small"])
    assert [one.name for one in shown] == ["img", "small"] * 2  # each figure above its note
    assert shown[0].find_next(
        string=re.compile("Why a")
    )  # the first with the answer, above the question
    told = text(page)
    order = [
        "Title",
        "It takes 4 s.",
        "note",
        "Why a",
        "show",
        "Session",
        "table",
        "Other points",
        "9 s.",
        "2 s.",
    ]
    assert sorted(order, key=told.index) == order
    assert "It takes 3 s." not in told
    assert text(pages["points/mnist_speedup/tuned-cpu.html"]).startswith("Title # 2 s.")
    line, source = (
        {"study": "mnist_speedup", "point": "tuned-cpu"},
        layout.notebook("mnist_speedup"),
    )
    linked = points_pages._notebook(line, source, True)
    assert linked.startswith('<a href="points/mnist_speedup/tuned-cpu.html">')


def test_a_site_can_be_made_before_anything_was_measured_and_without_what_was_there(
    whole, build, tmp_path
):
    shutil.copytree(whole.folder.parent, tmp_path, dirs_exist_ok=True)
    after = build(merge(make_rows([])))
    assert "Nothing has been measured" in text(after.pages["index.html"])
    assert "Nothing has been measured" in text(after.pages["points.html"])
    assert "Nothing: every file was read" in text(after.pages["points.html"])
    assert "01_mnist_speedup.html" not in after.pages


def test_a_report_that_is_killed_anywhere_leaves_a_whole_one_and_all_that_is_not_its_own(outputs):
    def write(*pages):
        with site.replacing(outputs / "report") as place:
            for page in pages:
                (place / "site" / page).mkdir(parents=True)
                (place / "site" / page / "page.html").write_text(" ".join(pages))

    found = []
    for count in itertools.count():
        outputs.mkdir(exist_ok=True)
        write("a", "b")
        for name in ("CNAME", "b/mine"):
            (outputs / "report" / name).write_text("mine")
        status = ended_after(count, lambda: write("b", "c"))
        with pytest.raises(ZeroDivisionError), site.replacing(outputs / "report"):
            1 / 0  # noqa: B018
        left = contents(outputs / "report")
        assert (left.pop("CNAME"), left.pop("b/mine")) == (b"mine", b"mine")
        pages = sorted(name[0] for name in left if name.endswith("page.html"))
        assert {left[f"{page}/page.html"] for page in pages} == {" ".join(pages).encode()}
        found.append(" ".join(pages))
        assert not any(outputs.glob(".report-*/*/"))
        shutil.rmtree(outputs)
        if status == 0:
            break
    assert set(found) == {"a b", "b c"}


def test_a_report_overwrites_no_file_of_another(outputs, whole):
    (outputs / "report").mkdir()
    (outputs / "report" / "index.html").write_text("mine")
    with pytest.raises(FileExistsError, match=r"report/index\.html was not written"):
        site.build(whole.folder.parent / "figures", outputs / "report", [])
    assert contents(outputs) == {"report": None, "report/index.html": b"mine"}


def test_csv_and_json_have_the_same_data_and_json_names_their_types(whole):
    document = json.loads((whole.folder / "data.json").read_text())
    assert document["version"] == pages.VERSION
    for name in ("points", "claims", "costs"):
        read = pandas.read_json(
            io.StringIO(json.dumps(document[name])), orient="table", precise_float=True
        )
        printed = pandas.read_csv(whole.folder / f"{name}.csv").astype(read.dtypes)
        pandas.testing.assert_frame_equal(read.replace("", None), printed)
        assert len(read) == 2 or name != "points"


def test_a_citation_names_the_days_and_the_commits():
    sessions = ["20260305T101112Z-1", "20260102T000000Z-2", None]
    points = pandas.DataFrame({"session": sessions, "commit": ["b", "a", None]})
    assert pages.citation(points).endswith(" Measured 2026-01-02 to 2026-03-05, commit a, b.")


@pytest.mark.parametrize("before", ["", "AMD;", "AMD\t", "AMD\n"])
@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
)
def test_a_spreadsheet_runs_no_cell_of_a_csv_whatever_separates_them(start, before):
    assert tables.harmless(f"{before}{start}cmd") == f"{before}'{start}cmd"
    written = tables.as_csv(pandas.DataFrame({"a": ["x"], "b": [f"{before}{start}cmd,"]}))
    for separator in ",;\t":
        for line in csv.reader(written.splitlines(), delimiter=separator):
            assert [tables.harmless(cell) for cell in line] == line


def test_numbers_and_plain_text_stay_as_they_are_in_a_csv():
    cells = ["-0.5", "+1e3", "a=b; c", "", None, -2.5, True]
    assert [tables.harmless(cell) for cell in cells] == cells


def test_a_page_says_the_share_of_its_point_though_the_calibration_followed(tmp_path):
    said = new_output(
        "display_data",
        {"text/markdown": "**2 s.**"},
        metadata={"text/markdown": {"sentence": "2 s."}},
    )
    for point in ("shown", "other"):
        page = write_notebook(tmp_path / NOTEBOOK, said, tags=[site.ANSWER])
        page.with_suffix(".owner").write_text(f"s {point}\n")
        site._write_notebook(
            page, tmp_path / "source", "mnist_speedup", (), {"s mnist_speedup shown": "52% of it."}
        )
        written = (tmp_path / "source" / NOTEBOOK).read_text()
        assert ("52% of it." in written) == (point == "shown")


def test_an_aggregation_that_fails_is_one_line_and_leaves_the_pages_of_before(
    tmp_path, monkeypatch
):
    page, failing = tmp_path / "report" / "index.html", tmp_path / "failing.ipynb"
    page.parent.mkdir(parents=True)
    page.touch()
    kernelspec = {"name": "python3", "display_name": "Python", "language": "python"}
    cell = new_code_cell("raise OSError(28, 'No space left on device')")
    nbformat.write(new_notebook(cells=[cell], metadata={"kernelspec": kernelspec}), failing)
    monkeypatch.setattr(site.layout, "notebook", lambda study: failing)
    other = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    other.parent.mkdir(parents=True)
    other.write_text(json.dumps(kernelspec | {"argv": ["false", "{connection_file}"]}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    with pytest.raises(
        RuntimeError,
        match=r"^the aggregation failed: OSError: \[Errno 28\] No space left on device$",
    ):
        site.write()
    assert list((tmp_path / "report").rglob("*.html")) == [page]


def test_a_second_report_in_the_same_folder_waits_for_the_first(monkeypatch):
    said = []

    def execute(notebook, aggregated, *_):
        said.append("begins")
        time.sleep(0.3)
        said.append("ends")

    monkeypatch.setattr(kernel, "execute", execute)
    monkeypatch.setattr(site, "build", lambda figures, folder, notebooks: folder)
    with ThreadPoolExecutor() as threads:
        made = [threads.submit(site.write) for _ in range(2)]
    assert len({each.result() for each in made}) == 1
    assert said == ["begins", "ends"] * 2


def test_without_sphinx_the_executed_notebook_is_the_report(monkeypatch, command):
    monkeypatch.setattr(site, "NEEDED", ("sphinx", "no_such_package"))
    monkeypatch.setattr(kernel, "execute", lambda notebook, executed, *_: executed.touch())
    status, said = command("report")
    assert (status, "no_such_package missing" in said, "90_aggregate.ipynb" in said) == (
        0,
        True,
        True,
    )
