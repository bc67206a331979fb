"""What happens on two mirrored replicas, ours and Keras's own; prints it as JSON."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit.configs import ResNetStem
from keras_vit.layers import Dropout
from keras_vit.training import SGD, Checkpoints, NonFiniteError, SoftmaxCrossentropy, Trainer
from keras_vit.training.run.distillation import DistillationTrainer

devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
MIRRORED = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ONE = tf.distribute.get_strategy()
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((13, 8, 8, 3)).astype("float32")
LABELS = RNG.integers(0, 4, 13)


def dense(*layers):
    """A model so small that Keras's own defects show at once."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input((3,)), *(make() for make in layers), keras.layers.Dense(1)]
    )


def plain(strategy, rows=8, optimizer=None, layers=(), **options):
    """Trains as Keras does; returns the weights, or the error's type."""
    x = np.random.default_rng(1).standard_normal((rows, 3)).astype("float32")
    try:
        with strategy.scope():
            model = dense(*layers)
            model.compile(
                optimizer or keras.optimizers.SGD(0.1, global_clipnorm=0.1), "mse", **options
            )
        model.fit(x, x.sum(-1), batch_size=rows, epochs=2, verbose=0)
    except Exception as error:
        return type(error).__name__
    return np.concatenate([np.ravel(w) for w in model.get_weights()]).tolist()


def trainer(dropout_rate=0.0, dtype=None, optimizer=None, **options):
    keras.utils.set_random_seed(0)
    with MIRRORED.scope():
        keras.config.set_dtype_policy(dtype or "float32")
        layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(8, "relu")]
        if dropout_rate:
            layers.append(keras.layers.Dropout(dropout_rate))
        head = keras.layers.Dense(4, dtype="float32")
        made = Trainer(keras.Sequential([*layers, head]), **options)
        made.compile(optimizer or SGD(0.1), SoftmaxCrossentropy(), metrics=["accuracy"])
        keras.config.set_dtype_policy("float32")
    return made


def masks():
    """Draws the dropout masks of both replicas, twice at one step and once at the next."""
    made = trainer(dropout_rate=0.5)

    @tf.function
    def draw():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.stack(made.draw_seeds(replica, 0))

    def once():
        return [
            np.array(s).tolist() for s in MIRRORED.experimental_local_results(MIRRORED.run(draw))
        ]

    drawn = [once(), once()]
    made.step.assign_add(1)
    return [*drawn, once()]


def training_repeats():
    weights = []
    for _ in range(2):
        made = trainer(dropout_rate=0.5)
        made.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
        weights.append(np.concatenate([np.ravel(v.numpy()) for v in made.trainable_variables]))
    return bool((weights[0] == weights[1]).all())


def stop_at_nan():
    made = trainer()
    poisoned = IMAGES.copy()
    poisoned[-1] = np.nan  # In the share of one replica alone.
    try:
        made.fit(poisoned, LABELS, batch_size=8, shuffle=False, verbose=0)
    except NonFiniteError as error:
        finite = all(np.isfinite(v.numpy()).all() for v in made.trainable_variables)
        return [error.step, error.learning_rate, bool(finite)]
    return None


def half_precision():
    """Trains in float16, where Keras scales the loss."""
    made = trainer(dtype="mixed_float16", gradient_accumulation_steps=2)
    images = 10 * IMAGES  # The first gradients overflow.
    history = made.fit(images, LABELS, batch_size=4, epochs=12, shuffle=False, verbose=0).history
    return [history["loss"][0], history["loss"][-1], int(made.optimizer.iterations.numpy())]


def resumed(folder):
    """Trains 2 + 2 epochs with a state between, and 4; returns whether they end the same."""
    whole = trainer(ema_momentum=0.9)
    whole.fit(IMAGES, LABELS, batch_size=8, epochs=4, shuffle=False, verbose=0)
    first = trainer(ema_momentum=0.9)
    first.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    Checkpoints(folder).save(first)
    second = trainer(ema_momentum=0.9)
    step = Checkpoints(folder).restore(second)
    second.fit(IMAGES, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    pairs = zip(whole.state_variables(), second.state_variables(), strict=True)
    return [step, all((a.numpy() == b.numpy()).all() for a, b in pairs)]


def hybrid_without_examples():
    """Trains a hybrid on batches of 4, 4 and 1; returns the weights on two replicas and one."""
    config = keras_vit.ViTConfig(1, 8, 1, 16, 2, resnet=ResNetStem((1,)))
    rng = np.random.default_rng(0)
    images = rng.standard_normal((9, 8, 8, 3)).astype("float32")
    weights = []
    for strategy in (MIRRORED, ONE):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = keras_vit.build(
                config, input_shape=(8, 8, 3), classes=4, classifier_activation=None
            )
            made = Trainer(model)
            made.compile(SGD(0.1), SoftmaxCrossentropy(), metrics=["accuracy"])
        made.fit(images, LABELS[:9], batch_size=4, shuffle=False, verbose=0)
        weights.append([np.array(v) for v in made.trainable_variables])
    largest = [np.abs(a - b).max() for a, b in zip(*weights, strict=True)]
    return float(max(largest))


def distillation():
    """Distils in micro-batches on two replicas, and in whole batches on one device.

    Returns the largest difference of their weights.
    """
    weights = []
    for strategy, micro_batches in ((MIRRORED, 2), (ONE, 1)):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            student, teacher = (
                keras.Sequential(
                    [
                        keras.Input((8, 8, 3)),
                        keras.layers.Flatten(),
                        *(keras.layers.Dense(units) for units in (*hidden, 4)),
                    ]
                )
                for hidden in ((8,), ())
            )
            made = DistillationTrainer(
                student, teacher=teacher, gradient_accumulation_steps=micro_batches
            )
            made.compile(SGD(0.1), SoftmaxCrossentropy(), metrics=["accuracy"])
        batch_size = 8 // micro_batches
        made.fit(IMAGES, LABELS, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
        weights.append([np.array(v) for v in made.trainable_variables])
    return float(max(np.abs(a - b).max() for a, b in zip(*weights, strict=True)))


print(
    json.dumps(
        {
            "masks": masks(),
            "training repeats": training_repeats(),
            "stop at nan": stop_at_nan(),
            "half precision": half_precision(),
            "resumed": resumed(sys.argv[1]),
            "plain fit with dropout": [
                plain(place, optimizer=keras.optimizers.SGD(0.1), layers=[lambda: Dropout(0.5)])
                for place in (ONE, MIRRORED)
            ],
            "distillation": distillation(),
            "hybrid without examples": hybrid_without_examples(),
            "keras": {
                "clipped, one": plain(ONE),
                "clipped, two": plain(MIRRORED),
                "uneven": plain(MIRRORED, rows=7),
                "steps_per_execution": plain(MIRRORED, steps_per_execution=2),
                "accumulation": plain(
                    MIRRORED, optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
                ),
            },
        }
    )
)
