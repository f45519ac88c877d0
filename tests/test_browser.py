"""The report in Chromium, as a reader has it: from a folder, from a host, on a phone, in the dark and by keyboard."""

import re
import shutil

import pandas
import pytest
from nbformat.v4 import new_output

from benchbook import report, studies
from benchbook.judging import parity, verdicts
from benchbook.machine import layout
from benchbook.record import articles, claims
from benchbook.report import answers, executed, headline
from benchbook.studies import figures, quantities
from benchbook.studies.mnist_speedup import study as mnist
from benchbook.studies.study import Evidence
from rows import make_row, make_rows
from test_report import HEADLINE, html_output, write_notebook

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOST = "https://report.example"
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
PAGES = ("index.html", "points.html", "notebook")
LOOKED_AT = (*PAGES, "resnet50.html")
ASKED = ("RTX 4090", "A100", "H100", "TPU v", "Apple M")  # chips whose marks the site shows


def measured_rows():
    """Return rows of a desk, of a slower attic, of a machine with a hostile name, and a failure."""
    machines = {"desk": 300.0, "attic": 40.0, HOSTILE: 5.0}
    lines = [
        make_row(machine=name, run_id=f"run-{name[:4]}", index=index, samples_per_second=rate + index)
        for name, rate in machines.items()
        for index in range(6)
    ]
    failed = make_row(run_id="run-2", point="tuned-cpu", status="crashed", message=f"=1+1 {HOSTILE}")
    measures = ("samples", "seconds", "input_seconds", "samples_per_second")
    return make_rows([*lines, failed | dict.fromkeys(measures)])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of a report over those rows and all published ones, made as the aggregation makes it."""
    folder = tmp_path_factory.mktemp("site")
    tables, runs = folder / "figures", folder / "runs"
    measured = measured_rows()
    rows = pandas.concat([measured, articles.rows()], ignore_index=True)
    summary = verdicts.summarise(rows)
    judged = claims.table(
        claims.read(layout.published() / "claims.csv"), quantities.gather(Evidence(rows), studies.every().values())
    )
    for name, table in {"summary": summary, "claims": judged, "parity": parity.verdicts(measured)}.items():
        figures.save_table(table, tables, name)
    drawing = mnist.STUDY.charts[0].draw(Evidence(rows))
    for name in ("mnist-epochs", "mnist-speedup", "vae-loss"):
        drawing.save(tables, name)
    order = {"seconds_per_epoch": None, "machine": "nobody", "place": "nobody"}
    head = [
        HEADLINE | {"machine": name, "place": name, "seconds_per_epoch": 60_000 / rate} for name, rate in RATES.items()
    ]
    figures.save_table(pandas.DataFrame([*head, HEADLINE | order]), tables, "headline")
    figures.save_table(pandas.DataFrame([{"machine": HOSTILE, "condition": HOSTILE}]), tables, "machines")
    table = pandas.DataFrame({f"column_{n}": [HOSTILE, "cell"] for n in range(12)}).to_html()
    hostile = f"<script>document.title='run'</script>{HOSTILE}"
    picture = new_output("display_data", {"image/png": PIXEL})
    write_notebook(runs, html_output(table + hostile), picture, new_output("stream", text="a long line " * 30))
    own = {"study": "your_network", "model": "mine", "flops_per_sample": 4e9, "samples_per_second": 100.0}
    mine = make_rows([make_row(machine="attic", run_id="run-own", index=index, **own) for index in range(6)])
    rows = pandas.concat([rows, mine], ignore_index=True)
    every = answers.gather(evidence := Evidence(rows), headline.table(evidence, studies.every()), "desk")
    every = [mark for mark in every if mark.source == "measured" or any(chip in mark.name for chip in ASKED)]
    answers.save(every, tables)
    return report.write_pages(tables, folder / "report", executed.newest(runs)).parent


RATES = {"desk": 300.0, "attic": 40.0, HOSTILE: 5.0, "a": 9000.0, "b": 80.0}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def browser():
    """Return Chromium; skip where it, or what drives it, is not installed."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not in this environment")
    if not CHROMIUM:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with driver.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser, site):
    """Return a function that opens a page of the report; what went wrong there is an error at the end of the test."""
    contexts, faults = [], []

    def serve(route):
        file = site / route.request.url.removeprefix(f"{HOST}/").partition("#")[0]
        if route.request.url.startswith("file://"):
            route.continue_()
        elif route.request.url.startswith(HOST) and file.is_file():
            route.fulfill(path=file)
        else:
            faults.append(f"asked for {route.request.url}")
            route.abort()

    def open_page(name="index.html", start=HOST, width=1280, scripts=True, **options):
        name = f"notebooks/{next((site / 'notebooks').iterdir()).name}" if name == "notebook" else name
        context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts, **options)
        contexts.append(context)
        context.route("**/*", serve)
        page = context.new_page()
        page.on(
            "console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{start}/{name}", wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


def column(page, table, name):
    """Return what a column of a table shows, from top to bottom, without the small print."""
    return page.locator(f"table.{table} tbody td.{name}").evaluate_all(
        "cells => cells.map(c => c.firstChild.data.trim())"
    )


def body_text(page):
    return re.sub(r"\s+", " ", page.locator("main").inner_text())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_from_a_folder_and_asks_nothing_of_any_host(visit, site, name):
    page = visit(name, start=f"file://{site}")
    addresses = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in addresses if not address.startswith(("file://", "data:"))] == []
    assert page.locator("h1").count() == 1
    assert page.locator("table.sortable").count() == page.locator(".dt-container").count()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_from_a_host(visit, name):
    page = visit(name)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    page.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
    page.wait_for_function("[...document.images].every(image => image.complete)")
    assert page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    assert page.locator("img:not([alt]), img[alt='']").count() == 0


def test_a_table_sorts_by_number_either_way_and_what_is_missing_is_last(visit):
    page = visit()
    header = page.locator("table.headline th.seconds_per_epoch")
    expected = [name for name, _ in sorted(RATES.items(), key=lambda item: -item[1])]
    header.click()
    page.locator("table.headline th.seconds_per_epoch[aria-sort=ascending]").wait_for()
    assert column(page, "headline", "machine") == [*expected, "nobody"]
    header.click()
    page.locator("table.headline th.seconds_per_epoch[aria-sort=descending]").wait_for()
    assert column(page, "headline", "machine") == [*expected[::-1], "nobody"]


def test_a_table_sorts_and_filters_by_keyboard(visit):
    page = visit()
    page.locator("table.headline th.machine [role=button], table.headline th.machine").last.focus()
    page.keyboard.press("Enter")
    page.locator("table.headline th.machine[aria-sort=ascending]").wait_for()
    assert column(page, "headline", "machine") == sorted([*RATES, "nobody"], key=str.lower)
    page.get_by_role("searchbox", name="Filter: Do the published claims hold?").fill("contradicted")
    page.locator(".dt-info", has_text=re.compile(r"line.* of \d+")).wait_for()
    assert {*column(page, "claims", "verdict")} == {"contradicted"}
    page.get_by_role("searchbox", name="Filter: Do the published claims hold?").fill("no such text")
    page.get_by_text("No line holds this text.").wait_for()


def test_without_scripts_the_tables_figures_and_citations_are_there(visit):
    page = visit(scripts=False)
    assert column(page, "headline", "machine") == [*RATES, "nobody"]
    assert page.locator("table.claims tbody tr").count() > 50
    assert page.locator(".citation").first.is_visible()
    assert not page.locator("button").first.is_visible()
    assert page.locator("#mnist-epochs img").is_visible()


@pytest.mark.parametrize("start", ["host", "folder"])
def test_the_button_copies_the_citation_with_the_address_where_there_is_one(visit, site, start):
    allowed = ["clipboard-read", "clipboard-write"]
    page = visit(start=HOST if start == "host" else f"file://{site}", permissions=allowed)
    figure = page.locator("#mnist-epochs")
    figure.get_by_role("button", name="Copy citation of mnist-epochs").click()
    figure.get_by_text("Copied.").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    address = f" {HOST}/index.html#mnist-epochs" if start == "host" else ""
    assert copied == figure.locator(".citation").text_content() + address
    assert "desk (Chip A)" in copied


def test_where_the_browser_refuses_the_citation_is_shown_and_selected(visit):
    page = visit()
    page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('refused')))")
    figure = page.locator("#mnist-epochs")
    assert not figure.locator(".citation").is_visible()
    figure.get_by_role("button", name="Copy citation").click()
    figure.get_by_text("Copy the selected text:").wait_for()
    assert figure.locator(".citation").is_visible()
    assert page.evaluate("getSelection().toString()") == figure.locator(".citation").text_content()


@pytest.mark.parametrize("name", LOOKED_AT)
def test_on_a_phone_only_boxes_scroll_sideways(visit, name):
    page = visit(name, width=390)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    if name == "index.html":
        box = page.locator("[role=region][aria-label='Do the published claims hold?']")
        assert box.evaluate("box => box.scrollWidth > box.clientWidth")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
@pytest.mark.parametrize("name", LOOKED_AT)
def test_axe_finds_no_fault_of_contrast_names_or_roles(visit, name, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not in this environment")
    page = visit(name, color_scheme=scheme, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    results = axe.Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
    assert results.violations_count == 0, results.generate_report()
    checked = {rule["id"] for rule in results.response["passes"]}
    assert "color-contrast" in checked


def test_dark_is_dark_and_a_figure_keeps_its_white_card(visit):
    def lightness(page, selector):
        colour = page.locator(selector).first.evaluate("element => getComputedStyle(element).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 3

    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    assert lightness(light, "body") > 200 > 60 > lightness(dark, "body")
    assert lightness(dark, "#mnist-epochs .picture") == 255
    dark.emulate_media(media="print")
    assert lightness(dark, "body") > 200


def test_the_keyboard_reaches_the_skip_link_first_and_then_the_content(visit):
    page = visit()
    page.keyboard.press("Tab")
    skip = page.locator("a.skip")
    assert skip.evaluate("link => link === document.activeElement")
    assert skip.evaluate("link => link.getBoundingClientRect().left >= 0")
    assert skip.evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "index.html"
    skip.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_a_deep_link_opens_the_fold_its_figure_is_in(visit):
    page = visit("index.html#mnist-speedup")
    assert page.locator("#mnist-speedup img").is_visible()
    page.evaluate("location.hash = '#claims'")
    assert page.locator("#claims").is_visible()


def test_print_shows_what_is_folded_and_hides_what_is_clicked(visit):
    page = visit()
    folded = page.locator("#mnist-speedup img")
    assert not folded.is_visible()
    page.emulate_media(media="print")
    assert folded.is_visible()
    assert page.locator("#mnist-speedup .citation").is_visible()
    assert page.locator("button:visible, nav:visible, input:visible").count() == 0
    assert page.evaluate("[...document.querySelectorAll('.wide')].every(box => box.scrollHeight <= box.clientHeight)")


def test_hostile_names_and_messages_are_text_and_run_nothing(visit, site):
    page = visit()
    titles = [page.title()]
    assert HOSTILE in column(page, "headline", "machine")
    assert HOSTILE in column(page, "machines", "condition")
    page.locator("table.headline th.machine").click()
    page.get_by_role("searchbox", name="Filter: In one table").fill("onerror")
    page.locator(".dt-info", has_text=" of 6").wait_for()
    assert column(page, "headline", "machine") == [HOSTILE]
    points = visit("points.html")
    assert HOSTILE in column(points, "summary", "machine")
    assert f"crashed =1+1 {HOSTILE}" in body_text(points)
    notebook = visit("notebook")
    titles += [points.title(), notebook.title()]
    assert "run" not in titles
    assert all(page.locator("img[src=x]").count() == 0 for page in (page, points, notebook))


COSTS = ("time", "rented", "bought", "energy")


def shown(page):
    """Return the machines of an answer that are shown, from top to bottom."""
    return page.locator("#marks tbody tr:visible").evaluate_all("rows => rows.map(row => row.dataset.name)")


def sentences(page):
    return page.locator("#sentences dd").all_inner_texts()


def apart(sentence):
    """Return a sentence without its numbers, and these."""
    number = re.compile(r"\d[\d,]*(?:\.\d+)?")
    return number.sub("#", sentence), [float(text.replace(",", "")) for text in number.findall(sentence)]


def cells(page, name):
    """Return what a column shows, without what is said of it beside another machine."""
    return page.locator(f"#marks tbody tr:visible td.{name}").evaluate_all(
        "cells => cells.map(cell => cell.firstChild?.data ?? '')"
    )


def test_a_choice_stands_in_the_address_and_whoever_opens_that_sees_the_same(visit):
    page = visit("resnet50.html")
    everything = shown(page)
    predicted = page.locator("#marks tbody tr.predicted:visible")
    page.get_by_label("Find").fill("4090")
    assert predicted.count() > 0
    page.get_by_text("Filters and prices").click()
    page.get_by_label("predicted").uncheck()
    assert predicted.count() == 0
    page.locator("[name=show]").select_option("rented")
    page.get_by_label("Find").fill("4090, A100 80GB")
    page.get_by_label("Devices, at most").fill("1")
    page.get_by_label("Electricity, $ a kWh").fill("0.1")
    mine, told = shown(page), sentences(page)
    assert mine
    assert mine != everything
    assert all("4090" in name or "A100 80GB" in name for name in mine)
    rents = [float(text.removeprefix("$").replace(",", "")) for text in cells(page, "rented")]
    assert rents == sorted(rents)
    theirs = visit(page.url.rpartition("/")[2])
    assert (shown(theirs), sentences(theirs)) == (mine, told)
    assert theirs.get_by_label("Electricity, $ a kWh").is_visible()
    assert theirs.get_by_label("Electricity, $ a kWh").input_value() == "0.1"
    theirs.get_by_role("button", name="Start again").click()
    theirs.wait_for_function("!location.hash")
    assert shown(theirs) == everything
    page.get_by_role("link", name="SimCLR").click()
    assert page.get_by_label("Find").input_value() == "4090, A100 80GB"


def test_a_machine_is_compared_with_another_one(visit):
    page = visit("resnet50.html#find=4090")
    page.get_by_label("Compare with").select_option(label="Apple M1, 16 bits")
    assert shown(page)[-1] == "Apple M1"
    assert "Apple M1 is predicted at 53 days" in sentences(page)[0]
    row = page.locator("#marks tbody tr:visible").first
    base = page.locator("#marks tr.base").get_attribute("data-seconds")
    ratio = row.locator("td.time small").inner_text().removesuffix(" x faster")
    assert float(ratio) == pytest.approx(float(base) / float(row.get_attribute("data-seconds")), rel=0.05)


def test_a_network_of_ones_own_takes_time_with_its_operations_and_images(visit):
    page = visit("own.html")
    unit = {"s": 1, "min": 60, "h": 3600, "days": 86_400}

    def fastest():
        value, name = re.search(r"takes ([\d.,]+) (\w+)", sentences(page)[0]).groups()
        return float(value.replace(",", "")) * unit[name]

    before, first = fastest(), cells(page, "time")
    operations = page.evaluate("JSON.parse(document.getElementById('constants').textContent).operations")
    page.locator("[name=images]").fill("1e8")
    assert fastest() == pytest.approx(100 * before, rel=0.05)
    page.locator("[name=operations]").fill(str(operations * 4))
    assert fastest() > 120 * before
    page.locator("[name=operations]").fill(str(operations))
    page.locator("[name=images]").fill("1e6")
    assert cells(page, "time") == first


def test_a_network_that_was_measured_is_compared_at_its_own_operations_alone(visit):
    page = visit("own.html#find=mine")
    mark = page.locator("#marks tbody tr.measured")
    page.get_by_label("Compare with").select_option(value=mark.get_attribute("id"))
    assert "apart" in mark.get_attribute("class")
    page.get_by_label("Find").fill("")
    assert "mine" not in sentences(page)[0]
    page.get_by_label("Find").fill("mine")
    mark.locator("summary").click()
    mark.get_by_role("link", name="Predictions at this network's operations").click()
    page.wait_for_function("!document.querySelector('[name=find]').value")
    assert "apart" not in mark.get_attribute("class")
    assert re.match("(?i)mine: .* takes 2.8 h", sentences(page)[0])
    assert "is predicted at" in sentences(page)[0]
    page.locator("[name=operations]").fill("1000")  # nothing on record is so small
    assert page.locator("#marks tr.predicted:visible").count() == 0


def test_the_answer_works_by_keyboard(visit):
    page = visit("resnet50.html")
    page.get_by_label("Find").focus()
    page.keyboard.type("4090")
    for _ in range(2):  # over the fold of the filters
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("NVIDIA RTX 4090")
    page.keyboard.press("Enter")
    about = page.locator("#marks .about:visible")
    assert about.count() == 1
    assert "known rates of NVIDIA RTX 4090" in about.inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith("machines/nvidia-rtx-4090")


def test_a_click_on_a_mark_opens_what_stands_behind_it(visit):
    page = visit("index.html")
    page.locator("#marks tr.here .track a").first.click()
    about = page.locator("#marks tr.here .about").first
    assert about.is_visible()
    assert "rows in outputs/runs/desk/mnist_speedup" in about.inner_text()
    about.get_by_role("link", name="All of this machine").click()
    assert "what training costs on it" in page.locator("h1").inner_text()


@pytest.mark.parametrize("name", ["index.html", "resnet50.html", "own.html"])
def test_the_answer_without_scripts_is_the_same_picture_and_table(visit, name):
    plain, scripted = visit(name, scripts=False), visit(name)
    if scripted.get_by_role("button", name="Show all").is_visible():
        scripted.get_by_role("button", name="Show all").click()
    assert not plain.locator("form").is_visible()
    assert shown(plain) == shown(scripted)
    read = [[*sentences(page), *(text for name in COSTS for text in cells(page, name))] for page in (plain, scripted)]
    for texts in zip(*read, strict=True):
        (words, numbers), (others, recomputed) = map(apart, texts)
        assert words == others
        assert numbers == pytest.approx(recomputed, rel=0.04)  # of two digits the last: halves round up in scripts
    places = "marks => marks.map(mark => parseFloat(mark.style.left))"
    pairs = [page.locator("#marks tr:visible .track a").evaluate_all(places) for page in (plain, scripted)]
    assert pairs[0] == pytest.approx(pairs[1], abs=0.02)
    plain.locator("#marks summary").first.click()
    assert plain.locator("#marks .about:visible").count() == 1
