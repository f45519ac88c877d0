"""State of each NVIDIA GPU, from NVIDIA's management library (NVML); empty without a driver.

GPUs have two numberings: `index` counts all that this process may open, in NVML's order; `number` the visible ones.
Other processes are counted, never named.
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
SM_CLOCK, MEMORY_CLOCK, GPU_SENSOR, THERMAL_POLICY = 1, 2, 0, 1  # values of nvml.h
# Calls a function of NVML by its name without `nvml`, with its arguments; returns None where NVML reports an error.
Ask = Callable[..., Any]
UNNAMED = "NVIDIA GPU"  # the name of a GPU whose own name NVML does not report


def kinds() -> list[tuple[str, int | None]]:
    """Return name and bytes of memory of every GPU of this computer, visible or not."""
    with _opened() as (ask, handles, _):
        memories = [ask("DeviceGetMemoryInfo", handle) for handle in handles]
        names = (ask("DeviceGetName", handle) or UNNAMED for handle in handles)
        return [(name, getattr(memory, "total", None)) for name, memory in zip(names, memories, strict=True)]


def gpus() -> list[dict]:
    """Return name, driver, limits and state of every visible GPU; unknown values are None."""
    with _opened() as (ask, handles, indices):
        return [_limits(ask, handles[index]) | _state(ask, handles[index]) for index in indices]


def states() -> list[dict]:
    """Return clocks, temperature, clock reasons and number of other processes of every visible GPU."""
    with _opened() as (ask, handles, indices):
        return [_state(ask, handles[index]) for index in indices]


def numbers_from_cuda(name: str, first: int, count: int) -> list[int]:
    """Return the numbers of visible GPUs by CUDA's numbering; empty if CUDA's first GPU cannot be identified.

    CUDA counts the fastest GPU first and NVML counts by slot; among several kinds, the name identifies the first.

    Args:
        name: of CUDA's first GPU.
        first, count: the range in CUDA's numbering.
    """
    with _opened() as (ask, handles, indices):
        names = [ask("DeviceGetName", handles[index]) for index in indices]
    if len(set(names)) > 1 and name not in names:
        return []
    return sorted(range(len(names)), key=lambda number: names[number] != name)[first : first + count]


def counts_energy(number: int) -> bool:
    """Return whether a visible GPU has an energy counter, of this process's work alone.

    GPUs before Volta have none, some virtual ones may not be read, and that of a GPU divided into instances (MIG)
    covers several users.
    """
    with _opened() as (ask, handles, indices):
        handle = handles[indices[number]]
        mode = ask("DeviceGetMigMode", handle)  # the present mode and the pending one; None: it cannot be divided
        return not (mode and mode[0]) and ask("DeviceGetTotalEnergyConsumption", handle) is not None


@contextmanager
def visible_by_index() -> Iterator[None]:
    """Replace UUIDs in CUDA_VISIBLE_DEVICES by indices in a `with` block, for code that cannot read UUIDs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    with _opened() as (_, _, indices):
        pass
    if given is None or not indices:
        yield
        return
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, indices))
    try:
        yield
    finally:
        os.environ["CUDA_VISIBLE_DEVICES"] = given


def visible(given: str | None, uuids: list[str]) -> list[int]:
    """Return the indices of the visible GPUs, in CUDA's order.

    An entry is an index, the beginning of a GPU's UUID, or an instance (MIG) with its GPU's UUID in its name. As in
    CUDA, the list ends before the first entry that matches no GPU, or several: an empty text and -1 show none.

    Args:
        given: CUDA_VISIBLE_DEVICES; None shows all.
        uuids: of all GPUs, such as GPU-5f12b4c0-..., in NVML's order.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    """
    if given is None:
        return list(range(len(uuids)))
    indices = []
    for entry in (part.strip() for part in given.split(",")):
        start = entry.removeprefix("MIG-").partition("/")[0]  # MIG-GPU-<UUID>/<instance>/<instance>
        matching = [index for index, uuid in enumerate(uuids) if start.startswith("GPU-") and uuid.startswith(start)]
        if entry.isdecimal():
            matching = [int(entry)] if int(entry) < len(uuids) else []
        if len(matching) != 1:
            break
        indices += matching
    return indices


def _visible(ask: Ask, handles: list) -> list[int]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    indices = visible(given, [ask("DeviceGetUUID", handle) or "" for handle in handles])
    if indices or not (given or "").startswith("MIG-"):
        return indices
    entries = {entry.strip() for entry in given.split(",")}  # newer names of instances do not contain the GPU's UUID
    for index, handle in enumerate(handles):
        slots = range(ask("DeviceGetMaxMigDeviceCount", handle) or 0)
        instances = (ask("DeviceGetMigDeviceHandleByIndex", handle, slot) for slot in slots)
        if any(instance is not None and ask("DeviceGetUUID", instance) in entries for instance in instances):
            indices.append(index)
    return indices


def num_others(running: Iterable[int], own: Iterable[int]) -> int | None:
    """Return the number of processes on a GPU that do not belong to this run.

    Args:
        running: the ids of all processes on the GPU.
        own: the ids of this run's processes, its ranks among them.

    Returns:
        None if none of the ids exists here: NVML reports ids from outside the container.
    """
    running = set(running)
    if running and not any(psutil.pid_exists(process) for process in running):
        return None
    return len(running - set(own))


@contextmanager
def _opened() -> Iterator[tuple[Ask, list, list[int]]]:
    """Yield a function that calls NVML, each GPU's handle, and the indices of the visible GPUs."""
    try:
        import pynvml
    except ImportError:  # in an environment that only reads rows
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
        handles = [handle for handle in handles if handle is not None]  # without lost GPUs and GPUs of others
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
    if bits is None:  # drivers before 535 have only the older function
        bits = ask("DeviceGetCurrentClocksThrottleReasons", handle)
    running = ask("DeviceGetComputeRunningProcesses", handle)
    own = [process.pid for process in processes.tree(processes.root())]
    slowed = ask("DeviceGetViolationStatus", handle, THERMAL_POLICY)
    return {
        "sm_clock_mhz": ask("DeviceGetClockInfo", handle, SM_CLOCK),
        "memory_clock_mhz": ask("DeviceGetClockInfo", handle, MEMORY_CLOCK),
        "temperature_celsius": ask("DeviceGetTemperature", handle, GPU_SENSOR),
        "thermal_slowdown_seconds": None if slowed is None else slowed.violationTime / 1e9,  # since the driver started
        "clock_reasons": None if bits is None else [name for name, bit in REASONS.items() if bits & bit],
        "num_other_processes": None if running is None else num_others((process.pid for process in running), own),
    }
