"""What JAX answers: cpu, cuda, tpu; see `frameworks.devices.Backend`.

Of an operation that a device is calibrated with, `previous` is an unused argument, so that a computation waits for the
one before it, and its memory takes the output.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device, Operation
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import Precision


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    kind = _default()
    return (kind, "cpu") if kind != "cpu" and not unnamed_accelerator() else ("cpu",)


def unnamed_accelerator() -> str | None:
    """Return JAX's name of an accelerator that the table of kinds lacks; None where there is none."""
    kind = _default()
    return None if kind in KINDS and "jax" in KINDS[kind].frameworks else kind


def _default() -> str:
    """Return the kind of JAX's default backend; what JAX calls gpu, rows call cuda."""
    backend = jax.default_backend()
    return "cuda" if backend == "gpu" else backend


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip."""
    return jax.devices(kind)[0].device_kind if KINDS[kind].own_chip else None


def capability(kind: str) -> float | None:
    """Return an NVIDIA GPU's compute capability."""
    text = getattr(jax.devices(kind)[0], "compute_capability", None) if kind == "cuda" else None
    return float(text) if text else None


def compiles_first(device: Device) -> bool:
    """Return False: XLA compiles for the GPU that is there."""
    return False


def imitated_units(device: Device) -> tuple[str, ...]:
    """Return nothing: what is known of a kind of device is in the table."""
    return ()


def count(device: Device) -> int:
    """Return the devices; XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two of a CPU."""
    return len(jax.devices(device.kind))


def handle(device: Device) -> Any:
    """Return the device as `jax.device_put` takes it."""
    return jax.devices(device.kind)[device.index]


def synchronize(device: Device, last: Any = None) -> None:
    """Block on the last output; on every array that is alive where none is given, since JAX has no wait for a device.

    Source: https://docs.jax.dev/en/latest/async_dispatch.html
    """
    jax.block_until_ready(jax.live_arrays() if last is None else last)


def reset_peak_memory(device: Device) -> None:
    """Do nothing: JAX's maximum is the process's, and cannot be reset."""


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return bytes and method of an accelerator; None where its allocator keeps no count."""
    peak = (handle(device).memory_stats() or {}).get("peak_bytes_in_use")
    return (None, None) if peak is None else (peak, "jax_allocator_process_peak")


def seed(number: int) -> None:
    """Do nothing: JAX's random functions take their key as an argument."""


def random_state(device: Device) -> dict:
    """Return nothing: there is no state."""
    return {}


def restore_random_state(device: Device, state: dict) -> None:
    """Do nothing: there is no state."""


def allow_tf32(allowed: bool) -> None:
    """Set the precision of float32 products, whose default is TF32 on recent GPUs and bfloat16 on a TPU.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html
    """
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if allowed else "float32")


def software() -> dict:
    """Return framework, version and host threads: JAX's own pool has one for each core that it may use."""
    return {"framework": "jax", "framework_version": jax.__version__, "num_threads": identity.usable_cores()}


@contextmanager
def arithmetic(device: Device, precision: Precision) -> Iterator[None]:
    """Compute on a device in a precision inside a `with` block."""
    with (
        jax.default_device(handle(device)),
        jax.default_matmul_precision("tensorfloat32" if precision.uses_tf32 else "float32"),
        jax.enable_x64(precision.stored == "float64"),
    ):
        yield


def compile_function(function: Callable, compiled: bool = False) -> Callable:
    """Return a function of arrays as XLA's program; JAX knows nothing else."""
    return jax.jit(function)


def place(device: Device, array: Any) -> Any:
    """Return an array on a device; one that is there already is not copied."""
    return jax.device_put(array, handle(device))


def _chain(device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32") -> Operation:
    placed = [jax.device_put(part, handle(device)).astype(dtype) for part in host]
    compiled = jax.jit(lambda previous, *arrays: function(*arrays), keep_unused=True, donate_argnums=0)

    def run(previous: Any) -> Any:
        if previous is None:
            with jax.default_device(handle(device)):  # else it is made on the first one, and moved
                previous = jax.numpy.zeros_like(placed[0])
        return compiled(previous, *placed)

    return run


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return a product of two matrices that are given on the host."""
    return _chain(device, lambda left, right: left @ right, first, second, dtype=dtype)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy within the device's memory."""
    return _chain(device, lambda source: -source, host)


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the device."""
    return lambda previous: jax.device_put(host, handle(device))


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the host."""
    source, goal = jax.device_put(host, handle(device)), jax.devices("cpu")[0]
    return lambda previous: jax.device_put(source, goal)


def launch(device: Device) -> Operation:
    """Return an operation that adds one to one number."""
    return _chain(device, lambda number: number + 1, numpy.zeros(1, numpy.float32))


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(output.ravel()[0])


def training_step(device: Device) -> Operation:
    """Return a step of the small training; each takes what the one before it returned."""
    with jax.default_device(handle(device)):
        images, labels = (jax.device_put(part) for part in operations.batch())
        side = operations.PIXELS // 2
        weights = [jax.device_put(array) for array in operations.weights()]

    def loss(weights):
        layout = ("NHWC", "HWIO", "NHWC")
        hidden = jax.lax.conv_general_dilated(images, weights[0], (1, 1), "SAME", dimension_numbers=layout)
        hidden = jax.nn.relu(hidden).reshape(-1, side, 2, side, 2, operations.CHANNELS).max(axis=(2, 4))
        chances = jax.nn.log_softmax(hidden.reshape(operations.BATCH_SIZE, -1) @ weights[1])
        return -jax.numpy.take_along_axis(chances, labels[:, None], axis=1).mean()

    @jax.jit
    def update(weights):
        gradients = jax.grad(loss)(weights)
        return [weight - operations.LEARNING_RATE * part for weight, part in zip(weights, gradients, strict=True)]

    return lambda previous: update(weights if previous is None else previous)
