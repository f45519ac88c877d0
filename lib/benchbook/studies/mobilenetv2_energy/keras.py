"""keras.applications' MobileNetV2, on TensorFlow and on JAX."""

import functools

import numpy

from benchbook.frameworks import batches
from benchbook.frameworks.keras.training import (
    KerasWorkload,
    ResidentArrays,
    cross_entropy,
    evaluation_batch_size,
    import_keras,
    kernels_of_zeros,
)
from benchbook.frameworks.plain import Adam, Plain
from benchbook.studies.mobilenetv2_energy import inputs, weights
from benchbook.studies.mobilenetv2_energy.plan import DECAY_RATE, DECAY_STEPS, DROPOUT, MOST_TEST_IMAGES, Plan


def build(plan: Plan) -> KerasWorkload:
    """Return the study's workload on Keras; see `mobilenetv2.build`."""
    keras = import_keras(plan.device.framework)
    train, test = _inputs(plan)
    return KerasWorkload(
        device=plan.device,
        batch_size=plan.batch_size,
        make_model=functools.partial(make_model, plan),
        make_optimizer=lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(plan.learning_rate, DECAY_STEPS, DECAY_RATE)
        ),
        train_batches=train,
        test_batches=test,
        columns=plan.columns(),
        plain=Plain(
            make_network=functools.partial(make_model, plan),
            loss=cross_entropy,
            make_optimizer=lambda: Adam(plan.rate, epsilon=1e-7, corrected_late=True),
            batch_size=plan.parity_batch_size,
            labels=plan.label_finder(),
            settle=plan.settle,
        ),
        settings=plan.settings,
        seed=plan.seed,
    )


@kernels_of_zeros()
def make_model(plan: Plan):
    """Return the network: (n, size, size, 3) to logits (n, classes); the softmax is part of the loss."""
    import keras

    shape = (plan.image_size, plan.image_size, 3)
    base = keras.applications.MobileNetV2(input_shape=shape, include_top=False, weights=None)
    base.trainable = plan.trainable  # a batch norm that is not trained uses its moving statistics
    hidden = keras.layers.GlobalAveragePooling2D(name="pool")(base.output)
    hidden = keras.layers.Dropout(DROPOUT, name="dropout")(hidden)
    model = keras.Model(base.input, keras.layers.Dense(plan.num_classes, name=weights.HEAD)(hidden))
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(plan.arrays[layer.name])
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = weights.MOMENTUM[plan.weights]
    return model


def trainable_parameters(workload: KerasWorkload) -> int:
    """Return how many numbers training changes."""
    return sum(int(numpy.prod(variable.shape)) for variable in workload.network.model.trainable_variables)


def _inputs(plan: Plan):
    """Return functions to an epoch's training batches and to the test batches."""
    data, size = plan.dataset, plan.image_size
    test_order = batches.plain_order(
        len(data.test_labels), evaluation_batch_size(len(data.test_labels), MOST_TEST_IMAGES)
    )
    parts = (data.train_images, data.train_labels), (data.test_images, data.test_labels)
    if plan.data_resident:
        train, test = (
            ResidentArrays(plan.device, images, labels.astype("int32"), _enlarge(plan)) for images, labels in parts
        )
        return lambda epoch: train.batches(plan.order(epoch)), lambda: test.batches(test_order)

    def load(images, labels, indices):
        return inputs.enlarge(images[indices], size), labels[indices].astype("int32")

    load_train, load_test = (functools.partial(load, *part) for part in parts)
    return (
        lambda epoch: batches.loaded(plan.order(epoch), load_train, plan.num_workers),
        lambda: batches.loaded(test_order, load_test, plan.num_workers),
    )


def _enlarge(plan: Plan):
    """Return what `inputs.enlarge` is, in Keras's operations: on the device."""
    import keras

    rows, columns = (inputs.nearest(side, plan.image_size) for side in plan.dataset.train_images.shape[1:3])

    def enlarge(images):
        pixels = keras.ops.cast(images, "float32") / 255.0
        return keras.ops.take(keras.ops.take(pixels, rows, axis=1), columns, axis=2)

    return enlarge
