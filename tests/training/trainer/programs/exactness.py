"""Trains a tiny model in one place in several ways; writes losses and weights.

    python exactness.py tensorflow|worker|jax|processes OUTPUT.npz dense|ViT CASE...|all

"tensorflow" is one device and two mirrored replicas, "worker" one of the processes that
TF_CONFIG names, "jax" one device and four, "processes" one of several of JAX, whose "ADDRESS COUNT
NUMBER" is PROCESS.
"""

import contextlib
import gc
import os
import sys

if "PROCESS" in os.environ:
    import jax

    address, *numbers = os.environ["PROCESS"].split()
    jax.distributed.initialize(address, *map(int, numbers))

import keras
import numpy as np

import keras_vit
from keras_vit.training import SGD, Adam, SoftmaxCrossentropy, Trainer, warmup_schedule

keras.utils.set_random_seed(0)  # Processes of JAX must begin with equal weights.

PLACE, OUTPUT, MODEL, *NAMES = sys.argv[1:]
EPOCHS, EXAMPLES, BATCH = 4, 58, 12  # 20 steps; the last of an epoch has 10 examples.
STEPS = 5  # Steps of an epoch.

RANDOM = {"model": {"dropout_rate": 0.2, "stochastic_depth_rate": 0.3}}
if MODEL == "ViT":
    RANDOM["model"] |= {"attention_dropout_rate": 0.2, "remat": True}

EVERYTHING = {
    "global_clipnorm": 1.0,
    "weight_decay": 0.1,
    "ema_momentum": 0.9,
    "smoothing": 0.1,
    "class_weight": (0.5, 1.0, 2.0, 1.5),
    **RANDOM,
}

# What the case changes. A case that names another must give that one's numbers. On JAX all
# but the first are compiled, as Keras does it there.
CASES = {
    "plain": {"jit_compile": False},
    "accumulation": {"of": "plain", "gradient_accumulation_steps": 3},
    "steps_per_execution": {"of": "plain", "steps_per_execution": 4},
    "micro-batches and steps_per_execution": {
        "of": "plain",
        "gradient_accumulation_steps": 3,
        "steps_per_execution": 4,
    },
    "jit_compile": {"of": "plain", "jit_compile": True},
    "clipping": {"global_clipnorm": 1.0},
    "weight decay": {"weight_decay": 0.1},
    "weight decay by schedule": {"weight_decay": 0.1, "weight_decay_times": "schedule"},
    "Adam": {"adam": True, "weight_decay": 0.1, "global_clipnorm": 1.0},
    "ema_momentum": {"ema_momentum": 0.9},
    "label smoothing": {"smoothing": 0.1},
    "everything": EVERYTHING,
    "everything in micro-batches": {
        "of": "everything",
        **EVERYTHING,
        "gradient_accumulation_steps": 3,
        "steps_per_execution": 4,
    },
    "everything compiled": {
        "of": "everything",
        **EVERYTHING,
        "gradient_accumulation_steps": 2,
        "steps_per_execution": 4,
        "jit_compile": True,
    },
    "dropout and stochastic depth": RANDOM,
    "dropout and stochastic depth, in micro-batches": {
        "of": "dropout and stochastic depth",
        **RANDOM,
        "gradient_accumulation_steps": 3,
        "steps_per_execution": 4,
    },
    "dropout and stochastic depth, compiled": {
        "of": "dropout and stochastic depth",
        **RANDOM,
        "gradient_accumulation_steps": 2,
        "steps_per_execution": 4,
        "jit_compile": True,
    },
}


def build(**options):
    shape = (8, 8, 3)
    if MODEL == "ViT":
        config = keras_vit.ViTConfig(4, 16, 2, 32, 2, **options)
        model = keras_vit.build(config, input_shape=shape, classes=4, classifier_activation=None)
    else:
        hidden = [keras.layers.Flatten(), keras.layers.Dense(8, "gelu")]
        if options:
            hidden.append(keras_vit.layers.Dropout(options["dropout_rate"]))
        model = keras.Sequential([keras.Input(shape), *hidden, keras.layers.Dense(4)])
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(variable.path.endswith("gamma"), 0.3, variable.shape))
    return model


def optimizer(adam=False, **options):
    schedule = warmup_schedule(0.01 if adam else 0.1, steps=20, warmup_steps=3)
    if adam:
        # Adam makes a whole step of a gradient that is zero except for rounding, such as the
        # gradient of the key's bias; a larger epsilon keeps this noise out of the comparison.
        return Adam(schedule, epsilon=1e-4, **options)
    return SGD(schedule, **{"global_clipnorm": None, **options})


def train(
    scope,
    of=None,
    model=None,
    gradient_accumulation_steps=1,
    ema_momentum=None,
    smoothing=0.0,
    class_weight=None,
    steps_per_execution=1,
    jit_compile=None,
    **options,
):
    rng = np.random.default_rng(1)
    images = rng.standard_normal((EXAMPLES, 8, 8, 3)).astype("float32")
    labels = rng.integers(0, 4, EXAMPLES)
    with scope():
        trainer = Trainer(
            build(**(model or {})),
            gradient_accumulation_steps=gradient_accumulation_steps,
            ema_momentum=ema_momentum,
        )
        trainer.compile(
            optimizer(**options),
            SoftmaxCrossentropy(smoothing, class_weight=class_weight),
            metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
            jit_compile=PLACE in ("jax", "processes") if jit_compile is None else jit_compile,
        )
    recorded = [(0, 0.0)]  # Step, and the sum of the losses by then.

    class Record(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.before = recorded[-1]

        def on_train_batch_end(self, batch, logs=None):
            done = min(batch + 1, STEPS)  # Keras names the last step, beyond the end too.
            step, total = self.before
            # Keras gives the epoch's mean; a whole batch counts as one.
            mean = float(logs["loss"]) * min(done * BATCH, EXAMPLES) / BATCH
            recorded.append((step + done, total + mean))

    history = trainer.fit(
        images,
        labels,
        batch_size=BATCH // gradient_accumulation_steps,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=[Record()],
        validation_data=(images, labels),
    ).history
    steps = (int(trainer.step.numpy()), int(trainer.optimizer.iterations.numpy()))
    evaluated = trainer.evaluate(images, labels, batch_size=7, verbose=0)
    right = trainer.predict(images, batch_size=7, verbose=0).argmax(-1) == labels
    return {
        "recorded": np.array(recorded),
        "losses": np.array([*history["loss"], *history["val_loss"], evaluated[0]]),
        "accuracies": np.array([evaluated[1], right.mean()]),
        "weights": flat(trainer.trainable_variables),
        "averages": flat(trainer.averages),
        "steps": np.array(steps),
    }


def flat(variables):
    return np.concatenate([np.zeros(0), *(np.ravel(v.numpy()) for v in variables)])


def places():
    if PLACE == "processes":
        yield f"JAX, {numbers[0]} processes", keras_vit.training.strategy("auto").scope
        return
    if PLACE == "jax":
        yield "JAX, one device", contextlib.nullcontext
        yield "JAX, four devices", keras.distribution.DataParallel().scope
        return
    import tensorflow as tf

    if PLACE == "worker":
        yield "two workers", tf.distribute.MultiWorkerMirroredStrategy().scope
    else:
        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, devices)
        yield "one device", contextlib.nullcontext
        yield "two replicas", tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope


results = {}
for place, scope in places():
    names = list(CASES) if NAMES == ["all"] else NAMES
    if place == "one device":  # What the cases must be equal to, too.
        names = list(dict.fromkeys([*names, *(CASES[name].get("of", name) for name in names)]))
    for name in names:
        results[f"{place}/{name}/of"] = np.array(CASES[name].get("of", name))
        for key, value in train(scope, **CASES[name]).items():
            results[f"{place}/{name}/{key}"] = value
        keras.backend.clear_session()  # Compiled steps hold much memory.
        gc.collect()
np.savez(OUTPUT, **results)
