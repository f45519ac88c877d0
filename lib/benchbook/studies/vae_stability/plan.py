"""The autoencoder's protocol: one point's choices.

Source: https://github.com/pytorch/examples/tree/main/vae as of May 2022, and the Chinese PyTorch blog post of
2022-05-19 for the published figures.
"""

from dataclasses import dataclass

from benchbook.studies.mnist_speedup import plan as mnist


@dataclass(frozen=True, kw_only=True)
class Plan(mnist.Plan):
    """A point's choices: 28x28 images; Adam at learning rate 0.001; noise drawn on the device.

    `reference` has the script's loaders, which are the MNIST example's; `controlled` has `num_workers` workers on every
    device. Both shuffle.
    """

    MODEL = "vae"
    FRAMEWORKS = ("torch",)
    VARIANTS = ("reference", "controlled")
    shuffles = True  # on every device

    batch_size: int = 128


build, source = Plan.build, Plan.source
