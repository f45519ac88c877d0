"""The variational autoencoder of the PyTorch examples, whose loss diverged on an early MPS
build; see `plan`."""

import numpy
import torch
from torch import nn
from torch.nn import functional as F

from benchbook import datasets
from benchbook.frameworks.plain import Adam, Plain
from benchbook.frameworks.torch.runtime import flops_per_sample, order_generator
from benchbook.frameworks.torch.training import Batch, TorchWorkload
from benchbook.studies.torch_examples.loaders import inputs
from benchbook.studies.vae_stability.plan import Plan

LATENT_SIZE = 20

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Network(nn.Module):
    """Five dense layers: (n, 1, 28, 28) to reconstructions (n, 784), means and log-variances (n,
    20)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(784, 400)
        self.mean = nn.Linear(400, LATENT_SIZE)
        self.log_variance = nn.Linear(400, LATENT_SIZE)
        self.decoder = nn.Linear(LATENT_SIZE, 400)
        self.pixels = nn.Linear(400, 784)

    def forward(self, images: torch.Tensor, noise: torch.Tensor | None = None) -> Outputs:
        """Return reconstructions, means and log-variances; without noise (n, 20) the device
        draws its own."""
        hidden = F.relu(self.encoder(images.flatten(1)))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        deviation = torch.exp(0.5 * log_variance)
        noise = torch.randn_like(deviation) if noise is None else noise
        return self.decode(mean + noise * deviation), mean, log_variance

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        """Return pixels (n, 784), 0 to 1, decoded from latent vectors (n, 20)."""
        return torch.sigmoid(self.pixels(F.relu(self.decoder(latent))))


def loss(outputs: Outputs, images: torch.Tensor) -> torch.Tensor:
    """Return binary cross-entropy plus Kullback-Leibler divergence from a standard normal,
    summed over the batch.

    Source: https://arxiv.org/abs/1312.6114, appendix B.
    """
    reconstruction, mean, log_variance = outputs
    # binary_cross_entropy raises at NaN, and on CUDA the process cannot recover; a diverging run
    # must continue.
    cross_entropy = F.binary_cross_entropy(
        reconstruction.nan_to_num(0.5), images.flatten(1), reduction="sum"
    )
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return cross_entropy + divergence + 0 * reconstruction.detach().sum()  # NaN if a pixel is NaN


class VariationalAutoencoder(TorchWorkload):
    """The network with its images; a batch is (images,), or (images, noise) if the noise is not
    drawn on the device.

    Losses are per image, as the article prints them.
    """

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, torch.Tensor]:
        """Return the network's inputs (images, perhaps noise) and the images that it has to
        reconstruct."""
        return batch, batch[0]


def build(plan: Plan) -> VariationalAutoencoder:
    """Return the study's workload; see `Plan`."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(Network).to(plan.device.torch_type)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=plan.settings.fused or None)
    train, test = inputs(plan, plan.batch_size, normalised=False)  # batches of images and labels
    counted = plan.count(lambda: flops_per_sample(model, torch.zeros(2, 1, 28, 28)))
    return VariationalAutoencoder(
        **plan.common(
            lambda epoch: ((images,) for images, _ in train(epoch)),
            lambda: ((images,) for images, _ in test()),
            flops_per_sample=counted,
        ),
        model=model,
        loss=loss,
        optimizer=optimizer,
        loss_is_sum=True,
        metric=None,
        plain=plain(plan),
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version: Adam at learning rate 0.001, with noise drawn from the seed on
    the CPU."""

    def with_noise(batch: Batch, place: int) -> Batch:
        return *batch, torch.randn(
            len(batch[0]), LATENT_SIZE, generator=order_generator(plan.seed, place)
        )

    return Plain(
        make_network=Network,
        loss=loss,
        loss_is_sum=True,
        make_optimizer=lambda: Adam(lambda step: 1e-3),
        batch_size=plan.batch_size,
        inputs=lambda batch: (batch, batch[0]),
        noise=with_noise,
    )


@torch.no_grad()
def draw_images(
    workload: VariationalAutoencoder, dataset: datasets.Dataset, count: int = 10
) -> dict[str, numpy.ndarray]:
    """Return test images, their reconstructions, and images decoded from samples of the prior.

    Args:
        workload: after training; its random state does not change.
        dataset: its first test images are used.
        count: images of each kind.

    Returns:
        By kind: `test image`, `reconstruction` and `sample`; arrays of shape (count, 28, 28),
        pixels 0 to 1.
    """
    images = torch.from_numpy(dataset.test_images[:count].copy()).float().div(255)
    noise, latent = torch.randn(
        2, len(images), LATENT_SIZE, generator=torch.Generator().manual_seed(1)
    )
    kind = workload.device.torch_type
    reconstructions, _, _ = workload.model(images.to(kind), noise.to(kind))
    samples = workload.model.decode(latent.to(kind))
    drawn = {"test image": images, "reconstruction": reconstructions, "sample": samples}
    return {name: part.cpu().reshape(-1, 28, 28).numpy() for name, part in drawn.items()}
