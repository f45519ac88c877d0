"""A study's notebook in a kernel of JupyterLab: what its cells show is what is measured, a refusal
is a line, and each study takes a reader's network."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml
from jupyter_client.manager import start_new_kernel

from benchbook.machine import layout
from benchbook.rows import records
from made.processes import wait_for

PARAMETERS = yaml.safe_load("""
mnist_speedup: &digits {dataset: digits, device: cpu, batch_size: 16, budget: &tiny {num_processes: 1, num_windows: 1,
  num_warmup_steps: 1, num_parity_steps: 1, samples_per_window: 32, try_seconds: 0.05}}
vae_stability: *digits
mobilenetv2_energy: {device: cpu, image_size: 32, batch_size: 4, framework: torch, dataset: shapes, weights: random,
  trainable: true, budget: {<<: &few {<<: *tiny, samples_per_window: 4, parity_batch_size: 4}, num_test_images: 10}}
simclr_epochs: {device: cpu, dataset: shapes, batch_size: 4, budget: {<<: *few, num_bank_images: 20,
  num_test_images: 10, num_resident_steps: 0}}
segmentation_scaling: {device: cpu, image_size: 128, width: 0.25, batch_size: 2, budget: {<<: *few, num_images: 8,
  num_test_images: 4}}
resnet50_cost: {device: cpu, image_size: 32, batch_size: 4, framework: torch, budget: *few}
gpt_tokens: {device: cpu, dataset: excerpt, batch_size: 4, sequence_length: 16, budget: {<<: *few,
  num_test_sequences: 4}}
""")
DIGITS = PARAMETERS["mnist_speedup"]
# Networks of another make than the studies' own, written from the comments in the notebooks.
BODY = """
import torch
from torch import nn
class Mine(nn.Module):
    def __init__(self{plan}):
        super().__init__()
        self.first, self.last = {layers}
    def forward(self, {inputs}):
        return {outputs}
"""
NETWORKS = """
mnist_speedup: {plan: "", layers: "nn.Linear(784, 16), nn.Linear(16, 10)", inputs: images,
  outputs: "self.last(torch.relu(self.first(images.flatten(1)))).log_softmax(1)"}
vae_stability: {plan: "", layers: "nn.Linear(784, 40), nn.Linear(20, 784)", inputs: "images, noise=None",
  outputs: "(lambda mean, scale: (torch.sigmoid(self.last(mean + (torch.randn_like(mean)
    if noise is None else noise) * torch.exp(scale / 2))), mean, scale))(*self.first(images.flatten(1)).chunk(2, 1))"}
mobilenetv2_energy: {plan: ", plan", layers: "nn.Conv2d(3, 8, 3), nn.Linear(8, plan.dataset.num_classes)",
  inputs: images, outputs: &images "self.last(torch.relu(self.first(images)).mean((2, 3)))"}
simclr_epochs: {plan: "", layers: "nn.Conv2d(3, 8, 3), nn.Linear(8, 16)", inputs: "one, other",
  outputs: "tuple(self.last(torch.relu(self.first(view)).mean((2, 3))) for view in (one, other))"}
resnet50_cost: {plan: ", plan", layers: "nn.Conv2d(3, 8, 3), nn.Linear(8, plan.num_classes)", inputs: images,
  outputs: *images}
gpt_tokens: {plan: ", plan", layers: "nn.Embedding(plan.vocabulary, 8), nn.Linear(8, plan.vocabulary)", inputs: tokens,
  outputs: self.last(self.first(tokens))}
"""
NETWORKS = {study: BODY.format(**own) for study, own in yaml.safe_load(NETWORKS).items()}


class Shown(NamedTuple):
    """What a cell showed: its printed text, the lines of its error, and its rich outputs by type."""

    text: str
    error: str
    rich: list[dict]


class Notebook:
    """A study's notebook in a kernel, with other parameters; `run` runs one of its cells."""

    def __init__(self, study: str, environment: dict[str, str]) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", env=environment)
        self.cells = {}
        for cell in layout.cells(layout.notebook(study)):
            if cell["cell_type"] == "code":
                self.cells[cell["source"]] = "parameters" in cell["metadata"].get("tags", [])

    def run(self, part: str, *changes: tuple[str, str]) -> Shown:
        """Run the cell that contains a text, or the text itself; changed for this time."""
        source = next((source for source in self.cells if part in source), part)
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        outputs = []
        self.client.execute_interactive(source, output_hook=outputs.append, timeout=600)
        contents = [output["content"] for output in outputs]
        errors = ["\n".join(each["traceback"]) for each in contents if "traceback" in each]
        text = "".join(each["text"] for each in contents if "text" in each)
        return Shown(text, "".join(errors), [each["data"] for each in contents if "data" in each])

    def begin(self, parameters: dict, **more: object) -> Shown:
        """Run the parameters' cell, set parameters, and run the set-up cell."""
        self.run(next(source for source, is_first in self.cells.items() if is_first))
        given = parameters | more
        self.run("\n".join(f"{name} = {value!r}" for name, value in given.items()))
        return self.run("notebook.begin(")


@pytest.fixture
def opened(tmp_path) -> Iterator:
    """Return a function that opens a study's notebook; its rows go to a folder of this test."""
    pages = []

    def open_notebook(study: str, **environment: str) -> Notebook:
        kept = {name: value for name, value in os.environ.items() if name != "BENCHBOOK_OUTPUTS"}
        own = {"JPY_SESSION_NAME": "a notebook", "BENCHBOOK_PATIENCE": "0", "TMPDIR": str(tmp_path)}
        pages.append(Notebook(study, kept | own | environment))
        return pages[-1]

    yield open_notebook
    for page in pages:
        page.client.stop_channels()
        page.manager.shutdown_kernel(now=True)


def one_line(shown: Shown) -> str:
    """Return the error of a cell, which is one line."""
    [line] = re.sub(r"\x1b\[[0-9;]*m", "", shown.error).strip().splitlines()
    return line


@pytest.mark.notebook
def test_a_changed_parameter_and_a_failed_network_are_refused_in_a_line(opened, tmp_path):
    page = opened("mnist_speedup")
    refused = one_line(page.begin(DIGITS, batch_size="large"))
    assert "batch_size is 'large'; allowed: a valid integer" in refused
    assert page.begin(DIGITS).error == ""
    assert page.run("experiment.prepare(").error == ""
    page.run("batch_size = 256")
    wanted = "batch_size is 256 above, 16 here: run the set-up cell again"
    for part in ("experiment.trial()", "experiment.measure()", "experiment.explore("):
        assert wanted in one_line(page.run(part))
    page.run("batch_size = 16")
    own = "class Mine(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.x = lost\n"
    changed = ("(data)", "(data, network=Mine)")
    refused = page.run(
        "experiment.prepare(", changed, ("workload =", f"import torch\n{own}workload =")
    )
    assert "Mine: NameError: name 'lost' is not defined (line" in one_line(refused)
    assert "is yours" not in refused.text
    for part in ("experiment.trial()", "experiment.measure()", "experiment.explore("):
        assert "the network was not prepared" in one_line(page.run(part))
    assert page.run("experiment.prepare(").error == ""
    for call, words in {
        "bath_size=[16]": "explore has no choice 'bath_size'",
        "": "explore got none; allowed: one, such as batch_size=",
        'precision=["fp32", "fp8"]': "precision 'fp8'; allowed: fp32",
        "batch_size=[16, 0]": "batch_size is 0",
        "data_resident=[True]": "data_resident True; allowed: False with variant reference",
    }.items():
        refused = page.run(f"experiment.explore({call})")
        assert words in one_line(refused)
        assert refused.text == ""
    page.run("from benchbook.machine import contention\ncontention.shares = lambda *_: (0.3, 0.0)")
    drawn = page.run("print(experiment.explore(batch_size=[16]).table['text'].tolist())")
    assert r"\nothers took 30% of the CPU" in drawn.text
    assert list(tmp_path.rglob("*.csv")) == []


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("study", PARAMETERS)
def test_each_study_takes_a_network_written_from_its_comment(opened, study, tmp_path):
    page = opened(study)
    assert page.begin(PARAMETERS[study]).error == ""
    prepared = next(source for source in page.cells if "experiment.prepare(" in source)
    argument = re.search(r"prepare\((\w+)\)", prepared)[1]
    own = NETWORKS.get(study, "class Mine: pass\n")
    changes = ((f"({argument})", f"({argument}, network=Mine)"), ("workload =", f"{own}workload ="))
    shown = page.run(prepared, *changes)
    if study not in NETWORKS:
        assert "allowed: none, since this study's networks are Keras's" in one_line(shown)
        assert "is yours" not in shown.text
        return
    assert "A network of your own" in prepared
    assert (shown.error, "Mine is yours" in shown.text) == ("", True)
    assert "class Mine(nn.Module)" in str(shown.rich)
    folders = set(tmp_path.iterdir())
    for part in ("experiment.trial()", "experiment.measure()", "closing.show("):
        ran = page.run(part)
        assert ran.error == "", ran
    answer = next(each["text/markdown"] for each in ran.rich if "text/markdown" in each)
    assert re.search(r"^\*\*[\d.,]+ (images|tokens) a second .*training Mine, your network", answer)
    assert "article" not in answer
    assert "they cannot be kept" in page.run("experiment.measure()").text
    checked = page.run(
        "print(experiment.agreement.passed, sorted(set(rows['model'].dropna())), len(rows))"
    )
    assert checked.text.startswith("True ['yours']"), checked
    assert "allowed: those of the study's own network" in one_line(page.run("experiment.keep()"))
    assert {path.name for path in folders} >= {
        path.name for path in tmp_path.glob("benchbook-yours*")
    }


@pytest.mark.slow
@pytest.mark.notebook
def test_an_interrupt_is_a_line_and_the_next_call_continues(opened, tmp_path):
    page = opened("mnist_speedup", BENCHBOOK_OUTPUTS=str(tmp_path / "kept"))
    many = {"budget": DIGITS["budget"] | {"num_windows": 2000, "num_parity_steps": 0}}
    page.begin(DIGITS | many)

    def interrupt() -> None:
        wait_for(lambda: any(",train," in file.read_text() for file in tmp_path.rglob("*Z-*.csv")))
        os.killpg(page.manager.provisioner.pid, signal.SIGINT)  # as JupyterLab does

    thread = threading.Thread(target=interrupt)
    thread.start()
    stopped = one_line(page.run("experiment.measure()"))
    thread.join()
    assert "interrupted; the rows so far are there: run the cell again to continue" in stopped
    answer = page.run("closing.show(").rich
    assert "KeyboardInterrupt" not in str(answer)
    [interrupted] = (
        records.merge(tmp_path / "kept" / "runs").query("status != 'ok'").to_dict("records")
    )
    assert (interrupted["status"], interrupted["message"]) == (
        "interrupted",
        "stopped by an interrupt",
    )
