"""Somebody's own network as a workload: built, checked on one batch, and ready to be measured like every study's."""

import math

from benchbook.frameworks.devices import Device
from benchbook.frameworks.workload import Settings, Workload
from benchbook.studies import datasets
from benchbook.studies.your_network import choices, loading
from benchbook.studies.your_network.plan import Plan


def plan(device: Device, variant: str, dataset: str, data_root: str, **chosen) -> Plan:
    """Return a point's choices, checked, with its data read; nothing of the user's own code has run yet.

    Args:
        device: where to train, and with which framework.
        variant: one of `choices.VARIANTS`.
        dataset: one of `choices.DATASETS`.
        data_root: where it lies; see `datasets.load`.
        chosen: the other attributes of `Plan`.

    Raises:
        ValueError: what `choices.check` or `Plan` refuses.
    """
    stated = {"variant": variant, "framework": device.framework, "dataset": dataset, "data_root": data_root}
    choices.check(stated | chosen)
    data = None if dataset == choices.SYNTHETIC else datasets.load(dataset, data_root)
    return Plan(device=device, data=data, **chosen)


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
        ValueError: a step that raises something, or whose loss is no finite number.
    """
    fresh, batch = workload.snapshot(), next(iter(workload.batches(0)))
    shapes = ", ".join(f"{str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}" for part in batch)
    with loading.blamed(f"a step of {workload.description()['model']} on a batch of ({shapes})"):
        loss = workload.mean_loss([workload.step(batch)])
    workload.restore(fresh)
    if not math.isfinite(loss):
        raise ValueError(
            f"the loss of the first step is {loss}; allowed: a finite number. Look at the learning rate, the precision"
            " and the numbers in the batch"
        )
    return loss
