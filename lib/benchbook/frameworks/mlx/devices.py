"""What MLX answers: cpu, and metal on Apple silicon; see `frameworks.devices.Backend`.

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
from mlx import nn

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device, Operation
from benchbook.machine import identity

# MLX multiplies float32 through TF32 units where an Apple GPU has them, unless this is 0 when it first multiplies.
TF32_SWITCH = "MLX_ENABLE_TF32"
os.environ[TF32_SWITCH] = "0"


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    return ("metal", "cpu") if mx.metal.is_available() else ("cpu",)


def unnamed_accelerator() -> str | None:
    """Return cuda where MLX was built for it: the table of kinds has it for other frameworks alone."""
    return "cuda" if mx.cuda.is_available() else None


def name(kind: str) -> str | None:
    """Return nothing: both devices are the machine's own chip."""


def capability(kind: str) -> float | None:
    """Return nothing: no device of MLX's is an NVIDIA GPU here."""


def compiles_first(device: Device) -> bool:
    """Return False: the wheel holds Metal's kernels, and compiles small ones as they come."""
    return False


def imitated_units(device: Device) -> tuple[str, ...]:
    """Return nothing: what is known of a kind of device is in the table."""
    return ()


def count(device: Device) -> int:
    """Return the devices."""
    return mx.device_count(handle(device))


def handle(device: Device) -> Any:
    """Return the device as MLX's functions take it for `stream`."""
    return mx.cpu if device.is_cpu else mx.gpu


def synchronize(device: Device, last: Any = None) -> None:
    """Evaluate the last output, with all that it hangs on, and wait for the device.

    MLX keeps no list of arrays that wait to be evaluated: what hangs on no output stays undone, and untimed. So every
    output that is given must hang on all the work before it.
    """
    mx.eval(last)  # of None this does nothing
    mx.synchronize(handle(device))


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum of what MLX allocates."""
    mx.reset_peak_memory()


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and method of an accelerator."""
    return mx.get_peak_memory(), "mlx_allocator_peak"


def seed(number: int) -> None:
    """Seed the one generator that all devices share."""
    mx.random.seed(number)


def random_state(device: Device) -> dict:
    """Return the generator's key: two numbers of 32 bits."""
    return {"key": [int(part) for part in mx.random.state[0].tolist()]}


def restore_random_state(device: Device, state: dict) -> None:
    """Put the generator back: a seed's upper and lower 32 bits are its first key."""
    upper, lower = state["key"]
    mx.random.seed(upper << 32 | lower)


def allow_tf32(allowed: bool) -> None:
    """Do nothing: MLX reads its switch for TF32 once, and it was set to off before.

    Raises:
        NotImplementedError: it is to be allowed.
    """
    if allowed:
        raise NotImplementedError("MLX with tf32; allowed: fp32")


def software() -> dict:
    """Return framework, version and host threads: Accelerate has them all, the BLAS on Linux has one."""
    threads = identity.usable_cores() if sys.platform == "darwin" else 1
    return {"framework": "mlx", "framework_version": mx.__version__, "num_threads": threads}


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return a product of two matrices that are given on the host."""
    left, right = (_kept(mx.array(part).astype(getattr(mx, dtype))) for part in (first, second))
    return _chain(lambda: mx.matmul(left, right, stream=handle(device)))


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy within the device's memory."""
    source = _kept(mx.array(host))
    return _chain(lambda: mx.negative(source, stream=handle(device)))  # `mx.copy` would share the memory


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the device: both share one memory, in which MLX makes a copy."""
    return lambda previous: mx.array(host)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the host; NumPy makes the copy."""
    source = _kept(mx.array(host))
    return lambda previous: numpy.array(source)


def launch(device: Device) -> Operation:
    """Return an operation that adds one to one number, evaluated alone: several in one evaluation start faster."""
    number = _kept(mx.zeros(1))

    def start(previous: Any) -> Any:
        output = mx.add(number if previous is None else previous, 1, stream=handle(device))
        mx.async_eval(output)
        return output

    return start


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.reshape(-1)[0])


def training_step(device: Device) -> Operation:
    """Return a step of the small training; each takes what the one before it returned."""
    mx.set_default_device(handle(device))
    images, labels = (mx.array(part) for part in operations.batch())
    kernel, dense = (mx.array(array) for array in operations.weights())
    first = [_kept(mx.contiguous(kernel.transpose(3, 0, 1, 2))), _kept(dense)]
    pool = nn.MaxPool2d(2)

    def loss(weights: list) -> Any:
        hidden = pool(nn.relu(mx.conv2d(images, weights[0], padding=1)))
        return nn.losses.cross_entropy(hidden.reshape(operations.BATCH_SIZE, -1) @ weights[1], labels, reduction="mean")

    differentiate = mx.grad(loss)

    def update(previous: Any) -> list:
        weights = previous or first
        gradients = differentiate(weights)
        updated = [weight - operations.LEARNING_RATE * part for weight, part in zip(weights, gradients, strict=True)]
        mx.async_eval(updated)
        return updated

    return update


def _chain(compute: Callable[[], Any]) -> Operation:
    """Return an operation whose every output hangs on the one before it, and is handed over at once."""

    def run(previous: Any) -> Any:
        output = compute()
        if previous is not None:
            output = mx.depends(output, previous)
        mx.async_eval(output)
        return output

    return run


def _kept(array: Any) -> Any:
    """Return an array that lies in memory, and is not a plan to compute it."""
    mx.eval(array)
    return array
