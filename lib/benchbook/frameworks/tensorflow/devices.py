"""What TensorFlow answers: cpu, cuda, and metal on macOS. `benchbook.frameworks.devices` documents each function."""

import sys

from benchbook.frameworks.device import Device
from benchbook.machine import identity


def kinds() -> tuple[str, ...]:
    """Return the kinds of device, the fastest first."""
    import tensorflow

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
    import tensorflow

    if kind != "cuda":
        return {}
    first = tensorflow.config.list_physical_devices("GPU")[0]
    return tensorflow.config.experimental.get_device_details(first)


def compiles_first(device: Device) -> bool:
    """Return whether this build lacks binaries for an NVIDIA GPU: of the same major capability, and not above it.

    TensorFlow 2.20 has them up to 8.9, and PTX for all GPUs from Hopper on.
    """
    import tensorflow

    if device.capability is None:
        return False
    wanted = round(device.capability * 10)
    built = tensorflow.sysconfig.get_build_info().get("cuda_compute_capabilities", ())
    binaries = [int(name.removeprefix("sm_")) for name in built if name.startswith("sm_")]
    return not any(binary // 10 == wanted // 10 and binary <= wanted for binary in binaries)


def count(device: Device) -> int:
    """Return the devices; a CPU is several where logical devices were made of it."""
    import tensorflow

    return len(tensorflow.config.list_logical_devices("CPU" if device.is_cpu else "GPU"))


def handle(device: Device) -> str:
    """Return the device as `tf.device` takes it."""
    return f"{'CPU' if device.is_cpu else 'GPU'}:{device.index}"


def synchronize(device: Device, last: object = None) -> None:
    """Wait for every device.

    Source: https://www.tensorflow.org/api_docs/python/tf/test/experimental/sync_devices
    """
    import tensorflow

    tensorflow.test.experimental.sync_devices()


def reset_peak_memory(device: Device) -> None:
    """Start a new maximum; only CUDA keeps one."""
    import tensorflow

    if device.kind == "cuda":
        tensorflow.config.experimental.reset_memory_stats(handle(device))


def peak_memory(device: Device) -> tuple[int | None, str | None]:
    """Return bytes and method of an accelerator; Metal's plug-in keeps no count."""
    import tensorflow

    if device.kind != "cuda":
        return None, None
    return tensorflow.config.experimental.get_memory_info(handle(device))["peak"], "cuda_allocator_peak"


def seed(number: int) -> None:
    """Seed stateful functions and the global generator."""
    import tensorflow

    tensorflow.random.set_seed(number)
    tensorflow.random.get_global_generator().reset_from_seed(number)


def random_state(device: Device) -> dict:
    """Return the state of the global generator."""
    import tensorflow

    return {"generator": tensorflow.random.get_global_generator().state.numpy()}


def restore_random_state(device: Device, state: dict) -> None:
    """Put the global generator back."""
    import tensorflow

    tensorflow.random.get_global_generator().state.assign(state["generator"])


def set_precision(precision: str) -> None:
    """Set TF32, which TensorFlow uses by default where it can.

    Source: https://www.tensorflow.org/api_docs/python/tf/config/experimental/enable_tensor_float_32_execution
    """
    import tensorflow

    tensorflow.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def software() -> tuple[str, int]:
    """Return version and host threads; TensorFlow's 0 stands for as many as there are cores."""
    import tensorflow

    threads = tensorflow.config.threading.get_intra_op_parallelism_threads()
    return tensorflow.__version__, threads or identity.usable_cores()
