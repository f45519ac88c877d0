"""torchvision's MobileNetV2 with Keras's padding, constants and weights, so that both are the
same function."""

import functools

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchbook.frameworks.plain import Plain
from benchbook.frameworks.torch.runtime import ResidentArrays, flops_per_sample, load_keras_arrays
from benchbook.frameworks.torch.training import TorchWorkload
from benchbook.studies.mobilenetv2_energy import weights
from benchbook.studies.mobilenetv2_energy.plan import Plan, enlarge


class Padding(nn.Module):
    """Keras's padding before a 3x3 convolution of stride 2: a pixel below and right; above and
    left for odd sizes only.

    Source: keras.src.applications.imagenet_utils.correct_pad
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of shape (n, channels, height + 1 or 2, width + 1 or 2)."""
        height, width = images.shape[-2:]
        return F.pad(images, (width % 2, 1, height % 2, 1))


class Network(nn.Module):
    """MobileNetV2 with a new head: (n, 3, size, size) to logits (n, classes).

    In training it equals Keras's network up to rounding. In evaluation of a trained network, one
    thing differs: torch's moving variance is the unbiased one, n / (n - 1) times Keras's, where
    n counts a batch's values in a channel (1,024 or more with 64 images of 128 px).

    Args:
        plan: the point's choices. As in Keras, the batch norms of frozen features are in
        inference mode.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        options = {"num_classes": plan.dataset.num_classes, "dropout": plan.DROPOUT}
        base = torchvision.models.mobilenet_v2(weights=None, **options)
        self.features, self.classifier, self.trainable = (
            base.features,
            base.classifier,
            plan.trainable,
        )
        layers = [
            layer
            for layer in self.features.modules()
            if isinstance(layer, (nn.Conv2d, nn.BatchNorm2d))
        ]
        names = [
            name
            for convolution, (norm, _) in weights.convolutions().items()
            for name in (convolution, norm)
        ]
        for layer, name in zip([*layers, self.classifier[-1]], [*names, weights.HEAD], strict=True):
            load_keras_arrays(layer, plan.arrays[name])
        for module in list(self.features.modules()):  # a list, because paddings are inserted
            if isinstance(module, nn.BatchNorm2d):
                module.eps, module.momentum = plan.NORM_EPSILON, 1 - plan.momentum
            elif isinstance(module, nn.Sequential) and getattr(module[0], "stride", None) == (2, 2):
                module[0].padding = (0, 0)
                module[0] = nn.Sequential(Padding(), module[0])
        self.features.requires_grad_(plan.trainable)
        self.train()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of the classes; the loss computes the softmax."""
        return self.classifier(self.features(images).mean((2, 3)))

    def train(self, mode: bool = True) -> "Network":
        """Set training mode; frozen features stay in inference mode."""
        super().train(mode)
        self.features.train(mode and self.trainable)
        return self


def build(plan: Plan) -> TorchWorkload:
    """Return the study's workload on torch; see `Plan`."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(functools.partial(Network, plan))
    if plan.folded:
        fold(model.features)
    model.to(plan.device.torch_type)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(
        trained, plan.learning_rate, eps=plan.ADAM_EPSILON, fused=plan.settings.fused or None
    )
    rows, columns = (
        torch.from_numpy(side).to(plan.device.torch_type) for side in plan.chosen_pixels
    )

    def enlarged(images: torch.Tensor) -> torch.Tensor:
        return images.float().div(255)[:, :, rows][:, :, :, columns]

    train, test = plan.inputs(
        lambda images, labels: ResidentArrays(
            plan.device, images.transpose(0, 3, 1, 2), labels, enlarged
        ),
        lambda images, labels: (
            torch.from_numpy(enlarge(images, plan.image_size, channels_first=True)),
            torch.from_numpy(labels.astype("int64")),
        ),
        plan.MOST_TEST_IMAGES,
    )
    example = torch.zeros(
        2, 3, plan.image_size, plan.image_size
    )  # batch norms need more than one value a channel
    return TorchWorkload(
        **plan.common(
            train, test, flops_per_sample=plan.count(lambda: flops_per_sample(model, example))
        ),
        model=model,
        loss=F.cross_entropy,
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: plan.decay(step)),
        rate_by_step=True,
        plain=plain(plan),
    )


def plain(plan: Plan) -> Plain:
    """Return the plain version: the network without folded batch norms, and Adam."""
    return plan.plain(functools.partial(Network, plan), F.cross_entropy, channels_first=True)


@torch.no_grad()
def fold(features: nn.Module) -> None:
    """Fold each batch norm into the convolution before it: the same function with fewer passes
    over the images.

    Args:
        features: frozen layers, so that the batch norms are in inference mode.
    """
    convolution = None
    for name, module in list(features.named_modules()):
        if isinstance(module, nn.Conv2d):
            convolution = module
        elif isinstance(module, nn.BatchNorm2d):
            folded = fuse_conv_bn_eval(convolution.eval(), module.eval())
            convolution.weight, convolution.bias = folded.weight, folded.bias
            features.set_submodule(name, nn.Identity())
    features.requires_grad_(False)
