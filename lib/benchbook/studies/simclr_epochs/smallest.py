"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.studies.datasets.generated import shapes

FRAMEWORKS = ("torch",)


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.simclr_epochs import workload

    return workload.build(shapes(2, 1, size=16), device, "tuned", batch_size=8, parity_batch_size=8)
