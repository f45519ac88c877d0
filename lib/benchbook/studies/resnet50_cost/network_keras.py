"""The same ResNet-50 in Keras, on TensorFlow and on JAX: torchvision's padding, constants, names and optimiser."""

import functools
import itertools

from benchbook.frameworks.batches import loaded, plain_order
from benchbook.frameworks.keras.runtime import evaluation_batch_size, import_keras, kernels_of_zeros
from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy
from benchbook.frameworks.plain import all_of
from benchbook.studies.resnet50_cost.plan import (
    DROP,
    DROPS,
    EPOCHS,
    MOMENTUM,
    MOST_TEST_IMAGES,
    NORM_EPSILON,
    NORM_KEPT,
    WARM_UP_EPOCHS,
    WEIGHT_DECAY,
    Plan,
)
from benchbook.studies.resnet50_cost.weights import HEAD, STEM, Convolution, blocks


def build(plan: Plan) -> KerasWorkload:
    """Return the study's workload on Keras; see `Plan`."""
    import_keras(plan.device.framework)
    train, test = _inputs(plan) if plan.dataset else (None, None)
    made = KerasWorkload(
        **plan.common,
        make_model=functools.partial(make_model, plan),
        make_optimizer=functools.partial(make_optimizer, plan),
        train_batches=train,
        test_batches=test,
        columns=plan.columns(),
        plain=plan.plain(functools.partial(make_model, plan), cross_entropy, all_of, _has_name_of_batch_norm),
        seed=plan.seed,
        metric=plan.metric,
    )
    made.columns["parameters"] = made.trainable_parameters()  # Keras counts moving statistics as well
    if plan.dataset is None:
        batch = tuple(made.network.spread(*plan.synthetic_batch(plan.batch_size)))
        made.train_batches = lambda epoch: itertools.repeat(batch, plan.steps_per_epoch)
        made.test_batches = lambda: [batch]
    return made


@kernels_of_zeros()
def make_model(plan: Plan):
    """Return the network: (n, size, size, 3) to logits (n, classes); the softmax is part of the loss."""
    from keras import Input, Model, layers

    from benchbook.frameworks.keras.normalization import batch_norm

    norm = functools.partial(batch_norm, plan.device, plan.sync_batch_norm, momentum=NORM_KEPT, epsilon=NORM_EPSILON)

    def convolved(images, part: Convolution):
        size = part.shape[0]
        if size > 1:  # torch pads alike on both sides; Keras's `same` does not where there is a stride
            images = layers.ZeroPadding2D(size // 2)(images)
        layer = layers.Conv2D(part.shape[-1], size, part.stride, use_bias=False, name=part.name)
        return norm(name=part.norm)(layer(images))

    pixels = Input((plan.image_size, plan.image_size, 3))
    hidden = layers.ReLU()(convolved(pixels, STEM))
    hidden = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(hidden))  # after a ReLU nothing is under the padding
    for block in blocks():
        kept = convolved(hidden, block.around) if block.around else hidden
        for part in block.convolutions[:2]:
            hidden = layers.ReLU()(convolved(hidden, part))
        hidden = layers.ReLU()(layers.Add()([convolved(hidden, block.convolutions[2]), kept]))
    hidden = layers.GlobalAveragePooling2D()(hidden)
    model = Model(pixels, layers.Dense(plan.num_classes, name=HEAD)(hidden))
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(plan.arrays[layer.name])
    return model


def make_optimizer(plan: Plan):
    """Return Nesterov momentum as torch and the article's scripts have it, with weight decay on all but batch norms.

    Keras's own SGD differs while the learning rate changes, which it keeps in the momentum; and its weight decay is
    apart from the gradient.
    """
    import keras

    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        """`plan.schedule`, in Keras's operations."""

        def __call__(self, step):
            return schedule_in_operations(plan, step)

    class Nesterov(keras.optimizers.SGD):
        """Takes the momentum of gradients, and the learning rate of its step alone."""

        def update_step(self, gradient, variable, learning_rate):
            """Change one variable by its gradient."""
            ops = keras.ops
            rate, gradient = (ops.cast(value, variable.dtype) for value in (learning_rate, gradient))
            index = self._get_variable_index(variable)
            if not is_of_batch_norm(self._trainable_variables[index]):
                gradient = gradient + WEIGHT_DECAY * variable
            speed = self.momentums[index]
            faster = MOMENTUM * speed + gradient
            self.assign(speed, faster)
            self.assign_sub(variable, rate * (gradient + MOMENTUM * faster))

    return Nesterov(Schedule(), MOMENTUM, nesterov=True)


def schedule_in_operations(plan: Plan, step):
    """Return what `plan.schedule` does for a step that is a tensor: a sum over the corners, the same in any order."""
    import keras

    ops = keras.ops
    step, scale = ops.cast(step, "float32"), plan.steps_per_epoch * plan.schedule_epochs / EPOCHS
    risen = ops.minimum(1.0, (step + 1) / (WARM_UP_EPOCHS * scale))
    fallen = sum(ops.cast(step >= epoch * scale, "float32") for epoch in DROPS)
    return plan.peak * risen * DROP**fallen


def is_of_batch_norm(variable) -> bool:
    """Return whether a variable is a batch norm's scale or offset."""
    return _has_name_of_batch_norm(variable.path)


def _has_name_of_batch_norm(path: str) -> bool:
    return path.rpartition("/")[2] in ("gamma", "beta")


def _inputs(plan: Plan):
    """Return functions to an epoch's training batches and to the test batches."""
    tested = len(plan.dataset.test)
    test_order = plain_order(tested, evaluation_batch_size(tested, MOST_TEST_IMAGES))
    return (
        lambda epoch: loaded(plan.order(epoch), plan.crops(epoch).batch, plan.workers),
        lambda: loaded(test_order, plan.crops(None).batch, plan.workers),
    )
