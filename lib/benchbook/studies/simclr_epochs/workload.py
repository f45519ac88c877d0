"""SimCLR with a ResNet-18 for small images, as Lightly trained it on CIFAR-10 in 2023.

Source: https://github.com/lightly-ai/lightly, docs/source/getting_started/benchmarks/cifar10_benchmark.py of June 2023,
and Igor Susmelj, "Apple M1 and M2 performance for training SSL models", 2023.

The source reads a PNG file for each image; here images come from memory.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy
import torch
from torch.utils.data import DataLoader

from benchbook.frameworks.batches import order_seed
from benchbook.frameworks.devices import Device
from benchbook.frameworks.plain import SGD, Arrays, Plain
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute, flops_per_sample
from benchbook.frameworks.workload import Evaluation, Settings
from benchbook.machine import identity
from benchbook.studies import datasets
from benchbook.studies.simclr_epochs import neighbours, views
from benchbook.studies.simclr_epochs.network import Network, nt_xent

BATCH_SIZE = 128
LEARNING_RATE = 0.06  # for so many images in a step
REFERENCE_WORKERS = 8
EVERY_CORE = -1
EVALUATION_BATCH_SIZE = 512
# Steps in fp32 on the CPU before a network is compared with float64. At first its gradient hangs on which ReLUs are
# open, and rounding to bfloat16 turns it: to a cosine of 0.92 with float64's, at any batch size. Four steps of 8 images
# later the cosine is over 0.99: at the article's learning rate, which that of a small batch is far below.
SETTLING_STEPS = 4
VARIANTS = ("reference", "controlled", "tuned")


@dataclass
class SimClr(TorchWorkload):
    """The network with its images; a batch is two views of the same images, and samples are images.

    Attributes:
        bank_batches: to all batches of the training images that vote, not augmented, with their labels.
    """

    bank_batches: Callable[[], Iterable[Batch]] | None = None

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, None]:
        """Return both views for the network; the loss compares them with each other."""
        return batch, None

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return the share of test images whose class their nearest neighbours find; all images of both sets count.

        Features are computed in the precision of the training, and compared in float32. There is no loss, unless
        features are not finite: then it is NaN.
        """
        self.model.eval()
        bank, labels = self._features(self.bank_batches())
        features, classes = self._features(self.test_batches())
        self.model.train()
        accuracy = (neighbours.predict(features, bank, labels) == classes).float().mean()
        finite = bool(features.isfinite().all() & bank.isfinite().all())
        return Evaluation(None if finite else float("nan"), accuracy, len(bank) + len(features), "knn")

    def _features(self, batches: Iterable[Batch]) -> Batch:
        parts = []
        for batch in batches:
            images, labels = (self._move(part) for part in batch)
            # The network as it is: compiled code would be compiled once more for this size.
            features = compute(self.model.backbone, (images,), self.device, self.settings.precision)
            parts.append((features.float(), labels))
        features, labels = zip(*parts, strict=True)
        return torch.cat(features), torch.cat(labels)


def build(
    dataset: datasets.Dataset,
    device: Device,
    variant: str = "reference",
    num_workers: int = EVERY_CORE,
    joint_views: bool = False,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    schedule_epochs: int = 200,
    num_bank_images: int = 0,
    num_test_images: int = 0,
    parity_batch_size: int = 16,
    settings: Settings = Settings(),  # noqa: B008 (it is immutable)
) -> SimClr:
    """Return the study's workload: SGD at 0.06 for 128 images, momentum 0.9, weight decay 0.0005, a cosine schedule.

    Args:
        dataset: colour images.
        device: where to train.
        variant: `reference` augments one image at a time in 8 worker processes, `controlled` in `num_workers`. `tuned`
            keeps the images on the device and makes both views of a batch there: when the batch is asked for, so that
            it is input (on the CPU all of it is host wait; on an accelerator it is queued before the step's work).
        num_workers: with `controlled`; -1 is one for each core that this process may use.
        joint_views: with `tuned`: see `Network`.
        batch_size: images a step; a last batch with fewer is dropped.
        seed: of weights, augmentation and data order.
        schedule_epochs: epochs after which the cosine ends at 0.
        num_bank_images, num_test_images: how many images vote and are judged, spread evenly; 0 is all.
        parity_batch_size: images in a step that is compared with float64.
        settings: how the network is computed, for `tuned`; found by `benchbook.measuring.tuned`.

    Raises:
        ValueError: an unknown variant, an option of another variant, a number out of range, or images without colour.
    """
    _check_options(dataset, variant, num_workers, joint_views, batch_size, schedule_epochs)
    workers = {"reference": REFERENCE_WORKERS, "tuned": 0}.get(variant, num_workers)
    workers = identity.usable_cores() if workers == EVERY_CORE else workers
    torch.manual_seed(seed)
    model = Network(joint_views).to(device.kind, STORED[settings.precision])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=LEARNING_RATE * batch_size / BATCH_SIZE,
        momentum=0.9,
        weight_decay=5e-4,
        fused=settings.fused or None,
    )
    side = dataset.train_images.shape[1]
    voters, judged = (
        spread(len(dataset.train_labels), num_bank_images),
        spread(len(dataset.test_labels), num_test_images),
    )
    make_inputs = _device_inputs if variant == "tuned" else _loaded_inputs
    return SimClr(
        device=device,
        batch_size=batch_size,
        model=model,
        loss=nt_xent,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, schedule_epochs),
        columns={
            "model": "simclr_resnet18",
            "dataset": dataset.name,
            "dataset_samples": len(dataset.train_labels),
            "image_size": side,
            "num_workers": workers,
            "flops_per_sample": flops_per_sample(model, *torch.zeros(2, 2, 3, side, side)),
        },
        plain=plain(dataset, batch_size, joint_views, parity_batch_size, seed),
        settings=settings,
        **make_inputs(dataset, voters, judged, device, workers, batch_size, seed),
    )


def plain(dataset: datasets.Dataset, batch_size: int, joint_views: bool, parity_batch_size: int, seed: int) -> Plain:
    """Return what training is held against: SGD with momentum and weight decay, at the first epoch's rate.

    There are no labels; both views come as the loader made them.
    """

    def settle(make: Callable, weights: Arrays) -> Arrays:
        """Return weights a few plain steps on; see `SETTLING_STEPS`."""
        order = spread(len(dataset.train_labels), SETTLING_STEPS * parity_batch_size)
        first, second = (part.numpy() for part in views.fixed_pairs(dataset.train_images[order], seed + 1))
        optimizer, network = SGD(lambda step: LEARNING_RATE, momentum=0.9, weight_decay=5e-4), make(weights)
        for number, part in enumerate(numpy.split(numpy.arange(len(order)), SETTLING_STEPS)):
            network.load(weights, {})
            _, gradients, _ = network.differentiate((first[part], second[part]), None)
            weights = weights | optimizer.step(weights, gradients, number)
        return weights

    return Plain(
        make_network=functools.partial(Network, joint_views),
        loss=nt_xent,
        make_optimizer=lambda: SGD(lambda step: 0.06 * batch_size / 128, momentum=0.9, weight_decay=5e-4),
        batch_size=min(batch_size, parity_batch_size),
        inputs=lambda batch: (batch, None),
        settle=settle,
    )


def spread(length: int, count: int) -> numpy.ndarray:
    """Return positions spread evenly over a data set, which may be sorted by class; 0 is all of them."""
    return numpy.arange(count) * length // count if count else numpy.arange(length)


def _loaded_inputs(
    dataset: datasets.Dataset,
    voters: numpy.ndarray,
    judged: numpy.ndarray,
    device: Device,
    workers: int,
    batch_size: int,
    seed: int,
) -> dict[str, Callable]:
    """Return what makes training, bank and test batches, from loaders as the source has them: nothing is pinned."""
    pairs = views.AugmentedPairs(dataset.train_images)

    def train_batches(epoch: int) -> Iterable[Batch]:
        generator = _generator(seed, epoch)
        return DataLoader(pairs, batch_size, shuffle=True, drop_last=True, num_workers=workers, generator=generator)

    def plain(images: numpy.ndarray, labels: numpy.ndarray) -> Callable[[], Iterable[Batch]]:
        plain_images = views.PlainImages(images, labels)
        generator = _generator(seed, 0)  # nothing is drawn with it: without one, the loader would draw from the host's
        return lambda: DataLoader(plain_images, batch_size, num_workers=workers, generator=generator)

    return {
        "train_batches": train_batches,
        "bank_batches": plain(dataset.train_images[voters], dataset.train_labels[voters]),
        "test_batches": plain(dataset.test_images[judged], dataset.test_labels[judged]),
    }


def _device_inputs(
    dataset: datasets.Dataset,
    voters: numpy.ndarray,
    judged: numpy.ndarray,
    device: Device,
    workers: int,
    batch_size: int,
    seed: int,
) -> dict[str, Callable]:
    """Return the same from images that stay on the device; no worker is needed."""
    train = views.DeviceImages(dataset.train_images, dataset.train_labels, device.kind)
    test = views.DeviceImages(dataset.test_images, dataset.test_labels, device.kind)
    return {
        "train_batches": lambda epoch: train.pairs(batch_size, _generator(seed, epoch)),
        "bank_batches": lambda: train.plain(EVALUATION_BATCH_SIZE, voters),
        "test_batches": lambda: test.plain(EVALUATION_BATCH_SIZE, judged),
    }


def _generator(seed: int, epoch: int) -> torch.Generator:
    """Return the generator of an epoch."""
    return torch.Generator().manual_seed(order_seed(seed, epoch))


def _check_options(
    dataset: datasets.Dataset, variant: str, num_workers: int, joint_views: bool, batch_size: int, schedule_epochs: int
) -> None:
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}; allowed: {', '.join(VARIANTS)}")
    if joint_views and variant != "tuned":
        raise ValueError(f"joint_views True; allowed with variant {variant}: False (views go through separately)")
    if num_workers < 1 and num_workers != EVERY_CORE:
        raise ValueError(f"num_workers {num_workers}; allowed: 1 or more, or {EVERY_CORE} for one on each core")
    if dataset.train_images.ndim != 4:
        raise ValueError(
            f"images of {dataset.name}, shape {dataset.train_images.shape}; allowed: (n, height, width, 3)"
        )
    if not 2 <= batch_size <= len(dataset.train_labels):
        raise ValueError(f"batch_size {batch_size}; allowed: 2 to {len(dataset.train_labels)}, the training images")
    if schedule_epochs < 1:
        raise ValueError(f"schedule_epochs {schedule_epochs}; allowed: 1 or more")
