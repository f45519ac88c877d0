"""The MNIST protocol: its constants, and one point's choices, the same for every framework.

Source: https://github.com/pytorch/examples/tree/main/mnist as of May 2022, and the Chinese
PyTorch blog post of 2022-05-19 for the published figures.
"""

from dataclasses import dataclass

from benchbook.studies.experiments.parameters import SearchSeconds
from benchbook.studies.torch_examples import plan

TEST_BATCH_SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class Plan(plan.Plan):
    """A point's choices: Adadelta at learning rate 1, times 0.7 after each epoch.

    `tuned` trains `LeanNetwork` with torch on a CPU. torch has no fused Adadelta: `fused`
    compiles its step instead.
    """

    PLAIN_STEP = True
    MODEL = "mnist_cnn"
    FRAMEWORKS = ("torch", "mlx")
    FRAMEWORK = "torch"
    VARIANTS = ("reference", "controlled", "tuned")
    EXAMPLE = {"samples_per_window": 3200, "num_test_images": 2000}

    search_seconds: SearchSeconds = 60.0
