"""The interface of `<framework>.devices`: a framework's devices, its global switches, and
calibration operations."""

import operator
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy

from benchbook.frameworks.devices import Device, Place
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS

Operation = Callable[
    [Any], Any
]  # from the output of the previous operation to its own; see `frameworks.operations`


@dataclass(frozen=True)
class Refused:
    """An accelerator of this computer that a framework cannot use, or must not.

    Attributes:
        kind: a key of `KINDS`, or else the framework's name for it.
        reason: why, in one short sentence.
    """

    kind: str
    reason: str


TEGRA = (53, 62, 72, 87, 101, 110)  # compute capabilities of Jetson's chips, times 10


class Backend:
    """A framework's devices; `BACKEND` of `frameworks.<name>.devices` is the one instance.

    The last methods are the operations of a calibration; see `frameworks.operations`. What is
    declared without a body, not every framework has.

    Attributes:
        framework: its name.
        version: its version.
    """

    framework: str
    version: str
    handle: Callable[..., Any]  # its own object of a device: JAX, MLX, TensorFlow
    arithmetic: Callable[
        ..., AbstractContextManager[None]
    ]  # these: the two of Keras; see `frameworks.keras.runtime`
    compile_function: Callable[..., Callable]
    place: Callable[..., Any]
    is_lazy = False  # whether nothing is computed before it is asked for

    def accelerator(self) -> str | None:
        """Return the kind of accelerator that the framework sees, or else its own name for it;
        None: there is none.

        The answer comes from the framework, so that CUDA_VISIBLE_DEVICES is respected.
        """
        raise NotImplementedError

    def why_unseen(self, kind: str) -> str | None:
        """Return why the framework does not see an accelerator of this computer; None: the user
        has hidden it."""
        return f"{self.framework} does not see it"

    def why_unusable(self, kind: str) -> str:
        """Return why a visible accelerator cannot be used; empty: it can be used."""
        return ""

    def refused(self) -> Refused | None:
        """Return an accelerator of this computer that cannot be measured; the CPU must not
        replace it silently."""
        kind = self.accelerator()
        if kind is None:
            driven = (
                each for each in identity.present() if self.framework in KINDS[each].frameworks
            )
            return next(
                (
                    Refused(each, why)
                    for each in driven
                    if (why := self.why_unseen(each)) is not None
                ),
                None,
            )
        if self.framework not in getattr(KINDS.get(kind), "frameworks", ()):
            return Refused(kind, "it is not in benchbook's table of devices (machine/kinds.py)")
        reason = self.why_unusable(kind)
        return Refused(kind, reason) if reason else None

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of device this machine has for the framework, the fastest first."""
        kind = self.accelerator()
        return ("cpu",) if kind is None or self.refused() else (kind, "cpu")

    def name(self, kind: str, index: int = 0) -> str | None:
        """Return the driver's name of a device; None: it is part of the machine's chip."""
        return None

    def in_use(self) -> list[Place]:
        """Return kind and index of the devices that this process has initialised; asking
        initialises none."""
        raise NotImplementedError

    def place_of(self, value: Any) -> Place | None:
        """Return kind and index of an array's device; None: it is not an array of this
        framework."""
        raise NotImplementedError

    def wait(self, last: Any = None) -> None:
        """Wait for every device in use; for `last` see `synchronize`, but JAX waits for all live
        arrays."""
        for kind, index in self.in_use():
            self.synchronize(Device(kind, "", self.framework, index), last)

    def gather(self, key: str, values: list, seconds: float) -> list[list]:
        """Return the values of each process that trains with this one, in the order of their ranks.

        Args:
            key: the same in each process, and used once.
            values: that JSON can hold.
            seconds: the longest wait for the others.

        Raises:
            ValueError: a process has given no values in that time, or the framework cannot
            exchange them.
        """
        return [values]

    def capability(self, kind: str) -> float | None:
        """Return an NVIDIA GPU's compute capability."""
        return None

    def compiles_first(self, device: Device) -> bool:
        """Return whether the driver compiles all kernels of the framework at their first use,
        which takes minutes.

        It caches them in the user's home for later processes.
        """
        return False

    def emulated_units(self, device: Device) -> tuple[str, ...]:
        """Return the hardware units (`Precision.units`) that the framework is known to emulate
        slowly on a device."""
        return ()

    def count(self, device: Device) -> int:
        """Return how many devices of this kind can train together; for torch on a CPU, the
        usable cores."""
        return 1

    def synchronize(self, device: Device, last: Any = None) -> None:
        """Wait until all work queued on the device is done.

        Args:
            device: the device to wait for.
            last: the output of the last work that was queued, in any nesting. torch and
            tensorflow ignore it and wait
                for the device. JAX can only wait for arrays: for `last`, or without it for all
                live arrays. MLX evaluates `last` first; work that `last` does not depend on, and
                that was not submitted, is not done.
        """
        raise NotImplementedError

    def reset_peak_memory(self, device: Device) -> None:
        """Reset the maximum of device memory, if the framework keeps one."""

    def peak_memory(self, device: Device) -> tuple[int | None, str | None]:
        """Return an accelerator's peak memory in bytes and the method of counting; see
        `devices.peak_memory`."""
        return None, None

    def random_state(self, device: Device) -> dict:
        """Return the state of the random generators that training on the device uses; empty:
        there is none.

        torch: the generators of host and device. tensorflow: the global generator; those of
        Keras layers are variables of the model, and the counter of `tf.random`'s stateful
        functions cannot be read. mlx: its only generator. jax: none, because keys are arguments.
        """
        return {}

    def restore_random_state(self, device: Device, state: dict) -> None:
        """Restore the generators from `random_state`."""

    def allow_tf32(self, allowed: bool) -> None:
        """Set whether float32 arithmetic may use TF32 units: never in the precision fp32, always
        in tf32.

        By default torch, tensorflow and jax use TF32 in some operations on NVIDIA GPUs since
        Ampere.
        """
        raise NotImplementedError

    def num_threads(self) -> int:
        """Return the number of host threads."""
        return identity.usable_cores()

    def software(self, device: Device) -> dict:
        """Return the framework, its version and its host threads, as columns of a row.

        The version on an Apple GPU includes the release of macOS, which ships the GPU's kernels
        (MPSGraph).
        """
        release = "" if device.is_cpu else identity.macos()
        version = f"{self.version}+macos{release}" if release else self.version
        columns = {"framework": self.framework, "framework_version": version}
        return columns | {"num_threads": self.num_threads()}

    def facts(self) -> dict[str, str]:
        """Return what the framework reports of itself that changes its speed, for a manifest."""
        return {}

    def fell_back(self, warning: str) -> str:
        """Return the operation that a warning says was computed on the CPU; else empty."""
        return ""

    def operation(
        self, device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32"
    ) -> Operation:
        """Return an operation that computes a function of arrays from the host, which are on the
        device in a type."""
        raise NotImplementedError

    def multiplication(
        self, device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str
    ) -> Operation:
        """Return an operation that multiplies two matrices from the host, or two stacks of
        matrices."""
        return self.operation(device, operator.matmul, first, second, dtype=dtype)

    def convolution(
        self, device: Device, images: numpy.ndarray, kernel: numpy.ndarray
    ) -> Operation:
        """Return a convolution at every pixel: images (n, height, width, in), kernel (height,
        width, in, out)."""
        raise NotImplementedError(f"no convolution of {self.framework}")

    def attention(self, device: Device, *host: numpy.ndarray) -> Operation:
        """Return the fused attention of queries, keys and values, shapes (1, 1, n, width)."""
        raise NotImplementedError(
            f"{self.framework} has no fused attention here; allowed: torch, mlx"
        )

    def copy(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that reads an array in device memory and writes as many: `copy`
        may not."""
        return self.operation(device, operator.neg, host)

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array to the device."""
        raise NotImplementedError

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array from the device."""
        raise NotImplementedError

    def launch(self, device: Device) -> Operation:
        """Return an operation that adds one to one number: it costs no more than its launch."""
        return self.operation(device, lambda number: number + 1, numpy.zeros(1, numpy.float32))

    def read(self, output: Any) -> float:
        """Return one number of an output, copied to the host; the copy waits for it without
        `synchronize`."""
        return float(output[(0,) * output.ndim])

    def to_host(self, output: Any) -> numpy.ndarray:
        """Return an output, copied to the host."""
        return numpy.asarray(output)


def has_binaries(capability: float, built: Iterable[str]) -> bool:
    """Return whether a build has binaries for an NVIDIA GPU: of its major compute capability,
    and not above it. Those for a Jetson run on nothing else, and a Jetson runs no others.

    Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility

    Args:
        capability: the GPU's compute capability.
        built: the build's targets, such as sm_80. A target such as compute_90 is PTX, which the
        driver compiles.
    """
    wanted = round(capability * 10)
    numbers = [int(found[1]) for name in built if (found := re.match(r"sm_(\d+)", name))]
    if wanted in TEGRA:
        return wanted in numbers
    numbers = [number for number in numbers if number not in TEGRA]
    return any(number // 10 == wanted // 10 and number <= wanted for number in numbers)
