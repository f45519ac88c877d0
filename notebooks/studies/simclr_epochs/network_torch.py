"""A ResNet-18 for small images with a projection head, trained to find each view's partner, as
Lightly did in 2023.

Sources: see `plan`. Every variant keeps one mistake of the source, because the published
accuracy belongs to that
network: the benchmark chains the child modules of Lightly's ResNet, and so loses the first ReLU,
which only the ResNet's `forward` calls.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchbook.datasets import spread
from benchbook.datasets.pictures import MEAN, STANDARD_DEVIATION
from benchbook.frameworks.plain import SGD, Arrays, Plain
from benchbook.frameworks.torch.runtime import (
    ResidentArrays,
    TransformedImages,
    flops_per_sample,
    order_generator,
)
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute
from benchbook.frameworks.workload import Evaluation
from benchbook.studies.simclr_epochs import views
from benchbook.studies.simclr_epochs.plan import BATCH_SIZE, EPOCHS, Plan

LEARNING_RATE = 0.06  # for BATCH_SIZE images a step
TEMPERATURE = 0.5
EVALUATION_BATCH_SIZE = 512
NEIGHBOURS, VOTE_TEMPERATURE = 200, 0.1  # of the evaluation
CHUNK = 512  # test images compared with the whole bank at once: 100 MB for a bank of 50,000 images
# Steps in fp32 on the CPU before a network is compared with float64. At first its gradient hangs on
# which ReLUs are open, and rounding to bfloat16 turns it: to a cosine of 0.92 with float64's, at
# any batch size. Four steps of 8 images later the cosine is over 0.99: at the article's learning
# rate, which that of a small batch is far below.
PARITY_WARM_UP_STEPS = 4


class Network(nn.Module):
    """ResNet-18 and a projection head: two batches of views (n, 3, 32, 32) to two batches of
    projections (n, 128).

    The batches go through the network one after the other. In one batch of 2n images, batch norm
    would compute other statistics.
    """

    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet18()
        resnet.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        resnet.relu = resnet.maxpool = resnet.fc = (
            nn.Identity()
        )  # for the missing ReLU see the module's docstring
        for module in resnet.modules():
            if isinstance(module, nn.Conv2d):
                # torch's initialisation, which Lightly used, not torchvision's
                module.reset_parameters()
        self.backbone = resnet
        self.head = nn.Sequential(
            nn.Linear(512, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 128, bias=False),
            nn.BatchNorm1d(128),
        )

    def forward(
        self, first: torch.Tensor, second: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the projections of both views."""
        return self.head(self.backbone(first)), self.head(self.backbone(second))


def nt_xent(projections: tuple[torch.Tensor, torch.Tensor], target: None = None) -> torch.Tensor:
    """Return the mean cross-entropy of finding each view's partner among all other views of the
    batch.

    Source: https://arxiv.org/abs/2002.05709, equation 1, at temperature 0.5.

    Args:
        projections: two views of the same images, shape (n, size) each.
        target: unused; the interface of losses has it.
    """
    both = torch.cat(projections)
    both = F.normalize(both.to(torch.promote_types(both.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    similarities = (both @ both.T / TEMPERATURE).masked_fill(itself, -torch.inf)
    partners = torch.arange(len(both), device=both.device).roll(len(both) // 2)
    return F.cross_entropy(similarities, partners)


def predict(features: torch.Tensor, bank: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the class of each feature: its nearest neighbours vote, weighted with
    exp(similarity / temperature).

    Source: https://arxiv.org/abs/1805.01978, section 3.4, as in Lightly's benchmark of June 2023.

    Args:
        features: shape (n, size), of any length; only directions count.
        bank: features with known classes, shape (m, size).
        labels: classes of the bank, int64, shape (m,).

    Returns:
        Classes, int64, shape (n,), on the features' device.
    """
    bank, classes = F.normalize(bank, dim=1), []
    for chunk in F.normalize(features, dim=1).split(CHUNK):
        nearest, places = (chunk @ bank.T).topk(min(NEIGHBOURS, len(bank)), dim=1)
        votes = torch.zeros(
            len(chunk), int(labels.max()) + 1, dtype=nearest.dtype, device=nearest.device
        )
        classes.append(
            votes.scatter_add(1, labels[places], (nearest / VOTE_TEMPERATURE).exp()).argmax(1)
        )
    return torch.cat(classes)


@dataclass
class SimClr(TorchWorkload):
    """The network with its images; a batch holds two views of each image, and samples count images.

    Attributes:
        bank_batches: returns the batches of the training images that vote in the evaluation,
        without augmentation, with
            their labels.
    """

    bank_batches: Callable[[], Iterable[Batch]] | None = None

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, None]:
        """Return both views for the network, and no target: the loss compares the views with
        each other."""
        return batch, None

    def check_batch(self, batch: Batch) -> None:
        """Check the batch's size, and that it holds two different views of each image."""
        super().check_batch(batch)
        views.check_pairs(*batch)

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return the share of test images whose nearest neighbours vote for the right class.

        The number of samples counts the images of both sets. Features are computed in the
        training's precision and compared in float32. The loss is None, or NaN if a feature is
        not finite.
        """
        self.model.eval()
        bank, labels = self._features(self.bank_batches())
        features, classes = self._features(self.test_batches())
        self.model.train()
        accuracy = (predict(features, bank, labels) == classes).float().mean()
        finite = bool(features.isfinite().all() & bank.isfinite().all())
        return Evaluation(
            None if finite else float("nan"), accuracy, len(bank) + len(features), "knn"
        )

    def _features(self, batches: Iterable[Batch]) -> Batch:
        parts = []
        for batch in batches:
            images, labels = (self._move(part) for part in batch)
            # The model, not the compiled network: this batch size would be compiled again.
            # A reader's network without a backbone is compared by its projections.
            network = getattr(self.model, "backbone", lambda views: self.model(views, views)[0])
            features = compute(network, (images,), self.device, self.settings.precision)
            parts.append((features.float(), labels))
        features, labels = zip(*parts, strict=True)
        return torch.cat(features), torch.cat(labels)


def build(plan: Plan) -> SimClr:
    """Return the study's workload; see `Plan`. A smaller last batch is dropped."""
    data, side, settings = plan.dataset, plan.image_size, plan.settings
    torch.manual_seed(plan.seed)
    model = plan.make_network(Network).to(plan.device.torch_type, STORED[settings.precision])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=LEARNING_RATE * plan.batch_size / BATCH_SIZE,
        momentum=0.9,
        weight_decay=5e-4,
        fused=settings.fused or None,
    )
    make_inputs = _device_inputs if plan.variant == "tuned" else _loaded_inputs
    voting = spread(len(data.train_labels), plan.num_bank_images)
    train, bank, test = make_inputs(plan, voting)
    counted = plan.count(lambda: flops_per_sample(model, *torch.zeros(2, 2, 3, side, side)))
    return SimClr(
        **plan.common(train, test, flops_per_sample=counted),
        model=model,
        loss=nt_xent,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS),
        plain=plain(plan),
        bank_batches=bank,
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version: SGD with momentum and weight decay, at the first epoch's rate.

    It has no labels, and takes both views as the loader made them.
    """
    images, size = plan.dataset.train_images, plan.parity_batch_size

    def parity_weights(make: Callable, weights: Arrays) -> Arrays:
        """Return weights a few plain steps on; see `PARITY_WARM_UP_STEPS`."""
        order = spread(len(images), PARITY_WARM_UP_STEPS * size)
        first, second = (part.numpy() for part in views.fixed_pairs(images[order], plan.seed + 1))
        optimizer = SGD(lambda step: LEARNING_RATE, momentum=0.9, weight_decay=5e-4)
        network = make(weights)
        for number, part in enumerate(numpy.split(numpy.arange(len(order)), PARITY_WARM_UP_STEPS)):
            network.load(weights, {})
            _, gradients, _ = network.differentiate((first[part], second[part]), None)
            weights = weights | optimizer.step(weights, gradients, number)
        return weights

    return Plain(
        make_network=Network,
        loss=nt_xent,
        make_optimizer=lambda: SGD(
            lambda step: 0.06 * plan.batch_size / 128, momentum=0.9, weight_decay=5e-4
        ),
        batch_size=size,
        inputs=lambda batch: (batch, None),
        parity_weights=parity_weights,
    )


def _loaded_inputs(plan: Plan, bank: numpy.ndarray) -> tuple[Callable, Callable, Callable]:
    """Return functions to training, bank and test batches, from loaders without pinned memory,
    as the source has them.

    Args:
        plan: the point's choices.
        bank: indices of the training images that vote.
    """
    data, pairs, plain = (
        plan.dataset,
        views.AugmentedPairs(plan.dataset.train_images),
        views.plain(),
    )
    # The article has 8 workers on any number of cores; with fewer cores torch would warn in every
    # epoch.
    warnings.filterwarnings("ignore", "This DataLoader will create")

    def loader(images: Dataset, epoch: int = 0, **options) -> DataLoader:
        # A loader without a generator draws from the host's, even if it does not shuffle.
        options |= {"num_workers": plan.workers, "generator": order_generator(plan.seed, epoch)}
        return DataLoader(images, plan.batch_size, **options)

    voting = TransformedImages(
        torch.from_numpy(data.train_images[bank]), data.train_labels[bank], plain
    )
    tested = TransformedImages(torch.tensor(data.test_images), data.test_labels, plain)
    return (
        lambda epoch: loader(pairs, epoch, shuffle=True, drop_last=True),
        lambda: loader(voting),
        lambda: loader(tested),
    )


def _device_inputs(plan: Plan, bank: numpy.ndarray) -> tuple[Callable, Callable, Callable]:
    """Return the functions of `_loaded_inputs` for images that stay on the device; there are no
    workers."""
    data, device = plan.dataset, plan.device
    mean, deviation = torch.tensor([MEAN, STANDARD_DEVIATION], device=device.torch_type).view(
        2, 3, 1, 1
    )

    def normalised(images: torch.Tensor) -> torch.Tensor:
        return images.float().div(255).sub(mean).div(deviation)

    train = ResidentArrays(
        device, data.train_images.transpose(0, 3, 1, 2), data.train_labels, normalised
    )
    tested = ResidentArrays(
        device, data.test_images.transpose(0, 3, 1, 2), data.test_labels, normalised
    )
    test = torch.arange(len(data.test_labels))
    bank_order, test_order = (
        order.split(EVALUATION_BATCH_SIZE) for order in (torch.from_numpy(bank), test)
    )
    augment = views.batched(data.train_images.shape[1:3])

    def augmented(epoch: int) -> Iterable[Batch]:
        return views.pairs(
            train.images, augment, plan.batch_size, order_generator(plan.seed, epoch)
        )

    return augmented, lambda: train.batches(bank_order), lambda: tested.batches(test_order)
