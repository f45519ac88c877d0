"""The first thing to run on a machine that nobody has tried: what is right, wrong and missing, with no rows.

Every device of every framework is tried in a process of its own, which may die: an abort is an answer as well.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchbook.commands.doctor.checks import ISSUE, MISSING, RIGHT, WRONG, Finding
from benchbook.frameworks import devices, survey
from benchbook.frameworks.devices import DeviceUnavailable, Refused
from benchbook.machine import condition, identity, layout
from benchbook.measuring import runs
from benchbook.rows import packing

HINT = "look whether its driver fits the lock (docs/platforms.md), and at CUDA_VISIBLE_DEVICES"
CHECKS = "benchbook.commands.doctor.checks"  # the module that a process runs

__all__ = ["MISSING", "RIGHT", "WRONG", "Finding", "examine", "write"]


def examine(limit_seconds: float, device: str = "all") -> Iterator[Finding]:
    """Try every device of every framework, and yield what each check says as it ends.

    Args:
        limit_seconds: no check goes on after this; those that were left out are missing.
        device: one kind, or all.

    Raises:
        ValueError: an unknown kind of device.
    """
    if device not in ("all", *devices.KINDS):
        raise ValueError(f"device {device!r}; allowed: all, {', '.join(devices.KINDS)}")
    deadline = time.monotonic() + limit_seconds
    for framework in devices.FRAMEWORKS:
        if framework not in devices.installed():
            yield Finding(framework, "", "installed", MISSING, "not in this environment", "nothing, or another lock")
            continue
        try:
            kinds = survey.kinds(framework)
        except (DeviceUnavailable, RuntimeError) as error:
            hint = f"set up again (make clean, make study); {ISSUE}"
            yield Finding(framework, "", "installed", WRONG, runs.anonymous(str(error)), hint)
            continue
        yield _accelerator(framework, kinds, survey.ask(framework).refused)
        for kind in kinds if device == "all" else {device} & set(kinds):
            yield from try_device(framework, kind, deadline)


def _accelerator(framework: str, kinds: tuple[str, ...], refused: Refused | None) -> Finding:
    """Say which accelerator a framework has; that it has none may be what is wrong with a machine."""
    if kinds != ("cpu",):
        return Finding(framework, kinds[0], "accelerator", RIGHT, f"{framework} sees {kinds[0]}")
    if refused:
        return Finding(framework, refused.kind, "accelerator", MISSING, runs.anonymous(refused.reason), HINT)
    there = identity.identify().accelerators
    if there:
        seen = f"{', '.join(there)} is here, {framework} sees none"
        return Finding(framework, "", "accelerator", MISSING, seen, HINT)
    return Finding(framework, "", "accelerator", RIGHT, "none here, and none seen")


def try_device(framework: str, kind: str, deadline: float, module: str = CHECKS) -> Iterator[Finding]:
    """Try one device in a process of its own, and yield what it says; where it dies, which check it was in.

    Args:
        framework, kind: which device.
        deadline: on the monotonic clock; then the process is ended.
        module: what to run.
    """
    command = [sys.executable, "-m", module, framework, kind]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    printed, errors = queue.Queue(), []
    readers = [
        threading.Thread(target=lambda: [printed.put(line) for line in process.stdout] + [printed.put(None)]),
        threading.Thread(target=lambda: errors.extend(process.stderr)),
    ]
    for reader in readers:
        reader.start()
    begun, late = "start", False
    while (line := _next(printed, deadline)) is not None:
        if not line.startswith("{"):
            continue  # a library's own words
        said = json.loads(line)
        if "begun" in said:
            begun = said["begun"]
        else:
            begun = ""
            yield Finding(**said)
    if process.poll() is None and time.monotonic() >= deadline:
        late = True
        process.kill()
    process.wait()
    for reader in readers:
        reader.join()
    process.stdout.close()
    process.stderr.close()
    if late:
        hint = "run `benchbook doctor` again, with nothing else running"
        yield Finding(framework, kind, begun or "the rest", MISSING, "the time was up", hint)
    elif process.returncode:
        ended = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        last = runs.anonymous((errors or [""])[-1].strip())[:300]
        yield Finding(framework, kind, begun or "end", WRONG, f"the process ended with {ended}: {last}", ISSUE)


def _next(printed: queue.Queue, deadline: float) -> str | None:
    """Return the next line, or None where the process has ended or the time is up."""
    try:
        return printed.get(timeout=max(0.0, deadline - time.monotonic()))
    except queue.Empty:
        return None


def write(findings: list[Finding], path: Path | None = None) -> Path:
    """Write the findings, the machine, its condition and its packages as a zip for an issue; nothing private is in it.

    Raises:
        packing.PackError: something names this computer's home or project folder.
    """
    contents = {
        "findings.json": [asdict(finding) for finding in findings],
        "machine.json": identity.as_dictionary(identity.identify()) | {"commit": identity.commit()},
        "condition.json": condition.read(),
        "environment.json": identity.environment(),
    }
    path = path or layout.outputs() / "doctor.zip"
    packing.write_zip(path, {name: json.dumps(value, indent=2).encode() for name, value in contents.items()})
    return path
