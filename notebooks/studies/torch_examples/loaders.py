"""The loaders of PyTorch's examples with 28x28 images; see `plan`."""

from collections.abc import Iterable

import numpy
import torch
from torch.utils.data import DataLoader

from benchbook.frameworks.torch.runtime import ResidentArrays, TransformedImages, order_generator
from benchbook.studies.experiments.plan import Inputs
from benchbook.studies.torch_examples.plan import MEAN, STANDARD_DEVIATION, Plan


def inputs(plan: Plan, test_batch_size: int, normalised: bool = True) -> Inputs:
    """Return two functions: one from an epoch to its training batches, one to the test batches.

    As in the examples' script, a loader shuffles the test images as well. Resident test images
    keep their order.

    Args:
        plan: the point's choices; its images are 28x28.
        test_batch_size: images per test batch.
        normalised: whether pixels are normalised by MNIST's mean and standard deviation; if not,
        they are 0 to 1.
    """
    data = plan.dataset
    parts = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    if plan.data_resident:
        train, test = (
            ResidentArrays(plan.device, pixels(images, normalised), labels)
            for images, labels in parts
        )

        def shuffled(epoch: int) -> Iterable[torch.Tensor]:
            order = torch.randperm(
                len(data.train_labels), generator=order_generator(plan.seed, epoch)
            )
            return order.split(plan.batch_size)

        whole = torch.arange(len(data.test_labels))
        return lambda epoch: train.batches(shuffled(epoch)), lambda: test.batches(
            whole.split(test_batch_size)
        )
    from torchvision import (
        transforms,
    )  # its import takes seconds, and resident images do not need it

    normalise = [transforms.Normalize((MEAN,), (STANDARD_DEVIATION,))] if normalised else []
    transform = transforms.Compose([transforms.ToTensor(), *normalise])
    train, test = (TransformedImages(*part, transform) for part in parts)
    # MPS has no pinned memory, so the article's flag had no effect there.
    pinned = plan.device.features.pins_memory
    options = {"num_workers": plan.workers, "shuffle": plan.shuffles, "pin_memory": pinned}
    return (
        lambda epoch: DataLoader(
            train, plan.batch_size, generator=order_generator(plan.seed, epoch), **options
        ),
        lambda: DataLoader(
            test, test_batch_size, generator=torch.Generator().manual_seed(plan.seed), **options
        ),
    )


def pixels(images: numpy.ndarray, normalised: bool) -> numpy.ndarray:
    """Return float32 images of shape (n, 1, 28, 28), computed as torchvision's transforms
    compute each image."""
    floats = torch.tensor(images).unsqueeze(1).float().div(255)
    return (floats.sub(MEAN).div(STANDARD_DEVIATION) if normalised else floats).numpy()
