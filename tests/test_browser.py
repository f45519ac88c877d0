"""The report in Chromium, as a reader has it: from a folder, from a host, on a phone, in the
dark."""

import datetime
import itertools
import re
import shutil

import pandas
import pytest
from nbformat.v4 import new_output

from benchbook.record import articles, chips, estimates, words
from benchbook.report import aggregation, site
from benchbook.studies.results.evidence import Evidence
from made import study_rows
from made.pages import PIXEL, html_output, write_notebook
from made.rows import make_row, make_rows, windows
from test_chips import AS_WRITTEN

pytestmark = pytest.mark.browser

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
HOST = "https://report.example"
HOSTILE = "<img src=x onerror=\"document.title='run'\">"
PAGES = (
    "index.html",
    "90_aggregate.html",
    "points.html",
    "01_mnist_speedup.html",
    "docs/measuring.html",
)
PAGES += ("search.html",)


def measured_rows():
    """Return rows of a desk with 25 points, of a machine with a hostile name, of SimCLR on two,
    and of a failure."""
    lines = []
    for number in range(25):
        name = f"controlled-cpu-batch_size_{number + 1}"
        lines += windows(
            [300.0 + number] * 6, run_id=f"run-{number}", point=name, batch_size=number + 1
        )
    lines += windows([5.0] * 6, machine=HOSTILE, run_id="run-hostile")
    simclr = {
        "study": "simclr_epochs",
        "image_size": 32,
        "dataset": "cifar10",
        "batch_size": 128,
        "precision": "fp32",
    }
    for machine, rate in (("desk", 80.0), ("attic", 160.0)):
        for process in range(3):
            run_id = f"run-simclr-{machine}-{process}"
            lines += windows(
                [rate + index for index in range(6)], machine=machine, run_id=run_id, **simclr
            )
    failed = make_row(
        run_id="run-2", point="tuned-cpu", status="crashed", message=f"=1+1 {HOSTILE}"
    )
    return make_rows([*lines, failed | study_rows.NOTHING])


@pytest.fixture(scope="module")
def merged():
    """Return the aggregation of those rows and all published ones."""
    evidence = Evidence(pandas.concat([measured_rows(), articles.rows()], ignore_index=True))
    merged = aggregation.Aggregation(evidence, {}, [f"a file: {HOSTILE}"])
    vars(merged)["drawings"] = {}
    return merged


@pytest.fixture(scope="module")
def folder(tmp_path_factory, merged):
    """Return the folder of a report of those rows and all published ones, with the article's
    example and a notebook."""
    place = tmp_path_factory.mktemp("site")
    merged.write(place / "figures")
    table = pandas.DataFrame({f"column_{n}": [HOSTILE, "cell"] for n in range(12)}).to_html()
    picture = new_output("display_data", {"image/png": PIXEL})
    outputs = [html_output(f"{table}<script>document.title='run'</script>"), picture]
    outputs += [new_output("stream", text="a long line " * 30)]
    executed = write_notebook(
        place / "01_mnist_speedup.ipynb", *outputs, source=f"x = '{'long ' * 40}'"
    )
    article = site.layout.root() / "outputs" / "examples" / site.AGGREGATED
    return site.build(place / "figures", place / "report", [executed, article]).parent


@pytest.fixture(scope="module")
def browser():
    """Return Chromium; skip where it, or what drives it, is not installed."""
    driver = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not in this environment"
    )
    if not CHROMIUM:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with driver.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser, folder):
    """Return a function that opens a page of the report; what went wrong there is an error at
    the end of the test."""
    contexts, faults = [], []

    def serve(route):
        file = folder / re.split("[#?]", route.request.url.removeprefix(f"{HOST}/"))[0]
        if route.request.url.startswith(("file://", "http://127.0.0.1:")):
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
        page.on(
            "console",
            lambda said: faults.append(said.text) if said.type in ("error", "warning") else None,
        )
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
    assert page.locator("h1").count() == (name != "search.html")
    assert "run" not in page.title()
    assert page.locator("img[src=x]").count() == 0


LIGHT = [pytest.param(name, "light", 1280, marks=pytest.mark.slow) for name in PAGES[1:]]


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [("index.html", "light", 1280), *((name, "dark", 390) for name in PAGES), *LIGHT],
)
def test_a_page_fits_a_phone_and_axe_finds_no_fault(visit, name, scheme, width):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not in this environment"
    )
    page = visit(name, color_scheme=scheme, width=width)
    assert (
        page.evaluate(
            "[...document.images].filter(image => !image.naturalWidth).map(image => image.src)"
        )
        == []
    )
    assert (
        page.evaluate("document.documentElement.scrollWidth") == width
    )  # boxes alone scroll sideways
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
    for order, first in (("ascending", "5"), ("descending", "324")):
        page.locator("#summary th button", has_text="samples/s").click()
        assert page.locator(f"#summary th[aria-sort={order}]").inner_text() == "samples/s"
        assert next(filter(None, rates.all_inner_texts())) == first
    page.get_by_role("searchbox", name="Filter: Rates of all points").fill(
        "out of reach of any row"
    )
    assert page.locator("#summary tbody tr:visible").count() == 0


def ask(page, **choice):
    """Make a choice on the start page as a reader does; return the card's cells by line, without
    its first column."""
    if {"third", "fourth", "devices"} & set(choice):
        page.locator("#choice details").evaluate("details => details.open = true")
    for name, value in choice.items():
        element = page.locator(f"[name={name}]")
        if element.evaluate("element => element.tagName") == "SELECT":
            element.select_option(value)
        else:
            element.fill(value)
    lines = page.locator("#card tr").all()
    return {
        line.locator("th").first.inner_text(): line.locator("td, th + th").all_inner_texts()
        for line in lines
    }


def said(page):
    return page.locator("#verdict p").all_inner_texts()


def test_m1_against_rtx_6000_asks_which_one_and_takes_no_other_chip(visit):
    page = visit("index.html#have=M1&consider=RTX+6000&train=resnet50&precision=fp32&devices=1")
    assert page.locator("#card th[scope=col]").all_inner_texts() == ["Apple M1"]
    offered = page.locator("#none button").all_inner_texts()
    assert "NVIDIA Quadro RTX 6000" in offered
    assert all("RTX" in name and "6000" in name and "A6000" not in name for name in offered)
    page.locator("#none button", has_text="Quadro RTX 6000").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.name") == "consider"  # Tab goes on from there
    assert page.locator("#card th[scope=col]").all_inner_texts() == [
        "Apple M1",
        "NVIDIA Quadro RTX 6000",
    ]
    assert page.locator("#none p").count() == 0


def test_a_typed_name_means_what_the_commands_mean(visit):
    page = visit()

    def meant(text):
        marks = "chips => [Object.keys(chips).map(chip => ({name: chip, chip})), text]"
        given = f"text => meant(...({marks})(window.benchbook.chips)).map(mark => mark.chip)"
        return sorted(page.evaluate(given, text))

    for text in re.split(
        ";", "M1;m1 MAX;RTX 6000;rtx4090;SXM4 80;6000;A6000;GeForce RTX 3090;no such"
    ):
        named = [line["chip"] for line in words.chips(text)]
        assert meant(text) == sorted([chips.listed(text)] if chips.listed(text) else named), text
    for text, chip in AS_WRITTEN.items():
        assert {*map(chips.product, meant(text))} == {chips.product(chip)}, text


def test_a_mac_a_card_and_a_rented_gpu_stand_side_by_side_with_dollars(visit):
    page = visit()
    card = ask(page, have="M4 Max", consider="4090", third="A100 80GB SXM", train="resnet50")
    assert card["Chip"] == ["Apple M4 Max", "NVIDIA RTX 4090", "NVIDIA A100 80GB SXM"]
    assert card["Precision"] == ["32 bits", "16 bits", "16 bits"]  # the fastest of each
    assert " in 16 bits is about " in said(page)[1]
    assert card["Rent for this task"][0] == "unknown"
    assert all(re.match(r"\$\d", text) for text in card["Rent for this task"][1:])
    assert card["Price"][0].startswith(
        "none of this configuration; $2,000"
    )  # of 36 GB, not of 128 GB
    assert card["Price"][0].endswith("Mac Studio, 36 GB")
    assert re.fullmatch(r"\$[\d,]+ \(20\d\d-\d\d.*\), card", card["Price"][1])
    assert re.fullmatch(r"\$17,300 \(2025-03.*\), 1/8 of a baseboard", card["Price"][2])
    assert "Price: $138,788.44 / 8 = " in page.locator("#sure li").last.text_content()
    power = re.fullmatch(r"at most (\d+) kWh: 450 W x (\d+) h", card["Electricity"][1])
    assert float(power[1]) == pytest.approx(0.45 * float(power[2]), rel=0.03)
    assert all(re.match(r"[\d,]+ hours", text) for text in card["Buying beats renting after"][1:])
    assert card["Memory"] == ["128 GB", "24 GB", "80 GB"]
    assert re.search(r"\d images? a step", card["Largest batch, with Adam (predicted)"][1])
    assert set(ask(page, precision="fp32")["Precision"]) == {"32 bits"}


def test_pairs_of_one_author_are_named_with_their_works(visit):
    page = visit()
    ask(page, have="M1", consider="4090", train="resnet50", precision="fp32")
    works = page.locator("#works tr").all_inner_texts()
    assert any(
        "GPU-Insights" in text and "94.8 img/s" in text and "times)" in text for text in works
    )
    ask(page, have="M3", consider="L4", train="gpt2")  # of which no time is known
    first, *near = said(page)
    assert first.startswith("NVIDIA L4 is about 6.5 times as fast as Apple M3 (")
    assert [text.partition(": nearest published ")[0] for text in near] == ["Apple M3", "NVIDIA L4"]
    for precision, count in (("half", 0), ("fp32", 1)):  # this pair is in 32 bits
        ask(page, precision=precision)
        assert sum("as fast as Apple M3" in text for text in said(page)) == count
    ask(page, precision="")
    page.locator("#source").select_option(label="Raschka ch07 instruction fine-tuning")
    works = page.locator("#works tr").all_inner_texts()
    assert any(
        "Apple M3 3.73 min" in text and "NVIDIA A100 0.39 min (15 times)" in text for text in works
    )


def test_every_ratio_of_the_page_is_the_commands(visit, merged):
    lines = merged.costs.reset_index(drop=True)
    chosen = lines.groupby(["task", "source", "family"]).sample(8, replace=True, random_state=1)
    chosen = [*dict.fromkeys(chosen.index)]
    both = [
        (one, other)
        for one, other in itertools.permutations(chosen, 2)
        if lines.loc[one, "task"] == lines.loc[other, "task"]
    ]
    assert len(both) > 1000
    told = visit().evaluate(
        """both => {
          const {marks: {columns, lines}, values} = window.benchbook;
          const named = (line) => Object.fromEntries(columns.map((name, place) => [name, values[line[place]]]));
          const marks = lines.map(named);
          return both.map(([one, other]) => said("one", "other", ratio(marks[one], marks[other])));
        }""",
        both,
    )
    found = [
        estimates.ratio(*lines.loc[[other, one], "estimate"]).in_words("one", "other")
        for one, other in both
    ]
    assert told == found
    assert {text.split()[1] for text in told} == {"is", "may"}


def test_no_sentence_is_undecided_and_three_chips_have_a_summary(visit):
    page = visit()
    ask(
        page,
        have="M4 Max",
        consider="4090",
        third="A100 80GB SXM",
        fourth="H100 80GB SXM",
        train="resnet50",
    )
    first, *others = said(page)
    assert re.fullmatch(
        r"Cheapest: NVIDIA .*, \$\d+ in \d+ h. Fastest: NVIDIA .* 80GB SXM, \d+ h for \$\d+.", first
    )
    assert len(others) == 3
    assert all("as fast as Apple M4 Max" in text for text in others)
    assert "not decided" not in page.locator("body").inner_text()
    page = visit("index.html#have=no.+3&consider=M1+Pro&train=simclr&precision=fp32&devices=1")
    assert " as fast as " in said(page)[0]


def test_a_page_without_scripts_has_the_times_of_the_first_task(visit):
    lines = visit(java_script_enabled=False).locator("noscript tr").all_inner_texts()
    assert len(lines) > 20
    assert any(re.match(r"NVIDIA RTX 4090\s+\d+ h .*\$\d", line) for line in lines)


def test_a_product_has_one_line_and_its_boards_are_a_choice(visit):
    page, names = visit(), "#list th"
    for choice, is_one in (("1", True), ("boards", False)):
        ask(page, have="", consider="", devices=choice)
        shown = [chips.product(name) for name in page.locator(names).all_inner_texts()]
        assert (shown.count("NVIDIA A100") == 1) == is_one
    ask(page, have="A100 80GB", devices="1")  # a typed size is the chip's
    assert page.locator("#card th[scope=col]").all_inner_texts() == ["NVIDIA A100 80GB SXM"]
    ask(page, have="A100 40GB PCIe", consider="A100 80GB PCIe")  # boards that are named
    shown = page.locator("#list tr.chosen th").all_inner_texts()
    assert shown == ["NVIDIA A100 40GB PCIe", "NVIDIA A100 80GB PCIe"]


def test_a_phone_shows_the_verdict_and_the_time_first(visit):
    page = visit("index.html#have=M1&consider=NVIDIA+RTX+4090&train=resnet50&devices=1", width=390)
    for place in ("#verdict p >> nth=0", "#card td.time >> nth=0"):
        assert page.locator(place).bounding_box()["y"] < 800
    widths = page.locator("#card td").evaluate_all("cells => cells.map(cell => cell.offsetWidth)")
    assert min(widths) >= 8 * 8  # characters of a digit's width


def test_a_row_and_a_card_say_where_they_come_from(visit):
    page = visit()
    ask(page, train="simclr", precision="fp32", have="no. 3", consider="M2 Max")
    page.locator("#side summary").click()
    assert (
        "rows in outputs/runs/desk/simclr_epochs/reference-cpu"
        in page.locator("#sure li").first.inner_text()
    )
    assert visit("points.html").get_by_text("desk/simclr_epochs/reference-cpu").count() == 1
    for link in ("#sure a", "#list a >> nth=0"):  # a result has an address
        assert page.locator(link).count() == 1
        page.locator(link).click()
        page.wait_for_url("**/points.html#desk/simclr_epochs/reference-cpu")
        line = page.locator("tr:has(:target)")
        assert line.locator("a[href='04_simclr_epochs.html']").count() == 1
        assert "SimCLR" in line.inner_text()
        page.go_back()
        page.locator("#side summary").click()


def test_a_name_that_has_no_time_is_asked_about(visit):
    page = visit("index.html#train=resnet50&devices=1")
    ask(page, have="MacBook")
    assert "Apple M1" in page.locator("#none button").all_inner_texts()
    ask(page, have="GTX 1080", train="gpt2")
    assert "; it has " in page.locator("#none").inner_text()
    ask(page, have="4090 Ultra")
    assert "; near it are " in page.locator("#none").inner_text()


def test_a_loop_of_ones_own_gains_what_the_chip_does(visit):
    page = visit("index.html#have=M1&consider=RTX+4090&train=resnet50&devices=1&loop=836")
    [verdict, own] = said(page)
    times, low, high = re.search(
        r"about ([\d,.]+) times as fast .*\(([\d.,]+) to ([\d.,]+)\)", verdict
    ).groups()
    gained, *ends = re.search(r"about ([\d,]+) samples/s .*\(([\d,]+) to ([\d,]+)\)", own).groups()
    for value, ratio in zip((gained, *ends), (times, low, high), strict=True):
        assert float(value.replace(",", "")) == pytest.approx(836 * float(ratio), rel=0.06)
    assert page.locator("[name=loop]").is_visible()
    assert "loop=836" in page.evaluate("location.hash")


def test_the_choice_is_in_the_address_and_an_unknown_name_is_said(visit):
    page = visit(
        "index.html#have=no+such+chip&consider=NVIDIA+A100+80GB+SXM&train=resnet50&devices=1"
    )
    assert "“no such chip” has no time for this task" in page.locator("#none").inner_text()
    assert page.locator("#card th[scope=col]").all_inner_texts() == ["NVIDIA A100 80GB SXM"]
    assert page.locator("#choice details[open]").count() == 0
    assert visit("index.html#third=M1").locator("#choice details[open]").count() == 1
    page.locator("[name=train]").select_option("gpt2")
    assert "train=gpt2" in page.evaluate("location.hash")
    assert (
        datetime.date.today().isoformat()[:4]
        in page.locator("main, [role=main]").first.inner_text()
    )


@pytest.mark.parametrize(
    "choice",
    [
        "have=constructor&consider=__proto__",
        "train=nope&precision=nope&devices=7",
        f"have={'m' * 60_000}&consider={'m1+' * 20_000}",
        "item=1&length=2&elements=3",
    ],
    ids=["names of objects", "no options", "60,000 letters", "no fields"],
)
def test_an_odd_address_shows_the_page(visit, choice):
    page = visit(f"index.html#{choice}")
    assert page.locator("#list tr").count() > 5
    assert page.locator("[data-task]:visible").count() == 1
    page.locator("[name=have]").fill("prototype")
    assert "“prototype” has no time for this task" in page.locator("#none").inner_text()
