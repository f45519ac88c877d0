"""The MNIST network of the PyTorch examples, and the loaders that a published speed-up compared.

Source: https://github.com/pytorch/examples/tree/main/mnist as of May 2022; figures of the Chinese PyTorch
blog post of 2022-05-19.
"""

from collections.abc import Callable, Iterable

import numpy
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchbook.frameworks.batches import order_seed
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import Adadelta, LabelsByImage, Plain
from benchbook.frameworks.torch.training import Batch, TorchWorkload, flops_per_sample
from benchbook.frameworks.workload import Settings, check_options
from benchbook.studies import datasets
from benchbook.studies.mnist_speedup.lean import ByteDropout, FormatKeepingMaxPool2d
from benchbook.studies.mnist_speedup.smallest import FRAMEWORKS

MEAN, STANDARD_DEVIATION = 0.1307, 0.3081  # of MNIST's training pixels, from the examples' script
TEST_BATCH_SIZE = 1000
MOST_PARITY_IMAGES = 64  # in a batch that is repeated in float64, which is slow
VARIANTS = ("reference", "controlled", "tuned")


class Network(nn.Module):
    """Two convolutions and two dense layers: (n, 1, 28, 28) to log-probabilities (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(1, 32, kernel_size=3)
        self.convolution2 = nn.Conv2d(32, 64, kernel_size=3)
        self.pool = nn.MaxPool2d(2)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.dense1 = nn.Linear(9216, 128)
        self.dense2 = nn.Linear(128, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the ten classes."""
        hidden = F.relu(self.convolution1(images))
        hidden = F.relu(self.convolution2(hidden))
        hidden = self.dropout1(self.pool(hidden))
        hidden = F.relu(self.dense1(hidden.flatten(1)))
        return F.log_softmax(self.dense2(self.dropout2(hidden)), dim=1)


class LeanNetwork(Network):
    """The same function in less time on a CPU: ReLUs in place, the second one where pooling has left a quarter."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = FormatKeepingMaxPool2d(2)
        self.dropout1, self.dropout2 = ByteDropout(0.25), ByteDropout(0.5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the ten classes."""
        hidden = F.relu_(self.convolution1(images))
        hidden = self.dropout1(F.relu_(self.pool(self.convolution2(hidden))))
        hidden = F.relu_(self.dense1(hidden.flatten(1)))
        return F.log_softmax(self.dense2(self.dropout2(hidden)), dim=1)


class TransformedImages(Dataset):
    """Images that are normalised one at a time on the host, as torchvision's MNIST with transforms does.

    Args:
        images: uint8, shape (n, 28, 28).
        labels: int64, shape (n,).
        normalised: by MNIST's mean and standard deviation; else pixels are 0 to 1.
    """

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray, normalised: bool = True) -> None:
        from torchvision import transforms  # takes seconds, which resident images need not wait for

        self.images = images
        self.labels = labels.tolist()
        normalise = [transforms.Normalize((MEAN,), (STANDARD_DEVIATION,))] if normalised else []
        self.transform = transforms.Compose([transforms.ToTensor(), *normalise])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class ResidentImages:
    """Images normalised once and kept on the device: no loader, no transfer.

    Args:
        images: uint8, shape (n, 28, 28).
        labels: int64, shape (n,).
        kind: the torch device that keeps them.
        normalised: as for TransformedImages.
    """

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray, kind: str, normalised: bool = True) -> None:
        pixels = torch.from_numpy(images.copy()).to(kind).unsqueeze(1).float().div(255)
        self.images = pixels.sub(MEAN).div(STANDARD_DEVIATION) if normalised else pixels
        self.labels = torch.from_numpy(labels.copy()).to(kind)

    def batches(self, batch_size: int, shuffle_seed: int | None = None) -> Iterable[Batch]:
        """Yield batches in order, or in the order that the seed gives."""
        if shuffle_seed is None:
            yield from zip(self.images.split(batch_size), self.labels.split(batch_size), strict=True)
            return
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(shuffle_seed))
        for indices in order.to(self.labels.device).split(batch_size):
            yield self.images[indices], self.labels[indices]


def build(
    dataset: datasets.Dataset,
    device: Device,
    variant: str = "reference",
    data_resident: bool = False,
    num_workers: int = 1,
    batch_size: int = 64,
    seed: int = 1,
    settings: Settings = Settings(),  # noqa: B008 (it is immutable)
) -> TorchWorkload:
    """Return the study's workload: Adadelta at learning rate 1, divided by 1/0.7 after each epoch.

    Args:
        dataset: 28x28 images in ten classes.
        device: where to train.
        variant: `reference` takes the article's loaders: on the CPU no worker and no shuffling, on an
            accelerator one worker, pinned memory and shuffling. `controlled` shuffles everywhere and takes
            `num_workers` everywhere. `tuned` as `controlled`, on a CPU with `LeanNetwork`.
        data_resident: not with `reference`: keep all images on the device instead.
        num_workers: with `controlled`, processes that prepare images (0: the training process itself).
        batch_size: images a step.
        seed: of weights, dropout and data order.
        settings: how the network is computed, for `tuned`; found by `benchbook.measuring.tuned`. Adadelta has no
            fused form in torch, so for `fused` its step is compiled.

    Raises:
        ValueError: an unknown variant, resident data with `reference`, or a number out of range.
        NotImplementedError: a framework that the study is not written in, or settings that it does not have.
    """
    check_options(VARIANTS, variant, data_resident, num_workers, batch_size)
    if device.framework not in FRAMEWORKS:
        raise NotImplementedError(f"{device.framework} with mnist_speedup; allowed: {', '.join(FRAMEWORKS)}")
    if variant == "reference":
        num_workers = 0 if device.is_cpu else 1
    if device.framework == "mlx":
        from benchbook.studies.mnist_speedup import mlx

        return mlx.build(dataset, device, variant, data_resident, num_workers, batch_size, seed, settings)
    torch.manual_seed(seed)
    lean = variant == "tuned" and device.is_cpu
    model = (LeanNetwork() if lean else Network()).to(device.kind)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=torch.tensor(1.0) if settings.fused else 1.0)
    shuffle = variant != "reference" or not device.is_cpu
    train, test = inputs(dataset, device, None if data_resident else num_workers, batch_size, seed, shuffle)
    return TorchWorkload(
        device=device,
        batch_size=batch_size,
        model=model,
        loss=F.nll_loss,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7),
        train_batches=train,
        test_batches=test,
        columns=columns("mnist_cnn", dataset, 0 if data_resident else num_workers)
        | {"flops_per_sample": flops_per_sample(model, torch.zeros(1, 1, 28, 28))},
        plain=plain(dataset, batch_size),
        settings=settings,
    )


def columns(model: str, dataset: datasets.Dataset, num_workers: int) -> dict:
    """Return the columns of a row that say what was trained on which images, the same for every framework."""
    return {
        "model": model,
        "dataset": dataset.name,
        "dataset_samples": len(dataset.train_labels),
        "image_size": dataset.train_images.shape[1],
        "num_workers": num_workers,
    }


def source(device: Device) -> type:
    """Return the class that makes the network in the framework of a device, for a reader to see."""
    if device.framework == "mlx":
        from benchbook.studies.mnist_speedup import mlx

        return mlx.Network
    return Network


def plain(dataset: datasets.Dataset, batch_size: int) -> Plain:
    """Return what training is held against: Adadelta at 1, times 0.7 after each epoch; parity is in the first."""
    mean, deviation = 0.1307, 0.3081  # once more: these are checked, too
    stored = LabelsByImage(dataset.train_images, dataset.train_labels)
    return Plain(
        make_network=Network,
        loss=F.nll_loss,
        make_optimizer=lambda: Adadelta(lambda step: 1.0),
        batch_size=min(batch_size, MOST_PARITY_IMAGES),
        labels=lambda batch, place: stored.fit((batch[0][:, 0] * deviation + mean) * 255, batch[1]),
    )


def inputs(
    dataset: datasets.Dataset,
    device: Device,
    num_workers: int | None,
    batch_size: int,
    seed: int,
    shuffle: bool = True,
    normalised: bool = True,
    test_batch_size: int = TEST_BATCH_SIZE,
) -> tuple[Callable[[int], Iterable[Batch]], Callable[[], Iterable[Batch]]]:
    """Return functions to an epoch's training batches and to the test batches.

    Args:
        dataset: 28x28 images.
        device: where they are going.
        num_workers: processes that prepare images (0: the training process itself); None: images stay on the device.
        batch_size, test_batch_size: images in a batch.
        seed: of the orders; each epoch has its own.
        shuffle: whether a loader shuffles, test images too, as the examples' script does; resident test images never
            are.
        normalised: as for TransformedImages.
    """
    train, test = (dataset.train_images, dataset.train_labels), (dataset.test_images, dataset.test_labels)
    if num_workers is None:
        stay = [ResidentImages(*part, device.kind, normalised) for part in (train, test)]
        return (
            lambda epoch: stay[0].batches(batch_size, order_seed(seed, epoch)),
            lambda: stay[1].batches(test_batch_size),
        )
    # MPS has no pinned memory: there, the article's flag did nothing.
    options = {"num_workers": num_workers, "shuffle": shuffle, "pin_memory": device.features.pins_memory}
    load = [TransformedImages(*part, normalised) for part in (train, test)]

    def loader(images: TransformedImages, size: int, shuffle_seed: int) -> Iterable[Batch]:
        return DataLoader(images, size, generator=torch.Generator().manual_seed(shuffle_seed), **options)

    return (
        lambda epoch: loader(load[0], batch_size, order_seed(seed, epoch)),
        lambda: loader(load[1], test_batch_size, seed),
    )
