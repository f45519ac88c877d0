"""An MLX workload that takes the steps it is timed with, one at a time, for each to be looked at.

MLX's convolutions have no float64, so the plain network is torch's: parameters go by torch's names, in torch's shapes,
and batches on the host have torch's order of dimensions.
"""

from typing import Any

import mlx.core as mx
import numpy
from mlx import nn

from benchbook.frameworks.mlx.runtime import MOVING, STORED, assign, leaves, to_host
from benchbook.frameworks.plain import Arrays
from benchbook.frameworks.workload import MOST_HALVINGS, ParitySubject


class MlxSubject(ParitySubject):
    """An MLX workload step by step; see `ParitySubject`.

    Args:
        workload: a copy of what is compared, whose dropout is put off.
    """

    def __init__(self, workload: Any) -> None:
        self.network, self.model = workload.network, workload.network.model
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        self.dtype = STORED[workload.settings.precision]
        named = workload.plain.make_network()
        trained = [name for name, part in named.named_parameters() if part.requires_grad]
        self.names = dict(zip(leaves(self.model.trainable_parameters()), trained, strict=True))
        moving = [path for path in leaves(self.model) if path.endswith(MOVING)]
        buffers = [name for name, part in named.named_buffers() if part.is_floating_point()]
        # Batch norms that are folded into convolutions leave none.
        self.moving = dict(zip(moving, buffers, strict=True)) if moving else {}
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy has it, channels before height and width."""
        images, labels = batch
        images = to_host(mx.array(images)) if isinstance(images, mx.array) else images.astype("float64")
        return numpy.ascontiguousarray(images.transpose(0, 3, 1, 2)), numpy.array(labels)

    def weights(self) -> Arrays:
        """Return every parameter that is trained, in float64."""
        return self._exported(leaves(self.model.trainable_parameters()), self.names)

    def statistics(self) -> Arrays:
        """Return the moving statistics of batch norms, in float64."""
        return self._exported(leaves(self.model), self.moving)

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics, rounded to what the workload keeps."""
        own, arrays = leaves(self.model), {}
        for path, name in (self.names | self.moving).items():
            given = weights | statistics
            if name in given:
                layer = self._layer(path)
                value = layer.from_torch(given[name]) if layer else given[name]
                arrays[path] = mx.array(numpy.ascontiguousarray(value, "float32")).astype(own[path].dtype)
        assign(self.model, arrays)

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, Arrays]:
        """Train on a batch; return its loss and, if they are wanted, the gradients at the weights before it.

        In float16 a step whose gradients overflow is left out and the scale halved; the same batch comes again.
        """
        before = self.statistics() if self.network.is_scaled else {}
        for _ in range(MOST_HALVINGS):
            scale = self.network.scaling["scale"].item()
            gradients = self.network.differentiate(*batch)[1] if differentiated else {}
            loss = self.workload.step(batch).item()
            self.num_passed += 1
            if not self.network.scaling["scale"].item() < scale:
                break
            self.load({}, before)
        return loss, self._exported(gradients, self.names)

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers as the parameter of this name keeps them."""
        return to_host(mx.array(array.astype("float32")).astype(self.dtype))

    @property
    def resolution(self) -> float:
        """Return how far numbers of about 1 lie apart where weights are kept."""
        return float(mx.finfo(self.dtype).eps)

    def _exported(self, arrays: dict[str, mx.array], names: dict[str, str]) -> Arrays:
        """Return arrays of parameters' shapes by torch's names, in torch's shapes."""
        exported = {}
        for path, name in names.items():
            if path in arrays:
                layer, value = self._layer(path), to_host(arrays[path])
                exported[name] = layer.to_torch(value) if layer else value
        return exported

    def _layer(self, path: str) -> nn.Module | None:
        """Return the layer of a weight that torch keeps in another shape, perhaps; None for all others."""
        parent, _, kind = path.rpartition(".")
        layer = dict(self.model.named_modules())[parent]
        return layer if kind == "weight" and hasattr(layer, "to_torch") else None
