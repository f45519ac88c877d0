"""Name, pick and query a compute device of torch, tensorflow, jax or mlx.

A device that is not there is an error, never a silent fall back to another one. What each framework answers is in
`frameworks.<name>.devices`, see `backend.Backend`: `device.backend.synchronize(device)`. A framework is imported when
one of its devices is asked for, and not before.
"""

import fnmatch
import glob
import importlib
import importlib.util
import os
import resource
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchbook.machine import identity, libraries, nvidia
from benchbook.machine.kinds import KINDS, Features
from benchbook.machine.precisions import PRECISIONS

if TYPE_CHECKING:
    from benchbook.frameworks.backend import Backend, Refused

FRAMEWORKS = tuple(libraries.FRAMEWORKS)
PCI = Path("/sys/bus/pci/devices")
XLA_FLAG = "--xla_force_host_platform_device_count"


class DeviceUnavailable(RuntimeError):
    """The requested device or framework is not on this machine."""


class FrameworkMissing(DeviceUnavailable):
    """The requested framework is not installed, or cannot be imported."""


@dataclass(frozen=True)
class Device:
    """One compute device of one framework.

    Attributes:
        kind: a key of `KINDS`, as rows name it.
        name: the marketing name of the chip.
        framework: the framework that drives it.
        index: its number among the framework's visible devices of that kind.
        count: how many devices from this one on work together, for what counts the energy of them all; 0 where
            another process counts, or no process can.
        capability: an NVIDIA GPU's compute capability, such as 8.6; None where it is not known, or there is none.

    Raises:
        DeviceUnavailable: a kind that is not in the table.
    """

    kind: str
    name: str
    framework: str = "torch"
    index: int = 0
    count: int = 1
    capability: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DeviceUnavailable(f"kind of device {self.kind!r}; allowed: {', '.join(KINDS)}")

    @property
    def features(self) -> Features:
        """Return the common properties of all devices of this kind."""
        return KINDS[self.kind]

    @property
    def backend(self) -> "Backend":
        """Return what its framework answers, with the framework imported."""
        return backend(self.framework)

    @property
    def is_cpu(self) -> bool:
        """Return whether work runs on the host's own cores."""
        return self.kind == "cpu"

    @property
    def longest_product(self) -> int | None:
        """Return the longest inner dimension at which its matrix products are right; None: they are at any."""
        products = self.features.max_inner_dimension.items()
        return next((longest for name, longest in products if self.name.startswith(name)), None)

    def has_units(self, precision: str) -> bool:
        """Return False where this device is known to lack the hardware of a precision, which it could only imitate."""
        units = PRECISIONS[precision].units
        least = self.features.units.get(units)
        return not units or (least is not None and (self.capability is None or self.capability >= least))

    def refuses(self, precision: str) -> bool:
        """Return whether a precision is tf32 and the device has no TF32 units: it would then be fp32."""
        return PRECISIONS[precision].uses_tf32 and not self.has_units(precision)

    def check_precision(self, precision: str) -> None:
        """Raise an error for a precision that the device refuses.

        Raises:
            NotImplementedError: the device has none.
        """
        if self.refuses(precision):
            having = ", ".join(name for name, kind in KINDS.items() if "tf32" in kind.units)
            least = self.features.units.get("tf32")
            since = f" from compute capability {least:g}" if least else ""
            raise NotImplementedError(f"{self.name} ({self.kind}) has no tf32; allowed: {having}{since}")


@dataclass(frozen=True)
class Group:
    """The devices that train one network together, each in a process of its own, on its part of every batch.

    Attributes:
        rank: which of them this process has.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1


def backend(framework: str) -> "Backend":
    """Return what a framework answers, with the framework imported, quietly.

    Raises:
        ValueError: the framework is not one of FRAMEWORKS.
        FrameworkMissing: the framework is not installed; the message lists those that are.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"unknown framework {framework!r}; allowed: {', '.join(FRAMEWORKS)}")
    if framework not in sys.modules:
        quieten()
    try:
        libraries.import_alone(framework)
    except ImportError as error:
        others = ", ".join(name for name in installed() if name != framework) or "none"
        raise FrameworkMissing(f"{framework} cannot be imported here ({error}); installed: {others}") from error
    return importlib.import_module(f"benchbook.frameworks.{framework}.devices").BACKEND


def installed() -> tuple[str, ...]:
    """Return the frameworks that are installed here; none is imported."""
    return tuple(name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None)


def choose_framework(name: str = "best") -> str:
    """Return the requested framework; none is imported.

    Args:
        name: one of FRAMEWORKS, or best: the first of `libraries.PREFERRED` that is installed.

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


def pick(kind: str = "best", framework: str = "torch") -> Device:
    """Return the device of the requested kind.

    Args:
        kind: a key of `KINDS` that the framework drives; or best (the accelerator if there is one, else the CPU).
        framework: whose device.

    Raises:
        DeviceUnavailable: this machine has no such device; the message lists those it has. Also where the framework
            has refused an accelerator: the CPU must not stand in for it unasked.
    """
    asked = backend(framework)
    kind = choose_kind(kind, asked.kinds(), framework, asked.refused())
    name = asked.name(kind) or identity.identify().chip
    return Device(kind, name, framework, capability=asked.capability(kind))


def choose_kind(kind: str, kinds: tuple[str, ...], framework: str, refused: "Refused | None" = None) -> str:
    """Return the kind of device that was asked for, of those that a framework has; best is the first of them.

    Args:
        kind: as `pick` takes it.
        kinds: those of the framework.
        framework: whose device.
        refused: an accelerator that is here and that it does not compute on.

    Raises:
        DeviceUnavailable: it has no such device; the message lists those it has.
    """
    if refused and kind in ("best", refused.kind):
        raise DeviceUnavailable(
            f"{framework} is not measured on {refused.kind!r} here: {refused.reason}; allowed: {', '.join(kinds)}"
        )
    if kind not in ("best", *kinds):
        raise DeviceUnavailable(
            f"device {kind!r} is not available to {framework} here; allowed: best, {', '.join(kinds)}"
        )
    return kinds[0] if kind == "best" else kind


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return bytes and the method that counted them; None and None where an accelerator cannot be asked.

    torch: the allocator's maximum since the last reset. mps: the pool that the driver holds for this process, which
    grows to the largest use and is kept (no maximum of the use itself is counted). tensorflow, cuda: as torch. jax,
    cuda and tpu: the allocator's maximum since the process began. mlx: as torch. cpu: the process's largest resident
    set since it began.
    """
    if not device.is_cpu:
        return device.backend.peak_memory(device)
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "process_peak_resident"


def present() -> tuple[str, ...]:
    """Return the kinds of accelerator whose files or cards this computer shows, whether or not a driver works.

    A container may show the cards of its host. CUDA_VISIBLE_DEVICES may hide all NVIDIA GPUs, as users do on purpose.
    """
    cards = [path.read_text() for path in PCI.glob("*/modalias")]
    return tuple(
        name
        for name, kind in KINDS.items()
        if any(map(glob.glob, kind.files)) or any(fnmatch.filter(cards, pattern) for pattern in kind.cards)
        if name != "cuda" or os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")
    )


def quieten() -> None:
    """Silence CUDA warnings of tensorflow and jax on computers without an NVIDIA GPU; the user's settings stay.

    Both look for a GPU when they start, and what they print then cannot be taken back, so this comes before an
    import. Where JAX's TPU library is installed, JAX looks for itself. Where there is a GPU, JAX would reserve three
    quarters of its memory when first asked for its devices, which every other framework of a study would lack.
    The driver's cache of kernels that it compiled gets room for all of TensorFlow's, so that they are compiled once.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars (CUDA_CACHE_MAXSIZE)
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    here = present()
    if nvidia.gpus() or "cuda" in here:  # those that CUDA_VISIBLE_DEVICES shows
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 2**30))  # the most there can be
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # a cuInit that fails is logged as an error, level 2
    if importlib.util.find_spec("libtpu") is None and "tpu" not in here:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")


def make_room(framework: str, device_count: int) -> None:
    """Let a CPU be several devices of JAX or TensorFlow: for trying out, since they share its cores.

    The framework must not have begun to compute in this process.

    Sources: https://docs.jax.dev/en/latest/sharded-computation.html,
    https://www.tensorflow.org/api_docs/python/tf/config/set_logical_device_configuration
    """
    if device_count == 1:
        return
    if framework == "jax" and XLA_FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAG}={device_count}".strip()
    if framework == "tensorflow":
        backend("tensorflow")  # imports it, quietly, or says what is installed
        import tensorflow

        cpu = tensorflow.config.list_physical_devices("CPU")[0]
        parts = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(device_count)]
        if tensorflow.config.get_logical_device_configuration(cpu) != parts:
            tensorflow.config.set_logical_device_configuration(cpu, parts)


def several(device: Device, device_count: int) -> Device:
    """Return a device that stands for several, where one process has them; a process of torch has one.

    Raises:
        DeviceUnavailable: there are fewer.
    """
    if device.framework == "torch" or device_count == 1:
        return device
    there = device.backend.count(device)
    if device_count > there:
        seen = f"allowed: up to {there}, as {device.framework} sees them"
        raise DeviceUnavailable(f"device_count {device_count} on this host; {seen}")
    return replace(device, count=device_count)
