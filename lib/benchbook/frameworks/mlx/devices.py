"""MLX's devices: cpu, and metal on Apple silicon; see `frameworks.backend.Backend`.

MLX computes nothing until an array is evaluated. Waiting therefore has two parts: `mx.eval`
evaluates the last output, with work that was not submitted before, and `mx.synchronize` waits
for the device's stream. If outputs are dropped, MLX computes only the last. Each calibration
operation is therefore submitted when it is called, as other frameworks do by themselves, and
depends on the previous one: waiting for the last waits for all, submitted or not.

Source: https://ml-explore.github.io/mlx/build/html/usage/lazy_evaluation.html
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy

from benchbook.frameworks.backend import Backend, Operation
from benchbook.frameworks.devices import Device, Place

# MLX multiplies float32 in TF32 units if an Apple GPU has them, unless this is 0 at its first
# multiplication.
os.environ["MLX_ENABLE_TF32"] = "0"


class MlxBackend(Backend):
    """MLX on Apple's GPU or on the CPU."""

    framework = "mlx"
    version = mx.__version__

    is_lazy = True

    def accelerator(self) -> str | None:
        if mx.metal.is_available():
            return "metal"
        return (
            "cuda" if mx.cuda.is_available() else None
        )  # the table of kinds has cuda for other frameworks only

    def in_use(self) -> list[Place]:
        """Return MLX's default device, which its arrays do not name."""
        return [("cpu" if mx.default_device() == mx.cpu else self.accelerator(), 0)]

    def place_of(self, value: Any) -> Place | None:
        return self.in_use()[0] if isinstance(value, mx.array) else None

    def handle(self, device: Device) -> Any:
        """Return the device as the argument `stream` of MLX's functions."""
        return mx.cpu if device.is_cpu else mx.gpu

    def synchronize(self, device: Device, last: Any = None) -> None:
        """Evaluate the last output, with everything that it depends on, and wait for the device.

        MLX has no list of arrays that are not evaluated yet: work on which `last` does not
        depend would not be done, nor timed. `last` must therefore depend on all the work before
        it.
        """
        mx.eval(last)  # with None this does nothing
        mx.synchronize(self.handle(device))

    def reset_peak_memory(self, device: Device) -> None:
        mx.reset_peak_memory()

    def peak_memory(self, device: Device) -> tuple[int, str]:
        return mx.get_peak_memory(), "mlx_allocator_peak"

    def random_state(self, device: Device) -> dict:
        """Return the generator's key: two integers of 32 bits."""
        return {"key": [int(part) for part in mx.random.state[0].tolist()]}

    def restore_random_state(self, device: Device, state: dict) -> None:
        """Restore the generator: the upper and lower 32 bits of a seed are its first key."""
        upper, lower = state["key"]
        mx.random.seed(upper << 32 | lower)

    def allow_tf32(self, allowed: bool) -> None:
        """Do nothing: MLX reads its switch for TF32 once, and it is off.

        Raises:
            NotImplementedError: `allowed` is True.
        """
        if allowed:
            raise NotImplementedError("MLX with tf32; allowed: fp32")

    def num_threads(self) -> int:
        """Return the host threads: Accelerate uses all cores, the BLAS on Linux one."""
        return super().num_threads() if sys.platform == "darwin" else 1

    def operation(
        self, device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32"
    ) -> Operation:
        """Return an operation whose output depends on the previous one and is submitted at once."""
        placed = [_placed(part, dtype) for part in host]

        def run(previous: Any) -> Any:
            with mx.stream(self.handle(device)):
                output = function(*placed)
            if previous is not None:
                output = mx.depends(output, previous)
            mx.async_eval(output)
            return output

        return run

    def convolution(
        self, device: Device, images: numpy.ndarray, kernel: numpy.ndarray
    ) -> Operation:
        convolve = functools.partial(mx.conv2d, padding=len(kernel) // 2)
        return self.operation(device, convolve, images, kernel.transpose(3, 0, 1, 2))

    def attention(self, device: Device, *host: numpy.ndarray) -> Operation:
        attend = functools.partial(
            mx.fast.scaled_dot_product_attention, scale=host[0].shape[-1] ** -0.5
        )
        return self.operation(device, attend, *host)

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array: host and device share one memory, in which
        MLX makes the copy."""
        return lambda previous: mx.array(host)

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array with NumPy."""
        source = _placed(host)
        return lambda previous: numpy.array(source)

    def launch(self, device: Device) -> Operation:
        """Return an operation that adds one to one number, each in its own evaluation: together
        they start faster."""
        number = _placed(numpy.zeros(1))

        def start(previous: Any) -> Any:
            output = mx.add(number if previous is None else previous, 1, stream=self.handle(device))
            mx.async_eval(output)
            return output

        return start


def _placed(host: numpy.ndarray, dtype: str = "float32") -> Any:
    array = mx.array(host).astype(getattr(mx, dtype))
    mx.eval(array)
    return array


BACKEND = MlxBackend()
