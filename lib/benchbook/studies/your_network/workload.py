"""Somebody's own network as a workload: built, checked on one batch, and ready to be measured like every study's."""

import math

from benchbook import datasets
from benchbook.devices import Device
from benchbook.studies.your_network.plan import EXAMPLE, SYNTHETIC, Plan
from benchbook.workload import Settings, Workload

VARIANTS = ("reference", "tuned")
DATASETS = (SYNTHETIC, "image_folder", "cifar10", "mnist")


def plan(device: Device, variant: str, dataset: str, data_root: str, **choices) -> Plan:
    """Return a point's choices, checked, with its data read; nothing of the user's own code has run yet.

    Args:
        device: where to train, and with which framework.
        variant: one of VARIANTS.
        dataset: one of DATASETS.
        data_root: where it lies; see `datasets.load`.
        choices: the other attributes of `Plan`.

    Raises:
        ValueError: an unknown variant or data set, an example beside a data set, or what `Plan` refuses.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r}; allowed: {', '.join(VARIANTS)}")
    if dataset not in DATASETS:
        raise ValueError(f"dataset {dataset!r}; allowed: {', '.join(DATASETS)}, or an example")
    if choices.get("example") and dataset != SYNTHETIC:
        raise ValueError(f"dataset {dataset!r}; allowed beside an example: {SYNTHETIC}")
    if choices.get("loss") and dataset != SYNTHETIC:
        raise ValueError(f"loss {choices['loss']!r}; allowed with dataset {dataset}: none, it is cross-entropy")
    data = None if dataset == SYNTHETIC else datasets.load(dataset, data_root)
    return Plan(device=device, data=data, **choices)


def build(chosen: Plan, settings: Settings = Settings()) -> Workload:  # noqa: B008 (it is immutable)
    """Return the workload in the framework of the plan's device; no other is imported.

    Raises:
        ValueError: the network, its example or its loss is not what it has to be; the message says what is.
    """
    if chosen.device.framework == "torch":
        from benchbook.studies.your_network import torch

        return torch.build(chosen, settings)
    from benchbook.studies.your_network import keras

    return keras.build(chosen, settings)


def check(workload: Workload) -> float:
    """Return the loss of one step, and go back: what does not fit together is found before anything is measured.

    Raises:
        ValueError: a loss that is no finite number.
    """
    fresh = workload.snapshot()
    loss = workload.mean_loss([workload.step(next(iter(workload.batches(0))))])
    workload.restore(fresh)
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss of the first step is {loss}; allowed: a finite number. Look at the learning rate, the precision"
            " and the numbers in the batch"
        )
    return loss


__all__ = ["DATASETS", "EXAMPLE", "SYNTHETIC", "VARIANTS", "build", "check", "plan"]
