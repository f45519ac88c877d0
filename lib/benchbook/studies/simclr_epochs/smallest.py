"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.datasets.generated import shapes
from benchbook.devices import Device
from benchbook.workload import Workload

FRAMEWORKS = ("torch",)


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.simclr_epochs import workload

    return workload.build(shapes(2, 1, size=16), device, "tuned", batch_size=8, parity_batch_size=8)
