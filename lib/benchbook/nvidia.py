"""What NVIDIA's management library (NVML) tells of each GPU; nothing where there is no driver.

Processes of others are counted, never named.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import psutil

# Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
THERMAL_REASONS = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})


def names() -> list[str]:
    """Return the name of every GPU of this computer."""
    with _handles() as (pynvml, handles):
        return [pynvml.nvmlDeviceGetName(handle) for handle in handles]


def gpus() -> list[dict]:
    """Return name, driver, limits and state of every GPU that CUDA_VISIBLE_DEVICES shows; untold is None."""
    with _handles() as (pynvml, handles):
        return [_limits(pynvml, handle) | _state(pynvml, handle) for handle in visible(handles)]


def states() -> list[dict]:
    """Return clocks, temperature, clock reasons and number of others' processes of every visible GPU."""
    with _handles() as (pynvml, handles):
        return [_state(pynvml, handle) for handle in visible(handles)]


def visible(handles: list) -> list:
    """Return the GPUs that CUDA_VISIBLE_DEVICES shows, in its order; all of them if it is not made of numbers."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "all").split(",")
    if not all(word.strip().isdecimal() for word in words):
        return handles
    return [handles[int(word)] for word in words if int(word) < len(handles)]


def reasons(bits: int) -> list[str]:
    """Return the names of the reasons why clocks are below their maximum."""
    return [name for name, bit in REASONS.items() if bits & bit]


def num_others(processes: Iterable[int], own: int) -> int | None:
    """Return how many processes on a GPU are not this one.

    Returns:
        None where none of them exists here: a container hides which of them is this one.
    """
    processes = list(processes)
    if processes and not any(psutil.pid_exists(process) for process in processes):
        return None
    return sum(process != own for process in processes)


@contextmanager
def _handles() -> Iterator[tuple]:
    """Yield the library and a handle of each GPU; an empty list where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield pynvml, []
        return
    try:
        yield pynvml, [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _limits(pynvml, handle) -> dict:
    milliwatts = _ask(pynvml, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return {
        "name": _ask(pynvml, pynvml.nvmlDeviceGetName, handle),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "memory_bytes": getattr(_ask(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
        "power_limit_watts": None if milliwatts is None else milliwatts / 1000,
        "max_sm_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
    }


def _state(pynvml, handle) -> dict:
    bits = _ask(pynvml, pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:  # drivers before 535 know the older name alone
        bits = _ask(pynvml, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    processes = _ask(pynvml, pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return {
        "sm_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "temperature_celsius": _ask(pynvml, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "thermal_slowdown_seconds": _thermal_slowdown_seconds(pynvml, handle),
        "clock_reasons": None if bits is None else reasons(bits),
        "num_other_processes": None if processes is None else num_others((p.pid for p in processes), os.getpid()),
    }


def _thermal_slowdown_seconds(pynvml, handle) -> float | None:
    """Return for how long heat has held this GPU's clocks down since its driver was loaded."""
    found = _ask(pynvml, pynvml.nvmlDeviceGetViolationStatus, handle, pynvml.NVML_PERF_POLICY_THERMAL)
    return None if found is None else found.violationTime / 1e9


def _ask(pynvml, function: Callable, *arguments):
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
