"""keras.applications' MobileNetV2, on TensorFlow and on JAX."""

import functools

from benchbook.frameworks.keras import runtime
from benchbook.frameworks.keras.training import KerasWorkload, cross_entropy
from benchbook.studies.mobilenetv2_energy import weights
from benchbook.studies.mobilenetv2_energy.plan import Plan, enlarge


def build(plan: Plan) -> KerasWorkload:
    """Return the study's workload on Keras; see `Plan`."""
    keras = runtime.import_keras(plan.device.framework)
    rows, columns = plan.chosen_pixels

    def enlarged(images: runtime.Array) -> runtime.Array:
        pixels = keras.ops.cast(images, "float32") / 255.0
        return keras.ops.take(keras.ops.take(pixels, rows, axis=1), columns, axis=2)

    train, test = plan.inputs(
        lambda images, labels: runtime.ResidentArrays(
            plan.device, images, labels.astype("int32"), enlarged
        ),
        lambda images, labels: (enlarge(images, plan.image_size), labels.astype("int32")),
        runtime.evaluation_batch_size(len(plan.dataset.test_labels), plan.MOST_TEST_IMAGES),
    )
    return KerasWorkload(
        **plan.common(train, test),
        make_model=functools.partial(make_model, plan),
        make_optimizer=lambda: keras.optimizers.Adam(
            keras.optimizers.schedules.ExponentialDecay(
                plan.learning_rate, plan.DECAY_STEPS, plan.DECAY_RATE
            )
        ),
        plain=plan.plain(functools.partial(make_model, plan), cross_entropy, uses_epsilon_hat=True),
        seed=plan.seed,
    )


@runtime.zero_kernels()
def make_model(plan: Plan):
    """Return the network, (n, size, size, 3) to logits (n, classes); the loss computes the
    softmax."""
    import keras

    shape = (plan.image_size, plan.image_size, 3)
    base = keras.applications.MobileNetV2(input_shape=shape, include_top=False, weights=None)
    base.trainable = plan.trainable  # a frozen batch norm uses its moving statistics
    hidden = keras.layers.GlobalAveragePooling2D(name="pool")(base.output)
    hidden = keras.layers.Dropout(plan.DROPOUT, name="dropout")(hidden)
    model = keras.Model(
        base.input, keras.layers.Dense(plan.dataset.num_classes, name=weights.HEAD)(hidden)
    )
    for layer in model.layers:
        if layer.weights:
            layer.set_weights(plan.arrays[layer.name])
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = plan.momentum
    return model
