"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.studies import datasets

FRAMEWORKS = ("torch", "mlx")


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.mnist_speedup import workload

    return workload.build(
        datasets.load("digits"), device, "controlled", data_resident=True, num_workers=0, batch_size=8
    )
