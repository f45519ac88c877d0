"""An MLX network that repeats the same steps on any device, without dropout, and torch's in float64 beside it.

MLX's convolutions have no float64. So the reference is torch's network of the same study, on the CPU: another
framework, which shares the weights alone. Parameters go by torch's names, in torch's shapes.
"""

import mlx.core as mx
import numpy
from mlx import nn

from benchbook import devices
from benchbook.training.mlx.network import Network
from benchbook.training.mlx.runtime import assign, leaves, to_host
from benchbook.workload import ParitySubject, ParityWorkload

Batch = tuple[numpy.ndarray, numpy.ndarray]  # images (n, height, width, channels), and labels


class MlxParitySubject:
    """An MLX network that repeats the same steps; see `benchbook.workload.ParitySubject`.

    Args:
        network: with a fresh optimiser; its dropout is put off.
        names: torch's, of the parameters that are trained, in the network's order.
    """

    def __init__(self, network: Network, names: list[str]) -> None:
        self.network = network
        for module in network.model.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        paths = leaves(network.model.trainable_parameters())
        self.names = dict(zip(paths, names, strict=True))

    def copy_weights(self, other: Network) -> None:
        """Take over all weights and moving statistics of the same network in any precision."""
        own, given = leaves(self.network.model), leaves(other.model)
        assign(self.network.model, {path: given[path].astype(array.dtype) for path, array in own.items()})

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name, in float64."""
        return self._exported(leaves(self.network.model.trainable_parameters()))

    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names, rounded to this precision."""
        model, arrays = self.network.model, {}
        for path, array in leaves(model.trainable_parameters()).items():
            value = parameters[self.names[path]]
            layer = self._layer(path)
            value = layer.from_torch(value) if layer else value
            arrays[path] = mx.array(numpy.ascontiguousarray(value, "float32")).astype(array.dtype)
        assign(model, arrays)

    def gradients(self, batch: Batch) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name, in float64; in float16 the scale falls until they are finite."""
        while True:
            loss, gradients = self.network.differentiate(*batch)
            exported, scaling = self._exported(gradients), self.network.scaling
            if scaling["scale"].item() <= 1 or all(numpy.isfinite(array).all() for array in exported.values()):
                return loss.item(), exported
            scaling["scale"] = scaling["scale"] / 2

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step.

        In float16 a step whose gradients overflow is left out and the scale halved; the same batch comes again.
        """
        while True:
            scale = self.network.scaling["scale"].item()
            loss = self.network.train(*batch).item()
            if not 1 <= self.network.scaling["scale"].item() < scale:
                return loss

    def _exported(self, arrays: dict[str, mx.array]) -> dict[str, numpy.ndarray]:
        """Return arrays of parameters' shapes by torch's names, in torch's shapes."""
        exported = {}
        for path, array in arrays.items():
            layer, value = self._layer(path), to_host(array)
            exported[self.names[path]] = layer.to_torch(value) if layer else value
        return exported

    def _layer(self, path: str) -> nn.Module | None:
        """Return the layer of a weight that torch keeps in another shape, perhaps; None for all others."""
        parent, _, kind = path.rpartition(".")
        layer = dict(self.network.model.named_modules())[parent]
        return layer if kind == "weight" and hasattr(layer, "to_torch") else None


class TorchReference:
    """torch's network of the same study in float64 on the CPU, which takes the same batches.

    Args:
        workload: torch's.
    """

    def __init__(self, workload: ParityWorkload) -> None:
        self.subject: ParitySubject = workload.parity_subject(devices.pick("cpu", "torch"), "fp64")
        self.names = list(self.subject.parameters())

    def parameters(self) -> dict[str, numpy.ndarray]:
        """Return every trainable parameter by name."""
        return self.subject.parameters()

    def load(self, parameters: dict[str, numpy.ndarray]) -> None:
        """Take over parameters of these names."""
        self.subject.load({name: numpy.ascontiguousarray(array) for name, array in parameters.items()})

    def gradients(self, batch: Batch) -> tuple[float, dict[str, numpy.ndarray]]:
        """Return mean loss and gradients by name."""
        return self.subject.gradients(_for_torch(batch))

    def step(self, batch: Batch) -> float:
        """Train on one batch and return its mean loss from before the step."""
        return self.subject.step(_for_torch(batch))


def _for_torch(batch: Batch) -> tuple:
    import torch

    images, labels = batch
    channels_first = numpy.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return torch.from_numpy(channels_first), torch.from_numpy(labels.astype("int64"))
