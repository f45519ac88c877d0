"""What NVIDIA's management library (NVML) tells of each GPU; nothing where there is no driver.

Processes of others are counted, never named.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

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
UNNAMED = "NVIDIA GPU"  # whose name NVML withholds


def names() -> list[str]:
    """Return the name of every GPU of this computer."""
    return [name for name, _ in kinds()]


def kinds() -> list[tuple[str, int | None]]:
    """Return name and bytes of memory of every GPU of this computer, shown or not."""
    with _handles() as (pynvml, handles):
        memories = [_ask(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle) for handle in handles]
        names = (_ask(pynvml, pynvml.nvmlDeviceGetName, handle) or UNNAMED for handle in handles)
        return [(name, getattr(memory, "total", None)) for name, memory in zip(names, memories, strict=True)]


def gpus() -> list[dict]:
    """Return name, driver, limits and state of every GPU that CUDA_VISIBLE_DEVICES shows; None is what it withholds."""
    with _handles() as (pynvml, handles):
        return [_limits(pynvml, handles[place]) | _state(pynvml, handles[place]) for place in _visible(pynvml, handles)]


def states() -> list[dict]:
    """Return clocks, temperature, clock reasons and number of others' processes of every visible GPU."""
    with _handles() as (pynvml, handles):
        return [_state(pynvml, handles[place]) for place in _visible(pynvml, handles)]


def numbers(name: str, index: int, count: int) -> list[int]:
    """Return the numbers, among the visible GPUs, of those that CUDA counts from an index on.

    CUDA counts the fastest first and NVML by slot, so that two kinds of GPU are told apart by their names.

    Args:
        name: of the first that CUDA counts.
        index, count: which of them.
    """
    with _handles() as (pynvml, handles):
        shown = [_ask(pynvml, pynvml.nvmlDeviceGetName, handles[place]) for place in _visible(pynvml, handles)]
    if len(set(shown)) > 1 and name not in shown:
        return []  # none of them is known to be meant
    return sorted(range(len(shown)), key=lambda number: shown[number] != name)[index : index + count]


def is_divided(index: int) -> bool:
    """Return whether a visible GPU is divided into instances (MIG), so that its counters are of all of them.

    Args:
        index: among the visible GPUs; see `numbers`.
    """
    with _handles() as (pynvml, handles):
        places = _visible(pynvml, handles)
        if index >= len(places):
            return False
        mode = _ask(pynvml, pynvml.nvmlDeviceGetMigMode, handles[places[index]])
        return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def power_reader(index: int) -> Callable[[], float] | None:
    """Return what reads the watts of a visible GPU that has no counter of energy, as those before Volta.

    Args:
        index: among the visible GPUs; see `numbers`.

    Returns:
        None where there is a counter, or no power either.
    """
    with _handles() as (pynvml, handles):
        places = _visible(pynvml, handles)
        if index >= len(places):
            return None
        handle = handles[places[index]]
        counted = _ask(pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
        if counted is not None or _ask(pynvml, pynvml.nvmlDeviceGetPowerUsage, handle) is None:
            return None
        pynvml.nvmlInit()  # once more, so that the handle is good until this process ends
    return lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000


@contextmanager
def numbered() -> Iterator[None]:
    """Let CUDA_VISIBLE_DEVICES hold numbers inside a `with` block, for what cannot read the names of GPUs."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    with _handles() as (pynvml, handles):
        places = _visible(pynvml, handles)
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
        place = _place(word, uuids)
        if place is None:
            break
        places.append(place)
    return places


def _place(word: str, uuids: list[str]) -> int | None:
    if word.isdecimal():
        return int(word) if int(word) < len(uuids) else None
    name = word.removeprefix("MIG-").partition("/")[0]  # MIG-GPU-<GPU's name>/<instance>/<instance>
    matching = [place for place, uuid in enumerate(uuids) if name.startswith("GPU-") and uuid.startswith(name)]
    return matching[0] if len(matching) == 1 else None


def _visible(pynvml, handles: list) -> list[int]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(range(len(handles)))
    places = visible(given, [_ask(pynvml, pynvml.nvmlDeviceGetUUID, handle) or "" for handle in handles])
    if not places and given.startswith("MIG-"):  # newer names of instances do not hold their GPU's
        return [place for place, handle in enumerate(handles) if _has_instance(pynvml, handle, given)]
    return places


def _has_instance(pynvml, handle, given: str) -> bool:
    """Return whether one of a GPU's instances is among the names given."""
    words = {word.strip() for word in given.split(",")}
    for number in range(_ask(pynvml, pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _ask(pynvml, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if instance is not None and _ask(pynvml, pynvml.nvmlDeviceGetUUID, instance) in words:
            return True
    return False


def reasons(bits: int) -> list[str]:
    """Return the names of the reasons why clocks are below their maximum."""
    return [name for name, bit in REASONS.items() if bits & bit]


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
def _handles() -> Iterator[tuple]:
    """Yield the library and a handle of each GPU; an empty list where there is no driver."""
    try:
        import pynvml
    except ImportError:  # an environment that only asks, and measures nothing
        yield None, []
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield pynvml, []
        return
    try:
        count = _ask(pynvml, pynvml.nvmlDeviceGetCount) or 0
        handles = [_ask(pynvml, pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
        yield pynvml, [handle for handle in handles if handle is not None]  # not those of others, nor a lost one
    finally:
        pynvml.nvmlShutdown()


def _limits(pynvml, handle) -> dict:
    milliwatts = _ask(pynvml, pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return {
        "name": _ask(pynvml, pynvml.nvmlDeviceGetName, handle),
        "driver": _ask(pynvml, pynvml.nvmlSystemGetDriverVersion),
        "memory_bytes": getattr(_ask(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle), "total", None),
        "power_limit_watts": None if milliwatts is None else milliwatts / 1000,
        "max_sm_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
    }


def _state(pynvml, handle) -> dict:
    bits = _ask(pynvml, pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if bits is None:  # drivers before 535 know the older name alone
        bits = _ask(pynvml, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    running = _ask(pynvml, pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    own = [process.pid for process in processes.family(processes.root())]
    slowed = _ask(pynvml, pynvml.nvmlDeviceGetViolationStatus, handle, pynvml.NVML_PERF_POLICY_THERMAL)
    return {
        "sm_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        "memory_clock_mhz": _ask(pynvml, pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
        "temperature_celsius": _ask(pynvml, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "thermal_slowdown_seconds": None if slowed is None else slowed.violationTime / 1e9,  # since the driver's start
        "clock_reasons": None if bits is None else reasons(bits),
        "num_other_processes": None if running is None else num_others((process.pid for process in running), own),
    }


def _ask(pynvml, function: Callable, *arguments):
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None
