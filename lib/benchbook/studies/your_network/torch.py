"""A torch network of the user's own, trained."""

from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from benchbook.frameworks.torch.training import Batch, TorchWorkload, flops_per_sample
from benchbook.frameworks.workload import Evaluation, Settings
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import MOMENTUM, Plan


@dataclass
class Trained(TorchWorkload):
    """Somebody's network: the last part of a batch is what its outputs are compared with.

    Attributes:
        classifies: whether outputs are logits of classes; else an evaluation has a loss alone.
    """

    classifies: bool = True

    @staticmethod
    def split(batch: Batch) -> tuple[Batch, torch.Tensor]:
        """Return what the network takes of a batch, and what its outputs are compared with."""
        *inputs, target = batch
        return tuple(inputs), target

    def end_epoch(self) -> None:
        """Advance the epoch; the learning rate stays."""
        self.epoch += 1

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Return mean loss over the test batches, and accuracy where the network classifies real images."""
        self.model.eval()
        total, correct, samples = 0.0, 0, 0
        for batch in self.test_batches():
            inputs, target = self.split(self.to_device(batch))
            outputs = self._outputs(*inputs)
            total = total + self.loss(outputs, target) * len(target)
            correct = correct + (outputs.argmax(1) == target).sum() if self.classifies else 0
            samples += len(target)
        self.model.train()
        if not self.classifies:
            return Evaluation(total / samples, float("nan"), samples, None)
        return Evaluation(total / samples, correct / samples, samples)


def build(plan: Plan, settings: Settings) -> Trained:
    """Return the workload; see `workload.build`."""
    torch.manual_seed(plan.seed)
    model = plan.make_network(torch.nn.Module).train()
    example = _tensors(plan.example_batch())
    columns = plan.columns() | _counted(model, example[:-1])
    model.to(plan.device.kind)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError(f"network {plan.network!r} has no parameter that is trained; allowed: one or more")
    optimizer = _optimizer(plan, trained, settings)
    return Trained(
        device=plan.device,
        batch_size=plan.batch_size,
        model=model,
        loss=_checked(plan),
        optimizer=optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0),
        train_batches=lambda epoch: map(_tensors, plan.batches(epoch)),
        test_batches=lambda: map(_tensors, plan.test_batches()),
        columns=columns,
        plain=plan.plain(lambda: plan.make_network(torch.nn.Module).train(), _checked(plan), lambda: _offsets(model)),
        settings=settings,
        classifies=plan.classifies and plan.data is not None,
    )


def _offsets(model: torch.nn.Module) -> list[str]:
    """Return the names of the batch norms' offsets."""
    norms = [name for name, layer in model.named_modules() if isinstance(layer, BatchNorm) and layer.affine]
    return [f"{name}.bias".lstrip(".") for name in norms]


def _optimizer(plan: Plan, parameters: list, settings: Settings) -> torch.optim.Optimizer:
    options = {"lr": plan.learning_rate, "fused": settings.fused or None}
    if plan.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=MOMENTUM, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[plan.optimizer](parameters, **options)


def _checked(plan: Plan):
    """Return the loss; it says what is wrong with outputs that do not fit it."""
    own = loading.resolve(plan.loss, "loss") if plan.loss else None

    def loss(outputs, target: torch.Tensor) -> torch.Tensor:
        if own is None:
            _check_logits(plan, outputs)
            return F.cross_entropy(outputs, target)
        value = own(outputs, target)
        if not isinstance(value, torch.Tensor) or value.dim():
            given = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise loading.Misfit(f"loss {plan.loss!r} returns {given}; allowed: a scalar tensor, such as a mean")
        return value

    return loss


def _check_logits(plan: Plan, outputs) -> None:
    """Refuse outputs of which there is no cross-entropy with the labels."""
    if not isinstance(outputs, torch.Tensor):
        raise loading.Misfit(
            f"network {plan.network!r} returns a {type(outputs).__name__}; allowed without a loss: logits"
        )
    if outputs.dim() != 2 or outputs.shape[1] < plan.num_classes:
        raise loading.Misfit(
            f"network {plan.network!r} returns shape {tuple(outputs.shape)}; allowed with num_classes"
            f" {plan.num_classes}: ({len(outputs)}, {plan.num_classes}). Say what it is to be made with, such as"
            f' arguments "num_classes={plan.num_classes}", or name a loss'
        )


def _counted(model: torch.nn.Module, inputs: Batch) -> dict:
    """Return the operations of a step for one sample; a network that cannot be counted has none, and that is said."""
    reason = ""
    for device in ("meta", "cpu"):
        try:
            return {"flops_per_sample": flops_per_sample(model, *inputs, device=device)}
        except Exception as error:  # a network may do anything with tensors that have no numbers
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    print(f"Its operations were not counted: {reason}")
    return {}


def _tensors(batch) -> Batch:
    return tuple(torch.from_numpy(part) for part in batch)
