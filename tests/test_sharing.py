"""How much of the CPU others take, by sums done by hand and with a process that does take it."""

import os
import re
import subprocess
import sys

import pandas
import pytest

from benchbook.judging import verdicts
from benchbook.machine import contention, nvidia, processes
from benchbook.machine.kinds import KINDS
from benchbook.running.profiles import Point
from benchbook.running.progress import Line
from made.fakes import IOREG
from made.rows import make_rows, windows

IDLE = {
    "cpu_cores": 2,
    "cpu_busy_seconds": 100.0,
    "cpu_own_seconds": 10.0,
    "cpu_stolen_seconds": 1.0,
}
pinned = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="processes cannot choose their cores here"
)


@pytest.fixture
def one_core():
    """Let this process, and those that it starts, use one core alone."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture
def spinner(one_core):
    """Keep the core busy from another session's process, which is none of this run's."""
    code = "import os, sys\nif os.fork():\n    os._exit(0)\nprint(os.getpid(), flush=True)\nwhile True: pass"
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE
    ) as parent:
        process = int(parent.stdout.readline())
        yield process
        os.kill(process, 9)


def test_others_take_what_is_busy_and_not_ours():
    after = {
        "cpu_cores": 2,
        "cpu_busy_seconds": 130.0,
        "cpu_own_seconds": 35.0,
        "cpu_stolen_seconds": 3.0,
    }
    assert contention.shares(IDLE, after, 20.0) == ((30 - 25) / 40, 2 / 40)
    assert contention.shares(IDLE, IDLE | {"cpu_own_seconds": 12.0}, 20.0) == (
        0,
        0,
    )  # counters tick in turn
    assert contention.shares({}, after, 20.0) == (0, 0)  # an older version's manifest
    assert contention.shares(IDLE, after | {"cpu_cores": 0}, 20.0) == (0, 0)  # a stranger's


def test_what_children_have_done_is_ours_after_they_have_ended():
    before = contention.cpu_seconds()["cpu_own_seconds"]
    code = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert contention.cpu_seconds()["cpu_own_seconds"] - before >= 0.35


@pinned
def test_a_study_waits_for_others_and_says_so_until_its_patience_ends(
    outputs, spinner, monkeypatch, capsys
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    line = Line(Point("mnist_speedup", "p-1", {"device": "cpu"}, 60), "desk")
    for patience, waits in ((0.1, True), (0.0, False)):
        capsys.readouterr()
        line.wait_until_calm(patience)
        said = capsys.readouterr().out
        assert bool(re.search(r"waiting: .+ take \d+% of the CPU; at most 0 s", said)) is waits


# What `xpu-smi dump -d 0 -m 0 -n 1` prints, shortened.
XPU = "Timestamp, DeviceId, GPU Utilization (%)\n06:14:46.000,    0, 37.00\n"
TOLD = {
    "mps": [
        (IOREG, 0.37),
        (IOREG.replace("=37", "=0"), 0.0),
        ('"PerformanceStatistics" = {}', None),
    ],
    "metal": [(IOREG, 0.37), ("", None)],
    "xpu": [(XPU, 0.37), (XPU.replace("37.00", "0.00"), 0.0), (XPU.replace("37.00", "N/A"), None)],
    "rocm": [("37\n", 0.37), ("0\n", 0.0), (None, None)],
    "tpu": [("", None)],
}
CASES = [(kind, told, busy) for kind, cases in TOLD.items() for told, busy in cases]


@pytest.mark.parametrize(("kind", "told", "busy"), CASES)
def test_a_busy_accelerator_is_known_by_its_tool(monkeypatch, tmp_path, kind, told, busy):
    asked = []
    monkeypatch.setattr(processes, "output", lambda *command: asked.append(command) or told)
    monkeypatch.setattr(contention, "SAMPLE_SECONDS", 0.0)
    if kind == "rocm":
        monkeypatch.setattr(contention, "SYSTEM_FILES", tmp_path)
        file = tmp_path / "class" / "drm" / "card1" / "device" / "gpu_busy_percent"
        file.parent.mkdir(parents=True)
        file.mkdir() if told is None else file.write_text(told)  # a driver that refuses
    assert contention.device_busy(kind) == busy
    assert {command[0] for command in asked} <= {"ioreg", "xpu-smi"}
    monkeypatch.setattr(contention, "others_share", lambda: 0.0)
    who = contention.disturbance(kind)
    assert who == (f"others use the {KINDS[kind].word} for 37% of the time" if busy else "")
    assert contention.disturbance("cpu") == ""
    begun = contention.wait_until_calm(0.05, kind, lambda who: None)
    assert (begun >= 0.05) == bool(busy)


@pytest.mark.parametrize(
    ("rates", "busy"),
    [([90, 90, 90], 0.9), ([90, 0], 0.0), ([0], 0.0), ([], None), ([50, 20, 30], 0.2)],
)
def test_a_nvidia_gpu_is_busy_if_it_stays_so(monkeypatch, rates, busy):
    told = iter([[rate / 100, 0.0] for rate in rates])
    monkeypatch.setattr(nvidia, "utilisation", lambda: next(told, []))
    monkeypatch.setattr(contention, "SAMPLE_SECONDS", 0.0)
    assert contention.device_busy("cuda") == busy


@pytest.mark.parametrize(
    ("taken", "stolen", "expected"),
    [
        (6.0, 0.0, (("cpu_shared", pytest.approx(0.3)),)),
        (0.9, 0.9, ()),
        (0.0, 2.0, (("cpu_stolen", pytest.approx(0.1)),)),
    ],
)
def test_windows_beside_others_are_unstable_with_the_reason(taken, stolen, expected):
    rates = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0]
    rows = make_rows([*windows(rates), *windows(rates, run_id="run-2")])
    samples = []
    for number in range(7):  # one before the first window; 10 s and 20 CPU seconds each
        share = number / 6
        used = {"cpu_busy_seconds": 60 * share + 6 * taken * share, "cpu_own_seconds": 60 * share}
        used |= {"cpu_cores": 2, "cpu_stolen_seconds": 6 * stolen * share}
        clocks = dict.fromkeys(("awake_seconds", "elapsed_seconds"), 10.0 * number)
        samples += [
            {"run_id": run, "index": number - 1 if number else None} | clocks | used
            for run in ("run-1", "run-2")
        ]
    samples.sort(key=lambda sample: sample["run_id"])
    assert verdicts.summarise(rows, pandas.DataFrame(samples))["verdict"].item().reasons == expected
