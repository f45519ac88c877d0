"""The same MobileNetV2 on MLX: Keras's padding, constants, weights and optimiser."""

import functools

import mlx.core as mx
import numpy
from mlx import nn, optimizers

from benchbook.frameworks import batches
from benchbook.frameworks.mlx.layers import BatchNorm, Convolution, Dense, Shift, flops_per_sample
from benchbook.frameworks.mlx.runtime import ResidentArrays, leaves
from benchbook.frameworks.mlx.training import MlxWorkload
from benchbook.frameworks.plain import Plain
from benchbook.studies.mobilenetv2_energy import inputs, weights
from benchbook.studies.mobilenetv2_energy.plan import (
    ADAM_EPSILON,
    DECAY_RATE,
    DECAY_STEPS,
    DROPOUT,
    MOST_TEST_IMAGES,
    NORM_EPSILON,
    Plan,
)


class Block(nn.Module):
    """An inverted residual: expand, convolve each channel, project; added to its input where shapes allow.

    Args:
        make: from a convolution's name, stride and padding to the convolution with its batch norm.
        prefix: of its layers' names.
        stride, side: of the depthwise convolution, and the pixels a side of its images.
        expanded: whether it has an expansion.
        residual: whether its input is added.
    """

    def __init__(self, make, prefix: str, stride: int, side: int, expanded: bool, residual: bool) -> None:
        super().__init__()
        padding = (1, 1) if stride == 1 else (side % 2, 1)  # keras.src.applications.imagenet_utils.correct_pad
        self.expand = make(f"{prefix}_expand") if expanded else []
        self.depthwise = make(f"{prefix}_depthwise", stride, padding)
        self.project = make(f"{prefix}_project")
        self.residual = residual

    def __call__(self, images: mx.array) -> mx.array:
        """Return images of the block's channels."""
        hidden = images
        for convolution, norm in filter(None, (self.expand, self.depthwise)):
            hidden = nn.relu6(norm(convolution(hidden)))
        convolution, norm = self.project
        hidden = norm(convolution(hidden))
        return images + hidden if self.residual else hidden


class Network(nn.Module):
    """MobileNetV2 with a new head: (n, size, size, 3) to logits (n, classes).

    In evaluation its moving variance is the unbiased one, as torch's; see `torch.Network`.

    Args:
        plan: the point's choices.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        make = functools.partial(_convolve, plan)
        side, number, channels = plan.image_size, 0, 32
        self.stem = make("Conv1", 2, (side % 2, 1))
        side = (side + 1) // 2
        self.blocks = []
        for expansion, out, repeats, first_stride in weights.BLOCKS:
            for repeat in range(repeats):
                stride = first_stride if repeat == 0 else 1
                prefix = f"block_{number}" if number else "expanded_conv"
                residual = stride == 1 and channels == out
                self.blocks.append(Block(make, prefix, stride, side, expansion > 1, residual))
                side, number, channels = (side + stride - 1) // stride, number + 1, out
        self.top = make("Conv_1")
        self.dropout = nn.Dropout(DROPOUT)
        self.head = Dense(*plan.arrays[weights.HEAD])
        if not plan.trainable:
            self.freeze()
            self.head.unfreeze()

    def __call__(self, images: mx.array) -> mx.array:
        """Return logits of the classes; the softmax is part of the loss."""
        convolution, norm = self.stem
        hidden = nn.relu6(norm(convolution(images)))
        for block in self.blocks:
            hidden = block(hidden)
        convolution, norm = self.top
        hidden = nn.relu6(norm(convolution(hidden)))
        return self.head(self.dropout(hidden.mean((1, 2))))


def build(plan: Plan) -> MlxWorkload:
    """Return the study's workload on MLX; see `workload.build`."""
    plan.device.backend.seed(plan.seed)
    train, test = _inputs(plan)
    made = MlxWorkload(
        device=plan.device,
        batch_size=plan.batch_size,
        make_model=lambda: Network(plan),
        make_optimizer=lambda: optimizers.Adam(
            lambda step: plan.learning_rate * DECAY_RATE ** (step / DECAY_STEPS), eps=ADAM_EPSILON, bias_correction=True
        ),
        train_batches=train,
        test_batches=test,
        columns=plan.columns() | {"parameters": sum(array.size for part in plan.arrays.values() for array in part)},
        make_plain=lambda: _plain(plan),
        settings=plan.settings,
    )
    example = mx.zeros((1, plan.image_size, plan.image_size, 3))
    made.columns["flops_per_sample"] = flops_per_sample(made.network.model, example)
    return made


def trainable_parameters(workload: MlxWorkload) -> int:
    """Return how many numbers training changes."""
    return sum(array.size for array in leaves(workload.network.model.trainable_parameters()).values())


def _convolve(plan: Plan, name: str, stride: int = 1, padding: tuple[int, int] = (0, 0)) -> list[nn.Module]:
    """Return a convolution and its batch norm; where that is folded, its offset alone is left of it."""
    [kernel], norm = plan.arrays[name], plan.arrays[weights.convolutions()[name][0]]
    depthwise = "depthwise" in name
    if plan.folded:
        scale, offset, mean, variance = norm
        factor = scale / numpy.sqrt(variance + NORM_EPSILON)
        folded = kernel * (factor[:, None] if depthwise else factor)
        return [Convolution(folded, None, stride, padding, depthwise), Shift(offset - mean * factor)]
    anew = 1 - weights.MOMENTUM[plan.weights]
    return [Convolution(kernel, None, stride, padding, depthwise), BatchNorm(norm, NORM_EPSILON, anew, plan.trainable)]


def _plain(plan: Plan) -> Plain:
    from benchbook.studies.mobilenetv2_energy import torch

    return torch.plain(plan)


def _inputs(plan: Plan):
    """Return functions to an epoch's training batches and to the test batches."""
    data, size = plan.dataset, plan.image_size
    test_order = batches.plain_order(len(data.test_labels), MOST_TEST_IMAGES)
    parts = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    if plan.data_resident:
        rows, columns = (mx.array(inputs.nearest(side, size)) for side in data.train_images.shape[1:3])

        def enlarge(images: mx.array) -> mx.array:
            return (images.astype(mx.float32) / 255)[:, rows][:, :, columns]

        train, test = (ResidentArrays(*part, enlarge) for part in parts)
        return lambda epoch: train.batches(plan.order(epoch)), lambda: test.batches(test_order)

    def load(images: numpy.ndarray, labels: numpy.ndarray, indices: numpy.ndarray) -> tuple:
        return inputs.enlarge(images[indices], size), labels[indices].astype("int32")

    load_train, load_test = (functools.partial(load, *part) for part in parts)
    return (
        lambda epoch: batches.loaded(plan.order(epoch), load_train, plan.num_workers),
        lambda: batches.loaded(test_order, load_test, plan.num_workers),
    )
