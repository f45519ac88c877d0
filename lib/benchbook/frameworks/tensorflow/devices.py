"""TensorFlow's devices: cpu, cuda, and metal on macOS; see `frameworks.backend.Backend`.

Each calibration operation allocates its output.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy
import tensorflow

from benchbook.frameworks.backend import Backend, Operation, has_binaries
from benchbook.frameworks.devices import Device, Place
from benchbook.machine.precisions import Precision

# Where a release has it elsewhere, no device is known to be in use, and no operation to be misplaced.
PRIVATE = sys.modules.get("tensorflow.python.eager.context")


class TensorFlowBackend(Backend):
    """TensorFlow on a GPU or on the CPU."""

    framework = "tensorflow"
    version = tensorflow.__version__

    def accelerator(self) -> str | None:
        kinds = {each.device_type for each in tensorflow.config.list_physical_devices()}
        if "GPU" not in kinds:
            return min(
                (kind.lower() for kind in kinds - {"CPU"}), default=None
            )  # such as Intel's XPU
        if sys.platform == "darwin":
            return "metal"
        return "rocm" if tensorflow.test.is_built_with_rocm() else "cuda"

    def why_unusable(self, kind: str) -> str:
        """Refuse compute capability 12, for which TensorFlow 2.20 only has PTX, and the driver
        refuses that.

        Source: https://github.com/tensorflow/tensorflow/issues/101746
        """
        capability = self.capability(kind) or 0.0
        if capability < 12 or has_binaries(capability, self._built()):
            return ""
        return f"tensorflow {self.version} has no code for compute capability {capability:g}"

    def name(self, kind: str, index: int = 0) -> str | None:
        return self._details(kind, index).get("device_name")

    def in_use(self) -> list[Place]:
        started = getattr(PRIVATE, "context_safe", bool)()
        if getattr(started, "_context_handle", None) is None:
            return []
        places = [self._place(each.name) for each in tensorflow.config.list_logical_devices()]
        memory = tensorflow.config.experimental.get_memory_info  # Metal's plug-in does not count it
        return [
            (kind, number)
            for kind, number in places
            if kind != "cuda" or memory(f"GPU:{number}")["current"]
        ]

    def place_of(self, value: Any) -> Place | None:
        is_own = isinstance(value, tensorflow.Tensor | tensorflow.Variable) and value.device
        return self._place(value.device) if is_own else None

    def _place(self, name: str) -> Place:
        kind, index = name.split(":")[-2:]
        return ("cpu" if kind == "CPU" else self.accelerator()), int(index)

    def capability(self, kind: str) -> float | None:
        pair = self._details(kind).get("compute_capability")
        return pair[0] + pair[1] / 10 if pair else None

    def _details(self, kind: str, index: int = 0) -> dict:
        if kind != "cuda":
            return {}
        device = tensorflow.config.list_physical_devices("GPU")[index]
        return tensorflow.config.experimental.get_device_details(device)

    def _built(self) -> list[str]:
        return tensorflow.sysconfig.get_build_info().get("cuda_compute_capabilities", [])

    def compiles_first(self, device: Device) -> bool:
        """Return whether the build has no binaries for an NVIDIA GPU: 2.20 has them up to 8.9,
        PTX from Hopper on."""
        return device.capability is not None and not has_binaries(device.capability, self._built())

    def handle(self, device: Device) -> str:
        """Return the device's name, as TensorFlow's functions take it."""
        return f"{'CPU' if device.is_cpu else 'GPU'}:{device.index}"

    def synchronize(self, device: Device, last: object = None) -> None:
        """Wait for every device.

        Source: https://www.tensorflow.org/api_docs/python/tf/test/experimental/sync_devices
        """
        tensorflow.test.experimental.sync_devices()

    def reset_peak_memory(self, device: Device) -> None:
        if device.kind == "cuda":  # Metal's plug-in does not count memory
            tensorflow.config.experimental.reset_memory_stats(self.handle(device))

    def peak_memory(self, device: Device) -> tuple[int | None, str | None]:
        if device.kind != "cuda":
            return None, None
        return tensorflow.config.experimental.get_memory_info(self.handle(device))[
            "peak"
        ], "cuda_allocator_peak"

    def random_state(self, device: Device) -> dict:
        return {"generator": tensorflow.random.get_global_generator().state.numpy()}

    def restore_random_state(self, device: Device, state: dict) -> None:
        tensorflow.random.get_global_generator().state.assign(state["generator"])

    def allow_tf32(self, allowed: bool) -> None:
        """Set TF32, which TensorFlow uses by default.

        Source:
        https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_tensor_float_32_execution
        """
        tensorflow.config.experimental.enable_tensor_float_32_execution(allowed)

    def num_threads(self) -> int:
        return (
            tensorflow.config.threading.get_intra_op_parallelism_threads() or super().num_threads()
        )

    @contextmanager
    def arithmetic(self, device: Device, precision: Precision) -> Iterator[None]:
        """Compute on a device in a precision inside a `with` block."""
        self.allow_tf32(precision.uses_tf32)
        with tensorflow.device(self.handle(device)):
            yield

    def compile_function(self, function: Callable, compiled: bool = False) -> Callable:
        """Return a function of arrays as a graph, compiled by XLA if `compiled`."""
        # Each partial is a new function: TensorFlow would count the traces of several functions
        # with the same source as those of one, and warn that it is traced too often.
        return tensorflow.function(functools.partial(function), jit_compile=compiled)

    def place(self, device: Device, array: Any) -> Any:
        """Return an array on a device, without a copy if it is already there."""
        with tensorflow.device(self.handle(device)):
            return tensorflow.convert_to_tensor(array)

    def _placed(self, device: Device, host: numpy.ndarray, dtype: str = "float32") -> Any:
        with tensorflow.device(self.handle(device)):
            return tensorflow.cast(host, dtype)

    def operation(
        self, device: Device, function: Callable, *host: numpy.ndarray, dtype: str = "float32"
    ) -> Operation:
        """Return an operation that was tried: TensorFlow lets the CPU compute what a device
        lacks, without a word.

        Raises:
            NotImplementedError: another device computes it.
        """
        placed = [self._placed(device, part, dtype) for part in host]
        if not (place := function(*placed).device).endswith(self.handle(device)):
            raise NotImplementedError(
                f"{place.rpartition('device:')[2]} computes it; allowed: {self.handle(device)}"
            )
        return lambda previous: function(*placed)

    def convolution(
        self, device: Device, images: numpy.ndarray, kernel: numpy.ndarray
    ) -> Operation:
        return self.operation(
            device, lambda left, right: tensorflow.nn.conv2d(left, right, 1, "SAME"), images, kernel
        )

    def host_to_device(self, device: Device, host: numpy.ndarray) -> Operation:
        return self._transfer(replace(device, kind="cpu", index=0), device, host)

    def device_to_host(self, device: Device, host: numpy.ndarray) -> Operation:
        return self._transfer(device, replace(device, kind="cpu", index=0), host)

    def _transfer(self, origin: Device, goal: Device, host: numpy.ndarray) -> Operation:
        """Return an operation that copies an array each time.

        `tensorflow.identity` on another device copies at its first call only: the tensor keeps
        that copy as its mirror. An explicit copy neither makes nor uses mirrors.

        Source: tensorflow/core/common_runtime/eager/core.cc, CopyTensorHandleToDevice
        (TensorFlow 2.20)
        """
        copied = self._placed(origin, host)._copy  # private: without it, no transfer is measured
        return lambda previous: copied(device_name=self.handle(goal))


BACKEND = TensorFlowBackend()
