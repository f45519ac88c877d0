"""Several devices of one process, as JAX has them."""

import os
from dataclasses import replace

from benchbook import devices
from benchbook.devices import Device, DeviceUnavailable

FLAG = "--xla_force_host_platform_device_count"


def make_room(framework: str, device_count: int) -> None:
    """Let a CPU be several devices of JAX: for trying out, since they share its cores. JAX must not have begun.

    Source: https://docs.jax.dev/en/latest/sharded-computation.html
    """
    if framework == "jax" and device_count > 1 and FLAG not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}={device_count}".strip()


def several(device: Device, device_count: int) -> Device:
    """Return a device that stands for several, where one process has them; a process of torch has one.

    Raises:
        DeviceUnavailable: there are fewer.
    """
    if device.framework != "jax" or device_count == 1:
        return device
    there = devices.count(device)
    if device_count > there:
        raise DeviceUnavailable(f"device_count {device_count} on this host; allowed: up to {there}, as JAX sees them")
    return replace(device, count=device_count)
