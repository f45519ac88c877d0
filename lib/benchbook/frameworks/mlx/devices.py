"""MLX's devices: cpu, and metal on Apple silicon; see `frameworks.backend.Backend`.

MLX computes nothing until an array is evaluated. So waiting has two halves: whatever has not been handed over yet is
evaluated (`mx.eval` of the last output), and the device's stream is waited for (`mx.synchronize`). Of products whose
outputs are let go, only the last would ever be made. So each operation that a device is calibrated with is handed over
as it is called, as other frameworks do by themselves, and hangs on the one before it: waiting for the last waits for
all, handed over or not.

Source: https://ml-explore.github.io/mlx/build/html/usage/lazy_evaluation.html
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy

from benchbook.frameworks.backend import Backend, Operation
from benchbook.frameworks.devices import Device

# MLX multiplies float32 through TF32 units where an Apple GPU has them, unless this is 0 when it first multiplies.
TF32_SWITCH = "MLX_ENABLE_TF32"
os.environ[TF32_SWITCH] = "0"


class MlxBackend(Backend):
    """MLX on Apple's GPU or on the CPU."""

    framework = "mlx"
    version = mx.__version__

    def accelerator(self) -> str | None:
        if mx.metal.is_available():
            return "metal"
        return "cuda" if mx.cuda.is_available() else None  # the table of kinds has it for other frameworks alone

    def count(self, device: Device) -> int:
        return mx.device_count(self.handle(device))

    def handle(self, device: Device) -> Any:
        """Return the device as MLX's functions take it for `stream`."""
        return mx.cpu if device.is_cpu else mx.gpu

    def synchronize(self, device: Device, last: Any = None) -> None:
        """Evaluate the last output, with everything that it depends on, and wait for the device.

        MLX keeps no list of arrays that wait to be evaluated: what hangs on no output stays undone, and untimed. So
        every output that is given must hang on all the work before it.
        """
        mx.eval(last)  # with None this does nothing
        mx.synchronize(self.handle(device))

    def reset_peak_memory(self, device: Device) -> None:
        mx.reset_peak_memory()

    def peak_memory(self, device: Device) -> tuple[int, str]:
        return mx.get_peak_memory(), "mlx_allocator_peak"

    def seed(self, number: int) -> None:
        mx.random.seed(number)

    def random_state(self, device: Device) -> dict:
        """Return the generator's key: two numbers of 32 bits."""
        return {"key": [int(part) for part in mx.random.state[0].tolist()]}

    def restore_random_state(self, device: Device, state: dict) -> None:
        """Put the generator back: a seed's upper and lower 32 bits are its first key."""
        upper, lower = state["key"]
        mx.random.seed(upper << 32 | lower)

    def allow_tf32(self, allowed: bool) -> None:
        """Do nothing: MLX reads its switch for TF32 once, and it was set to off before.

        Raises:
            NotImplementedError: it is to be allowed.
        """
        if allowed:
            raise NotImplementedError("MLX with tf32; allowed: fp32")

    def num_threads(self) -> int:
        """Return the host threads: Accelerate has them all, the BLAS on Linux has one."""
        return super().num_threads() if sys.platform == "darwin" else 1

    def multiplication(self, device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
        left, right = (_kept(mx.array(part).astype(getattr(mx, dtype))) for part in (first, second))
        return _chain(lambda: mx.matmul(left, right, stream=self.handle(device)))

    def copy(self, device: Device, host: numpy.ndarray) -> Operation:
        source = _kept(mx.array(host))
        return _chain(lambda: mx.negative(source, stream=self.handle(device)))  # `mx.copy` would share the memory

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return a copy towards the device: both share one memory, in which MLX makes a copy."""
        return lambda previous: mx.array(host)

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return a copy towards the host; NumPy makes the copy."""
        source = _kept(mx.array(host))
        return lambda previous: numpy.array(source)

    def launch(self, device: Device) -> Operation:
        """Return an operation that adds one to one number, evaluated alone: several in one evaluation start faster."""
        number = _kept(mx.zeros(1))

        def start(previous: Any) -> Any:
            output = mx.add(number if previous is None else previous, 1, stream=self.handle(device))
            mx.async_eval(output)
            return output

        return start


def _chain(compute: Callable[[], Any]) -> Operation:
    """Return an operation whose every output depends on the one before it and is submitted at once."""

    def run(previous: Any) -> Any:
        output = compute()
        if previous is not None:
            output = mx.depends(output, previous)
        mx.async_eval(output)
        return output

    return run


def _kept(array: Any) -> Any:
    """Return an evaluated array in memory, not a lazy one."""
    mx.eval(array)
    return array


BACKEND = MlxBackend()
