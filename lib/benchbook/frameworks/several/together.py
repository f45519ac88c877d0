"""Several devices of one process, as JAX and TensorFlow have them."""

import os
from dataclasses import replace

from benchbook.frameworks import devices
from benchbook.frameworks.devices import Device, DeviceUnavailable

FLAG = "--xla_force_host_platform_device_count"


def make_room(framework: str, device_count: int) -> None:
    """Let a CPU be several devices of JAX or TensorFlow: for trying out, since they share its cores.

    The framework must not have begun to compute in this process.

    Sources: https://docs.jax.dev/en/latest/sharded-computation.html,
    https://www.tensorflow.org/api_docs/python/tf/config/set_logical_device_configuration
    """
    if device_count == 1:
        return
    if framework == "jax" and FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}={device_count}".strip()
    if framework == "tensorflow":
        devices.available("tensorflow")  # imports it, quietly, or says what is installed
        import tensorflow

        cpu = tensorflow.config.list_physical_devices("CPU")[0]
        parts = [tensorflow.config.LogicalDeviceConfiguration() for _ in range(device_count)]
        if tensorflow.config.get_logical_device_configuration(cpu) != parts:
            tensorflow.config.set_logical_device_configuration(cpu, parts)


def several(device: Device, device_count: int) -> Device:
    """Return a device that stands for several, where one process has them; a process of torch has one.

    Raises:
        DeviceUnavailable: there are fewer.
    """
    if device.framework == "torch" or device_count == 1:
        return device
    there = devices.count(device)
    if device_count > there:
        seen = f"allowed: up to {there}, as {device.framework} sees them"
        raise DeviceUnavailable(f"device_count {device_count} on this host; {seen}")
    return replace(device, count=device_count)
