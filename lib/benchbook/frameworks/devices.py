"""Name, pick and query a compute device of torch, tensorflow, jax or mlx.

A device that is not there is an error, never a silent fall back to another one. What each framework answers is in
`frameworks.<name>.devices`, a subclass of `Backend`: `device.backend.synchronize(device)`. A framework is imported when
one of its devices is asked for, and not before.
"""

import fnmatch
import glob
import importlib
import importlib.util
import os
import platform
import re
import resource
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy

from benchbook.machine import identity, libraries, nvidia
from benchbook.machine.kinds import KINDS, Features
from benchbook.machine.precisions import PRECISIONS

FRAMEWORKS = tuple(libraries.FRAMEWORKS)
Operation = Callable[[Any], Any]  # takes what the one before it returned, see `frameworks.operations`
# What torch on a CPU, XLA, cuBLAS and cuDNN, and Metal say of memory that is short, in errors of no type of their own.
SHORT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|RESOURCE_EXHAUSTED|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
    r"|unlikely to have enough memory|Insufficient Memory|maximum allowed buffer size|unable to allocate",
    re.IGNORECASE,
)
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
        products = self.features.longest_products.items()
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
class Refused:
    """An accelerator that is here, and that a framework must not, or cannot, compute on.

    Attributes:
        kind: a key of `KINDS`, or else what the framework calls it.
        reason: why, and what helps; it ends a sentence.
    """

    kind: str
    reason: str


class Backend:
    """What a framework answers about its devices: `BACKEND` of `frameworks.<name>.devices` is one.

    The last functions are what a device is calibrated with; see `frameworks.operations`. Keras's two frameworks have
    `compile_function`, `place` and `arithmetic` as well; see `frameworks.keras.runtime`.

    Attributes:
        framework: its name.
        version: of the framework.
    """

    framework: str
    version: str

    def accelerator(self) -> str | None:
        """Return the accelerator that the framework sees, as `KINDS` or else the framework calls it; None: it has none.

        CUDA_VISIBLE_DEVICES is respected, because the framework itself is asked.
        """
        raise NotImplementedError

    def why_unseen(self, kind: str) -> str | None:
        """Return why the framework does not see an accelerator of this computer; None if the user hid it."""
        return ""

    def why_unusable(self, kind: str) -> str:
        """Return why a visible accelerator cannot be used, and what helps; empty if it can be used."""
        return ""

    def refused(self) -> Refused | None:
        """Return an accelerator that is here and is not measured; the CPU must not stand in for it unasked."""
        kind = self.accelerator()
        if kind is None:
            driven = (each for each in present() if self.framework in KINDS[each].frameworks)
            unseen = next(((each, why) for each in driven if (why := self.why_unseen(each)) is not None), None)
            return unseen and Refused(unseen[0], f"this computer has one. {unseen[1]}".strip())
        if self.framework not in getattr(KINDS.get(kind), "frameworks", ()):
            return Refused(kind, "which is not in benchbook's table of devices (machine/kinds.py)")
        reason = self.why_unusable(kind)
        return Refused(kind, reason) if reason else None

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of device this machine has for the framework, the fastest first."""
        kind = self.accelerator()
        return ("cpu",) if kind is None or self.refused() else (kind, "cpu")

    def name(self, kind: str) -> str | None:
        """Return the driver's name of the first device of a kind; None if it is the machine's own chip."""
        return None

    def capability(self, kind: str) -> float | None:
        """Return an NVIDIA GPU's compute capability."""
        return None

    def compiles_first(self, device: Device) -> bool:
        """Return whether the driver compiles all kernels of the framework when they are first used, for minutes.

        It keeps them in a cache of the user's home, so that the next process finds them.
        """
        return False

    def imitated_units(self, device: Device) -> tuple[str, ...]:
        """Return the units, of `Precision.units`, that a device of this framework is known to imitate slowly."""
        return ()

    def count(self, device: Device) -> int:
        """Return the number of devices of this kind; for torch on a CPU, the number of usable cores."""
        raise NotImplementedError

    def handle(self, device: Device) -> Any:
        """Return the framework's own name or object for a device, as its functions take it."""
        raise NotImplementedError

    def synchronize(self, device: Device, last: Any = None) -> None:
        """Wait until all work queued on the device is done.

        Args:
            device: whose work.
            last: the output of the work queued last, in any nesting. JAX can wait for arrays only; without it all
                arrays that are alive are waited for. torch and tensorflow wait for the device itself. MLX evaluates it
                first; what it does not hang on, and was not handed over, stays undone.
        """
        raise NotImplementedError

    def reset_peak_memory(self, device: Device) -> None:
        """Start a new maximum of device memory, where the backend keeps one."""

    def peak_memory(self, device: Device) -> tuple[int | None, str | None]:
        """Return bytes of an accelerator, and the method that counted them; see `peak_memory` of this module."""
        return None, None

    def seed(self, number: int) -> None:
        """Seed the random generators of the host and of every device; JAX has none (keys are arguments)."""

    def random_state(self, device: Device) -> dict:
        """Return the state of the random generators that training on the device draws from; empty: there is none.

        torch: host's and device's. tensorflow: the global generator's; what Keras layers draw from is among a model's
        variables, and the counter of `tf.random`'s stateful functions cannot be read. mlx: the one generator's.
        """
        return {}

    def restore_random_state(self, device: Device, state: dict) -> None:
        """Restore the generators from `random_state`."""

    def allow_tf32(self, allowed: bool) -> None:
        """Set float32 arithmetic as rows name it: fp32 never uses TF32 units, tf32 does.

        Without this, torch, tensorflow and jax use TF32 somewhere by default on NVIDIA GPUs since Ampere.
        """
        raise NotImplementedError

    def num_threads(self) -> int:
        """Return the number of host threads."""
        return identity.usable_cores()

    def software(self, device: Device) -> dict:
        """Return framework, its version and its host threads, as columns of a row.

        macOS ships the kernels of an Apple GPU (MPSGraph): there its release is a part of the version.
        """
        release = "" if device.is_cpu else platform.mac_ver()[0]
        version = f"{self.version}+macos{release}" if release else self.version
        columns = {"framework": self.framework, "framework_version": version}
        return columns | {"num_threads": self.num_threads()}

    def multiplication(self, device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
        """Return an operation that multiplies two matrices, or two stacks of them, given on the host."""
        raise NotImplementedError

    def copy(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that reads an array in device memory and writes as much."""
        raise NotImplementedError

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array to the device."""
        raise NotImplementedError

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array from the device."""
        raise NotImplementedError

    def launch(self, device: Device) -> Operation:
        """Return an operation so small that only its start costs: one is added to one number."""
        raise NotImplementedError

    def read(self, output: Any) -> float:
        """Copy one number of an output to the host; this waits for it, whatever synchronising does."""
        return float(output.reshape(-1)[0])


@dataclass(frozen=True)
class Group:
    """The devices that train one network together, each in a process of its own, on its part of every batch.

    Attributes:
        rank: which of them this process has.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1


def backend(framework: str) -> Backend:
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


def choose_kind(kind: str, kinds: tuple[str, ...], framework: str, refused: Refused | None = None) -> str:
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


def has_binaries(capability: float, built: Iterable[str]) -> bool:
    """Return whether a build's binaries serve an NVIDIA GPU: those of its major compute capability, and not above it.

    Args:
        capability: the GPU's.
        built: what the build was made for, such as sm_80; of compute_90 it has PTX, which the driver compiles.
    """
    wanted = round(capability * 10)
    numbers = [int(found[1]) for name in built if (found := re.match(r"sm_(\d+)", name))]
    return any(number // 10 == wanted // 10 and number <= wanted for number in numbers)


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
