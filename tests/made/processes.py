"""What tests run in a process of its own: commands of this project, and tests of another
framework."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchbook.frameworks import devices

# The framework that tests of several compute with in this process; those of the others run in one
# of their own.
FRAMEWORK = os.environ.get("BENCHBOOK_TEST_FRAMEWORK") or devices.installed()[0]
NO_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"
}  # of a second pytest: importing hypothesis takes seconds
# XLA compiles tests' networks in half the time if it may compile them badly.
COMPILE_BADLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def needs(framework: str) -> pytest.MarkDecorator:
    """Return a mark that skips where a framework is not installed, and does not import it to
    see."""
    return pytest.mark.skipif(
        framework not in devices.installed(), reason=f"{framework} is not installed"
    )


def study(outputs: Path, *options: str, **settings: str) -> subprocess.Popen:
    """Start a study as `make study` does, with no data set on the machine."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchbook", "study", *options],
        env=environment_of_tests()
        | {"BENCHBOOK_OUTPUTS": str(outputs), "PYTHONUNBUFFERED": "1"}
        | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(what: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Wait until something holds, which a process of these tests may have to bring about."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        if what():
            return
        time.sleep(0.1)
    if process:
        process.kill()
    raise AssertionError(f"it did not happen in time: {process and process.communicate()[0]}")


def run_python(program: str, **environment: str) -> str:
    """Run a program in a Python of its own, with warnings as errors; it must print nothing to
    stderr."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL")
    }
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=kept | environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def run_cases(file: str, framework: str, *options: str) -> str:
    """Run a file of tests in a process of its own, with options of pytest; return what pytest
    printed."""
    path = str(Path(__file__).parents[1] / file)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", path, *options]
    environment = environment_of_tests() | {"BENCHBOOK_TEST_FRAMEWORK": framework} | NO_PLUGINS
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_cells(outputs: Path, *words: str) -> None:
    """Run cells.py, which says what the words are, with a session's name; its rows go to a
    folder."""
    command = [sys.executable, str(Path(__file__).with_name("cells.py")), *words]
    environment = environment_of_tests() | {"BENCHBOOK_OUTPUTS": str(outputs)}
    ended = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert ended.returncode == 0, ended.stdout[-6000:]


def environment_of_tests() -> dict[str, str]:
    """Return the environment of such a process: Keras takes the framework it is asked for, XLA
    hurries."""
    kept = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    return kept | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {COMPILE_BADLY}".strip()}


def ended_after(count: int, call: Callable[[], object]) -> int:
    """Call a function in a process that is killed when it has opened, made, moved or removed so
    many files; return how the process ended."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left, status = itertools.count(count, -1), 1
    sys.addaudithook(
        lambda event, _: event[:3] in ("ope", "os.") and next(left) == 0 and os._exit(9)
    )
    try:
        call()
        status = 0
    finally:
        os._exit(status)
