"""torchvision's ResNet-50 in Keras, on TensorFlow and JAX, with the same padding, constants,
names and optimiser."""

import functools

from benchbook.frameworks.keras.runtime import evaluation_batch_size, import_keras, zero_kernels
from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy
from benchbook.studies.resnet50_cost.plan import (
    BATCH_NORM,
    MOMENTUM,
    MOST_TEST_IMAGES,
    WEIGHT_DECAY,
    Plan,
)
from benchbook.studies.resnet50_cost.weights import HEAD, STEM, Convolution, blocks


def build(plan: Plan) -> KerasWorkload:
    """Return the study's workload on Keras; see `Plan`."""
    import_keras(plan.device.framework)
    train = test = None
    if plan.dataset:
        train, test = plan.decoded(evaluation_batch_size(len(plan.dataset.test), MOST_TEST_IMAGES))
    made = KerasWorkload(
        **plan.common(train, test),
        make_model=functools.partial(make_model, plan),
        make_optimizer=functools.partial(make_optimizer, plan),
        plain=plan.plain(functools.partial(make_model, plan), cross_entropy),
        seed=plan.seed,
        metric=plan.metric,
    )
    if plan.dataset is None:
        batch = tuple(made.network.scatter(*plan.synthetic_batch(plan.batch_size)))
        made.train_batches, made.test_batches = plan.repeated(batch)
    return made


@zero_kernels()
def make_model(plan: Plan):
    """Return the network, (n, size, size, 3) to logits (n, classes); the loss computes the
    softmax."""
    from keras import Input, Model, layers

    def convolved(images, part: Convolution):
        size = part.shape[0]
        if size > 1:  # torch pads both sides equally; Keras's `same` does not if there is a stride
            images = layers.ZeroPadding2D(size // 2)(images)
        layer = layers.Conv2D(part.shape[-1], size, part.stride, use_bias=False, name=part.name)
        return layers.BatchNormalization(name=part.norm, **BATCH_NORM)(layer(images))

    pixels = Input((plan.image_size, plan.image_size, 3))
    hidden = layers.ReLU()(convolved(pixels, STEM))
    hidden = layers.MaxPooling2D(3, 2)(
        layers.ZeroPadding2D(1)(hidden)
    )  # after a ReLU no value is below the padding
    for block in blocks():
        shortcut = convolved(hidden, block.shortcut) if block.shortcut else hidden
        for part in block.convolutions[:2]:
            hidden = layers.ReLU()(convolved(hidden, part))
        hidden = layers.ReLU()(layers.Add()([convolved(hidden, block.convolutions[2]), shortcut]))
    hidden = layers.GlobalAveragePooling2D()(hidden)
    model = Model(pixels, layers.Dense(plan.num_classes, name=HEAD)(hidden))
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(plan.arrays[layer.name])
    return model


def make_optimizer(plan: Plan):
    """Return SGD with torch's form of Nesterov momentum, which the article's scripts use; no
    decay of batch norms.

    Keras's SGD multiplies the gradient by the learning rate before the momentum, which differs
    while the rate changes. It also applies weight decay apart from the gradient.
    """
    import keras

    as_number = functools.partial(keras.ops.cast, dtype="float32")

    class Schedule(keras.optimizers.schedules.LearningRateSchedule):
        """`plan.rate` in Keras's operations."""

        def __call__(self, step):
            return plan.rate(as_number(step), keras.ops.minimum, as_number)

    class Nesterov(keras.optimizers.SGD):
        """Accumulates gradients without their learning rates, and applies the current rate at
        each step."""

        def update_step(self, gradient, variable, learning_rate):
            """Change one variable by its gradient."""
            ops = keras.ops
            rate, gradient = (
                ops.cast(value, variable.dtype) for value in (learning_rate, gradient)
            )
            index = self._get_variable_index(variable)
            if self._trainable_variables[index].path.rpartition("/")[2] not in (
                "gamma",
                "beta",
            ):  # a batch norm's
                gradient = gradient + WEIGHT_DECAY * variable
            velocity = self.momentums[index]
            updated = MOMENTUM * velocity + gradient
            self.assign(velocity, updated)
            self.assign_sub(variable, rate * (gradient + MOMENTUM * updated))

    return Nesterov(Schedule(), MOMENTUM, nesterov=True)
