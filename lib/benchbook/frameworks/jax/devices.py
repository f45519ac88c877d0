"""JAX's devices: cpu, cuda, tpu; see `frameworks.backend.Backend`.

`previous` is an unused argument of a calibration operation: the computation waits for the
previous one and reuses its memory for the output.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy

from benchbook.frameworks.backend import Backend, Operation
from benchbook.frameworks.devices import Device, Place
from benchbook.machine.kinds import KINDS
from benchbook.machine.precisions import Precision


class JaxBackend(Backend):
    """JAX on its default backend or on the CPU."""

    framework = "jax"
    version = jax.__version__

    def accelerator(self) -> str | None:
        kind = jax.default_backend()
        if kind == "gpu":  # JAX's name for both NVIDIA's and AMD's GPUs
            return "rocm" if "rocm" in jax.devices()[0].client.platform_version.lower() else "cuda"
        return None if kind == "cpu" else kind

    def why_unseen(self, kind: str) -> str | None:
        if os.environ.get("JAX_PLATFORMS") == "cpu":
            return None  # the user's choice
        try:
            jax.devices(kind)
        except RuntimeError as error:
            return str(error).partition(". ")[0]
        return super().why_unseen(kind)

    def name(self, kind: str, index: int = 0) -> str | None:
        return jax.devices(kind)[index].device_kind if KINDS[kind].own_chip else None

    def in_use(self) -> list[Place]:
        there = [each for client in self._clients() for each in client.local_devices()]
        return [
            self._place(each)
            for each in there
            if (each.memory_stats() or {}).get("bytes_in_use", 1)
        ]

    def _clients(self) -> list:
        bridge = sys.modules.get("jax._src.xla_bridge")  # private: where it is not, none is known
        is_started = getattr(bridge, "backends_are_initialized", bool)
        return list(bridge.backends().values()) if is_started() else []

    def place_of(self, value: Any) -> Place | None:
        is_there = isinstance(value, jax.Array) and not value.is_deleted()
        return self._place(min(value.devices(), key=lambda each: each.id)) if is_there else None

    def _place(self, device: Any) -> Place:
        is_rocm = "rocm" in device.client.platform_version.lower()
        kind = device.platform if device.platform != "gpu" else "rocm" if is_rocm else "cuda"
        return kind, jax.devices(device.platform).index(device)

    def wait(self, last: Any = None) -> None:
        super().wait()

    def gather(self, key: str, values: list, seconds: float) -> list[list]:
        if self._clients() and jax.process_count() > 1:
            raise ValueError(
                f"JAX trains in {jax.process_count()} processes; allowed: one, or ranks of torch"
            )
        return [values]

    def capability(self, kind: str) -> float | None:
        text = getattr(jax.devices(kind)[0], "compute_capability", None) if kind == "cuda" else None
        return float(text) if text else None

    def count(self, device: Device) -> int:
        """Return the number of devices; XLA_FLAGS=--xla_force_host_platform_device_count=2
        splits a CPU into two."""
        return len(jax.devices(device.kind))

    def handle(self, device: Device) -> Any:
        """Return JAX's object for a device."""
        return jax.devices(device.kind)[device.index]

    def synchronize(self, device: Device, last: Any = None) -> None:
        """Wait for the last output, or without it for the kind's live arrays: JAX cannot wait
        for a device.

        Source: https://docs.jax.dev/en/latest/async_dispatch.html
        """
        jax.block_until_ready(jax.live_arrays(device.kind) if last is None else last)

    def peak_memory(self, device: Device) -> tuple[int | None, str | None]:
        """Return bytes and method, or None if the allocator does not count; the maximum cannot
        be reset."""
        peak = (self.handle(device).memory_stats() or {}).get("peak_bytes_in_use")
        return (None, None) if peak is None else (peak, "jax_allocator_process_peak")

    def allow_tf32(self, allowed: bool) -> None:
        """Set the precision of float32 products; the default is TF32 on recent GPUs and bfloat16
        on a TPU.

        Source: https://docs.jax.dev/en/latest/_autosummary/jax.default_matmul_precision.html
        """
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if allowed else "float32")

    @contextmanager
    def arithmetic(self, device: Device, precision: Precision) -> Iterator[None]:
        """Compute on a device in a precision inside a `with` block."""
        try:
            from jax import enable_x64
        except ImportError:  # JAX 0.7, which Colab has
            from jax.experimental import enable_x64
        with (
            jax.default_device(self.handle(device)),
            jax.default_matmul_precision("tensorfloat32" if precision.uses_tf32 else "float32"),
            enable_x64(precision.stored == "float64"),
        ):
            yield

    def compile_function(self, function: Callable, compiled: bool = False) -> Callable:
        """Return a function of arrays as an XLA program: JAX has no other form."""
        return jax.jit(function)

    def place(self, device: Device, array: Any) -> Any:
        """Return an array on a device, without a copy if it is already there."""
        return jax.device_put(array, self.handle(device))

    def operation(
        self, device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32"
    ) -> Operation:
        placed = [self.place(device, part).astype(dtype) for part in host]
        compiled = jax.jit(
            lambda previous, *arrays: function(*arrays), keep_unused=True, donate_argnums=0
        )

        def run(previous: Any) -> Any:
            if previous is None:
                with jax.default_device(
                    self.handle(device)
                ):  # otherwise it is made on the first device and moved
                    previous = jax.numpy.zeros_like(jax.eval_shape(function, *placed))
            return compiled(previous, *placed)

        return run

    def convolution(
        self, device: Device, images: numpy.ndarray, kernel: numpy.ndarray
    ) -> Operation:
        layout = {
            "window_strides": (1, 1),
            "padding": "SAME",
            "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
        }
        convolve = jax.lax.conv_general_dilated
        return self.operation(
            device, lambda left, right: convolve(left, right, **layout), images, kernel
        )

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        return lambda previous: self.place(device, host)

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        source, goal = self.place(device, host), jax.devices("cpu")[0]
        return lambda previous: jax.device_put(source, goal)


BACKEND = JaxBackend()
