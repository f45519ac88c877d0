"""What TensorFlow answers: cpu, cuda, and metal on macOS; see `frameworks.devices.Backend`.

Each operation that a device is calibrated with allocates its output.
"""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import tensorflow

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device, Operation
from benchbook.machine import identity
from benchbook.machine.precisions import Precision


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    if not tensorflow.config.list_physical_devices("GPU"):
        return ("cpu",)
    return ("metal" if sys.platform == "darwin" else "cuda", "cpu")


def unnamed_accelerator() -> str | None:
    """Return nothing: TensorFlow calls every accelerator a GPU."""


def name(kind: str) -> str | None:
    """Return what the driver calls the device; None where it is the machine's own chip."""
    return _details(kind).get("device_name")


def capability(kind: str) -> float | None:
    """Return an NVIDIA GPU's compute capability."""
    pair = _details(kind).get("compute_capability")
    return pair[0] + pair[1] / 10 if pair else None


def _details(kind: str) -> dict:
    if kind != "cuda":
        return {}
    first = tensorflow.config.list_physical_devices("GPU")[0]
    return tensorflow.config.experimental.get_device_details(first)


def compiles_first(device: Device) -> bool:
    """Return whether this build lacks binaries for an NVIDIA GPU: of the same major capability, and not above it.

    TensorFlow 2.20 has them up to 8.9, and PTX for all GPUs from Hopper on.
    """
    if device.capability is None:
        return False
    wanted = round(device.capability * 10)
    built = tensorflow.sysconfig.get_build_info().get("cuda_compute_capabilities", ())
    binaries = [int(name.removeprefix("sm_")) for name in built if name.startswith("sm_")]
    return not any(binary // 10 == wanted // 10 and binary <= wanted for binary in binaries)


def imitated_units(device: Device) -> tuple[str, ...]:
    """Return nothing: what is known of a kind of device is in the table."""
    return ()


def count(device: Device) -> int:
    """Return the devices; a CPU is several where logical devices were made of it."""
    return len(tensorflow.config.list_logical_devices("CPU" if device.is_cpu else "GPU"))


def handle(device: Device) -> str:
    """Return the device as `tf.device` takes it."""
    return f"{'CPU' if device.is_cpu else 'GPU'}:{device.index}"


def synchronize(device: Device, last: object = None) -> None:
    """Wait for every device.

    Source: https://www.tensorflow.org/api_docs/python/tf/test/experimental/sync_devices
    """
    tensorflow.test.experimental.sync_devices()


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum; only CUDA keeps one."""
    if device.kind == "cuda":
        tensorflow.config.experimental.reset_memory_stats(handle(device))


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return bytes and method of an accelerator; Metal's plug-in keeps no count."""
    if device.kind != "cuda":
        return None, None
    return tensorflow.config.experimental.get_memory_info(handle(device))["peak"], "cuda_allocator_peak"


def seed(number: int) -> None:
    """Seed stateful functions and the global generator."""
    tensorflow.random.set_seed(number)
    tensorflow.random.get_global_generator().reset_from_seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the global generator."""
    return {"generator": tensorflow.random.get_global_generator().state.numpy()}


def restore_random_state(device: Device, state: dict) -> None:
    """Put the global generator back."""
    tensorflow.random.get_global_generator().state.assign(state["generator"])


def allow_tf32(allowed: bool) -> None:
    """Set TF32, which TensorFlow uses by default where it can.

    Source: https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_tensor_float_32_execution
    """
    tensorflow.config.experimental.enable_tensor_float_32_execution(allowed)


def software() -> dict:
    """Return framework, version and host threads; TensorFlow's 0 stands for as many as there are cores."""
    threads = tensorflow.config.threading.get_intra_op_parallelism_threads()
    threads = threads or identity.usable_cores()
    return {"framework": "tensorflow", "framework_version": tensorflow.__version__, "num_threads": threads}


def _place(device: Device, *host: numpy.ndarray, dtype: str = "float32") -> list:
    with tensorflow.device(handle(device)):
        return [tensorflow.cast(tensorflow.constant(part), dtype) for part in host]


@contextmanager
def arithmetic(device: Device, precision: Precision) -> Iterator[None]:
    """Compute on a device in a precision inside a `with` block."""
    allow_tf32(precision.uses_tf32)
    with tensorflow.device(handle(device)):
        yield


def compile_function(function: Callable, compiled: bool = False) -> Callable:
    """Return a function of arrays as a graph, with XLA if asked."""
    # A partial is a new function each time: TensorFlow warns of one that is traced too often where several have the
    # same source.
    return tensorflow.function(functools.partial(function), jit_compile=compiled)


def place(device: Device, array: Any) -> Any:
    """Return an array on a device; one that is there already is not copied."""
    with tensorflow.device(handle(device)):
        return tensorflow.convert_to_tensor(array)


def multiplication(device: Device, first: numpy.ndarray, second: numpy.ndarray, dtype: str) -> Operation:
    """Return a product of two matrices that are given on the host."""
    left, right = _place(device, first, second, dtype=dtype)
    return lambda previous: tensorflow.matmul(left, right)


def copy(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy within the device's memory."""
    (source,) = _place(device, host)
    return lambda previous: tensorflow.negative(source)  # `identity` copies nothing


def host_to_device(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the device."""
    return _transfer(Device("cpu", device.name, "tensorflow"), device, host)


def device_to_host(device: Device, host: numpy.ndarray) -> Operation:
    """Return a copy towards the host."""
    return _transfer(device, Device("cpu", device.name, "tensorflow"), host)


def _transfer(origin: Device, goal: Device, host: numpy.ndarray) -> Operation:
    """Return a copy that is made anew each time.

    `tensorflow.identity` under another device moves nothing after its first call: the tensor keeps that copy as its
    mirror. An explicit copy neither makes nor takes mirrors.

    Source: tensorflow/core/common_runtime/eager/core.cc, CopyTensorHandleToDevice (TensorFlow 2.20)
    """
    (source,) = _place(origin, host)
    return lambda previous: source._copy(device_name=handle(goal))


def launch(device: Device) -> Operation:
    """Return an operation that adds one to one number."""
    (number,) = _place(device, numpy.zeros(1, numpy.float32))
    return lambda previous: number + 1


def read(output: Any) -> float:
    """Copy one number of an output to the host."""
    return float(tensorflow.reshape(output, [-1])[0])


def training_step(device: Device) -> Operation:
    """Return a step of the small training; each takes what the one before it returned."""
    with tensorflow.device(handle(device)):
        images, labels = (tensorflow.constant(part) for part in operations.batch())
        weights = [tensorflow.Variable(array) for array in operations.weights()]

    @tensorflow.function
    def update():
        with tensorflow.GradientTape() as tape:
            hidden = tensorflow.nn.relu(tensorflow.nn.conv2d(images, weights[0], 1, "SAME"))
            hidden = tensorflow.reshape(tensorflow.nn.max_pool2d(hidden, 2, 2, "SAME"), (operations.BATCH_SIZE, -1))
            losses = tensorflow.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ weights[1])
            loss = tensorflow.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(operations.LEARNING_RATE * gradient)
        return loss

    def step(previous):
        with tensorflow.device(handle(device)):
            return update()

    return step
