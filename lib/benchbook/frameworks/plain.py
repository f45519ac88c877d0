"""The plain version of a study, with which a workload's training is compared.

It shares the network's definition with what it checks, and nothing else: no optimiser, no loader, no compiler. The
optimisers here are written from their papers for float64, and the studies give them the protocol's constants again.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Arrays = dict[str, numpy.ndarray]


class Optimizer:
    """The base of plain optimisers: a state for each parameter, and a count of steps."""

    def __post_init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.num_steps = 0

    def step(self, weights: Arrays, gradients: Arrays, number: int) -> Arrays:
        """Return weights after one step, in float64.

        Args:
            weights, gradients: by parameter name, the same names in every step.
            number: steps of the schedule that were passed before; it decides the learning rate.
        """
        self.num_steps += 1
        rate = self.rate(number)
        return {name: self._moved(name, weights[name], gradients[name], rate) for name in gradients}

    def _moved(self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float) -> numpy.ndarray:
        raise NotImplementedError


@dataclass
class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as torch and the articles' scripts have it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html

    Attributes:
        rate: from the number of a step to its learning rate.
        momentum, nesterov, weight_decay: of the protocol.
        is_decayed: whether weight decay takes a parameter of this name.
        keeps_rate: as Keras has it, the momentum keeps the learning rates of earlier steps.
    """

    rate: Callable[[int], float]
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    is_decayed: Callable[[str], bool] = lambda name: True
    keeps_rate: bool = False

    def _moved(self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float) -> numpy.ndarray:
        if self.weight_decay and self.is_decayed(name):
            gradient = gradient + self.weight_decay * weight
        gradient, rate = (rate * gradient, 1.0) if self.keeps_rate else (gradient, rate)
        speed = self.state[name] = self.momentum * self.state.get(name, 0.0) + gradient
        return weight - rate * (gradient + self.momentum * speed if self.nesterov else speed)


@dataclass
class Adam(Optimizer):
    """Adam, whose mean of gradients decays by 0.9.

    Source: https://arxiv.org/abs/1412.6980, algorithm 1; at the end of its section 2 the form that Keras computes,
    where epsilon is added before the correction of the second moment.

    Attributes:
        rate: from the number of a step to its learning rate.
        epsilon: keeps the division finite.
        corrected_late: Keras's form.
        weight_decay: apart from the gradient, as AdamW has it (https://arxiv.org/abs/1711.05101).
        kept: the decay of the mean of squares.
        is_decayed: whether weight decay takes a parameter of this name.
    """

    rate: Callable[[int], float]
    epsilon: float = 1e-8
    corrected_late: bool = False
    weight_decay: float = 0.0
    kept: float = 0.999
    is_decayed: Callable[[str], bool] = lambda name: True

    def _moved(self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float) -> numpy.ndarray:
        first, second = self.state.get(name, (0.0, 0.0))
        first, second = 0.9 * first + 0.1 * gradient, self.kept * second + (1 - self.kept) * gradient**2
        self.state[name] = first, second
        root = (1 - self.kept**self.num_steps) ** 0.5
        epsilon = self.epsilon / root if self.corrected_late else self.epsilon
        weight = weight * (1 - rate * self.weight_decay * self.is_decayed(name))
        return weight - rate / (1 - 0.9**self.num_steps) * first / (numpy.sqrt(second) / root + epsilon)


@dataclass
class Adadelta(Optimizer):
    """Adadelta at the decay of 0.9 and the epsilon of 1e-6 that torch has by default.

    Source: https://arxiv.org/abs/1212.5701, algorithm 1, its step multiplied by a learning rate.

    Attributes:
        rate: from the number of a step to its learning rate.
    """

    rate: Callable[[int], float]

    def _moved(self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float) -> numpy.ndarray:
        squares, changes = self.state.get(name, (0.0, 0.0))
        squares = 0.9 * squares + 0.1 * gradient**2
        change = numpy.sqrt((changes + 1e-6) / (squares + 1e-6)) * gradient
        self.state[name] = squares, 0.9 * changes + 0.1 * change**2
        return weight - rate * change


def all_of(batch: tuple) -> tuple[tuple, Any]:
    """Return what of a batch (images, labels) the network takes, and what the loss compares its outputs with."""
    *inputs, target = batch
    return tuple(inputs), target


@dataclass(frozen=True)
class Plain:
    """What the reference of a study is made of, and how a workload's batches are compared with the data set.

    Attributes:
        make_network: to the study's plain network, a torch module or a Keras model; parameters that training does not
            change have their values already.
        loss: outputs and target to the mean loss of a batch, or to their sum.
        make_optimizer: to a plain optimiser with the protocol's constants.
        batch_size: images in a step that is repeated in float64, which is slow; the first of a loader's batch.
        inputs: from a loader's batch on the host, NumPy arrays, to what the network takes (a tuple) and the target.
        labels: from a loader's whole batch on the host and its place in the epoch to which of its labels are those of
            the images' indices in the data set, bool, shape (n,); None where there are no labels.
        noise: from a batch, as the loader has it, and its place to the same batch with noise drawn on the host; None:
            the batch is taken as it is.
        settle: from a function, which makes the plain network in float32 of weights, and the present weights by name to
            those at which both are compared; None: the present ones.
        steps_passed: of the schedule before the first step: a warm-up's rates are so low that float32 rounds the
            weights' change away.
        is_sum: whether `loss` adds up a batch's losses.
        coarser: times the least share of a gradient that a tensor has to have to be judged alone
            (`parity.judging.Tolerance`), for networks whose layers nobody looked at.
        most_norm: gradients are scaled down as a whole where their norm is larger; 0: they are not.
        may_draw: whether the network may draw at random in training other than by dropout's layers, which are put off:
            its first step is then computed twice, and one that differs is compared with nothing.
    """

    make_network: Callable[[], Any]
    loss: Callable[[Any, Any], Any]
    make_optimizer: Callable[[], Optimizer]
    batch_size: int
    inputs: Callable[[tuple], tuple[tuple, Any]] = all_of
    labels: Callable[[tuple, int], numpy.ndarray] | None = None
    noise: Callable[[tuple, int], tuple] | None = None
    settle: Callable[[Callable, Arrays], Arrays] | None = None
    steps_passed: int = 0
    is_sum: bool = False
    coarser: float = 1.0
    may_draw: bool = False
    most_norm: float = 0.0

    def clipped(self, gradients: Arrays) -> Arrays:
        """Return the gradients, of a norm of at most `most_norm` together."""
        if not self.most_norm:
            return gradients
        norm = sum(float(numpy.vdot(part, part)) for part in gradients.values()) ** 0.5
        scale = min(1.0, self.most_norm / norm)
        return {name: scale * part for name, part in gradients.items()}


class LabelsByImage:
    """The labels of a data set by its images' bytes, for a loader whose order is the framework's own.

    Args:
        images: uint8, shape (n, ...).
        labels: shape (n, ...).
    """

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray) -> None:
        self.images, self.labels = images, labels

    @functools.cached_property
    def indices(self) -> dict[bytes, list[int]]:
        """Return the indices of each image by its digest, made when it is first asked for."""
        indices: dict[bytes, list[int]] = {}
        for index, image in enumerate(self.images):
            indices.setdefault(_digest(image), []).append(index)
        return indices

    def fit(self, images: numpy.ndarray, labels: numpy.ndarray) -> numpy.ndarray:
        """Return which labels of a batch are those of its images, bool, shape (n,); an image may be there twice.

        Args:
            images: of a batch, as the data set stores them; values that are not whole are rounded.
            labels: of the batch.
        """
        stored = [_digest(image) for image in numpy.rint(images).astype("uint8")]
        return numpy.array(
            [
                any(numpy.array_equal(self.labels[index], label) for index in self.indices.get(image, ()))
                for image, label in zip(stored, labels, strict=True)
            ]
        )


def _digest(image: numpy.ndarray) -> bytes:
    return hashlib.blake2b(numpy.ascontiguousarray(image), digest_size=16).digest()
