"""Your own Keras network, trained by TensorFlow or JAX."""

from functools import partial

from benchbook.frameworks.keras.runtime import import_keras
from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy, flops_per_sample
from benchbook.frameworks.workload import Settings
from benchbook.studies.your_network.plan import MOMENTUM, Plan, count_operations


def build(plan: Plan, settings: Settings) -> KerasWorkload:
    """Return the workload, with its operations if all layers are of kinds that can be counted; see `plan.build`."""
    keras = import_keras(plan.device.framework)
    optimizers = {
        "sgd": partial(keras.optimizers.SGD, momentum=MOMENTUM),
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
    }
    own = plan.checked_loss(cross_entropy)

    def make_model():
        model = plan.make_network(keras.Model)
        _check_model(plan, keras, model)
        return model

    def loss(outputs, target):
        if "float" in keras.backend.standardize_dtype(target.dtype):
            target = keras.ops.cast(target, outputs.dtype)  # float64 in the comparison
        return own(outputs, target)

    def offsets() -> list[str]:
        layers = workload.network.model._flatten_layers()
        norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        return [norm.beta.path for norm in norms if norm.center]

    workload = KerasWorkload(
        device=plan.device,
        batch_size=plan.batch_size,
        make_model=make_model,
        make_optimizer=lambda: optimizers[plan.optimizer](plan.learning_rate),
        train_batches=plan.batches,
        test_batches=tuple,
        loss=loss,
        columns=plan.columns(),
        plain=plan.plain(make_model, loss, offsets, tuple),
        settings=settings,
        seed=plan.seed,
    )
    workload.columns |= count_operations(lambda: flops_per_sample(workload.network.model))
    return workload


def _check_model(plan: Plan, keras, model) -> None:
    """Refuse a model that is not functional with one input and output, or whose outputs do not fit the loss."""
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
