"""Images and labels that stay on a device, from which batches are taken there."""

from collections.abc import Callable, Iterable, Iterator

import numpy
import torch

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
