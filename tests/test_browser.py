"""The report in Chromium, as a reader has it: from a folder, from a host, on a phone, in the dark."""

import datetime
import re
import shutil

import pandas
import pytest
from nbformat.v4 import new_output

import study_rows
from benchbook.record import articles
from benchbook.report import aggregation, pages, site
from benchbook.studies.study import Evidence
from rows import make_row, make_rows, windows
from test_report import PIXEL, html_output, write_notebook

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOST = "https://report.example"
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
PAGES = ("index.html", "90_aggregate.html", "points.html", "01_mnist_speedup.html", "docs/measuring.html")
PAGES += ("search.html",)


def measured_rows():
    """Return rows of a desk with 25 points, of a machine with a hostile name, of SimCLR, and of a failure."""
    lines = []
    for number in range(25):
        name = f"controlled-cpu-batch_size_{number + 1}"
        lines += windows([300.0 + number] * 6, run_id=f"run-{number}", point=name, batch_size=number + 1)
    lines += windows([5.0] * 6, machine=HOSTILE, run_id="run-hostile")
    simclr = {"study": "simclr_epochs", "image_size": 32, "dataset": "cifar10", "batch_size": 128, "precision": "fp32"}
    lines += windows([80.0 + index for index in range(6)], run_id="run-simclr", **simclr)
    failed = make_row(run_id="run-2", point="tuned-cpu", status="crashed", message=f"=1+1 {HOSTILE}")
    return make_rows([*lines, failed | study_rows.NOTHING])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a report of those rows and all published ones, with the article's example and a notebook."""
    place = tmp_path_factory.mktemp("site")
    evidence = Evidence(pandas.concat([measured_rows(), articles.rows()], ignore_index=True))
    pages.write(aggregation.Aggregation(evidence, {}, [f"a file: {HOSTILE}"]), place / "figures")
    table = pandas.DataFrame({f"column_{n}": [HOSTILE, "cell"] for n in range(12)}).to_html()
    picture = new_output("display_data", {"image/png": PIXEL})
    outputs = [html_output(f"{table}<script>document.title='run'</script>"), picture]
    outputs += [new_output("stream", text="a long line " * 30)]
    executed = write_notebook(place / "01_mnist_speedup.ipynb", *outputs, source=f"x = '{'long ' * 40}'")
    article = site.layout.root() / "outputs" / "examples" / site.AGGREGATED
    return site.build(place / "figures", place / "report", [executed, article]).parent


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
def visit(browser, folder):
    """Return a function that opens a page of the report; what went wrong there is an error at the end of the test."""
    contexts, faults = [], []

    def serve(route):
        file = folder / re.split("[#?]", route.request.url.removeprefix(f"{HOST}/"))[0]
        if route.request.url.startswith("file://"):
            route.continue_()
        elif route.request.url.startswith(HOST) and file.is_file():
            route.fulfill(path=file)
        else:
            faults.append(f"asked for {route.request.url}")
            route.abort()

    def open_page(name="index.html", start=HOST, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.route("**/*", serve)
        page = context.new_page()
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{start}/{name}", wait_until="load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_works_from_a_folder_and_asks_nothing_of_any_host(visit, folder, name):
    page = visit(name, start=f"file://{folder}")
    addresses = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in addresses if not address.startswith("file://")] == []
    assert page.locator("h1").count() == (name != "search.html")
    assert "run" not in page.title()
    assert page.locator("img[src=x]").count() == 0


LIGHT = [pytest.param(name, "light", 1280, marks=pytest.mark.slow) for name in PAGES[1:]]


@pytest.mark.parametrize(
    ("name", "scheme", "width"), [("index.html", "light", 1280), *((name, "dark", 390) for name in PAGES), *LIGHT]
)
def test_a_page_fits_a_phone_and_axe_finds_no_fault(visit, name, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not in this environment")
    page = visit(name, color_scheme=scheme, width=width)
    assert page.evaluate("[...document.images].filter(image => !image.naturalWidth).map(image => image.src)") == []
    assert page.evaluate("document.documentElement.scrollWidth") == width  # boxes alone scroll sideways
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    results = axe.Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
    assert results.violations_count == 0, results.generate_report()


def test_the_search_finds_a_page_in_a_folder(visit, folder):
    page = visit("search.html?q=synchronised", start=f"file://{folder}")
    page.locator("#search-results li a", has_text="How numbers are made").first.wait_for()


def test_a_long_table_sorts_by_number_and_filters(visit):
    page = visit("points.html")
    place = page.locator("#summary th").all_inner_texts().index("samples/s") + 1
    rates = page.locator(f"#summary tbody td:nth-child({place})")
    page.locator("#summary th", has_text="samples/s").click()
    page.locator("#summary th", has_text="samples/s").click()
    page.locator("#summary th[aria-sort=descending]").wait_for()
    assert rates.first.inner_text() == "324"
    page.get_by_role("searchbox", name="Filter: Medians of training windows").fill("out of reach of any row")
    assert page.locator("#summary tbody tr").count() == 1  # that no line has this text


def ask(page, **choice):
    """Make a choice on the start page as a reader does; return the card's two columns by line."""
    for name, value in choice.items():
        element = page.locator(f"[name={name}]")
        if element.evaluate("element => element.tagName") == "SELECT":
            element.select_option(value)
        else:
            element.fill(value)
    lines = page.locator("#card tbody tr").all()
    return {line.get_attribute("data-line"): line.locator("td").all_inner_texts() for line in lines}


def test_mine_or_a_4090_is_a_range_that_says_what_is_measured(visit):
    page = visit()
    card = ask(page, have="no. 2", consider="4090", train="simclr", precision="fp32")
    assert page.locator("#card th.consider").inner_text() == "NVIDIA RTX 4090"
    assert card["time"][1].endswith(", predicted")
    assert [text.partition(":")[0] for text in card["basis"]] == ["measured", "predicted"]
    said = page.locator("#ratio").inner_text()
    assert re.search(r"4090 is [\d.]+ times as fast as .* \([\d.]+ to [\d.]+\).*; predicted against measured", said)
    first = page.locator("#list tbody th").first.inner_text()
    assert first.startswith(page.locator("#card th.have").inner_text())  # the reader's own machine


def test_whether_1_70_times_is_true_stands_in_the_article_of_all_machines(visit):
    page = visit()
    page.get_by_role("link", name="All machines").first.click()
    page.get_by_role("heading", name="Is a GPU 1.7 times faster than a CPU on MNIST").wait_for()
    assert page.get_by_text(re.compile(r"times as fast as its CPU")).count() >= 1
    alts = page.locator("article img").evaluate_all("images => images.map(image => image.alt)")
    assert len(set(alts)) == len(alts) > 10  # each figure has its own words


def test_an_h100_or_a_tpu_v4_to_an_accuracy_is_published_alone(visit):
    page = visit()
    card = ask(page, train="resnet50-accuracy", devices="", have="H100", consider="TPU v4")
    assert page.locator("[name=precision]").input_value() == "unknown"  # the only one of these sources
    assert page.locator("#list tbody tr.predicted").count() == 0
    assert [text.partition(":")[0] for text in card["basis"] if text] == ["published"] * sum(map(bool, card["basis"]))


def test_gpt2_in_16_gigabytes_says_what_fits(visit):
    card = ask(visit(), train="gpt2", precision="half", consider="T4")
    assert card["memory"][1] == "16 GB"
    assert re.match(r"([\d,]+ to |at most )?[\d,]+ sequences? a step|not one ", card["fits"][1])


def test_simclr_on_an_m2_max_has_a_range_and_its_precision(visit):
    card = ask(visit(), train="simclr", precision="fp32", consider="M2 Max")
    assert " to " in card["time"][1]
    assert card["precision"][1] == "fp32 or tf32"


def test_a_row_and_a_card_say_where_they_come_from(visit):
    card = ask(visit(), train="simclr", precision="fp32", have="no. 2")
    assert card["sources"][0] == "rows in outputs/runs/desk/simclr_epochs/reference-cpu"
    assert visit("points.html").get_by_text("desk/simclr_epochs/reference-cpu").count() == 1


def test_the_choice_is_in_the_address_and_an_unknown_name_is_said(visit):
    page = visit("index.html#have=no+such+chip&consider=NVIDIA+A100+80GB+SXM&train=resnet50&precision=best&devices=1")
    assert "no such chip" in page.locator("#none").inner_text()
    assert page.locator("#card th.consider").inner_text() == "NVIDIA A100 80GB SXM"
    page.locator("[name=train]").select_option("gpt2")
    assert "train=gpt2" in page.evaluate("location.hash")
    assert datetime.date.today().isoformat()[:4] in page.locator("main, [role=main]").first.inner_text()
