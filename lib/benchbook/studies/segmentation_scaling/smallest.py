"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.studies import datasets

FRAMEWORKS = ("tensorflow", "jax")


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.segmentation_scaling import workload

    images = datasets.triangles(4, 2, size=128)
    return workload.build(images, device, "tuned", batch_size=2, width=0.25, data_resident=True, num_workers=0)
