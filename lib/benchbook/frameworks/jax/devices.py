"""What JAX answers: cpu, cuda, tpu. `benchbook.frameworks.devices` documents each function."""

from typing import Any

from benchbook.frameworks.device import Device
from benchbook.machine import identity
from benchbook.machine.kinds import KINDS


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
    import jax

    backend = jax.default_backend()
    return "cuda" if backend == "gpu" else backend


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip."""
    import jax

    return jax.devices(kind)[0].device_kind if KINDS[kind].own_chip else None


def capability(kind: str) -> float | None:
    """Return an NVIDIA GPU's compute capability."""
    import jax

    text = getattr(jax.devices(kind)[0], "compute_capability", None) if kind == "cuda" else None
    return float(text) if text else None


def compiles_first(device: Device) -> bool:
    """Return False: XLA compiles for the GPU that is there."""
    return False


def count(device: Device) -> int:
    """Return the devices; XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two of a CPU."""
    import jax

    return len(jax.devices(device.kind))


def handle(device: Device) -> Any:
    """Return the device as `jax.device_put` takes it."""
    import jax

    return jax.devices(device.kind)[device.index]


def synchronize(device: Device, last: Any = None) -> None:
    """Block on the last output; on every array that is alive where none is given, since JAX has no wait for a device.

    Source: https://docs.jax.dev/en/latest/async_dispatch.html
    """
    import jax

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


def set_precision(precision: str) -> None:
    """Set the precision of float32 products, whose default is TF32 on recent GPUs and bfloat16 on a TPU.

    Source: https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html
    """
    import jax

    jax.config.update("jax_default_matmul_precision", {"fp32": "float32", "tf32": "tensorfloat32"}[precision])


def software() -> tuple[str, int]:
    """Return version and host threads: JAX's own pool has one for each core that it may use."""
    import jax

    return jax.__version__, identity.usable_cores()
