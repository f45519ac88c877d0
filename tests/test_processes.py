"""Stops, orphans of a run, and killed processes."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from benchbook.__main__ import describe
from benchbook.machine import launch, processes, stopping
from made.processes import run_python


def start(code: str, **variables: str) -> subprocess.Popen:
    """Start Python code that prints a line once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdout.readline()
    return process


@pytest.mark.parametrize("number", stopping.STOP_SIGNALS)
def test_the_first_signal_stops_and_those_that_follow_wait(number):
    code = (
        "import os, signal, sys, time\nfrom benchbook.machine import stopping\n"
        # the tests may run under nohup
        "for each in stopping.STOP_SIGNALS: signal.signal(each, signal.SIG_DFL)\n"
        "stopping.stop_on_signals()\n"
        "try:\n    print(flush=True)\n    time.sleep(30)\n"
        "except stopping.Stopped as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    sys.exit(stop.status)"
    )
    process = start(code)
    process.send_signal(number)
    assert process.wait(10) == 128 + number
    process.stdout.close()


def test_a_stop_that_python_drops_is_raised_again():
    code = (
        "import os, signal, sys, time\nfrom benchbook.machine import stopping\n"
        "for each in stopping.STOP_SIGNALS: signal.signal(each, signal.SIG_DFL)\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "stopping.stop_on_signals()\nclass Dropped:\n    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n        time.sleep(0.1)\n"
        "try:\n    Dropped()\n    print(flush=True)\n    time.sleep(30)\n"
        "except stopping.Stopped as stop:\n    sys.exit(stop.status)"
    )
    process = start(code)
    assert process.wait(10) == 130
    process.stdout.close()


def test_nohup_stays_in_force():
    code = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom benchbook.machine import stopping\n"
        "stopping.stop_on_signals()\nassert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN"
    )
    run_python(code)


def test_processes_of_a_run_are_known_when_their_parent_is_dead_and_are_killed(monkeypatch):
    child = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]); print(flush=True)"
    parent = start(code, RUN="of this test", TORCHELASTIC_RUN_ID="job-of-this-test")
    parent.wait(10)
    orphans = processes.with_variable("RUN", "of this test")
    assert len(orphans) == 1
    assert orphans[0] not in processes.own()
    monkeypatch.setenv(
        "TORCHELASTIC_RUN_ID", "job-of-this-test"
    )  # of another agent on this computer
    assert {*orphans, psutil.Process()} <= {*processes.own()}
    processes.kill(orphans)
    assert processes.with_variable("RUN", "of this test") == []
    parent.stdout.close()


def test_a_launched_process_owns_its_caller_and_one_of_multiprocessing_those_beside_it(tmp_path):
    pids, failed = launch.call(
        "made.launch_cases:own", log=tmp_path / "log"
    )  # as in JupyterLab and in papermill alone
    assert failed is None
    assert os.getpid() in pids
    code = (
        "import multiprocessing, os, time\nfrom benchbook.machine import processes\n"
        "def tell(queue): queue.put([process.pid for process in processes.own()])\n"
        "context = multiprocessing.get_context('fork')\nqueue = context.Queue()\n"
        "other = context.Process(target=time.sleep, args=(60,))\nother.start()\n"
        "context.Process(target=tell, args=(queue,)).start()\n"
        "assert {os.getpid(), other.pid} <= set(queue.get(timeout=30))\nother.kill()"
    )
    run_python(code)


def test_a_process_that_leaves_has_said_all_and_does_nothing_more():
    code = "import atexit; from benchbook.machine import processes; atexit.register(print, 'late'); print('said')"
    code += "; processes.exit_at_once(); print('after')"
    assert (
        run_python(code, PYTHONUNBUFFERED="") == "said\n"
    )  # where that is set, nothing waits to be written


@pytest.mark.skipif(
    sys.platform != "linux", reason="other systems note the time at which a process began"
)
def test_the_birth_of_a_process_stays_the_same_when_the_clock_is_set(monkeypatch):
    born, boot = processes.birth(psutil.Process()), psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot - 3600)
    assert processes.birth(psutil.Process()) == pytest.approx(born, abs=0.01)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (stopping.Stopped(signal.SIGTERM), 143, "Stopped (SIGTERM). Finished windows are kept"),
        (KeyboardInterrupt(), 130, "Stopped. Finished windows are kept"),
        (ValueError("profile 'x'; allowed: [quick]"), 2, "error: profile 'x'; allowed: [quick]"),
        (
            OSError(28, "No space left on device", "/rows.csv"),
            2,
            "error: /rows.csv: No space left on device",
        ),
        (OSError(13, "Permission denied", "/figures"), 2, "error: /figures: Permission denied"),
        (subprocess.CalledProcessError(1, "a-tool"), 1, "error: Command 'a-tool' returned"),
        (
            ZeroDivisionError("by zero"),
            1,
            "error: ZeroDivisionError: by zero; BENCHBOOK_DEBUG=1 shows where",
        ),
    ],
)
@pytest.mark.parametrize("command", ["study", "report"])
def test_whatever_ends_a_command_is_one_line_of_plain_text_and_a_status(
    monkeypatch, error, status, words, command
):
    monkeypatch.setattr(sys, "argv", ["benchbook", command])
    text, exit_status = describe(error)
    assert exit_status == status
    assert ("; the rows written before are kept" in text) is (
        command == "study" and hasattr(error, "errno")
    )
    assert text.startswith(words if command == "study" else words.partition(" Finished")[0])
    assert "\n" not in text


def test_a_stop_before_the_first_import_has_ended_is_one_line_too():
    process = subprocess.Popen(
        [sys.executable, "-c", "from benchbook.__main__ import main; print(flush=True); main()"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=20)[1]
    assert "Traceback" not in output
    assert process.returncode in (0, 130)  # 0: it had already printed its help
