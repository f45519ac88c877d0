"""On a GPU no step waits for a copy. The GPU is one of torch's fake tensors, which take no memory
and record what is asked of them."""

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchbook.frameworks.devices import Device
from benchbook.frameworks.torch.runtime import ResidentArrays
from benchbook.frameworks.torch.training import move
from benchbook.frameworks.workload import Settings
from benchbook.studies.simclr_epochs import views
from made import small

pytestmark = pytest.mark.frameworks("torch")
GPU = Device("cuda", "an NVIDIA GPU")


class Copies(TorchDispatchMode):
    """Remembers the copies between host and device, and whether the host waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        tensors = [part for part in (*args[:1], made) if isinstance(part, torch.Tensor)]
        if len({part.device for part in tensors}) > 1:
            self.waits.append(not (kwargs or {}).get("non_blocking"))
        return made


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """Let a fake GPU be there. It has no pinned memory, and its network stays on the host."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: part)
    monkeypatch.setattr(torch.nn.Module, "to", lambda model, *given, **named: model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def resident():
    """Yield batches of images that stay on the device."""
    images = ResidentArrays(GPU, numpy.zeros((9, 4), "float32"), numpy.zeros(9, "int64"))
    yield from images.batches(numpy.arange(9, dtype="int32").reshape(3, 3))


def text(is_resident: bool):
    """Yield batches of GPT."""
    given = {"variant": "controlled", "data_resident": is_resident}
    yield from small.build("gpt_tokens", GPU, **given).batches(0)


def loaded():
    """Yield a loader's batches, brought to the device as a step does it."""
    for _ in range(3):
        yield [move(torch.zeros(3), GPU, Settings())]


def cropped():
    """Yield views of a batch by corners that the host draws, as Kornia does."""
    for _ in range(3):
        images = torch.zeros(2, 3, 8, 8, device="cuda")
        yield [views.resized_crops(images, torch.zeros(2, 4, 2), (8, 8))]


@pytest.mark.parametrize(
    ("batches", "copies"),
    [(resident, 0), (lambda: text(True), 1), (lambda: text(False), 1), (loaded, 1), (cropped, 1)],
)
def test_no_step_waits_for_a_copy_to_the_device(batches, copies):
    found = batches()
    next(found)  # an epoch's order may be sent first
    with Copies() as step:
        batch = next(found)
    assert (batch[0].device.type, step.waits) == ("cuda", [False] * copies)
