"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload

FRAMEWORKS = ("torch", "tensorflow", "jax", "mlx")


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.resnet50_cost import workload

    return workload.build(None, device, image_size=64, batch_size=4, parity_batch_size=4)
