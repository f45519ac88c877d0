"""On an NVIDIA GPU, torch itself refuses whatever would let a step's host wait for the device."""

import itertools

import pytest
import torch

from benchbook.frameworks import devices
from made import small

pytestmark = [
    pytest.mark.frameworks("torch"),
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def steps(study: str, device: devices.Device, **options) -> None:
    """Train two steps after a first one, which sends an epoch's order and makes kernels; torch
    refuses what waits."""
    workload = small.build(study, device, **options)
    batches = itertools.islice(workload.batches(0), 3)
    workload.step(next(batches))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            workload.step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("variant", ["reference", ""])
def test_no_step_waits_for_the_gpu(framework, study, variant):
    steps(study, devices.pick("cuda", framework), **{"variant": variant} if variant else {})


def test_what_waits_is_refused(framework):
    number = torch.zeros(1, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            number.item()
    finally:
        torch.cuda.set_sync_debug_mode("default")
