"""MobileNetV2 on CIFAR-10, from ImageNet's weights or from none: what an article trained on an M1 and a V100.

Source: Chris Van Pelt, Weights & Biases, 2021, from two copies of its notebook; there train and test shared one cache
file, so that "validation" replayed training images. That is reproduced nowhere.
"""

from dataclasses import replace
from types import ModuleType
from typing import Any

from benchbook.frameworks.batches import check_fits
from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload, check_options
from benchbook.machine.libraries import part_of
from benchbook.studies import datasets
from benchbook.studies.mobilenetv2_energy import weights as initial
from benchbook.studies.mobilenetv2_energy.plan import Plan

VARIANTS = ("reference", "tuned")


def build(
    dataset: datasets.Dataset,
    device: Device,
    variant: str = "reference",
    trainable: bool = False,
    weights: tuple[str, initial.Weights] | str = "random",
    image_size: int = 128,
    batch_size: int = 64,
    learning_rate: float = 5e-4,
    data_resident: bool = False,
    num_workers: int = 2,
    num_test_images: int = 0,
    seed: int = 1,
    settings: Settings = Settings(),  # noqa: B008 (it is immutable)
) -> Workload:
    """Return the study's workload in the framework of the device; no other is imported.

    Adam with a learning rate that falls by 4 % in 50,000 steps, categorical cross-entropy, dropout before the head.

    Args:
        dataset: colour images in classes.
        device: where to train, and with which framework.
        variant: `reference` has a loader, threads of this process; `tuned` may have the data on the device instead,
            and in torch a frozen network's batch norms are folded into its convolutions.
        trainable: train all layers, or the head alone; then batch norms are in inference mode.
        weights: from `weights.choose`, or random.
        image_size: pixels a side that images are enlarged to, by nearest neighbours.
        batch_size: images a step.
        learning_rate: the first step's.
        data_resident: not with `reference`: keep all images on the device and enlarge them there.
        num_workers: threads that prepare images ahead (0: the training thread itself).
        num_test_images: test on the first so many; 0: on all.
        seed: of weights, dropout and data order.
        settings: how the network is computed, for `tuned`; found by `benchbook.measuring.tuned`.

    Raises:
        ValueError: an unknown variant, resident data with `reference`, images without colours, or a number out of
            range.
        NotImplementedError: settings that the framework does not have.
    """
    check_options(VARIANTS, variant, data_resident, num_workers, batch_size)
    if dataset.train_images.ndim != 4:
        raise ValueError(f"{dataset.name} has no colours; allowed: images of shape (n, height, width, 3)")
    if image_size < 32:
        raise ValueError(f"image_size {image_size}; allowed: 32 or more")
    if learning_rate <= 0:
        raise ValueError(f"learning_rate {learning_rate}; allowed: above 0")
    check_fits(batch_size, len(dataset.train_labels))
    if not 0 <= num_test_images <= len(dataset.test_labels):
        raise ValueError(f"num_test_images {num_test_images}; allowed: 0 to {len(dataset.test_labels)}")
    tested = slice(num_test_images or None)
    dataset = replace(dataset, test_images=dataset.test_images[tested], test_labels=dataset.test_labels[tested])
    num_classes = int(dataset.train_labels.max()) + 1
    kind, arrays = initial.choose(weights, num_classes, image_size, seed) if isinstance(weights, str) else weights
    plan = Plan(
        dataset=dataset,
        device=device,
        trainable=trainable,
        weights=kind,
        arrays=arrays,
        image_size=image_size,
        batch_size=batch_size,
        learning_rate=learning_rate,
        data_resident=data_resident,
        num_workers=num_workers,
        seed=seed,
        folded=variant == "tuned" and not trainable,
        settings=settings,
    )
    return _framework(device).build(plan)


def trainable_parameters(workload: Any) -> int:
    """Return how many numbers training changes: all but a frozen network's features and every moving statistic."""
    return _framework(workload.device).trainable_parameters(workload)


def source(device: Device) -> Any:
    """Return the class or function that makes the network in the framework of a device, for a reader to see."""
    module = _framework(device)
    return getattr(module, "Network", None) or module.make_model


def _framework(device: Device) -> ModuleType:
    return part_of("benchbook.studies.mobilenetv2_energy", device.framework)
