"""JupyterLab in Chromium, as an explorer has it: open a notebook, change its parameters, run all cells, see numbers."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from benchbook.machine import layout
from benchbook.rows import records
from test_browser import browser  # noqa: F401, a fixture

pytestmark = [pytest.mark.slow, pytest.mark.browser]
NOTEBOOK = "01_mnist_speedup.ipynb"
CHANGES = {'dataset: str = "mnist"': 'dataset: str = "digits"', 'device: str = "best"': 'device: str = "cpu"'}
BUDGET = {"num_windows": 2, "samples_per_window": 1280, "num_parity_steps": 1}
CHANGES |= {'budget: str = "quick"': f"budget: dict = {BUDGET}"}


@pytest.fixture
def lab(tmp_path):
    """Return the address of a JupyterLab over a copy of the notebooks; its runs write to tmp_path."""
    shutil.copytree(layout.root() / "notebooks", tmp_path / "notebooks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--IdentityProvider.token="]
    command += [f"--ServerApp.port={port}", "--notebook-dir", str(tmp_path / "notebooks")]
    environment = os.environ | folders | {"BENCHBOOK_OUTPUTS": str(tmp_path)}
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
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
        server.terminate()
        server.wait(30)


def test_a_reader_changes_parameters_runs_all_cells_and_sees_numbers(browser, lab, tmp_path):  # noqa: F811
    page = browser.new_page(viewport={"width": 1280, "height": 7000})  # Lab renders the cells in view alone
    page.set_default_timeout(120_000)
    page.goto(f"{lab}/lab/tree/{NOTEBOOK}?reset")
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
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
    prompts = page.locator(".jp-CodeCell .jp-InputPrompt")
    last, ended = prompts.nth(prompts.count() - 1), "prompt => /[0-9]/.test(prompt.textContent)"
    page.wait_for_function(ended, arg=last.element_handle(), timeout=300_000)
    page.screenshot(path=tmp_path / "lab.png")
    assert all(re.fullmatch(r"\[\d+\]:", text) for text in prompts.all_inner_texts())
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    assert page.locator(".jp-OutputArea-output img").count() >= 3
    rows = records.merge(records.find(tmp_path / "runs"))
    assert (set(rows["status"]), rows["phase"].eq("train").sum()) == ({"ok"}, 2)
    assert set(rows["dataset"].dropna()) == {"digits-28px"}
