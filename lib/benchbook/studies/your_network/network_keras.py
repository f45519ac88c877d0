"""A Keras network of the user's own, trained by TensorFlow or JAX."""

from dataclasses import dataclass

from benchbook.frameworks.keras.runtime import import_keras
from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy, flops_per_sample
from benchbook.frameworks.workload import Settings
from benchbook.studies.your_network import loading
from benchbook.studies.your_network.plan import MOMENTUM, Plan


@dataclass
class Trained(KerasWorkload):
    """Somebody's network; its operations are counted where its layers are of kinds that can be."""

    def description(self) -> dict:
        """Return the columns that describe the work."""
        return self.columns | {
            "parameters": self.network.model.count_params(),
            "batch_size": self.batch_size,
            "precision": self.settings.precision,
            "compiled": self.settings.compiled or self.device.framework == "jax",
        }


def build(plan: Plan, settings: Settings) -> Trained:
    """Return the workload; see `plan.build`."""
    keras = import_keras(plan.device.framework)
    optimizers = {
        "sgd": lambda: keras.optimizers.SGD(plan.learning_rate, momentum=MOMENTUM),
        "adam": lambda: keras.optimizers.Adam(plan.learning_rate),
        "adamw": lambda: keras.optimizers.AdamW(plan.learning_rate),
    }

    def make_model():
        model = plan.make_network(keras.Model)
        _check_model(plan, keras, model)
        return model

    loss = _checked(plan, keras)
    workload = Trained(
        device=plan.device,
        batch_size=plan.batch_size,
        make_model=make_model,
        make_optimizer=optimizers[plan.optimizer],
        train_batches=plan.batches,
        test_batches=tuple,
        loss=loss,
        columns=plan.columns(),
        plain=plan.plain(make_model, loss, lambda: _offsets(workload.network.model), tuple),
        settings=settings,
        seed=plan.seed,
    )
    workload.columns |= _counted(workload.network.model)
    return workload


def _offsets(model) -> list[str]:
    """Return the names of the batch norms' offsets."""
    norms = [layer for layer in model._flatten_layers() if type(layer).__name__ == "BatchNormalization"]
    return [layer.beta.path for layer in norms if layer.center]


def _check_model(plan: Plan, keras, model) -> None:
    """Refuse a model that cannot be trained by itself, or whose outputs do not fit the loss."""
    if not model.built or len(model.inputs or ()) != 1 or len(model.outputs) != 1:
        raise ValueError(f"network {plan.network!r}; allowed: a functional keras.Model with one input and one output")
    if plan.loss:
        return
    size = model.outputs[0].shape[-1]
    if len(model.outputs[0].shape) != 2 or size < plan.num_classes:
        raise ValueError(
            f"network {plan.network!r} returns shape {tuple(model.outputs[0].shape)}; allowed with num_classes"
            f" {plan.num_classes}: (None, {plan.num_classes}), or name a loss"
        )
    if getattr(model.layers[-1], "activation", None) is keras.activations.softmax:
        raise ValueError(
            f"network {plan.network!r} ends in a softmax; allowed without a loss: logits, such as arguments"
            ' "classifier_activation=None"'
        )


def _checked(plan: Plan, keras):
    """Return the loss; one of the user's own has to be a scalar."""
    if not plan.loss:
        return cross_entropy
    own = loading.resolve(plan.loss, "loss")

    def loss(outputs, target):
        if "float" in keras.backend.standardize_dtype(target.dtype):
            target = keras.ops.cast(target, outputs.dtype)  # float64, where that is compared
        value = own(outputs, target)
        shape = tuple(getattr(value, "shape", (type(value).__name__,)))
        if shape:
            raise loading.Misfit(f"loss {plan.loss!r} returns shape {shape}; allowed: a scalar, such as a mean")
        return value

    return loss


def _counted(model) -> dict:
    """Return the operations of a step for one sample; a network that cannot be counted has none, and that is said."""
    try:
        return {"flops_per_sample": flops_per_sample(model)}
    except ValueError as error:
        print(f"Its operations were not counted: {error}")
        return {}
