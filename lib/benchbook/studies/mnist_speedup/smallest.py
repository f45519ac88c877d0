"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook import datasets
from benchbook.devices import Device
from benchbook.workload import Workload

FRAMEWORKS = ("torch", "mlx")


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.mnist_speedup import workload

    return workload.build(
        datasets.load("digits"), device, "controlled", data_resident=True, num_workers=0, batch_size=8
    )
