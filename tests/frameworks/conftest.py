"""Tests of several frameworks, each once for every installed framework.

Keras computes with one framework in a process. So the tests of a framework that is not this
process's own run together in a second pytest, which the first of them starts; each is then
reported here under its own name.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchbook.frameworks import devices
from benchbook.frameworks.keras.runtime import import_keras
from benchbook.machine.libraries import FRAMEWORKS
from made.processes import FRAMEWORK, NO_PLUGINS, environment_of_tests
from made.small import PLANS

FOLDER = Path(__file__).parent
REPORTS = "BENCHBOOK_TEST_REPORTS"  # the file that a second pytest writes its reports to
PASSED_ON = pytest.StashKey[dict]()
devices.split_cpu(FRAMEWORK, 2)  # before a test asks for the framework's first device


def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("frameworks")
    slow = marker.kwargs.get("slow", ())  # frameworks, or pairs with a study, with slow tests
    names = [name for name in marker.args if name in devices.installed()]
    absent = pytest.mark.skip(
        reason=f"needs one of: {', '.join(marker.args)}; installed: none of them"
    )
    if "study" not in metafunc.fixturenames:
        given = [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]
        metafunc.parametrize(
            "framework", given or [pytest.param(None, marks=absent)], scope="session"
        )
        return
    studies = marker.kwargs.get("studies", PLANS)
    pairs = [
        (name, study) for study in studies for name in names if name in PLANS[study].FRAMEWORKS
    ]
    marks = [[pytest.mark.slow] * bool({pair, pair[0]} & {*slow}) for pair in pairs]
    given = [pytest.param(*pair, marks=each) for pair, each in zip(pairs, marks, strict=True)]
    metafunc.parametrize(
        ("framework", "study"), given or [pytest.param(None, None, marks=absent)], scope="session"
    )


def pytest_configure(config):
    config.stash[PASSED_ON] = {}
    if REPORTS in os.environ:
        config.pluginmanager.register(Reporter(config, Path(os.environ[REPORTS])))


class Reporter:
    """Write each report as a line of JSON, for the pytest that started this one."""

    def __init__(self, config, path):
        self.config, self.path = config, path

    def pytest_runtest_logreport(self, report):
        content = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        with self.path.open("a") as file:
            file.write(json.dumps(content) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    framework = framework_of(item)
    if framework in (None, FRAMEWORK):
        return None
    passed_on = item.config.stash[PASSED_ON]
    if framework not in passed_on:
        together = [other for other in item.session.items if framework_of(other) == framework]
        passed_on[framework] = run_apart(framework, together)
    reports = passed_on[framework][item.nodeid]
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for content in reports:
        if isinstance(content["longrepr"], list):  # of a skipped test; JSON has no tuples
            content["longrepr"] = tuple(content["longrepr"])
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=content)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def framework_of(item) -> str | None:
    """Return the framework of a test of this folder; None for other tests, and if no framework
    is installed."""
    return item.callspec.params["framework"] if FOLDER in item.path.parents else None


def run_apart(framework: str, items: list) -> dict[str, list[dict]]:
    """Run tests in another process; return the reports of each: a failure if the process ended
    before it."""
    with tempfile.TemporaryDirectory() as folder:
        path, own = Path(folder) / "reports", [item.nodeid for item in items]
        environment = environment_of_tests() | NO_PLUGINS
        environment |= {"BENCHBOOK_TEST_FRAMEWORK": framework, REPORTS: str(path)}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *own]
        ended = subprocess.run(
            command,
            env=environment,
            cwd=items[0].config.rootpath,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        reports = {name: [] for name in own}
        for line in path.read_text().splitlines() if path.exists() else ():
            content = json.loads(line)
            reports[content["nodeid"]].append(content)
    output = ended.stdout.decode(errors="replace")[-4000:]
    for item in items:
        if "teardown" not in [content["when"] for content in reports[item.nodeid]]:
            failed = pytest.TestReport(item.nodeid, item.location, {}, "failed", output, "call")
            content = item.config.hook.pytest_report_to_serializable(
                config=item.config, report=failed
            )
            reports[item.nodeid] = [content]
    return reports


@pytest.fixture(autouse=True)
def _without_a_sensor(no_sensor):
    pass


@pytest.fixture(autouse=True, scope="session")
def _keras_of_the_framework(framework):
    """Import Keras with this framework, before any test does."""
    if FRAMEWORKS[framework].library == "keras":
        import_keras(framework)
