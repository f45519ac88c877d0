"""Ask each framework for its devices in a short-lived process.

A framework holds the devices that it lists. JAX reserves a TPU for its process, so that a kernel
of the same study would find none; every framework opens a CUDA context and keeps up to 1.4 GB of
host memory. The process that plans a study therefore imports no framework. Each framework has a
separate process: some of their libraries conflict, and a crash affects one framework only.
"""

import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from benchbook.frameworks import devices
from benchbook.frameworks.backend import Refused
from benchbook.frameworks.devices import Device, DeviceUnavailable, FrameworkMissing
from benchbook.machine import identity, launch

TIMEOUT_SECONDS = 300.0  # a first import reads GB from a slow disk


@dataclass(frozen=True)
class Answer:
    """The devices that a framework reports.

    Attributes:
        devices: the first of each kind, the fastest first.
        refused: an accelerator of this computer that the framework cannot be measured on.
        compiles_first: the kinds whose first use compiles for minutes; see `backend.Backend`.
        count: how many of the accelerator there are that the framework can train on together.
        error: why the framework has no devices at all.
    """

    devices: tuple[Device, ...] = ()
    refused: Refused | None = None
    compiles_first: tuple[str, ...] = ()
    count: int = 1
    error: DeviceUnavailable | None = None


ANSWERS: dict[str, Answer] = {}  # by framework; each is asked once


def assume_cpu() -> None:
    """Take the CPU alone as the answer of each installed framework, if this computer shows no
    accelerator: what a plan needs, without seconds of imports."""
    if not identity.present():
        chip = identity.processor()
        for name in devices.installed():
            ANSWERS.setdefault(name, Answer((Device("cpu", chip, name),)))


def ask_together(frameworks: Iterable[str]) -> None:
    """Ask some frameworks side by side, so that their answers are known."""

    def answer(framework: str) -> None:
        ANSWERS[framework] = _ask_elsewhere(framework)

    new = [name for name in frameworks if name not in {*ANSWERS, *sys.modules}]
    # Daemons: a stop of this process does not wait for them, and their children end with it.
    threads = [threading.Thread(target=answer, args=(name,), daemon=True) for name in new]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kinds(framework: str) -> tuple[str, ...]:
    """Return the kinds of device this machine has for one of `devices.FRAMEWORKS`, the fastest
    first.

    Raises:
        FrameworkMissing: the framework cannot be imported; the message lists the installed ones.
        DeviceUnavailable: the framework failed, ended the process that asked it, or did not
        answer in time.
    """
    return tuple(each.kind for each in ask(framework).devices)


def device(kind: str, framework: str) -> Device:
    """Return the device of the requested kind as `devices.pick` does, but leave it free for
    other processes.

    For the CPU no framework is asked: all compute on it.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has.
    """
    if kind == "cpu":
        return Device("cpu", identity.processor(), framework)
    answer = ask(framework)
    kind = devices.choose_kind(kind, kinds(framework), framework, answer.refused)
    [first] = (each for each in answer.devices if each.kind == kind)
    return first


def compiles_first(kind: str, framework: str) -> bool:
    """Return whether a framework's first use of a kind of device compiles for minutes."""
    return kind in ask(framework).compiles_first


def ask(framework: str) -> Answer:
    """Return a framework's devices as another process sees them; for the errors see `kinds`.

    A framework that this process has imported is asked here, because this process may hold its
    device exclusively.
    """
    if framework in sys.modules:
        return _ask_here(framework)
    if framework not in ANSWERS:
        ANSWERS[framework] = _ask_elsewhere(framework)
    if error := ANSWERS[framework].error:
        raise error
    return ANSWERS[framework]


def _ask_elsewhere(framework: str) -> Answer:
    answer, failed = launch.call(
        f"{__name__}:{_ask_here.__name__}", framework, seconds=TIMEOUT_SECONDS
    )
    if failed is None:
        return answer
    if failed.name == FrameworkMissing.__name__:
        return Answer(error=FrameworkMissing(failed.message))
    message = f"{framework} could not be asked for its devices: {failed.message}"
    if failed.is_late:
        message = f"{framework} did not list its devices within {TIMEOUT_SECONDS:g} seconds"
    elif failed.name:
        reason = " ".join(f"{failed.name}: {failed.message}".split())[:300]
        message = f"{framework} cannot open its devices here ({reason})"
    return Answer(error=DeviceUnavailable(message))


def _ask_here(framework: str) -> Answer:
    backend = devices.backend(framework)
    picked = tuple(devices.pick(kind, framework) for kind in backend.kinds())
    slow = tuple(each.kind for each in picked if backend.compiles_first(each))
    count = 1 if picked[0].is_cpu else backend.count(picked[0])
    return Answer(picked, backend.refused(), slow, count)
