"""The autoencoder's protocol: one point's choices.

Source: https://github.com/pytorch/examples/tree/main/vae as of May 2022, and the Chinese PyTorch
blog post of 2022-05-19 for the published figures.
"""

from dataclasses import dataclass

import numpy

from benchbook.studies.experiments.parameters import Precisions
from benchbook.studies.experiments.process import Process
from benchbook.studies.torch_examples import plan


@dataclass(frozen=True, kw_only=True)
class Plan(plan.Plan):
    """A point's choices: 28x28 images; Adam at learning rate 0.001; noise drawn on the device.

    `reference` has the script's loaders, which are the MNIST example's; `controlled` has
    `num_workers` workers on every device. Both shuffle.
    """

    PLAIN_STEP = False  # its loss is a sum
    MODEL = "vae"
    FRAMEWORKS = ("torch",)
    VARIANTS = ("reference", "controlled")
    FIXED = (*plan.Plan.FIXED, "parity_precisions")
    EXAMPLE = {"samples_per_window": 6400, "num_parity_steps": 5}
    shuffles = True  # on every device

    batch_size: int = 128
    num_windows: int = 10
    num_parity_steps: int = 20
    parity_precisions: Precisions = "fp32 amp_bf16"

    @classmethod
    def measure(cls, process: Process) -> None:
        """Measure the windows of a process; the first one saves what its network draws after
        training."""
        process.measure()
        # A reader's network need not decode.
        if process.is_first and hasattr(process.workload.model, "decode"):
            draw_images = cls._network("torch").draw_images
            drawn = draw_images(process.workload, process.make.args[0])
            process.save_pictures(
                {name: part.astype(numpy.float16) for name, part in drawn.items()}
            )
