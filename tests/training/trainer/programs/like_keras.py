"""Prints what the same calls return through keras.Model and through Trainer, as JSON.

    KERAS_BACKEND=tensorflow|jax python like_keras.py

The backend has two CPU devices. keras.Model trains on one of them.
"""

import contextlib
import json
import os

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true"
)

import keras
import numpy as np

from keras_vit.training import Trainer

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((22, 4, 4, 3)).astype("float32")
LABELS = RNG.integers(0, 4, 22)
EXAMPLE_WEIGHTS = RNG.uniform(0.2, 2, 22).astype("float32")

# What each case changes in the hidden layer and in `fit`.
CASES = {
    "penalties and example weights": {
        "hidden": {
            "kernel_regularizer": "l2",
            "bias_regularizer": "l1",
            "activity_regularizer": keras.regularizers.L2(0.3),
        },
        "fit": {"sample_weight": EXAMPLE_WEIGHTS},
    },
    "class weights": {"hidden": {}, "fit": {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5, 3: 3.0}}},
}


class Record(keras.callbacks.Callback):
    """The names and logs of the calls of a callback."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(["batch", batch, pairs(logs)])

    def on_test_end(self, logs=None):
        self.calls.append(["test", 0, pairs(logs)])

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(["epoch", epoch, pairs(logs)])


def pairs(named):
    """A dictionary as a list, whose order is compared too."""
    return [[name, np.asarray(value).tolist()] for name, value in named.items()]


def build(hidden):
    layers = [keras.Input((4, 4, 3)), keras.layers.Flatten(), keras.layers.Dense(6, **hidden)]
    model = keras.Sequential([*layers, keras.layers.Dense(4)])
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.3, variable.shape))
    return model


def outcomes(case, wrap, micro_batches=1):
    """What every call returns."""
    model = build(case["hidden"])
    fitted = wrap(model)
    fitted.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top_2"), "accuracy"],
        weighted_metrics=["accuracy"],
    )
    record = Record()
    history = fitted.fit(
        IMAGES,
        LABELS,
        batch_size=8 // micro_batches,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[record],
        validation_data=(IMAGES[:9], LABELS[:9]),
        validation_batch_size=8,
        **case["fit"],
    )
    batch = (IMAGES[:8], LABELS[:8])
    weights = {"sample_weight": EXAMPLE_WEIGHTS[:8]}
    return {
        "fit": pairs(history.history),
        "callbacks": record.calls,
        "evaluate": fitted.evaluate(IMAGES, LABELS, batch_size=8, verbose=0),
        "evaluate by name": pairs(
            fitted.evaluate(IMAGES, LABELS, batch_size=8, verbose=0, return_dict=True)
        ),
        "train_on_batch": floats(fitted.train_on_batch(*batch, **weights)),
        "train_on_batch with class weights": floats(
            fitted.train_on_batch(*batch, class_weight={0: 1.0, 1: 0.5, 2: 2.0, 3: 1.0})
        ),
        "train_on_batch by name": pairs(fitted.train_on_batch(*batch, return_dict=True)),
        "test_on_batch": floats(fitted.test_on_batch(*batch, **weights)),
        "test_on_batch by name": pairs(fitted.test_on_batch(*batch, return_dict=True)),
        "predict": fitted.predict(IMAGES, batch_size=8, verbose=0).tolist(),
        "predict_on_batch": np.asarray(fitted.predict_on_batch(IMAGES[:8])).tolist(),
        "weights": [np.asarray(v.value).ravel().tolist() for v in model.trainable_variables],
    }


def floats(values):
    return [float(value) for value in values]


def two_devices():
    """The scope of two devices."""
    if keras.backend.backend() == "jax":
        return keras.distribution.DataParallel().scope
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope


def prepare():
    """Gives TensorFlow two devices, on which graphs run as traced; JAX has them by its flag."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


prepare()
ONE, TWO = contextlib.nullcontext, two_devices()
PLACES = {
    "penalties and example weights": {
        "Trainer": (ONE, 1),
        "Trainer, accumulation": (ONE, 2),
        "Trainer, two devices": (TWO, 1),
        "Trainer, two devices, accumulation": (TWO, 2),
    },
    "class weights": {"Trainer": (ONE, 1), "Trainer, two devices, accumulation": (TWO, 2)},
}
found = {}
for name, case in CASES.items():
    found[name] = {"keras.Model": outcomes(case, lambda model: model)}
    for place, (scope, count) in PLACES[name].items():
        with scope():
            found[name][place] = outcomes(
                case,
                lambda model, count=count: Trainer(model, gradient_accumulation_steps=count),
                count,
            )
print(json.dumps(found))
