"""The command that measures a network of one's own: what it measures again, and what it refuses
beforehand."""

import json
import pkgutil
import re
import sys
import time

import pytest

from benchbook.commands import measure
from benchbook.commands.output import SOME_LEFT_OUT
from benchbook.machine import launch, layout
from benchbook.measuring import failures
from benchbook.measuring.window import window
from benchbook.rows import networks, records
from benchbook.running import session
from benchbook.studies.results.evidence import Evidence
from fakes import CPU
from rows import make_row, make_rows


@pytest.fixture
def call_here(monkeypatch, tmp_path):
    """Let the launcher call functions in this process; return what it is without that."""
    apart = launch.call
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def call(function, *arguments, seconds, log=None):
        try:
            return pkgutil.resolve_name(function)(*arguments), None
        except ValueError as error:
            return None, launch.Failed(type(error).__name__, str(error))

    monkeypatch.setattr(launch, "call", call)
    yield apart
    for name in ("own", "broken", "models", "models.small"):
        sys.modules.pop(name, None)


@pytest.fixture
def left(outputs, monkeypatch, command, call_here):
    """Measure with a session that runs nothing; return what it finds of a point that was done
    before."""
    seen = []

    def run(points, name, retry):
        folder = layout.state(name) / "your_network" / points[0].name
        seen.append(sorted(file.name for file in folder.glob("*done")) if folder.exists() else None)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done").write_text(json.dumps({"statuses": ["ok"]}))
        raise ValueError("planted")

    monkeypatch.setattr(session, "measure", run)

    def measure(*options: str) -> list:
        command("measure", "torchvision.models:resnet18", "--machine", "desk", *options)
        return seen

    return measure


@pytest.mark.parametrize(
    ("begun_in", "expected"), [("a-session", ["done"]), ("one-before", []), (None, [])]
)
def test_the_same_command_measures_again_unless_it_was_cut_short(left, begun_in, expected):
    assert left() == [None]
    if begun_in:
        (layout.state("desk") / ".session").write_text("a-session")
        [done] = layout.state("desk").rglob("done")
        row = make_row(
            study="your_network", point=done.parent.name, machine="desk", session=begun_in
        )
        folder = layout.point("desk", "your_network", done.parent.name)
        folder.mkdir(parents=True)
        records.append(folder / f"{row['run_id']}.csv", row)
    assert left()[1] == expected


def test_a_point_that_could_not_be_run_is_named_with_its_reason(
    outputs, monkeypatch, command, call_here
):
    monkeypatch.setattr(
        session, "measure", lambda points, name, retry: [(points[0], "OSError: no room")]
    )
    status, said = command(
        "measure", "torchvision.models:resnet18", "--machine", "desk", "--device", "cpu"
    )
    assert status == SOME_LEFT_OUT
    assert "(OSError: no room). Next: run the same command again.\n" in said


APART = (
    "script.py:net",
    "inside.py:net",
)  # code that ends Python, or needs its package: in a process of its own
OWN = """
def network(num_classes=10):
    raise RuntimeError("it ran")

def make_batch(batch_size, seed):
    raise RuntimeError("it ran")
"""


REFUSED = r"""
no_such_package.models:net => No module named 'no_such_package'; .*make setup EXTRAS
resnet18 => network 'resnet18'; allowed: module:callable, such as torchvision.models:resnet18
nowhere.py:net => raised FileNotFoundError: .*nowhere.py
own.py:netwrok => module 'own' has no attribute 'netwrok'
broken.py:net => broken.py:net' raised SyntaxError
own.py:network --arguments width=open => arguments 'width=open'; allowed: such as
own.py:network --arguments width=8)+_(1 => arguments 'width=8\)\+_\(1'; allowed: such as
own.py:network --loader batches => loader 'batches'; allowed: module:callable
own.py:network --loss nowhere.py:loss => loss '.*nowhere.py:loss' raised FileNotFoundError
own.py:network --optimizer lion => optimizer is 'lion'; allowed: 'sgd', 'adam' or 'adamw'
own.py:network --batch-sizes 4,x => 'x'
own.py:network --processes 0 => processes 0; allowed: 1 to 99
script.py:net => raised SystemExit: 2; put what a script does under `if __name__
inside.py:net => raised ImportError: attempted relative import.*; name a file of a package
models.small:netwrok => module 'models.small' has no attribute 'netwrok'
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_be_measured_is_refused_before_a_kernel_starts_or_the_code_runs(
    left, tmp_path, monkeypatch, command, call_here, line
):
    options, message = line.split(" => ")
    monkeypatch.chdir(tmp_path)
    if options in APART:
        monkeypatch.setattr(launch, "call", call_here)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("def net(:")
    (tmp_path / "script.py").write_text(
        "import argparse; argparse.ArgumentParser().parse_args(['--epochs'])"
    )
    (tmp_path / "inside.py").write_text("from . import other")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small.py").write_text(OWN)
    name, *more = options.split(" --")
    more = [word for option in more for word in f"--{option}".split(" ", 1)]
    status, said = command("measure", name, "--machine", "desk", *more)
    assert status == 2
    assert re.search(message, said)
    assert not layout.runs("desk").exists()


def test_a_clock_that_a_network_replaces_is_not_the_windows(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    with window(CPU) as timed:
        sum(range(10_000))
    assert timed.seconds > 0


def test_a_row_says_of_the_users_code_the_name_of_the_file_alone():
    message = failures.anonymous(
        "network '/data/secret/net.py:resnet' and ~/b/loss.py:mean (a.py:3) C:\\x\\y.py:z"
    )
    assert message == "network 'net.py:resnet' and loss.py:mean (a.py:3) y.py:z"


@pytest.mark.parametrize(
    ("device", "sizes", "is_said"),
    [("cuda", (8, 40), True), ("cuda", (40,), False), ("cpu", (8, 40), False)],
)
def test_peaks_at_two_batch_sizes_tell_the_largest_batch_of_other_memories(
    monkeypatch, capsys, device, sizes, is_said
):
    fixed = 100e6  # of weights, gradients and whatever else an optimiser keeps
    line = {"study": "your_network", "model": "mine", "device": device}
    rows = [
        make_row(**line, point=f"p{size}", batch_size=size, peak_memory_bytes=fixed + size * 2**27)
        | {"index": index}
        for size in sizes
        for index in range(6)
    ]
    evidence = Evidence(make_rows(rows))
    monkeypatch.setattr(Evidence, "of_machine", lambda name: evidence)
    measure._say_results(evidence.points("your_network").drop(columns="peak_memory_bytes"))
    expected = int((networks.USABLE * 16 * 2**30 - fixed) / 2**27)
    said = capsys.readouterr().out
    assert (f"peaks of 8 and 40: 56 in 8 GB, {expected} in 16 GB" in said) == is_said
    assert all(f"{(fixed + size * 2**27) / 2**30:.3g}" in said for size in sizes)
