"""ResNet-50 (v1.5): what an article trained on ImageNet, on four V100 and on a Cloud TPU v2.

Source: Elmar Haussmann (RiseML), Comparing Google's TPUv2 against Nvidia's V100 on ResNet-50, 2018-04-26. The network
is torchvision's; Keras's own ResNet50 is v1 with convolution biases, so that the same one is built there.
"""

from types import ModuleType
from typing import Any

from benchbook.frameworks.batches import check_fits
from benchbook.frameworks.devices import Device, Group
from benchbook.frameworks.workload import Settings, Workload, check_options
from benchbook.machine.libraries import part_of
from benchbook.studies.datasets import collections
from benchbook.studies.datasets.collections import Collection
from benchbook.studies.resnet50_cost import weights as initial
from benchbook.studies.resnet50_cost.plan import EPOCHS, IMAGENET_CLASSES, SYNTHETIC, Plan

__all__ = ["REPLICA", "VARIANTS", "Group", "build", "build_replica", "collect", "source", "trainable_parameters"]

VARIANTS = ("reference", "tuned")
REPLICA = "benchbook.studies.resnet50_cost.workload:build_replica"  # as `parallel.Job` takes it


def collect(dataset: str, data_root: str = "", allow_embedded: bool = False) -> Collection | None:
    """Return the pictures to train on; None for synthetic ones, which are made on the device.

    Raises:
        ValueError, DatasetUnavailable: see `datasets.collections.collect`.
    """
    if dataset == SYNTHETIC:
        return None
    if dataset not in collections.NAMES:
        raise ValueError(f"unknown data set {dataset!r}; allowed: {SYNTHETIC}, {', '.join(collections.NAMES)}")
    return collections.collect(dataset, data_root, allow_embedded)


def build(
    collection: Collection | None,
    device: Device,
    variant: str = "reference",
    image_size: int = 224,
    batch_size: int = 256,
    learning_rate: float = 0.1,
    schedule_epochs: float = EPOCHS,
    num_workers: int = 2,
    parity_batch_size: int = 8,
    sync_batch_norm: bool = False,
    seed: int = 1,
    group: Group = Group(),  # noqa: B008 (it is immutable)
    settings: Settings = Settings(),  # noqa: B008
) -> Workload:
    """Return the study's workload in the framework of the device; no other is imported.

    Nesterov momentum, weight decay on all but batch norms, and `plan.schedule` step by step.

    Args:
        collection: from `collect`; None trains on one synthetic batch that lies on the device, without augmentation.
        device: where to train, and with which framework; with Keras its count is of devices that train together, all
            of this process.
        variant: `reference` as the article's scripts, or `tuned`.
        image_size: pixels a side.
        batch_size: images in a step, of all devices together.
        learning_rate: the highest one, for each 256 images in a step.
        schedule_epochs: epochs that the protocol's 90 are squeezed or stretched to.
        num_workers: workers that decode and crop pictures ahead (0: the training thread itself).
        parity_batch_size: images in a batch that is repeated in float64, which is slow.
        sync_batch_norm: batch norms of several devices see the whole batch; else each sees its part.
        seed: of weights, synthetic images, crops and data order.
        group: the devices that train together, and which of them this is.
        settings: how the network is computed.

    Raises:
        ValueError: an unknown variant, or a number out of range.
        NotImplementedError: settings that the framework does not have.
    """
    check_options(VARIANTS, variant, False, num_workers, batch_size)
    _check(image_size, batch_size, learning_rate, schedule_epochs, parity_batch_size, _num_devices(device, group))
    num_classes = collection.num_classes if collection else IMAGENET_CLASSES
    plan = Plan(
        collection=collection,
        device=device,
        arrays=initial.draw(num_classes, seed),
        image_size=image_size,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule_epochs=schedule_epochs,
        num_workers=num_workers,
        parity_batch_size=parity_batch_size,
        sync_batch_norm=sync_batch_norm,
        group=group,
        seed=seed,
        settings=settings,
    )
    if collection:
        check_fits(batch_size, len(collection.train))
    return _framework(device).build(plan)


def build_replica(
    device: Device, group: Group, dataset: str, data_root: str, allow_embedded: bool, settings: dict, **options: Any
) -> Workload:
    """Return one device's part of the workload, from values that JSON can hold; see `build` and `collect`."""
    collection = collect(dataset, data_root, allow_embedded)
    return build(collection, device, group=group, settings=Settings(**settings), **options)


def trainable_parameters(workload: Any) -> int:
    """Return how many numbers training changes: all but batch norms' moving statistics."""
    return _framework(workload.device).trainable_parameters(workload)


def source(device: Device) -> Any:
    """Return the class or function that makes the network in the framework of a device, for a reader to see."""
    module = _framework(device)
    return getattr(module, "Network", None) or module.make_model


def _check(
    image_size: int,
    batch_size: int,
    learning_rate: float,
    schedule_epochs: float,
    parity_batch_size: int,
    num_devices: int,
) -> None:
    if image_size < 32:
        raise ValueError(f"image_size {image_size}; allowed: 32 or more")
    above = {"learning_rate": learning_rate, "schedule_epochs": schedule_epochs, "parity_batch_size": parity_batch_size}
    for name, value in above.items():
        if value <= 0:
            raise ValueError(f"{name} {value}; allowed: above 0")
    if batch_size % num_devices:
        raise ValueError(f"batch_size {batch_size}; allowed on {num_devices} devices: a multiple of {num_devices}")


def _num_devices(device: Device, group: Group) -> int:
    """Return how many devices share a batch: torch's each have a process, Keras's are all in one."""
    return group.size if device.framework == "torch" else device.count


def _framework(device: Device) -> ModuleType:
    return part_of("benchbook.studies.resnet50_cost", device.framework)
