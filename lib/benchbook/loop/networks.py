"""Your own torch network by name: a training step around it, measured as a loop."""

from dataclasses import dataclass, field, replace
from typing import Any

from benchbook.frameworks import devices
from benchbook.frameworks.workload import Settings
from benchbook.loop import loading, meter
from benchbook.loop.rate import Rate

OPTIMIZERS = ("sgd", "adam", "adamw")
FIRST_LOSSES = 3  # the losses of so many first steps are kept
SECONDS = 5.0  # the longest stretch


@dataclass(frozen=True)
class Choices:
    """What is trained, and how.

    Attributes:
        network, loader, loss: callables by name; see `loading.FORMS`. The loader is called with
            the batch size; without one, images are drawn. The loss is called with outputs and
            target; without one it is the network's own, or cross-entropy.
        arguments: of the network's callable, as in a call.
        image_size, channels: of random images.
        device: a kind of device, or best.

    Raises:
        ValueError: a wrong choice.
    """

    network: str
    arguments: str = ""
    image_size: int = 224
    channels: int = 3
    loader: str = ""
    loss: str = ""
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    batch_size: int = 32
    device: str = "best"
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        loading.keywords(self.arguments)
        if self.optimizer not in OPTIMIZERS:
            allowed = ", ".join(OPTIMIZERS)
            raise ValueError(f"optimizer {self.optimizer!r}; allowed: {allowed}")


def run(choices: Choices) -> tuple[list[Rate], str, list[float]]:
    """Measure a network's training steps in this process.

    Returns:
        Its rate, as the one loop of a script; an empty text; and the losses of the first steps.

    Raises:
        ValueError: names, network, batches or loss that do not fit.
    """
    from benchbook.frameworks.torch import own_network

    named = {name: getattr(choices, name) for name in ("network", "loader", "loss")}
    found = {name: value and loading.resolve(value, name) for name, value in named.items()}
    make = found.pop("network")
    device = devices.pick(choices.device, "torch")
    losses: list[Any] = []
    with loading.naming(f"network {choices.network!r}, called with ({choices.arguments}),"):
        found["network"] = lambda: make(**loading.keywords(choices.arguments))
        step, batches = own_network.build(replace(choices, **found), device)

    def kept(batch: Any) -> Any:
        loss = step(batch)
        if len(losses) < FIRST_LOSSES:
            losses.append(loss)
        return loss

    with loading.naming(f"a step of {choices.network!r}"):
        rate = meter.measure(kept, batches, own_network.num_samples, most_seconds=SECONDS)
    return [rate], "", [float(loss) for loss in losses]
