"""This study's workload at its smallest: whether a device computes it rightly, not how fast."""

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Workload
from benchbook.studies.datasets.generated import shapes

FRAMEWORKS = ("torch", "tensorflow", "jax", "mlx")


def build(device: Device) -> Workload:
    """Return the workload."""
    from benchbook.studies.mobilenetv2_energy import workload

    options = {"data_resident": True, "num_workers": 0, "batch_size": 8, "image_size": 32}
    return workload.build(shapes(2, 1, size=16), device, "tuned", **options)
