"""What holds for all tests: those that run side by side compute on one core each, and the
longest begin first."""

import functools
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from benchbook.__main__ import main
from benchbook.frameworks import devices
from benchbook.loop import stretch
from benchbook.machine import context, stopping
from benchbook.measuring import protocol, sensors, trials
from benchbook.measuring.window import window
from made.fakes import Clock, run
from made.processes import FRAMEWORK

context.change(
    strict=True
)  # a fault of the library fails a test, and leaves out no file or machine
os.environ["BENCHBOOK_PATIENCE"] = "0"  # tests run side by side: a study would wait for the others
# Tests start hundreds of processes, each of which would compile the library again where this is
# set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if "PYTEST_XDIST_WORKER" in os.environ:
    # Before torch is imported: the threads of several workers would wait for each other.
    os.environ["OMP_NUM_THREADS"] = "1"
# What stays together in one process, the longest first; a file that is not here follows in the
# order of names.
LONGEST = """
test_smoke.py tensorflow test_measurement.py test_session.py test_cases.py test_hostile_inputs.py test_golden.py
test_browser.py test_studies.py jax test_execute.py test_aggregation.py test_closing.py test_simclr_epochs_workload.py
test_launch.py test_tuned.py test_notebooks.py test_devices.py
"""


def pytest_configure(config):
    # Tests bring their own rows: the checkout's outputs/ may hold anyone's measurements.
    os.environ["BENCHBOOK_OUTPUTS"] = temporary_folder(config, "benchbook-outputs-")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        # Tests build the same network several times, in several processes: JAX compiles it once.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = temporary_folder(config, "benchbook-jax-")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def temporary_folder(config: pytest.Config, prefix: str) -> str:
    """Make a folder that is removed when pytest ends."""
    folder = tempfile.mkdtemp(prefix=prefix)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST.split())}
    items.sort(key=lambda item: places.get(group_of(item.nodeid), len(places)))


def group_of(nodeid: str) -> str:
    """Return with which tests a test shares its process: with those of another framework, or of
    its file."""
    file, _, name = nodeid.partition("::")
    parameters = name.partition("[")[2].rstrip("]").split("-")
    others = [word for word in parameters if word in devices.FRAMEWORKS and word != FRAMEWORK]
    return others[0] if others and "frameworks" in Path(file).parts else Path(file).name


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """Hand whole groups to the processes, in their order here."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.fixture(autouse=True)
def _own_context():
    """Let a test change its context, and restore it."""
    with context.changed(**vars(context.current())):
        yield


@pytest.fixture
def record(tmp_path):
    """Return a run whose rows go to this test's folder."""
    return run(tmp_path)


@pytest.fixture
def own_random_state():
    """Seed torch for a test, and leave its random state as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture
def no_sensor(monkeypatch):
    """Let no device have a sensor of energy: idle watts would take seconds to read."""
    monkeypatch.setattr(sensors, "open_sensor", lambda device: sensors.NO_SENSOR)


@pytest.fixture
def clock(monkeypatch, no_sensor):
    """Return the clock of every window, which moves only when told; nothing sleeps."""
    fake = Clock()
    for module in (protocol, sensors, trials):
        monkeypatch.setattr(module, "time", fake)
    for module in (protocol, stretch):
        monkeypatch.setattr(module, "window", functools.partial(window, clock=fake))
    return fake


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """Let this test's rows, figures and report go to its own folder; return that folder."""
    monkeypatch.setenv("BENCHBOOK_OUTPUTS", str(tmp_path))
    return tmp_path


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line as it starts, on a wide terminal: words to its exit status and all
    that it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def typed(*words, answer: str = "") -> tuple[int, str]:
        monkeypatch.setattr(stopping, "stop_on_signals", lambda: None)
        monkeypatch.setattr(sys, "argv", ["benchbook", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
        return status, "".join(capsys.readouterr())

    return typed
