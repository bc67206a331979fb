"""A user's scripts: models that were compiled and fitted, saved, and read by another process.

    python the_road.py write FOLDER MODEL ...
    python the_road.py read FOLDER MODEL ...
    python the_road.py use FOLDER MODEL ...

The first writes models, classifiers and their outputs into the folder. The second reads them in
each way and prints a JSON object: by model and way the largest difference of an output, or the
error. The third does more with the first model before. Only the first compiles, and only it knows
the losses and metrics of the user.
"""

import json
import pathlib
import sys
import warnings

if sys.argv[1] == "use":  # In any order: modules that import Keras meet the hook for the layers.
    import keras_vit.keras_private

    assert "keras_vit.layers" in sys.modules

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.opening import open_model

# Tiny graphs run as they were traced.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), "uint8")
INPUTS = keras_vit.preprocess_input(IMAGES)
LABELS = np.arange(12) % 3
NAMES = ["cat", "dog", "owl"]
TINY = {"depth": 1, "width": 16, "mlp_dim": 32, "num_heads": 2, "input_shape": (32, 32, 3)}
CROSSENTROPY = "sparse_categorical_crossentropy"

WAYS = {
    "load_model": lambda path: keras.saving.load_model(path, compile=False),
    "open_model": lambda path: open_model(path).model(),
    "build": lambda path: keras_vit.build("ViT-Ti/16", classes=3, weights=path, **TINY),
    "load_checkpoint": lambda path: loaded(path),
}


def build(**changes):
    keras.utils.set_random_seed(0)
    return keras_vit.build("ViT-Ti/16", classes=3, **{**TINY, **changes})


def fit(
    model, optimizer, loss=CROSSENTROPY, metrics=("accuracy",), data=(INPUTS, LABELS), traced=False
):
    # Tracing takes most of the time, and what is saved is the same without it.
    model.compile(optimizer, loss, metrics=list(metrics), run_eagerly=not traced)
    model.fit(*(data if isinstance(data, tuple) else (data,)), epochs=2, verbose=0)
    return model


def own_loss(labels, scores):
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, scores)) * 2


class OwnLoss(keras.losses.Loss):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def call(self, labels, scores):
        return self.weight * keras.losses.sparse_categorical_crossentropy(labels, scores)


class OwnMetric(keras.metrics.Mean):
    def update_state(self, labels, scores, sample_weight=None):
        super().update_state(keras.ops.max(scores, axis=-1))


class OwnCallback(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.epochs = getattr(self, "epochs", [])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(epoch)


class OwnOptimizer(keras.optimizers.SGD):
    pass


# Models by name; each is fitted in a way that tutorials show, with the parts in any combination.


def numpy_arrays(folder):
    return fit(build(), "adam", traced=True)


def frozen_then_unfrozen_with_callbacks(folder):
    for number, image in enumerate(IMAGES):
        name = folder / "photos" / NAMES[number % 3]
        name.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(name / f"{number}.png")
    data = keras.utils.image_dataset_from_directory(
        folder / "photos", image_size=(32, 32), batch_size=6, seed=0, verbose=False
    ).map(lambda images, labels: (keras_vit.preprocess_input(images), labels))
    model = build()
    freeze(model)
    options = {"metrics": ["accuracy"], "run_eagerly": True}  # As in `fit`.
    model.compile("adam", CROSSENTROPY, **options)
    own = OwnCallback()
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "frozen_then_unfrozen_with_callbacks.keras"),
        keras.callbacks.EarlyStopping(patience=3),
        keras.callbacks.ReduceLROnPlateau(patience=1),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.BackupAndRestore(folder / "backup"),
        own,
    ]
    model.fit(data, epochs=1, validation_data=data, verbose=0, callbacks=callbacks)
    unfreeze(model)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), CROSSENTROPY, **options)
    model.fit(data, epochs=2, validation_data=data, verbose=0, callbacks=callbacks)
    assert own.epochs == [0, 0, 1]
    return model


def still_frozen(folder):
    model = build()
    freeze(model)
    return fit(model, "sgd")


def adamw_with_a_schedule_and_dropout(folder):
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 4, warmup_target=0.02, warmup_steps=2)
    data = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).shuffle(12).batch(6).prefetch(2)
    model = build(dropout_rate=0.1, attention_dropout_rate=0.1)
    return fit(model, keras.optimizers.AdamW(schedule, weight_decay=0.1), data=data)


def lion_with_own_loss_and_metric(folder):
    return fit(build(), keras.optimizers.Lion(1e-3), OwnLoss(2.0), [OwnMetric(name="confidence")])


def own_optimizer_and_functions(folder):
    confidence = [lambda labels, scores: keras.ops.max(scores)]
    return fit(build(), OwnOptimizer(0.01, use_ema=True, clipnorm=1.0), own_loss, confidence)


def muon_in_mixed_bfloat16(folder):
    return fit(build(), keras.optimizers.Muon(1e-3))


def mixed_bfloat16(folder):
    return fit(build(), "sgd")


def mixed_float16(folder):
    return fit(build(), "adam")


def trainer_with_warmup(folder):
    from keras_vit.training import SGD, Trainer, warmup_schedule

    model = build()
    schedule = warmup_schedule(0.03, steps=8, warmup_steps=2)
    fit(Trainer(model, gradient_accumulation_steps=2), SGD(schedule), traced=True)
    return model


def trainer_with_muon(folder):
    from keras_vit.training import Muon, Trainer

    model = build()
    fit(Trainer(model), Muon(1e-3), traced=True)
    return model


def lora(folder):
    model = build()
    freeze(model)
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora") and layer.name != "predictions":
            layer.trainable = True
            layer.enable_lora(2)
    return fit(model, "adam")


def nested_in_a_compiled_model(folder):
    body = build()
    body.compile(OwnOptimizer(0.01), own_loss)  # An optimizer and a loss within the other config.
    image = keras.Input((32, 32, 3))
    scores = keras.layers.Dense(3, "softmax")(body(keras.layers.RandomFlip("horizontal")(image)))
    return fit(keras.Model(image, scores), OwnOptimizer(0.01), own_loss)


def features_in_a_sequential(folder):
    normalize = keras.layers.Normalization(mean=[0.0] * 3, variance=[1.0] * 3)
    body = build(include_top=False, pooling="token")
    layers = [keras.Input((32, 32, 3)), normalize, OwnArray(), body]
    return fit(keras.Sequential([*layers, keras.layers.Dense(3, "softmax")]), "adam")


def trainer_itself(folder):
    from keras_vit.training import SGD, Trainer

    return fit(Trainer(build()), SGD(0.03), traced=True)


def int8(folder):
    model = build()
    model.quantize("int8")
    return model


@keras.saving.register_keras_serializable("the_road")
class OwnArray(keras.layers.Layer):
    """A layer with a variable that is made of an array."""

    def build(self, input_shape):
        self.shift = keras.Variable(np.zeros(3, "float32"), trainable=False)

    def call(self, images):
        return images + self.shift


def freeze(model):
    for layer in model.layers[:-1]:
        layer.trainable = False


def unfreeze(model):
    for layer in model.layers:
        layer.trainable = True


# Models of this package, which every reader takes, and models with one in them.
OURS = (
    numpy_arrays, frozen_then_unfrozen_with_callbacks, still_frozen,
    adamw_with_a_schedule_and_dropout, lion_with_own_loss_and_metric, own_optimizer_and_functions,
    muon_in_mixed_bfloat16, mixed_bfloat16, mixed_float16, trainer_with_warmup, trainer_with_muon,
    lora,
)  # fmt: skip
OTHERS = (nested_in_a_compiled_model, features_in_a_sequential, trainer_itself, int8)
POLICIES = {
    muon_in_mixed_bfloat16: "mixed_bfloat16",
    mixed_bfloat16: "mixed_bfloat16",
    mixed_float16: "mixed_float16",
}


def write(folder, models):
    for make in models:
        keras.config.set_dtype_policy(POLICIES.get(make, "float32"))
        model = make(folder)
        path = folder / f"{make.__name__}.keras"
        if not path.exists():  # Otherwise ModelCheckpoint has written it.
            model.save(path)
        np.save(path.with_suffix(".npy"), outputs(model))
        if make is numpy_arrays:
            known = keras_vit.Preprocessing((32, 32))
            keras_vit.save_classifier(
                folder / "classifier", model, NAMES, preprocessing=known, samples=IMAGES[:4]
            )


def read(folder, models):
    found = {}
    for make in models:
        path = folder / f"{make.__name__}.keras"
        expected = np.load(path.with_suffix(".npy"))
        keras.config.set_dtype_policy(POLICIES.get(make, "float32"))
        ways = WAYS if make in OURS else {"open_model": WAYS["open_model"]}
        found[make.__name__] = {
            way: difference(lambda f=function, p=path: outputs(f(p)), expected)
            for way, function in ways.items()
        }
    return found


def use(folder):
    """What the commands and functions for classifiers make of the first model."""
    from keras_vit.command_line import main

    expected = np.load(folder / "numpy_arrays.npy")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "__array__")  # NumPy's, of arrays that are copied.
        predicted(keras_vit.load_classifier(folder / "classifier"))
    classifier, file = f"{folder}/classifier", f"{folder}/numpy_arrays.keras"
    found = {
        "load_classifier": difference(
            lambda: predicted(keras_vit.load_classifier(classifier)), expected
        ),
        "open_model of a classifier": difference(
            lambda: outputs(open_model(classifier).model()), expected
        ),
    }
    for source, suffix in (
        (classifier, ".npz"),
        (file, ".npz"),
    ):
        to = f"{folder}/converted{len(found)}{suffix}"
        assert not main(["convert", source, to])
        found[f"convert {pathlib.Path(source).name} {suffix}"] = difference(
            lambda to=to: outputs(loaded(to)), expected
        )
    run = f"{folder}/run"
    words = f"--data {folder}/photos --steps 1 --batch-size 4 --accumulate 1 --warmup-steps 0"
    words += " --normalization half"
    assert not main(
        ["finetune", "--weights", file, "--output", run, "--learning-rate", "1e-9", *words.split()]
    )
    return found


def predicted(classifier):
    rows = [dict(answer.top) for answer in classifier.predict(IMAGES, top=3)]
    return np.array([[row[name] for name in NAMES] for row in rows])


def loaded(path):
    model = build()
    keras_vit.load_checkpoint(model, path)
    return model


def outputs(model):
    return keras.ops.convert_to_numpy(model(INPUTS, training=False)).astype("float32")


def difference(function, expected):
    """The largest difference of what a function returns, or the error that it raises."""
    try:
        return float(np.abs(function() - expected).max())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    half, place = sys.argv[1], pathlib.Path(sys.argv[2])
    chosen = [make for make in (*OURS, *OTHERS) if make.__name__ in sys.argv[3:]]
    if half == "write":
        write(place, chosen)
    else:
        if half == "use":
            print(json.dumps(use(place)))
        print(json.dumps(read(place, chosen)))
