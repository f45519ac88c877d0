"""State of each NVIDIA GPU, from NVIDIA's management library (NVML); empty without a driver.

GPUs have two numberings: `index` is NVML's; `number` counts the visible ones that this process
may open. Other processes are counted, never named.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psutil

from benchbook.machine import processes, temporary

# Names of the bits, from the lowest. Source:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
_REASONS = """gpu_idle applications_clocks_setting sw_power_cap hw_slowdown sync_boost
    sw_thermal_slowdown hw_thermal_slowdown hw_power_brake_slowdown display_clock_setting"""
REASONS = _REASONS.split()
THERMAL_REASONS = frozenset(
    {"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
)
SM_CLOCK, MEMORY_CLOCK, GPU_SENSOR, THERMAL_POLICY = 1, 2, 0, 1  # values of nvml.h
# Calls a function of NVML by its name without `nvml`, with its arguments; returns None where NVML
# reports an error.
Ask = Callable[..., Any]
# Of each process that used the GPU's cores since a moment; the error NOT_FOUND: none did.
SAMPLES, SAMPLE_SECONDS = "DeviceGetProcessUtilization", 5.0
UNNAMED = "NVIDIA GPU"  # the name of a GPU whose own name NVML does not report


def kinds() -> list[tuple[str, int | None]]:
    """Return name and bytes of memory of every GPU of this computer, visible or not."""
    ask, handles = _opened()
    return [
        (
            ask("DeviceGetName", handle) or UNNAMED,
            getattr(ask("DeviceGetMemoryInfo", handle), "total", None),
        )
        for handle in handles.values()
    ]


def gpus() -> list[dict]:
    """Return name, driver, limits and state of every visible GPU; unknown values are None."""
    ask, handles = _visible()
    found = []
    for handle in handles.values():
        milliwatts = ask("DeviceGetEnforcedPowerLimit", handle)
        limits = {
            "name": ask("DeviceGetName", handle),
            "driver": ask("SystemGetDriverVersion"),
            "memory_bytes": getattr(ask("DeviceGetMemoryInfo", handle), "total", None),
            "power_limit_watts": None if milliwatts is None else milliwatts / 1000,
            "max_sm_clock_mhz": ask("DeviceGetMaxClockInfo", handle, SM_CLOCK),
        }
        found.append(limits | _state(ask, handle))
    return found


def states() -> list[dict]:
    """Return clocks, temperature, clock reasons and the share of others of every visible GPU."""
    ask, handles = _visible()
    return [_state(ask, handle) for handle in handles.values()]


def utilisation() -> list[float]:
    """Return in which share of the last second or less each visible GPU was busy."""
    ask, handles = _visible()
    rates = [ask("DeviceGetUtilizationRates", handle) for handle in handles.values()]
    return [rate.gpu / 100 for rate in rates if rate is not None]


def numbers_from_cuda(name: str, first: int, count: int) -> list[int]:
    """Return the numbers of visible GPUs by CUDA's numbering; empty if CUDA's first GPU cannot
    be identified.

    CUDA counts the fastest GPU first and NVML counts by slot; among several kinds, the name
    identifies the first.

    Args:
        name: of CUDA's first GPU.
        first, count: the range in CUDA's numbering.
    """
    ask, handles = _visible()
    names = [ask("DeviceGetName", handle) for handle in handles.values()]
    if len(set(names)) > 1 and name not in names:
        return []
    return sorted(range(len(names)), key=lambda number: names[number] != name)[
        first : first + count
    ]


def counts_energy(number: int) -> bool:
    """Return whether a visible GPU has an energy counter, of this process's work alone.

    GPUs before Volta have none, some virtual ones may not be read, and that of a GPU divided
    into instances (MIG) covers several users.
    """
    ask, handles = _visible()
    handle = list(handles.values())[number]
    mode = ask(
        "DeviceGetMigMode", handle
    )  # the present mode and the pending one; None: it cannot be divided
    return not (mode and mode[0]) and ask("DeviceGetTotalEnergyConsumption", handle) is not None


def visible_by_index() -> AbstractContextManager[None]:
    """Replace UUIDs in CUDA_VISIBLE_DEVICES by indices in a `with` block, for code that cannot
    read UUIDs."""
    if "CUDA_VISIBLE_DEVICES" not in os.environ:
        return nullcontext()
    return temporary.variables(CUDA_VISIBLE_DEVICES=",".join(map(str, _visible()[1])))


def visible(given: str, names: list[list[str]]) -> list[int]:
    """Return the places of the visible GPUs, in CUDA's order.

    An entry is a place, the beginning of a GPU's UUID, or an instance (MIG): its UUID, or older
    names with the GPU's UUID in them. As in CUDA, the list ends before the first entry that
    matches no GPU, or several: an empty text and -1 show none.

    Args:
        given: CUDA_VISIBLE_DEVICES.
        names: of each GPU its UUID, such as GPU-5f12b4c0-..., and those of its instances.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    """
    places = []
    for entry in map(str.strip, given.split(",")):
        start = re.sub(r"^MIG-(GPU-[^/]*).*", r"\1", entry)  # MIG-GPU-<UUID>/<instance>/<instance>
        is_name = start.startswith(("GPU-", "MIG-"))
        matching = [
            place
            for place, own in enumerate(names)
            if entry == str(place) or (is_name and any(name.startswith(start) for name in own))
        ]
        if len(matching) != 1:
            break
        places += matching
    return places


def others_share(used: Sequence | None, own: Iterable[int]) -> float | None:
    """Return in which share of the time processes that do not belong to this run used a GPU.

    Args:
        used: of each process that used it, its id and how much, as NVML's samples.
        own: the ids of this run's processes.

    Returns:
        None if NVML does not tell, or tells ids from outside this container.
    """
    if used is None or (used and not any(psutil.pid_exists(each.pid) for each in used)):
        return None
    own = set(own)
    return min(1.0, sum(each.smUtil for each in used if each.pid not in own) / 100)


def _opened() -> tuple[Ask, dict[int, Any]]:
    """Return a function that calls NVML, and the handle of each GPU by its index."""
    try:
        import pynvml
    except ImportError:  # in an environment that only reads rows
        return (lambda *_: None), {}

    def ask(function: str, *arguments):
        try:
            return getattr(pynvml, f"nvml{function}")(*arguments)
        except pynvml.NVMLError as error:
            nobody = function == SAMPLES and error.value == pynvml.NVML_ERROR_NOT_FOUND
            return () if nobody else None

    ask("Init")  # without a driver, no later call answers
    handles = {
        index: ask("DeviceGetHandleByIndex", index) for index in range(ask("DeviceGetCount") or 0)
    }
    return ask, {
        index: handle for index, handle in handles.items() if handle is not None
    }  # no lost GPUs, nor others'


def _visible() -> tuple[Ask, dict[int, Any]]:
    """Return as `_opened` does, with the handles of the visible GPUs alone, in CUDA's order."""
    ask, handles = _opened()
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
        return ask, handles
    names = []
    for handle in handles.values():
        slots = range(ask("DeviceGetMaxMigDeviceCount", handle) or 0)
        own = [handle, *(ask("DeviceGetMigDeviceHandleByIndex", handle, slot) for slot in slots)]
        names.append([ask("DeviceGetUUID", each) or "" for each in own if each is not None])
    return ask, dict(list(handles.items())[place] for place in visible(given, names))


def _state(ask: Ask, handle) -> dict:
    bits = ask("DeviceGetCurrentClocksEventReasons", handle)
    if bits is None:  # drivers before 535 have only the older function
        bits = ask("DeviceGetCurrentClocksThrottleReasons", handle)
    own = [process.pid for process in processes.own()]
    used = ask(SAMPLES, handle, int((time.time() - SAMPLE_SECONDS) * 1e6))
    slowed = ask("DeviceGetViolationStatus", handle, THERMAL_POLICY)
    return {
        "sm_clock_mhz": ask("DeviceGetClockInfo", handle, SM_CLOCK),
        "memory_clock_mhz": ask("DeviceGetClockInfo", handle, MEMORY_CLOCK),
        "temperature_celsius": ask("DeviceGetTemperature", handle, GPU_SENSOR),
        "thermal_slowdown_seconds": None
        if slowed is None
        else slowed.violationTime / 1e9,  # since the driver started
        "clock_reasons": None
        if bits is None
        else [name for bit, name in enumerate(REASONS) if bits >> bit & 1],
        "others_share": others_share(used, own),
    }
