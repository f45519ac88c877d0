"""Name, pick and query a compute device of torch, tensorflow, jax or mlx.

A missing device is an error: there is no silent fall-back to another one. A framework is
imported when one of its devices is requested, not before. `frameworks.<name>.devices` implements
`backend.Backend` for each framework, as in `device.backend.synchronize(device)`.
"""

import functools
import importlib
import importlib.util
import os
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchbook.machine import identity, libraries, nvidia, variables
from benchbook.machine.kinds import KINDS, Features
from benchbook.machine.precisions import PRECISIONS

if TYPE_CHECKING:
    from benchbook.frameworks.backend import Backend, Refused

FRAMEWORKS = tuple(libraries.FRAMEWORKS)
Place = tuple[str, int]  # kind and index of a device


class DeviceUnavailable(RuntimeError):
    """The requested device or framework is not on this machine."""


class FrameworkMissing(DeviceUnavailable):
    """The requested framework is not installed, or cannot be imported."""


@dataclass(frozen=True)
class Device:
    """One compute device of one framework.

    Attributes:
        kind: a key of `KINDS`, as in rows.
        name: the marketing name of the chip.
        framework: the framework that drives it.
        index: its number among the framework's visible devices of this kind.
        count: the devices that train together in this process, from this one on; the energy
        counter covers them all.
            0: another process counts the energy, or no process can.
        capability: an NVIDIA GPU's compute capability, such as 8.6; None: unknown, or not an
        NVIDIA GPU.

    Raises:
        DeviceUnavailable: an unknown kind.
    """

    kind: str
    name: str
    framework: str = "torch"
    index: int = 0
    count: int = 1
    capability: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeviceUnavailable(
                f"unknown kind of device {self.kind!r}; allowed: {', '.join(KINDS)}"
            )

    @property
    def features(self) -> Features:
        """Return the common properties of all devices of this kind."""
        return KINDS[self.kind]

    @property
    def backend(self) -> "Backend":
        """Return the framework's backend, with the framework imported."""
        return backend(self.framework)

    @property
    def torch_type(self) -> str:
        """Return torch's name for this kind of device."""
        return self.features.torch_type or self.kind

    @property
    def is_cpu(self) -> bool:
        """Return whether work runs on the host's cores."""
        return self.kind == "cpu"

    @property
    def longest_product(self) -> int | None:
        """Return the longest inner dimension at which its matrix products are right; None: there
        is no limit."""
        products = self.features.max_inner_dimension.items()
        return next((longest for name, longest in products if self.name.startswith(name)), None)

    def has_units(self, precision: str) -> bool:
        """Return False if this device is known to lack the hardware of a precision, and could
        only emulate it."""
        units = PRECISIONS[precision].units
        least = self.features.units.get(units)
        return not units or (
            least is not None and (self.capability is None or self.capability >= least)
        )

    def refuses(self, precision: str) -> bool:
        """Return whether a precision is tf32 and the device has no TF32 units: it would compute
        in fp32."""
        return PRECISIONS[precision].uses_tf32 and not self.has_units(precision)

    def check_precision(self, precision: str) -> None:
        """Raise an error for a precision that the device refuses.

        Raises:
            NotImplementedError: tf32 on a device without TF32 units.
        """
        if self.refuses(precision):
            having = ", ".join(name for name, kind in KINDS.items() if "tf32" in kind.units)
            least = self.features.units.get("tf32")
            since = f" from compute capability {least:g}" if least else ""
            raise NotImplementedError(
                f"{self.name} ({self.kind}) has no tf32; allowed: {having}{since}"
            )


@dataclass(frozen=True)
class Group:
    """The processes that train one network together, each with one device and its part of every
    batch.

    Attributes:
        rank: the number of this process.
        size: the number of processes.
    """

    rank: int = 0
    size: int = 1


def backend(framework: str) -> "Backend":
    """Return a framework's backend; the framework is imported without its warnings.

    Raises:
        ValueError: the framework is not one of FRAMEWORKS.
        FrameworkMissing: the framework cannot be imported; the message lists the installed ones.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"unknown framework {framework!r}; allowed: {', '.join(FRAMEWORKS)}")
    if framework not in sys.modules:
        set_import_environment()
    try:
        libraries.import_alone(framework)
    except ImportError as error:
        others = ", ".join(name for name in installed() if name != framework) or "none"
        raise FrameworkMissing(
            f"{framework} cannot be imported here ({error}); installed: {others}"
        ) from error
    return importlib.import_module(f"benchbook.frameworks.{framework}.devices").BACKEND


def installed() -> tuple[str, ...]:
    """Return the installed frameworks, without importing them."""
    return tuple(name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None)


def imported() -> list["Backend"]:
    """Return the backends of the frameworks that this process has imported."""
    return [_backend(name) for name in FRAMEWORKS if sys.modules.get(name)]


_backend = functools.cache(backend)


def wait(last: Any = None) -> None:
    """Wait for every device that a framework of this process has initialised; for `last` see
    `Backend.synchronize`."""
    for each in imported():
        each.wait(last)


def parse(text: str) -> Place:
    """Return the kind and index of a device such as cuda:1.

    Raises:
        ValueError: an unknown kind, or no number after the colon.
    """
    kind, _, index = text.partition(":")
    if kind not in KINDS or not (index or "0").isdigit():
        raise ValueError(
            f"device {text!r}; allowed: {', '.join(KINDS)}, with an index as in cuda:1"
        )
    return kind, int(index or 0)


def used(named: Place | None, output: Any) -> Device | None:
    """Return the named device, or else that of the arrays in a step's output; None: it is unknown.

    An array of the host tells nothing where an accelerator is in use: the step may have copied
    its loss.

    Raises:
        ValueError: the named accelerator is not in use.
    """
    accelerators = {
        place: each for each in imported() for place in each.in_use() if place[0] != "cpu"
    }
    arrays = ((each, each.place_of(leaf)) for leaf in _leaves(output) for each in imported())
    owner, place = next((pair for pair in arrays if pair[1]), (None, None))
    if named and named[0] != "cpu" and named not in accelerators:
        allowed = ", ".join(f"{kind}:{index}" for kind, index in accelerators) or "cpu"
        raise ValueError(
            f"device {named[0]}:{named[1]} is not in use by this loop; allowed: {allowed}"
        )
    if not named and (place is None or (place[0] == "cpu" and accelerators)):
        return None
    kind, index = named or place
    owner = accelerators.get((kind, index), owner)
    several = [] if named else sorted(number for each, number in accelerators if each == kind)
    name = (owner.name(kind, index) if owner else None) or identity.processor()
    return Device(
        kind,
        name,
        owner.framework if owner else "",
        min(several, default=index),
        max(1, len(several)),
    )


def words(device: Device | None) -> str:
    """Return how many devices of which name, kind and framework train together."""
    if device is None:
        return "an unknown device (device= names it)"
    several = f"{device.count} x " if device.count > 1 else ""
    word = libraries.WORDS.get(device.framework)
    return f"{several}{device.name} ({', '.join(filter(None, (device.kind, word)))})"


def _leaves(value: Any) -> list:
    value = list(value.values()) if isinstance(value, Mapping) else value
    return (
        [leaf for each in value for leaf in _leaves(each)]
        if isinstance(value, list | tuple)
        else [value]
    )


def choose_framework(name: str = "best") -> str:
    """Return the requested framework, without importing it.

    Args:
        name: one of FRAMEWORKS, or best: the first of `libraries.PREFERRED` that is installed.

    Raises:
        ValueError: an unknown name.
        FrameworkMissing: the framework is not installed, or with best none is.
    """
    if name not in ("best", *FRAMEWORKS):
        raise ValueError(f"unknown framework {name!r}; allowed: best, {', '.join(FRAMEWORKS)}")
    there = installed()
    wanted = libraries.PREFERRED if name == "best" else (name,)
    chosen = next((framework for framework in wanted if framework in there), None)
    if chosen is None:
        raise FrameworkMissing(
            f"framework {name!r} is not installed; installed: {', '.join(there) or 'none'}"
        )
    return chosen


def pick(kind: str = "best", framework: str = "torch") -> Device:
    """Return the device of the requested kind.

    Args:
        kind: a key of `KINDS` that the framework drives; or best (the accelerator if there is
        one, else the CPU).
        framework: the framework that drives it.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has. With
        best also if the
            framework refuses an accelerator of this machine: the CPU must not replace it silently.
    """
    asked = backend(framework)
    kind = choose_kind(kind, asked.kinds(), framework, asked.refused())
    name = asked.name(kind) or identity.processor()
    return Device(kind, name, framework, capability=asked.capability(kind))


def choose_kind(
    kind: str, kinds: tuple[str, ...], framework: str, refused: "Refused | None" = None
) -> str:
    """Return the requested kind of device, if the framework has it; best is the first of its kinds.

    Args:
        kind: as for `pick`.
        kinds: the kinds that this machine has for the framework, the fastest first.
        framework: the framework that drives them.
        refused: an accelerator of this machine that the framework does not use.

    Raises:
        DeviceUnavailable: it has no such device; the message lists those it has.
    """
    if refused and kind in ("best", refused.kind):
        raise DeviceUnavailable(
            f"{framework} is not measured on {refused.kind!r} here: {refused.reason}; allowed: {', '.join(kinds)}"
        )
    if kind not in ("best", *kinds):
        allowed = ", ".join(("best", *kinds))
        raise DeviceUnavailable(
            f"device {kind!r} is not available to {framework} here; allowed: {allowed}"
        )
    return kinds[0] if kind == "best" else kind


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return the peak memory in bytes and the method of counting; (None, None) if an accelerator
    does not report it.

    A CPU: the process's largest resident set since it began. torch (on mps from 2.15 on), mlx,
    and tensorflow on cuda: the allocator's maximum since the last reset. jax on cuda and tpu:
    the allocator's maximum since the process began.
    """
    if not device.is_cpu:
        return device.backend.peak_memory(device)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process_peak_resident"


def set_import_environment() -> None:
    """Set environment variables for the import of tensorflow and jax; those that the user has
    set stay.

    - Without an NVIDIA GPU, both warn about CUDA while they are imported: the warnings are
    silenced, and JAX does not
      search for accelerators. It does if its TPU library or a TPU is present.
    - With a GPU, JAX would reserve three quarters of its memory, and TensorFlow all of it, at
    the first query for
      devices, and a study's other frameworks would lack it: they do not.
    - The driver's cache of compiled kernels gets room for all of TensorFlow's, so that they are
    compiled once.

    Sources: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    (CUDA_CACHE_MAXSIZE), https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
    """
    for name, value in variables.SHARES_MEMORY.items():
        os.environ.setdefault(name, value)
    here = identity.present()
    if nvidia.gpus() or "cuda" in here:  # not hidden by CUDA_VISIBLE_DEVICES
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 2**30))  # the largest value allowed
        return
    os.environ.setdefault(
        "TF_CPP_MIN_LOG_LEVEL", "3"
    )  # TensorFlow logs a failing cuInit as an error, level 2
    if importlib.util.find_spec("libtpu") is None and "tpu" not in here:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def split_cpu(framework: str, device_count: int) -> None:
    """Split the CPU into several devices of JAX, for trials: they share its cores.

    Call it before JAX computes in this process. Source:
    https://docs.jax.dev/en/latest/sharded-computation.html
    """
    flag = variables.DEVICES_OF_CPU
    if framework == "jax" and device_count > 1 and flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}={device_count}".strip()


def with_count(device: Device, device_count: int) -> Device:
    """Return the first of several devices that train together in one process; with torch each
    has its own process.

    Raises:
        NotImplementedError: the framework trains on one device only, or on one of this kind.
        DeviceUnavailable: there are fewer devices.
    """
    if device_count == 1:
        return device
    if device.framework not in ("jax", "torch"):
        raise NotImplementedError(
            f"device_count {device_count} with {device.framework}; allowed: 1"
        )
    if device.framework == "torch" and not device.features.group_backend:
        having = " or ".join(name for name, kind in KINDS.items() if kind.group_backend)
        raise NotImplementedError(
            f"device_count {device_count} with torch on {device.kind}; allowed: on {having}"
        )
    there = device.backend.count(device)
    if device_count > there:
        raise DeviceUnavailable(
            f"device_count {device_count} on this host; allowed: up to {there}, as {device.framework} sees them"
        )
    return device if device.framework == "torch" else replace(device, count=device_count)
