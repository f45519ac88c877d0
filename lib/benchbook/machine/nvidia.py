"""State of each NVIDIA GPU, from NVIDIA's management library (NVML); empty if there is no driver.

Processes of others are counted, never named.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from benchbook.machine import processes

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
SM_CLOCK, MEMORY_CLOCK, GPU_SENSOR, THERMAL_POLICY = 1, 2, 0, 1  # as nvml.h numbers them
# Asks one of NVML's functions, named without `nvml`, and what it takes; None is what a GPU withholds.
Ask = Callable[..., Any]
UNNAMED = "NVIDIA GPU"  # whose name NVML withholds


def names() -> list[str]:
    """Return the name of every GPU of this computer."""
    return [name for name, _ in kinds()]


def kinds() -> list[tuple[str, int | None]]:
    """Return name and bytes of memory of every GPU of this computer, shown or not."""
    with _opened() as (ask, handles, _):
        memories = [ask("DeviceGetMemoryInfo", handle) for handle in handles]
        names = (ask("DeviceGetName", handle) or UNNAMED for handle in handles)
        return [(name, getattr(memory, "total", None)) for name, memory in zip(names, memories, strict=True)]


def gpus() -> list[dict]:
    """Return name, driver, limits and state of every GPU that CUDA_VISIBLE_DEVICES shows; None is what it withholds."""
    with _opened() as (ask, handles, places):
        return [_limits(ask, handles[place]) | _state(ask, handles[place]) for place in places]


def states() -> list[dict]:
    """Return clocks, temperature, clock reasons and number of others' processes of every visible GPU."""
    with _opened() as (ask, handles, places):
        return [_state(ask, handles[place]) for place in places]


def numbers(name: str, index: int, count: int) -> list[int]:
    """Return the numbers, among the visible GPUs, of those that CUDA counts from an index on.

    CUDA counts the fastest first and NVML by slot, so that two kinds of GPU are told apart by their names.

    Args:
        name: of the first that CUDA counts.
        index, count: which of them.
    """
    with _opened() as (ask, handles, places):
        shown = [ask("DeviceGetName", handles[place]) for place in places]
    if len(set(shown)) > 1 and name not in shown:
        return []  # none of them is known to be meant
    return sorted(range(len(shown)), key=lambda number: shown[number] != name)[index : index + count]


def is_divided(index: int) -> bool:
    """Return whether a visible GPU is divided into instances (MIG), so that its counters are of all of them.

    Args:
        index: among the visible GPUs; see `numbers`.
    """
    with _opened() as (ask, handles, places):
        mode = ask("DeviceGetMigMode", handles[places[index]]) if index < len(places) else None
        return mode is not None and bool(mode[0])  # at present; the next one is what it changes to


def power_reader(index: int) -> Callable[[], float] | None:
    """Return a function that reads the watts of a visible GPU without an energy counter, such as those before Volta.

    Args:
        index: among the visible GPUs; see `numbers`.

    Returns:
        None where there is a counter, or no power either.
    """
    with _opened() as (ask, handles, places):
        if index >= len(places):
            return None
        handle = handles[places[index]]
        if ask("DeviceGetTotalEnergyConsumption", handle) is not None or ask("DeviceGetPowerUsage", handle) is None:
            return None
        import pynvml

        pynvml.nvmlInit()  # once more, so that the handle stays valid until this process ends
    return lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000


@contextmanager
def numbered() -> Iterator[None]:
    """Let CUDA_VISIBLE_DEVICES hold numbers inside a `with` block, for what cannot read the names of GPUs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    with _opened() as (_, _, places):
        pass
    if given is None or not places:
        yield
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(place) for place in places)
    try:
        yield
    finally:
        os.environ["CUDA_VISIBLE_DEVICES"] = given


def visible(given: str | None, uuids: list[str]) -> list[int]:
    """Return the places of the GPUs that CUDA shows, in its order.

    A word is a number, the beginning of a GPU's name, or the name of an instance (MIG) with its GPU's in it. As CUDA
    does, the list ends before the first word that names nothing: empty and -1 show none.

    Args:
        given: CUDA_VISIBLE_DEVICES; None shows all.
        uuids: the names of all GPUs, such as GPU-5f12b4c0-..., in NVML's order.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    """
    if given is None:
        return list(range(len(uuids)))
    places = []
    for word in (part.strip() for part in given.split(",")):
        name = word.removeprefix("MIG-").partition("/")[0]  # MIG-GPU-<GPU's name>/<instance>/<instance>
        matching = [place for place, uuid in enumerate(uuids) if name.startswith("GPU-") and uuid.startswith(name)]
        if word.isdecimal():
            matching = [int(word)] if int(word) < len(uuids) else []
        if len(matching) != 1:
            break
        places += matching
    return places


def _visible(ask: Ask, handles: list) -> list[int]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    places = visible(given, [ask("DeviceGetUUID", handle) or "" for handle in handles])
    if places or not (given or "").startswith("MIG-"):
        return places
    words = {word.strip() for word in given.split(",")}  # newer names of instances do not hold their GPU's
    for place, handle in enumerate(handles):
        numbers = range(ask("DeviceGetMaxMigDeviceCount", handle) or 0)
        instances = (ask("DeviceGetMigDeviceHandleByIndex", handle, number) for number in numbers)
        if any(instance is not None and ask("DeviceGetUUID", instance) in words for instance in instances):
            places.append(place)
    return places


def num_others(running: Iterable[int], own: Iterable[int]) -> int | None:
    """Return how many processes on a GPU are not of this run, whose ranks are processes of their own.

    Returns:
        None where none of them exists here: a container hides which of them is this one.
    """
    running = set(running)
    if running and not any(psutil.pid_exists(process) for process in running):
        return None
    return len(running - set(own))


@contextmanager
def _opened() -> Iterator[tuple[Ask, list, list[int]]]:
    """Yield a function that calls NVML, each GPU's handle, and the places of those that CUDA shows."""
    try:
        import pynvml
    except ImportError:  # an environment that reads rows and measures nothing
        yield None, [], []
        return

    def ask(function: str, *arguments):
        try:
            return getattr(pynvml, f"nvml{function}")(*arguments)
        except pynvml.NVMLError:
            return None

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield ask, [], []
        return
    try:
        handles = [ask("DeviceGetHandleByIndex", index) for index in range(ask("DeviceGetCount") or 0)]
        handles = [handle for handle in handles if handle is not None]  # not those of others, nor a lost one
        yield ask, handles, _visible(ask, handles)
    finally:
        pynvml.nvmlShutdown()


def _limits(ask: Ask, handle) -> dict:
    milliwatts = ask("DeviceGetEnforcedPowerLimit", handle)
    return {
        "name": ask("DeviceGetName", handle),
        "driver": ask("SystemGetDriverVersion"),
        "memory_bytes": getattr(ask("DeviceGetMemoryInfo", handle), "total", None),
        "power_limit_watts": None if milliwatts is None else milliwatts / 1000,
        "max_sm_clock_mhz": ask("DeviceGetMaxClockInfo", handle, SM_CLOCK),
    }


def _state(ask: Ask, handle) -> dict:
    bits = ask("DeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # drivers before 535 know the older name alone
        bits = ask("DeviceGetCurrentClocksThrottleReasons", handle)
    running = ask("DeviceGetComputeRunningProcesses", handle)
    own = [process.pid for process in processes.family(processes.root())]
    slowed = ask("DeviceGetViolationStatus", handle, THERMAL_POLICY)
    return {
        "sm_clock_mhz": ask("DeviceGetClockInfo", handle, SM_CLOCK),
        "memory_clock_mhz": ask("DeviceGetClockInfo", handle, MEMORY_CLOCK),
        "temperature_celsius": ask("DeviceGetTemperature", handle, GPU_SENSOR),
        "thermal_slowdown_seconds": None if slowed is None else slowed.violationTime / 1e9,  # since the driver's start
        "clock_reasons": None if bits is None else [name for name, bit in REASONS.items() if bits & bit],
        "num_other_processes": None if running is None else num_others((process.pid for process in running), own),
    }
