"""What the studies' torch networks share: image data sets, weights from Keras, counting
operations."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import Dataset
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from benchbook.frameworks.batches import order_seed
from benchbook.frameworks.devices import Device


class ResidentArrays:
    """Images and labels that stay on a device: no loader, no transfer.

    Args:
        device: where they stay.
        images, labels: NumPy arrays of equal length.
        prepare: converts some of the images, on the device, to inputs of the network.
    """

    def __init__(
        self,
        device: Device,
        images: numpy.ndarray,
        labels: numpy.ndarray,
        prepare: Callable[[torch.Tensor], torch.Tensor] = lambda part: part,
    ) -> None:
        self.images, self.labels = (
            torch.tensor(part).to(device.torch_type) for part in (images, labels)
        )
        self.prepare = prepare

    def batches(
        self, order: Iterable[numpy.ndarray | torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield a batch for each array of indices. All of them are sent before the first batch:
        a step would wait for a copy of its own."""
        parts = [torch.as_tensor(indices) for indices in order]
        every = torch.cat([*parts, torch.empty(0, dtype=torch.int32)]).to(self.labels.device)
        for chosen in every.split([len(part) for part in parts]):
            yield self.prepare(self.images[chosen]), self.labels[chosen]


def sent(part: torch.Tensor, device: Device) -> torch.Tensor:
    """Return a tensor of the host on the device; where that takes pinned memory, nothing waits
    for the copy."""
    pins = device.features.pins_memory
    return (part.pin_memory() if pins else part).to(device.torch_type, non_blocking=pins)


class TransformedImages(Dataset):
    """Images that are transformed one at a time on the host, with their labels; spawned workers
    can import it.

    Args:
        images: uint8, shape (n, height, width) or (n, height, width, 3); workers share the
        memory of a tensor.
        labels: shape (n,).
        transform: converts a PIL image to a tensor.
    """

    def __init__(
        self, images: numpy.ndarray | torch.Tensor, labels: numpy.ndarray, transform: Callable
    ) -> None:
        self.images, self.labels, self.transform = images, labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(numpy.asarray(self.images[index]))), self.labels[
            index
        ]


def order_generator(seed: int, epoch: int) -> torch.Generator:
    """Return the generator that shuffles an epoch; see `batches.order_seed`."""
    return torch.Generator().manual_seed(order_seed(seed, epoch))


@torch.no_grad()
def load_keras_arrays(layer: nn.Module, arrays: Sequence[numpy.ndarray]) -> None:
    """Copy arrays in Keras's layout into a layer.

    Args:
        layer: a convolution, a dense layer or a batch norm.
        arrays: kernel and bias; or a batch norm's scale, offset, moving mean and moving
        variance. A convolution's
            kernel is (height, width, in, out), or depthwise (height, width, in, 1); a dense
            layer's is (in, out).
    """
    orders = {4: (2, 3, 0, 1) if getattr(layer, "groups", 1) > 1 else (3, 2, 0, 1), 2: (1, 0)}
    for name, array in zip(("weight", "bias", "running_mean", "running_var"), arrays, strict=False):
        getattr(layer, name).copy_(torch.from_numpy(array.transpose(orders.get(array.ndim))))


def flops_per_sample(model: nn.Module, *inputs: torch.Tensor) -> float:
    """Count the arithmetic of training a torch network on one sample: forward and backward, 2
    per multiply-add.

    A copy of the network runs on the meta device, which computes nothing; on a CPU the count can
    miss fused paths. Matrix products, convolutions and attention count, as usual; element-wise
    operations do not. Each gradient of a convolution costs as much as its forward pass. torch's
    own formula counts a kernel's gradient once for every pair of groups, which overestimates
    depthwise networks (MobileNetV2: sevenfold; torch 2.10).

    Args:
        model: a torch network; it does not change.
        inputs: a batch as the network takes it, shapes (n, ...); its values do not matter.
    """

    def convolution_backward(gradient, images, kernel, *rest, out_shape):
        transposed, mask = rest[4], rest[7]
        return sum(mask[:2]) * conv_flop_count(images, kernel, gradient, transposed)

    twin = copy.deepcopy(model).to_empty(device="meta")
    batch = [torch.empty_like(part, device="meta") for part in inputs]
    formulas = {torch.ops.aten.convolution_backward: convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        outputs = tree_leaves(twin(*batch))
        sum(part.sum() for part in outputs if part.requires_grad).backward()
    return counter.get_total_flops() / len(inputs[0])
