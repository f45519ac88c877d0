"""The plain version of a study in float64, with which a workload's training is compared.

It shares the network's definition with the workload and nothing else: no optimiser, no loader,
no compiler. The optimisers here follow their papers, and each study states the protocol's
constants a second time.
"""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Arrays = dict[str, numpy.ndarray]


@dataclass
class Optimizer:
    """Base class of the plain optimisers: a state for each parameter and a count of steps.

    Attributes:
        rate: the learning rate of a step, by its number.
    """

    rate: Callable[[int], float]

    def __post_init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.num_steps = 0

    def step(self, weights: Arrays, gradients: Arrays, number: int) -> Arrays:
        """Return the weights after one step, in float64.

        Args:
            weights, gradients: by parameter name, the same names in every step.
            number: the schedule's step, from 0; it decides the learning rate.
        """
        self.num_steps += 1
        rate = self.rate(number)
        return {name: self._moved(name, weights[name], gradients[name], rate) for name in gradients}

    def _moved(
        self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float
    ) -> numpy.ndarray:
        raise NotImplementedError


@dataclass
class SGD(Optimizer):
    """Stochastic gradient descent with momentum, as torch and the articles' scripts have it.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html

    Attributes:
        momentum, nesterov, weight_decay: of the protocol.
        is_decayed: whether weight decay applies to a parameter, by its name.
        rate_in_momentum: the momentum sums gradients times the learning rates of their steps, as
        in Keras.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    is_decayed: Callable[[str], bool] = lambda name: True
    rate_in_momentum: bool = False

    def _moved(
        self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float
    ) -> numpy.ndarray:
        if self.weight_decay and self.is_decayed(name):
            gradient = gradient + self.weight_decay * weight
        gradient, rate = (rate * gradient, 1.0) if self.rate_in_momentum else (gradient, rate)
        speed = self.state[name] = self.momentum * self.state.get(name, 0.0) + gradient
        return weight - rate * (gradient + self.momentum * speed if self.nesterov else speed)


@dataclass
class Adam(Optimizer):
    """Adam with a beta1 of 0.9.

    Source: https://arxiv.org/abs/1412.6980, algorithm 1. The end of its section 2 has the form
    that Keras computes: epsilon, there with a hat, is added before the second moment is
    corrected.

    Attributes:
        epsilon: keeps the division finite.
        uses_epsilon_hat: compute Keras's form.
        weight_decay: decoupled from the gradient, as in AdamW (https://arxiv.org/abs/1711.05101).
        beta2: the decay of the mean of squared gradients.
        is_decayed: whether weight decay applies to a parameter, by its name.
    """

    epsilon: float = 1e-8
    uses_epsilon_hat: bool = False
    weight_decay: float = 0.0
    beta2: float = 0.999
    is_decayed: Callable[[str], bool] = lambda name: True

    def _moved(
        self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float
    ) -> numpy.ndarray:
        first, second = self.state.get(name, (0.0, 0.0))
        first = 0.9 * first + 0.1 * gradient
        second = self.beta2 * second + (1 - self.beta2) * gradient**2
        self.state[name] = first, second
        root = (1 - self.beta2**self.num_steps) ** 0.5
        epsilon = self.epsilon / root if self.uses_epsilon_hat else self.epsilon
        weight = weight * (1 - rate * self.weight_decay * self.is_decayed(name))
        return weight - rate / (1 - 0.9**self.num_steps) * first / (
            numpy.sqrt(second) / root + epsilon
        )


@dataclass
class Adadelta(Optimizer):
    """Adadelta with torch's defaults: a decay of 0.9 and an epsilon of 1e-6.

    Source: https://arxiv.org/abs/1212.5701, algorithm 1, with its step multiplied by a learning
    rate.
    """

    def _moved(
        self, name: str, weight: numpy.ndarray, gradient: numpy.ndarray, rate: float
    ) -> numpy.ndarray:
        squares, changes = self.state.get(name, (0.0, 0.0))
        squares = 0.9 * squares + 0.1 * gradient**2
        change = numpy.sqrt((changes + 1e-6) / (squares + 1e-6)) * gradient
        self.state[name] = squares, 0.9 * changes + 0.1 * change**2
        return weight - rate * change


def split_target(batch: tuple) -> tuple[tuple, Any]:
    """Return the network's inputs, all parts of a batch but the last, and the target, the last
    part."""
    *inputs, target = batch
    return tuple(inputs), target


@dataclass(frozen=True)
class Plain:
    """The parts of a study's reference, and the check of a workload's batches against the data set.

    Attributes:
        make_network: returns the study's plain network, a torch module or a Keras model;
        parameters that training does
            not change have their values already.
        loss: (outputs, target) to the mean loss of a batch, or to the sum.
        make_optimizer: returns a plain optimiser with the protocol's constants.
        batch_size: images in a step of the reference; float64 is slow, so only a part of a batch
        is used.
        inputs: splits a loader's batch, NumPy arrays, into the network's inputs (a tuple) and
        the target.
        labels: (a loader's whole batch of NumPy arrays, its place in the epoch) to whether each
        label is that of its
            image in the data set, bool, shape (n,); None: there are no labels.
        noise: (a loader's batch, its place) to the batch with noise drawn on the host; None: the
        batch is not changed.
        parity_weights: (make, weights) to the weights at which workload and reference are
        compared, by name;
            make(weights) returns the plain network in float32. None: the workload's present
            weights.
        schedule_start: the schedule's step at which the comparison starts. In a warm-up the
        rates can be so low that
            float32 rounds the change of the weights away.
        loss_is_sum: whether `loss` is the sum of a batch's losses.
        max_norm: a larger norm of all gradients together is scaled down to this one; 0: no limit.
        may_be_random: whether a training step may be random other than by dropout layers, which
        are switched off. Then the last batch's loss is not compared.
    """

    make_network: Callable[[], Any]
    loss: Callable[[Any, Any], Any]
    make_optimizer: Callable[[], Optimizer]
    batch_size: int
    inputs: Callable[[tuple], tuple[tuple, Any]] = split_target
    labels: Callable[[tuple, int], numpy.ndarray] | None = None
    noise: Callable[[tuple, int], tuple] | None = None
    parity_weights: Callable[[Callable, Arrays], Arrays] | None = None
    schedule_start: int = 0
    loss_is_sum: bool = False
    may_be_random: bool = False
    max_norm: float = 0.0

    def clipped(self, gradients: Arrays) -> Arrays:
        """Return the gradients, scaled to a norm of at most `max_norm`."""
        if not self.max_norm:
            return gradients
        norm = sum(float(numpy.vdot(part, part)) for part in gradients.values()) ** 0.5
        scale = self.max_norm / max(self.max_norm, norm)
        return {name: scale * part for name, part in gradients.items()}


class LabelsByImage:
    """A data set's labels by the bytes of its images, for loaders that shuffle with a
    framework's own generator.

    Args:
        images: uint8, shape (n, ...).
        labels: shape (n, ...).
    """

    def __init__(self, images: numpy.ndarray, labels: numpy.ndarray) -> None:
        self.images, self.labels = images, labels

    @functools.cached_property
    def indices(self) -> dict[bytes, list[int]]:
        """Return the indices of the images with each digest."""
        indices: dict[bytes, list[int]] = {}
        for index, image in enumerate(self.images):
            indices.setdefault(_digest(image), []).append(index)
        return indices

    def matches(self, images: numpy.ndarray, labels: numpy.ndarray) -> numpy.ndarray:
        """Return whether each label of a batch is that of its image, bool, shape (n,).

        An image that occurs more than once in the data set may have any of its labels.

        Args:
            images: of a batch, in the data set's values; they are rounded to whole numbers.
            labels: of the batch.
        """
        stored = [_digest(image) for image in numpy.rint(images).astype("uint8")]
        return numpy.array(
            [
                any(
                    numpy.array_equal(self.labels[index], label)
                    for index in self.indices.get(image, ())
                )
                for image, label in zip(stored, labels, strict=True)
            ]
        )


def _digest(image: numpy.ndarray) -> bytes:
    return hashlib.blake2b(numpy.ascontiguousarray(image), digest_size=16).digest()
