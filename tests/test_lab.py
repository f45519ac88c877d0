"""JupyterLab in Chromium, as an explorer has it: open a notebook, change its parameters, run all
cells, see numbers."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pandas
import pytest
from nbformat.v4 import new_output

from benchbook.machine import layout, processes
from benchbook.report import tables
from benchbook.rows import records
from made.pages import html_output, write_notebook
from test_browser import browser  # noqa: F401, a fixture

pytestmark = [pytest.mark.slow, pytest.mark.browser]
NOTEBOOK = "01_mnist_speedup.ipynb"
CHANGES = {
    'dataset: str = "mnist"': 'dataset: str = "digits"',
    'device: str = "best"': 'device: str = "cpu"',
}
BUDGET = {"num_processes": 2, "num_windows": 2, "samples_per_window": 2560, "num_parity_steps": 1}
CHANGES |= {'budget: str = "quick"': f"budget: dict = {BUDGET}"}


@pytest.fixture
def lab(tmp_path):
    """Return the address of a JupyterLab over a copy of the notebooks; its runs write to
    tmp_path."""
    shutil.copytree(layout.root() / "notebooks", tmp_path / "notebooks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {
        f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower())
        for kind in ("CONFIG", "DATA", "RUNTIME")
    }
    options = f"--no-browser --allow-root --IdentityProvider.token= --ServerApp.port={port}"
    own = ("READY=", f"BIN={Path(sys.executable).parent}", f"LAB={options}")
    command = ["make", "-f", str(layout.root() / "Makefile"), "lab", *own]
    environment = os.environ | folders | {"BENCHBOOK_OUTPUTS": str(tmp_path)}
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(
            command,
            env=environment,
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5)
                break
            except OSError:
                time.sleep(0.5)
        yield address
    finally:
        processes.kill(processes.tree(server.pid))
        server.wait(30)


@pytest.fixture
def visit(browser, lab):  # noqa: F811
    """Return a function that opens a notebook in JupyterLab, by its name."""

    def opened(name: str):
        page = browser.new_page(
            viewport={"width": 1280, "height": 7000}
        )  # Lab renders the cells in view alone
        page.set_default_timeout(120_000)
        page.goto(f"{lab}/lab/tree/{name}?reset")
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
        return page

    return opened


@pytest.fixture
def page(visit):
    """Return the notebook in JupyterLab with other parameters, typed by a reader, after `Run All
    Cells`."""
    page = visit(NOTEBOOK)
    parameters = page.locator(".jp-CodeCell .cm-content").first
    parameters.locator(".cm-line", has_text="budget").wait_for()
    source = "\n".join(parameters.locator(".cm-line").all_inner_texts())
    for old, new in CHANGES.items():
        assert old in source
        source = source.replace(old, new)
    parameters.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(source)
    page.locator(".lm-MenuBar-item", has_text=re.compile("^Run$")).click()
    page.locator(".lm-Menu-item", has_text=re.compile("^Run All Cells")).click()
    return page


def wait_for_prompt(page, number: int, pattern: str) -> None:
    """Wait until the prompt of a code cell, such as [*]: or [5]:, matches."""
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").nth(number)
    matches = f"prompt => /{pattern}/.test(prompt.textContent)"
    page.wait_for_function(matches, arg=prompt.element_handle(), timeout=300_000)


def rows_in(folder) -> pandas.DataFrame:
    return records.merge(folder / "runs")


def test_a_reader_changes_parameters_runs_all_cells_and_sees_numbers(page, tmp_path):
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    wait_for_prompt(page, prompts.count() - 1, "[0-9]")
    page.screenshot(path=tmp_path / "lab.png")
    assert all(re.fullmatch(r"\[\d+\]:", text) for text in prompts.all_inner_texts())
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert page.locator(".jp-OutputArea-output img").count() >= 3
    rows = rows_in(tmp_path)
    assert (set(rows["status"]), rows["phase"].eq("train").sum()) == ({"ok"}, 4)
    assert set(rows["dataset"].dropna()) == {"digits-28px"}


def test_dollars_of_an_answer_and_of_a_table_are_no_formula(visit, tmp_path):
    text = r"228 hours, $228 at $1.00 an hour; \$3, $$4$$ & <b>"
    outputs = new_output("display_data", {"text/markdown": f"**{tables.markdown(text)}** all"})
    table = html_output(tables.html(pandas.DataFrame({"sentence": [text]})))
    formula = new_output("display_data", {"text/markdown": "$x$"})  # typeset after the others
    write_notebook(tmp_path / "notebooks" / "dollars.ipynb", outputs, table, formula)
    page = visit("dollars.ipynb")
    page.locator("mjx-container").first.wait_for()
    shown = page.locator(".jp-OutputArea-output.jp-RenderedHTMLCommon").all_inner_texts()
    assert [text in each for each in shown] == [True, True, False], shown
    assert page.locator("mjx-container").count() == 1


def test_lab_changes_no_notebook_by_itself_and_shows_no_news(visit, lab):
    name = "@jupyterlab/docmanager-extension:plugin"
    with urllib.request.urlopen(f"{lab}/lab/api/settings/{name}") as answer:
        assert json.load(answer)["schema"]["properties"]["autosave"]["default"] is False
    page = visit(NOTEBOOK)
    page.locator(".jp-CodeCell .cm-line").first.wait_for()
    assert page.get_by_text("Would you like to get notified").count() == 0
