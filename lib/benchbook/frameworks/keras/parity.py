"""A Keras workload that takes the steps it is timed with, one at a time, for each to be looked at."""

from typing import Any

import ml_dtypes  # NumPy's bfloat16 and its like, as TensorFlow and JAX have them
import numpy

from benchbook.frameworks.keras.runtime import is_moving, to_host
from benchbook.frameworks.plain import Arrays
from benchbook.frameworks.workload import MOST_HALVINGS, ParitySubject
from benchbook.machine.precisions import PRECISIONS

LARGEST_LOSS_SCALE = 2.0**15  # where Keras's LossScaleOptimizer begins


class KerasSubject(ParitySubject):
    """A Keras workload step by step; see `ParitySubject`.

    Args:
        workload: its dropout is off, and whoever made this puts it back afterwards.
    """

    def __init__(self, workload: Any) -> None:
        self.network = workload.network
        self.loss_scale = LARGEST_LOSS_SCALE if PRECISIONS[self.network.precision].needs_scaling else 1.0
        super().__init__(workload)

    def to_host(self, batch: tuple) -> tuple[numpy.ndarray, ...]:
        """Return a batch as NumPy has it: what is not whole in float64."""
        arrays = (to_host(part) for part in batch)
        return tuple(array if array.dtype.kind in "iub" else array.astype("float64") for array in arrays)

    def weights(self) -> Arrays:
        """Return every parameter by name, trainable or not, in float64."""
        self.network.update_model()
        return {variable.path: to_host(variable.value).astype("float64") for variable in self._kept(moving=False)}

    def statistics(self) -> Arrays:
        """Return the moving statistics of batch norms by name, in float64."""
        self.network.update_model()
        return {variable.path: to_host(variable.value).astype("float64") for variable in self._kept(moving=True)}

    def load(self, weights: Arrays, statistics: Arrays) -> None:
        """Take over weights and moving statistics by name, rounded to what the workload keeps."""
        arrays = weights | statistics
        self.network.update_model()
        variables = [variable for variable in self.network.model.weights if variable.path in arrays]
        self.network.assign(variables, [arrays[variable.path] for variable in variables])

    def step(self, batch: tuple, differentiated: bool = True) -> tuple[float, Arrays]:
        """Train on a batch; return its loss and, if they are wanted, the gradients at the weights from before it.

        A scaled optimiser leaves out a step whose gradients overflow, and halves its scale; the same batch comes again.
        """
        before = self.statistics()
        gradients = self._differentiate(batch) if differentiated else {}
        for _ in range(MOST_HALVINGS):
            self.load({}, before)  # to differentiate moves them, too, and so does a step that was left out
            loss = float(self.workload.step(batch))
            self.network.update_model()
            passed, self.num_passed = self.num_passed, int(to_host(self.network.iterations.value))
            if self.num_passed > passed or not self.network.is_loss_scaled:
                break
        return loss, gradients

    def rounded(self, name: str, array: numpy.ndarray) -> numpy.ndarray:
        """Return numbers as the parameter of this name keeps them."""
        return array.astype(self._dtype).astype("float64")

    @property
    def resolution(self) -> float:
        """Return how far numbers of about 1 lie apart where weights are kept."""
        return float(ml_dtypes.finfo(self._dtype).eps)

    @property
    def _dtype(self) -> numpy.dtype:
        return to_host(self.network.model.weights[0].value).dtype

    def gather(self, part: Any) -> Any:
        """Return a part of a loader's batch in one piece, though several devices may hold their shares of it."""
        return self.network.gather(part)

    def _kept(self, moving: bool) -> list:
        return [variable for variable in self.network.model.weights if is_moving(variable) == moving]

    def _differentiate(self, batch: tuple) -> Arrays:
        """Return gradients by name; in float16 the loss is scaled, and the scale halved until nothing overflows.

        A parameter that is not trained has zeros.
        """
        while True:
            _, derived = self.network.differentiate(*batch, self.loss_scale)
            if self.loss_scale == 1 or all(numpy.isfinite(gradient).all() for gradient in derived):
                break
            self.loss_scale /= 2
        names = [variable.path for variable in self.network.model.trainable_variables]
        zeros = {variable.path: numpy.zeros(variable.shape) for variable in self._kept(moving=False)}
        return zeros | dict(zip(names, derived, strict=True))
