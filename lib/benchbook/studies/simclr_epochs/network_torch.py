"""A ResNet-18 for small images with a projection head, trained to find each view's partner, as Lightly did in 2023.

Sources: see `plan`. One wart of the source is kept in every variant, because its accuracy is that network's: the
benchmark takes the children of Lightly's ResNet one after the other, and the first ReLU, which stands in that ResNet's
`forward` alone, is lost.
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

from benchbook.frameworks.plain import SGD, Arrays, Plain
from benchbook.frameworks.torch.runtime import ResidentArrays, TransformedImages, flops_per_sample, order_generator
from benchbook.frameworks.torch.training import STORED, Batch, TorchWorkload, compute
from benchbook.frameworks.workload import Evaluation
from benchbook.studies.datasets.pictures import MEAN, STANDARD_DEVIATION
from benchbook.studies.simclr_epochs import views
from benchbook.studies.simclr_epochs.neighbours import predict
from benchbook.studies.simclr_epochs.plan import BATCH_SIZE, EPOCHS, Plan, spread

LEARNING_RATE = 0.06  # for BATCH_SIZE images in a step
TEMPERATURE = 0.5
EVALUATION_BATCH_SIZE = 512
# Steps in fp32 on the CPU before a network is compared with float64. At first its gradient hangs on which ReLUs are
# open, and rounding to bfloat16 turns it: to a cosine of 0.92 with float64's, at any batch size. Four steps of 8 images
# later the cosine is over 0.99: at the article's learning rate, which that of a small batch is far below.
PARITY_WARM_UP_STEPS = 4


class Network(nn.Module):
    """ResNet-18 and a projection head: two batches of views (n, 3, 32, 32) to two batches of projections (n, 128).

    Both batches together would be another function: batch norm would see 2n images instead of n and n.
    """

    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet18()
        resnet.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        resnet.relu = resnet.maxpool = resnet.fc = nn.Identity()  # the lost ReLU: see above
        for module in resnet.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()  # as torch and Lightly begin; torchvision's network begins otherwise
        self.backbone = resnet
        self.head = nn.Sequential(
            nn.Linear(512, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Linear(512, 128, bias=False),
            nn.BatchNorm1d(128),
        )

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the projections of both views."""
        return self.head(self.backbone(first)), self.head(self.backbone(second))


def nt_xent(projections: tuple[torch.Tensor, torch.Tensor], target: None = None) -> torch.Tensor:
    """Return the mean cross-entropy of finding each view's partner among all other views of the batch.

    Source: https://arxiv.org/abs/2002.05709, equation 1, at temperature 0.5.

    Args:
        projections: two views of the same images, shape (n, size) each.
        target: there is none; it stands here because losses have one.
    """
    both = torch.cat(projections)
    both = F.normalize(both.to(torch.promote_types(both.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(both), dtype=torch.bool, device=both.device)
    similarities = (both @ both.T / TEMPERATURE).masked_fill(itself, -torch.inf)
    partners = torch.arange(len(both), device=both.device).roll(len(both) // 2)
    return F.cross_entropy(similarities, partners)


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
        accuracy = (predict(features, bank, labels) == classes).float().mean()
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


def build(plan: Plan) -> SimClr:
    """Return the study's workload; see `Plan`. A last batch with fewer images is dropped."""
    data, side, settings = plan.dataset, plan.image_size, plan.settings
    torch.manual_seed(plan.seed)
    model = Network().to(plan.device.kind, STORED[settings.precision])
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=LEARNING_RATE * plan.batch_size / BATCH_SIZE,
        momentum=0.9,
        weight_decay=5e-4,
        fused=settings.fused or None,
    )
    voters = spread(len(data.train_labels), plan.num_bank_images)
    judged = spread(len(data.test_labels), plan.num_test_images)
    make_inputs = _device_inputs if plan.variant == "tuned" else _loaded_inputs
    train, bank, test = make_inputs(plan, voters, judged)
    return SimClr(
        **plan.common(train, test, flops_per_sample=flops_per_sample(model, *torch.zeros(2, 2, 3, side, side))),
        model=model,
        loss=nt_xent,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS),
        plain=plain(plan),
        bank_batches=bank,
    )


def plain(plan: Plan) -> Plain:
    """Return what training is compared with: SGD with momentum and weight decay, at the first epoch's rate.

    There are no labels; both views come as the loader made them.
    """
    images, size = plan.dataset.train_images, plan.parity_batch_size

    def parity_weights(make: Callable, weights: Arrays) -> Arrays:
        """Return weights a few plain steps on; see `PARITY_WARM_UP_STEPS`."""
        order = spread(len(images), PARITY_WARM_UP_STEPS * size)
        first, second = (part.numpy() for part in views.fixed_pairs(images[order], plan.seed + 1))
        optimizer, network = SGD(lambda step: LEARNING_RATE, momentum=0.9, weight_decay=5e-4), make(weights)
        for number, part in enumerate(numpy.split(numpy.arange(len(order)), PARITY_WARM_UP_STEPS)):
            network.load(weights, {})
            _, gradients, _ = network.differentiate((first[part], second[part]), None)
            weights = weights | optimizer.step(weights, gradients, number)
        return weights

    return Plain(
        make_network=Network,
        loss=nt_xent,
        make_optimizer=lambda: SGD(lambda step: 0.06 * plan.batch_size / 128, momentum=0.9, weight_decay=5e-4),
        batch_size=size,
        inputs=lambda batch: (batch, None),
        parity_weights=parity_weights,
    )


def _loaded_inputs(plan: Plan, voters: numpy.ndarray, judged: numpy.ndarray) -> tuple[Callable, Callable, Callable]:
    """Return what makes training, bank and test batches, from loaders as the source has them: nothing is pinned."""
    data, pairs, plain = plan.dataset, views.AugmentedPairs(plan.dataset.train_images), views.plain()
    # The article has 8 workers, however few cores there are; torch would say so at every epoch.
    warnings.filterwarnings("ignore", "This DataLoader will create")

    def loader(images: Dataset, epoch: int = 0, **options) -> DataLoader:
        # Without a generator of its own a loader would draw from the host's, even where nothing is shuffled.
        options |= {"num_workers": plan.workers, "generator": order_generator(plan.seed, epoch)}
        return DataLoader(images, plan.batch_size, **options)

    bank = TransformedImages(torch.from_numpy(data.train_images[voters]), data.train_labels[voters], plain)
    test = TransformedImages(torch.from_numpy(data.test_images[judged]), data.test_labels[judged], plain)
    return lambda epoch: loader(pairs, epoch, shuffle=True, drop_last=True), lambda: loader(bank), lambda: loader(test)


def _device_inputs(plan: Plan, voters: numpy.ndarray, judged: numpy.ndarray) -> tuple[Callable, Callable, Callable]:
    """Return the same from images that stay on the device; no worker is needed."""
    data, device = plan.dataset, plan.device
    mean, deviation = torch.tensor([MEAN, STANDARD_DEVIATION], device=device.kind).view(2, 3, 1, 1)

    def normalised(images: torch.Tensor) -> torch.Tensor:
        return images.float().div(255).sub(mean).div(deviation)

    train = ResidentArrays(device, data.train_images.transpose(0, 3, 1, 2), data.train_labels, normalised)
    test = ResidentArrays(device, data.test_images.transpose(0, 3, 1, 2), data.test_labels, normalised)
    bank, tested = (torch.from_numpy(part).split(EVALUATION_BATCH_SIZE) for part in (voters, judged))
    augment = views.batched(data.train_images.shape[1:3])

    def augmented(epoch: int) -> Iterable[Batch]:
        return views.pairs(train.images, augment, plan.batch_size, order_generator(plan.seed, epoch))

    return augmented, lambda: train.batches(bank), lambda: test.batches(tested)
