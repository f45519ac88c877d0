"""What is to be built: one point's choices.

Source: https://github.com/pytorch/examples/tree/main/vae as of May 2022; figures of the Chinese PyTorch
blog post of 2022-05-19.
"""

from dataclasses import dataclass

from benchbook.studies.mnist_speedup import plan as mnist


@dataclass(frozen=True, kw_only=True)
class Plan(mnist.Plan):
    """A point's choices: 28x28 images, Adam at learning rate 0.001, noise drawn on the device.

    `reference` takes the script's loaders, which are those of the MNIST example; `controlled` takes `num_workers`
    everywhere. All of them shuffle.
    """

    MODEL = "vae"
    FRAMEWORKS = ("torch",)
    VARIANTS = ("reference", "controlled")
    shuffles = True  # on every device

    batch_size: int = 128


build, source = Plan.build, Plan.source
