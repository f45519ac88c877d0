"""What MLX answers: cpu, and metal on Apple silicon. `benchbook.frameworks.devices` documents each function.

MLX computes nothing until an array is evaluated. So waiting has two halves: whatever has not been handed over yet is
evaluated (`mx.eval` of the last output), and the device's stream is waited for (`mx.synchronize`).

Source: https://ml-explore.github.io/mlx/build/html/usage/lazy_evaluation.html
"""

import os
import sys
from typing import Any

from benchbook.frameworks.device import Device
from benchbook.machine import identity

# MLX multiplies float32 through TF32 units where an Apple GPU has them, unless this is 0 when it first multiplies.
TF32_SWITCH = "MLX_ENABLE_TF32"
os.environ[TF32_SWITCH] = "0"


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    import mlx.core as mx

    return ("metal", "cpu") if mx.metal.is_available() else ("cpu",)


def unnamed_accelerator() -> str | None:
    """Return cuda where MLX was built for it: the table of kinds has it for other frameworks alone."""
    import mlx.core as mx

    return "cuda" if mx.cuda.is_available() else None


def name(kind: str) -> str | None:
    """Return nothing: both devices are the machine's own chip."""


def capability(kind: str) -> float | None:
    """Return nothing: no device of MLX's is an NVIDIA GPU here."""


def compiles_first(device: Device) -> bool:
    """Return False: the wheel holds Metal's kernels, and compiles small ones as they come."""
    return False


def count(device: Device) -> int:
    """Return the devices."""
    import mlx.core as mx

    return mx.device_count(handle(device))


def handle(device: Device) -> Any:
    """Return the device as MLX's functions take it for `stream`."""
    import mlx.core as mx

    return mx.cpu if device.is_cpu else mx.gpu


def synchronize(device: Device, last: Any = None) -> None:
    """Evaluate the last output, with all that it hangs on, and wait for the device.

    MLX keeps no list of arrays that wait to be evaluated: what hangs on no output stays undone, and untimed. So every
    output that is given must hang on all the work before it.
    """
    import mlx.core as mx

    mx.eval(last)  # of None this does nothing
    mx.synchronize(handle(device))


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum of what MLX allocates."""
    import mlx.core as mx

    mx.reset_peak_memory()


def peak_memory(device: Device) -> tuple[int, str]:
    """Return bytes and method of an accelerator."""
    import mlx.core as mx

    return mx.get_peak_memory(), "mlx_allocator_peak"


def seed(number: int) -> None:
    """Seed the one generator that all devices share."""
    import mlx.core as mx

    mx.random.seed(number)


def random_state(device: Device) -> dict:
    """Return the generator's key: two numbers of 32 bits."""
    import mlx.core as mx

    return {"key": [int(part) for part in mx.random.state[0].tolist()]}


def restore_random_state(device: Device, state: dict) -> None:
    """Put the generator back: a seed's upper and lower 32 bits are its first key."""
    import mlx.core as mx

    upper, lower = state["key"]
    mx.random.seed(upper << 32 | lower)


def set_precision(precision: str) -> None:
    """Do nothing: MLX reads its switch for TF32 once, and it was set to off before.

    Raises:
        NotImplementedError: tf32.
    """
    if precision == "tf32":
        raise NotImplementedError("MLX with tf32; allowed: fp32")


def software() -> tuple[str, int]:
    """Return version and host threads: products go through Accelerate, on Linux through a BLAS with one thread."""
    import mlx.core as mx

    return mx.__version__, identity.usable_cores() if sys.platform == "darwin" else 1
