"""What a framework answers about its devices, and how it computes on them: the interface of `<framework>.devices`."""

import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS

Operation = Callable[[Any], Any]  # takes what the one before it returned, see `frameworks.operations`


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
            driven = (each for each in devices.present() if self.framework in KINDS[each].frameworks)
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
        """Return bytes of an accelerator, and the method that counted them; see `devices.peak_memory`."""
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


def has_binaries(capability: float, built: Iterable[str]) -> bool:
    """Return whether a build's binaries serve an NVIDIA GPU: those of its major compute capability, and not above it.

    Args:
        capability: the GPU's.
        built: what the build was made for, such as sm_80; of compute_90 it has PTX, which the driver compiles.
    """
    wanted = round(capability * 10)
    numbers = [int(found[1]) for name in built if (found := re.match(r"sm_(\d+)", name))]
    return any(number // 10 == wanted // 10 and number <= wanted for number in numbers)
