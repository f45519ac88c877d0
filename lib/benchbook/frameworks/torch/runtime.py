"""What the studies' torch networks share: images that stay on a device, or are loaded one by one; Keras's weights."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

from benchbook.frameworks.batches import order_seed
from benchbook.frameworks.devices import Device


class ResidentArrays:
    """Images and labels that stay on a device: no loader, no transfer.

    Args:
        device: which.
        images, labels: NumPy arrays, of n each.
        prepare: from some of the images, on the device, to what the network takes.
    """

    def __init__(
        self,
        device: Device,
        images: numpy.ndarray,
        labels: numpy.ndarray,
        prepare: Callable[[torch.Tensor], torch.Tensor] = lambda part: part,
    ) -> None:
        self.images, self.labels = (torch.tensor(part).to(device.kind) for part in (images, labels))
        self.prepare = prepare

    def batches(self, order: Iterable[numpy.ndarray | torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield a batch for each array of indices."""
        for indices in order:
            chosen = torch.as_tensor(indices, device=self.labels.device)
            yield self.prepare(self.images[chosen]), self.labels[chosen]


class TransformedImages(Dataset):
    """Images that are transformed one at a time on the host, with their labels; importable, for spawned workers.

    Args:
        images: uint8, shape (n, height, width) or (n, height, width, 3); of a tensor workers share the memory.
        labels: shape (n,).
        transform: from an image, as PIL has it.
    """

    def __init__(self, images: numpy.ndarray | torch.Tensor, labels: numpy.ndarray, transform: Callable) -> None:
        self.images, self.labels, self.transform = images, labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(numpy.asarray(self.images[index]))), self.labels[index]


def order_generator(seed: int, epoch: int) -> torch.Generator:
    """Return the generator of an epoch's order; see `batches.order_seed`."""
    return torch.Generator().manual_seed(order_seed(seed, epoch))


@torch.no_grad()
def take_over(layer: nn.Module, arrays: Sequence[numpy.ndarray]) -> None:
    """Give a layer other numbers: kernel and bias, or a batch norm's scale, offset, moving mean and variance.

    Args:
        layer: a convolution, a dense layer or a batch norm.
        arrays: in Keras's shapes; a kernel is (height, width, in, out), or depthwise (height, width, in, 1).
    """
    orders = {4: (2, 3, 0, 1) if getattr(layer, "groups", 1) > 1 else (3, 2, 0, 1), 2: (1, 0)}
    for name, array in zip(("weight", "bias", "running_mean", "running_var"), arrays, strict=False):
        getattr(layer, name).copy_(torch.from_numpy(array.transpose(orders.get(array.ndim))))
