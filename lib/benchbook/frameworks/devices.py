"""Name, pick, synchronise and query a compute device of torch, tensorflow, jax or mlx.

A device that is not there is an error, never a silent fall back to another one. What each framework answers
stands in a module of its own, as `devices.torch`, with the same functions;
a framework is imported when one of its devices is asked for, and not before.
"""

import importlib
import importlib.util
import os
import resource
import sys
from types import ModuleType
from typing import Any

from benchbook.frameworks.device import Device, DeviceUnavailable, FrameworkMissing
from benchbook.machine import identity, libraries, nvidia
from benchbook.machine.kinds import KINDS

__all__ = [
    "FRAMEWORKS",
    "KINDS",
    "Device",
    "DeviceUnavailable",
    "FrameworkMissing",
    "available",
    "choose_framework",
    "choose_kind",
    "compiles_first",
    "count",
    "handle",
    "installed",
    "multiplies_bfloat16",
    "peak_memory",
    "pick",
    "quieten",
    "random_state",
    "reset_peak_memory",
    "restore_random_state",
    "seed",
    "set_precision",
    "software",
    "synchronize",
    "unnamed_accelerator",
]

FRAMEWORKS = tuple(libraries.FRAMEWORKS)


def installed() -> tuple[str, ...]:
    """Return the frameworks that are installed here; none is imported."""
    return tuple(name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None)


def choose_framework(name: str = "best") -> str:
    """Return the framework that was asked for; none is imported.

    Args:
        name: one of FRAMEWORKS, or best: the first of `frameworks.PREFERRED` that is installed.

    Raises:
        ValueError: an unknown name.
        FrameworkMissing: it is not installed, or none is.
    """
    if name not in ("best", *FRAMEWORKS):
        raise ValueError(f"unknown framework {name!r}; allowed: best, {', '.join(FRAMEWORKS)}")
    there = installed()
    wanted = libraries.PREFERRED if name == "best" else (name,)
    chosen = next((framework for framework in wanted if framework in there), None)
    if chosen is None:
        raise FrameworkMissing(f"framework {name!r} is not installed; installed: {', '.join(there) or 'none'}")
    return chosen


def available(framework: str = "torch") -> tuple[str, ...]:
    """Return the kinds of device this machine has for a framework, the fastest first.

    CUDA_VISIBLE_DEVICES is respected, because the framework itself is asked.

    Raises:
        ValueError: the framework is not one of FRAMEWORKS.
        FrameworkMissing: the framework is not installed; the message lists those that are.
    """
    return _backend(framework).kinds()


def unnamed_accelerator(framework: str) -> str | None:
    """Return a framework's name of an accelerator that is not in `KINDS`; None where it has none."""
    return _backend(framework).unnamed_accelerator()


def pick(kind: str = "best", framework: str = "torch") -> Device:
    """Return the device of the kind that was asked for.

    Args:
        kind: a key of `KINDS` that the framework drives; or best (the accelerator if there is one, else the CPU).
        framework: whose device.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has. Also where the framework
            has an accelerator that is not in `KINDS`: the CPU must not stand in for it unasked.
    """
    backend = _backend(framework)
    kind = choose_kind(kind, backend.kinds(), framework, backend.unnamed_accelerator())
    name = backend.name(kind) or identity.identify().chip
    return Device(kind, name, framework, capability=backend.capability(kind))


def choose_kind(kind: str, kinds: tuple[str, ...], framework: str, unnamed: str | None = None) -> str:
    """Return the kind of device that was asked for, of those that a framework has; best is the first of them.

    Args:
        kind: as `pick` takes it.
        kinds: those of the framework.
        framework: whose device.
        unnamed: an accelerator that the framework has and `KINDS` lacks.

    Raises:
        DeviceUnavailable: it has no such device; the message lists those it has.
    """
    if unnamed and kind in ("best", unnamed):
        raise DeviceUnavailable(
            f"{framework} computes on {unnamed!r} here, which is not in benchbook's table of devices (devices/kinds.py)"
            f"; allowed: {', '.join(kinds)}"
        )
    if kind not in ("best", *kinds):
        raise DeviceUnavailable(
            f"device {kind!r} is not available to {framework} here; allowed: best, {', '.join(kinds)}"
        )
    return kinds[0] if kind == "best" else kind


def compiles_first(device: Device) -> bool:
    """Return whether the driver compiles all kernels of the framework when they are first used, for minutes.

    It keeps them in a cache of the user's home, so that the next process finds them.
    """
    return _backend(device.framework).compiles_first(device)


def count(device: Device) -> int:
    """Return the number of devices of this kind; for torch on a CPU, the number of usable cores."""
    return _backend(device.framework).count(device)


def handle(device: Device) -> Any:
    """Return the framework's own name or object for a device, as its functions take it."""
    return _backend(device.framework).handle(device)


def synchronize(device: Device, last: Any = None) -> None:
    """Wait until all work queued on the device is done.

    Args:
        device: whose work.
        last: the output of the work queued last, in any nesting. JAX can wait for arrays only; without it all
            arrays that are alive are waited for. torch and tensorflow wait for the device itself. MLX evaluates it
            first; what it does not hang on, and was not handed over, stays undone.
    """
    _backend(device.framework).synchronize(device, last)


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum of device memory, where the backend keeps one."""
    _backend(device.framework).reset_peak_memory(device)


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return bytes and the method that counted them; None and None where an accelerator cannot be asked.

    torch: the allocator's maximum since the last reset. mps: the pool that the driver holds for this process, which
    grows to the largest use and is kept (no maximum of the use itself is counted). tensorflow, cuda: as torch. jax,
    cuda and tpu: the allocator's maximum since the process began. mlx: as torch. cpu: the process's largest resident
    set since it began.
    """
    if not device.is_cpu:
        return _backend(device.framework).peak_memory(device)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process_peak_resident"


def seed(number: int, framework: str = "torch") -> None:
    """Seed the random generators of the host and of every device of a framework; JAX has none (keys are arguments)."""
    _backend(framework).seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the random generators that training on the device draws from.

    torch: host's and device's. tensorflow: the global generator's; what Keras layers draw from is among a model's
    variables, and the counter of `tf.random`'s stateful functions cannot be read. jax: empty, there is no state.
    mlx: the one generator's.
    """
    return _backend(device.framework).random_state(device)


def restore_random_state(device: Device, state: dict) -> None:
    """Put the generators back where `random_state` found them."""
    _backend(device.framework).restore_random_state(device, state)


def set_precision(precision: str, framework: str = "torch") -> None:
    """Make float32 arithmetic mean what a row says it is: fp32 never uses TF32 units, tf32 does.

    Without this, torch, tensorflow and jax use TF32 somewhere by default on NVIDIA GPUs since Ampere.

    Raises:
        ValueError: another precision than fp32 or tf32.
    """
    if precision not in ("fp32", "tf32"):
        raise ValueError(f"precision {precision!r}; allowed: fp32, tf32")
    _backend(framework).set_precision(precision)


def multiplies_bfloat16(device: Device) -> bool:
    """Return False where bfloat16 is known to be only imitated: GPUs before Ampere, and torch on many CPUs.

    Convolutions take 25 times as long there as in float32 (ResNet-18 on a CPU with AVX2 alone, torch 2.10).
    """
    if device.is_cpu and device.framework == "torch":
        return _backend("torch").cpu_multiplies_bfloat16()
    return device.has_units("bf16")


def software(device: Device) -> dict:
    """Return framework, its version and the host threads it computes with, as columns of a row."""
    version, num_threads = _backend(device.framework).software()
    return {"framework": device.framework, "framework_version": version, "num_threads": num_threads}


def quieten() -> None:
    """Keep tensorflow and jax from complaining about CUDA where there is no NVIDIA GPU; what the user set stays.

    Both look for a GPU when they start, and what they print then cannot be taken back, so this comes before an
    import. Where JAX's TPU library is installed, JAX looks for itself. Where there is a GPU, JAX would reserve three
    quarters of its memory when first asked for its devices, which every other framework of a study would lack.
    The driver's cache of kernels that it compiled gets room for all of TensorFlow's, so that they are compiled once.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars (CUDA_CACHE_MAXSIZE)
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if nvidia.gpus():  # those that CUDA_VISIBLE_DEVICES shows
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 2**30))  # the most there can be
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # a cuInit that fails is logged as an error, level 2
    if importlib.util.find_spec("libtpu") is None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _backend(framework: str) -> ModuleType:
    """Return the module that speaks for a framework, with the framework imported."""
    if framework not in FRAMEWORKS:
        raise ValueError(f"unknown framework {framework!r}; allowed: {', '.join(FRAMEWORKS)}")
    if framework not in sys.modules:
        quieten()
    try:
        libraries.import_alone(framework)
    except ImportError as error:
        others = ", ".join(name for name in installed() if name != framework) or "none"
        raise FrameworkMissing(f"{framework} cannot be imported here ({error}); installed: {others}") from error
    return importlib.import_module(f"benchbook.frameworks.{framework}.devices")
