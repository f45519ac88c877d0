"""The first command on a new machine: it lists what is right, wrong and missing, and writes no rows.

Every device of every framework is tried in its own process, `python -m benchbook.commands.doctor torch mps`. It prints
a line of JSON when a check begins and another when the check ends. If the process dies, the last check that began is
reported as the cause.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy

from benchbook.frameworks import devices, operations, survey
from benchbook.frameworks.backend import Refused
from benchbook.frameworks.devices import Device, DeviceUnavailable
from benchbook.judging.parity import TOLERANCES
from benchbook.machine import condition, identity, layout
from benchbook.measuring import calibration, failures, parity, sensors
from benchbook.measuring.window import train_window, window
from benchbook.measuring.writer import Run
from benchbook.rows import packing, records
from benchbook.studies.plan import StudyPlan, plans

MODULE = "benchbook.commands.doctor"  # the module that a process runs
RIGHT, WRONG, MISSING = "right", "wrong", "missing"
PARITY_STEPS = 3
TRANSFER_BYTES = 2**26
# No bus to a device is as fast: PCIe 6.0 with 16 lanes has 121 GB/s, NVLink-C2C 450.
FASTEST_BUS = 1e12  # bytes a second
SENSOR_SECONDS = 2.5  # Apple's counters are updated every 2 s at the latest
LONG_INNER = 32_769
ISSUE = "attach the zip to an issue"
HINT = "check that its driver fits the lock (docs/platforms.md), and check CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        framework, device: where; device is empty for a check of the framework itself.
        check: name of the check.
        state: right, wrong or missing.
        detail: what the check found.
        next_step: what the user can do; empty if the state is right.
    """

    framework: str
    device: str
    check: str
    state: str
    detail: str
    next_step: str = ""


CheckResult = tuple[str, str, str]  # state, detail, next step


def check_waiting(device: Device) -> CheckResult:
    """Check that synchronising waits for the device; otherwise no time is valid."""
    remaining = calibration.check_synchronize(device, work_seconds=0.1)
    return RIGHT, f"{remaining:.1%} of the work was left after waiting", ""


def check_memory(device: Device) -> CheckResult:
    """Check that peak memory is measured."""
    device.backend.reset_peak_memory(device)
    output = operations.copy(device, 2**20)(None)
    device.backend.synchronize(device, output)
    peak, method = devices.peak_memory(device)
    if peak is None:
        return MISSING, "no library reports this device's memory", "nothing to do: its column stays empty"
    return RIGHT, f"{peak / 2**20:,.0f} MiB ({method})", ""


def check_energy(device: Device) -> CheckResult:
    """Read the energy sensor for SENSOR_SECONDS."""
    sensor = sensors.open_sensor(device)
    if sensor is sensors.NO_SENSOR:
        hint = "leave energy empty"
        if device.features.energy_counter == "rapl" and sensors.RAPL.exists():
            hint = "let your user read /sys/class/powercap/intel-rapl/*/energy_uj, or leave energy empty"
        return MISSING, "no counter can be read", hint
    with window(device, sensor) as timed:
        time.sleep(SENSOR_SECONDS)
    if timed.energy.joules is None:
        return MISSING, f"{type(sensor).__name__} did not move in {SENSOR_SECONDS:g} s", f"{ISSUE}: which chip is it?"
    watts = timed.energy.joules / timed.seconds
    return RIGHT, f"{watts:.3g} W at rest ({timed.energy.method}, {timed.energy.boundary})", ""


def check_products(device: Device) -> CheckResult:
    """Multiply stacks of matrices with a long inner dimension, next to memory that holds large numbers.

    With an inner dimension of 32,767 or more, M1 and M2 also add memory behind the operands (before torch 2.14, also
    in products of two matrices).
    """
    neighbours = [device.backend.copy(device, numpy.full(2**18, 1e6, numpy.float32)) for _ in range(16)]
    for neighbour in neighbours:
        neighbour(None)
    del neighbours[::2], neighbour  # so that operands are allocated between the others
    ones = numpy.ones((2, 4, LONG_INNER), numpy.float32)
    product = device.backend.multiplication(device, ones, ones.transpose(0, 2, 1).copy(), "float32")(None)
    values = {device.backend.read(product[i, j, k:]) for i, j, k in numpy.ndindex(2, 4, 4)}
    if values != {float(LONG_INNER)}:
        hint = f"keep a step's tokens below {LONG_INNER - 2:,}, and {ISSUE}"
        return WRONG, f"{LONG_INNER:,} ones add up to {max(values, key=lambda value: abs(value - LONG_INNER)):g}", hint
    return RIGHT, f"products of an inner dimension of {LONG_INNER:,} are right", ""


def check_transfers(device: Device) -> CheckResult:
    """Time copies to the device and back; a rate above that of any bus means that nothing was copied."""
    if device.is_cpu:
        return RIGHT, "a CPU needs none", ""
    rates = {}
    for direction in ("host_to_device", "device_to_host"):
        run = partial(calibration.timed, device, operations.copy(device, TRANSFER_BYTES, direction))
        count = operations.calls_lasting(0.1, lambda number, run=run: run(number).seconds)
        rates[direction] = count * TRANSFER_BYTES / run(count).seconds
    detail = ", ".join(f"{direction.replace('_', ' ')} {rate / 1e9:.3g} GB/s" for direction, rate in rates.items())
    if max(rates.values()) > FASTEST_BUS:
        return WRONG, f"{detail}: faster than any bus", f"{ISSUE}; do not publish this device's transfer ceilings"
    return RIGHT, detail, ""


def check_study(device: Device, plan: type[StudyPlan]) -> CheckResult:
    """Build a study's smallest workload, compare it with float64, repeat a step from the same weights, and evaluate."""
    workload = plan.smallest(device)
    with tempfile.TemporaryDirectory() as folder:
        names = dict.fromkeys(("session", "run_id", "study", "point", "machine"), "doctor")
        scratch = Run(Path(folder), "doctor", names | {"schema_version": records.SCHEMA_VERSION, "source": "measured"})
        verdict = parity.check(workload, scratch, PARITY_STEPS)
    if not verdict.passed:
        return WRONG, f"differs from float64: {verdict.reason}", f"{ISSUE}; do not publish this study's figures"
    fresh, batch = workload.snapshot(), next(iter(workload.batches(0)))
    losses = []
    for _ in range(2):
        losses.append(train_window(workload, sensors.NO_SENSOR, [batch])["loss"])
        workload.restore(fresh)
    evaluation = workload.evaluate()
    loss = None if evaluation.loss is None else float(evaluation.loss)
    if not all(math.isfinite(value) for value in (*losses, 0.0 if loss is None else loss)):
        return WRONG, f"training losses {losses}, evaluation loss {loss}", f"{ISSUE}: a loss is not finite"
    if abs(losses[1] - losses[0]) > TOLERANCES["fp32"].loss * abs(losses[0]):
        return WRONG, f"the same step has losses {losses}", f"{ISSUE}: restoring weights changes the result"
    return RIGHT, f"one step and evaluation; {verdict.reason}", ""


def run_check(check: Callable[[], CheckResult]) -> CheckResult:
    """Return the result of a check; an exception is a result, too."""
    try:
        return check()
    except calibration.NotSynchronized as error:
        return WRONG, str(error), f"times of this device are invalid: publish none, and {ISSUE}"
    except Exception as error:
        return WRONG, failures.anonymous(f"{type(error).__name__}: {error}")[:500], ISSUE


def checks(device: Device) -> dict[str, Callable[[], CheckResult]]:
    """Return the checks of a device by name: of the device itself, then of every study in its framework."""
    own = (check_waiting, check_memory, check_energy, check_transfers, check_products)
    tried = {check.__name__.removeprefix("check_"): partial(check, device) for check in own}
    for name, plan in plans().items():
        if device.framework in plan.FRAMEWORKS:
            tried[name] = partial(check_study, device, plan)
    return tried


def examine(limit_seconds: float, device: str = "all") -> Iterator[Finding]:
    """Try every device of every framework, and yield the finding of each check when it ends.

    Args:
        limit_seconds: checks still running or waiting are then reported as missing.
        device: one kind, or all.
    """
    deadline = time.monotonic() + limit_seconds
    for framework in devices.FRAMEWORKS:
        if framework not in devices.installed():
            hint = "nothing to do, unless you want it: another environment may have it"
            yield Finding(framework, "", "installed", MISSING, "not in this environment", hint)
            continue
        try:
            kinds = survey.kinds(framework)
        except (DeviceUnavailable, RuntimeError) as error:
            hint = f"set up again (make clean, make study); {ISSUE}"
            yield Finding(framework, "", "installed", WRONG, failures.anonymous(str(error)), hint)
            continue
        yield _accelerator(framework, kinds, survey.ask(framework).refused)
        for kind in kinds if device == "all" else {device} & set(kinds):
            yield from try_device(framework, kind, deadline)


def _accelerator(framework: str, kinds: tuple[str, ...], refused: Refused | None) -> Finding:
    """Report the framework's accelerator; if it has none, the machine or the driver may be the reason."""
    if kinds != ("cpu",):
        return Finding(framework, kinds[0], "accelerator", RIGHT, f"{framework} sees {kinds[0]}")
    if refused:
        return Finding(framework, refused.kind, "accelerator", MISSING, failures.anonymous(refused.reason), HINT)
    present = [name for name in identity.identify().accelerators if not name.startswith("TPU")]  # JAX reports a TPU
    if present:
        detail = f"this machine has {', '.join(present)}; {framework} does not see it"
        return Finding(framework, "", "accelerator", MISSING, detail, HINT)
    return Finding(framework, "", "accelerator", RIGHT, "this machine has none")


def try_device(framework: str, kind: str, deadline: float) -> Iterator[Finding]:
    """Try one device in its own process and yield the findings; if the process dies, the last is of the current check.

    Args:
        framework, kind: the device.
        deadline: on the monotonic clock; the process is then killed.
    """
    command = [sys.executable, "-m", MODULE, framework, kind]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    begun, late = "start", threading.Event()
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as process,
    ):
        limit = threading.Timer(max(0.0, deadline - time.monotonic()), lambda: (late.set(), process.kill()))
        limit.daemon = True  # a caller may stop the iteration
        limit.start()
        for line in process.stdout:
            if not line.startswith("{"):
                continue  # printed by a library
            content = json.loads(line)
            begun = content.get("begun", "")
            if not begun:
                yield Finding(**content)
        process.wait()
        limit.cancel()
        errors.seek(0)
        last = failures.anonymous((errors.readlines() or [""])[-1].strip())[:300]
    if late.is_set():
        hint = "run `benchbook doctor` again, with nothing else running"
        yield Finding(framework, kind, begun or "the rest", MISSING, "the time limit was reached", hint)
    elif process.returncode:
        ended = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        yield Finding(framework, kind, begun or "end", WRONG, f"the process ended with {ended}: {last}", ISSUE)


def write(findings: list[Finding], path: Path | None = None) -> Path:
    """Write the findings, the machine, its condition and its packages as a zip for an issue, with nothing private.

    Raises:
        packing.PackError: a text contains this computer's home or project folder.
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


def main() -> None:
    """Run all checks on the device that the command line names, and print each finding."""
    framework, kind = sys.argv[1:]
    device = devices.pick(kind, framework)
    for name, check in checks(device).items():
        print(json.dumps({"begun": name}), flush=True)
        print(json.dumps(asdict(Finding(framework, kind, name, *run_check(check)))), flush=True)


if __name__ == "__main__":
    main()
