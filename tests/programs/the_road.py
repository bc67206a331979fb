"""A user's scripts: models that were compiled and fitted, saved, and read by another process.

    python the_road.py write FOLDER
    python the_road.py read FOLDER

The first writes models, classifiers and their outputs into the folder. The second reads them in
each way and prints a JSON object: by model and way the largest difference of an output, or the
error. Only the first compiles, and only it knows the losses and metrics of the user.
"""

import json
import pathlib
import sys

import keras
import numpy as np
from PIL import Image

import keras_vit

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), "uint8")
INPUTS = keras_vit.preprocess_input(IMAGES)
LABELS = np.arange(12) % 3
NAMES = ["cat", "dog", "owl"]
TINY = {"depth": 1, "width": 16, "mlp_dim": 32, "num_heads": 2, "input_shape": (32, 32, 3)}
CROSSENTROPY = "sparse_categorical_crossentropy"

WAYS = {
    "load_model": lambda path: keras.saving.load_model(path, compile=False),
    "open_model": lambda path: keras_vit.open_model(path).model,
    "build": lambda path: keras_vit.build("ViT-Ti/16", classes=3, weights=path, **TINY),
    "load_checkpoint": lambda path: loaded(path),
}


def build(**changes):
    keras.utils.set_random_seed(0)
    return keras_vit.build("ViT-Ti/16", classes=3, **{**TINY, **changes})


def fit(model, optimizer="adam", loss=CROSSENTROPY, metrics=("accuracy",), data=(INPUTS, LABELS)):
    model.compile(optimizer, loss, metrics=list(metrics))
    arguments = data if isinstance(data, tuple) else (data,)
    model.fit(*arguments, epochs=2, verbose=0)
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
    def on_epoch_end(self, epoch, logs=None):
        self.model.seen = epoch + 1


class OwnOptimizer(keras.optimizers.SGD):
    pass


def schedule():
    return keras.optimizers.schedules.CosineDecay(0.01, 4, warmup_target=0.02, warmup_steps=2)


# Models by name; each is fitted in a way that tutorials show.


def numpy_arrays(folder):
    return fit(build())


def tf_data(folder):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).shuffle(12).batch(4)
    return fit(build(), data=dataset.prefetch(2))


def image_folder(folder):
    for number, image in enumerate(IMAGES):
        name = folder / "photos" / NAMES[number % 3]
        name.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(name / f"{number}.png")
    dataset = keras.utils.image_dataset_from_directory(
        folder / "photos", image_size=(32, 32), batch_size=4, seed=0
    )
    return fit(build(), data=dataset.map(lambda x, y: (keras_vit.preprocess_input(x), y)))


def frozen_then_unfrozen(folder):
    model = build()
    for layer in model.layers[:-1]:
        layer.trainable = False
    fit(model)
    model.trainable = True
    for layer in model.layers:
        layer.trainable = True
    return fit(model, keras.optimizers.Adam(1e-4))


def frozen(folder):
    model = build()
    for layer in model.layers[:-1]:
        layer.trainable = False
    return fit(model)


def callbacks(folder):
    model = build()
    model.compile("adam", CROSSENTROPY, metrics=["accuracy"])
    own = OwnCallback()
    validation = (INPUTS, LABELS)
    model.fit(
        *validation,
        validation_data=validation,
        epochs=2,
        verbose=0,
        callbacks=[
            keras.callbacks.ModelCheckpoint(folder / "callbacks.keras"),
            keras.callbacks.EarlyStopping(patience=3, restore_best_weights=False),
            keras.callbacks.ReduceLROnPlateau(patience=1),
            keras.callbacks.CSVLogger(folder / "log.csv"),
            keras.callbacks.BackupAndRestore(folder / "backup"),
            own,
        ],
    )
    return model


def sgd(folder):
    return fit(build(), keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0))


def adamw(folder):
    return fit(build(), keras.optimizers.AdamW(schedule(), weight_decay=0.1))


def lion(folder):
    return fit(build(), keras.optimizers.Lion(1e-3, use_ema=True))


def muon(folder):
    return fit(build(), keras.optimizers.Muon(1e-3))


def own_names(folder):
    return fit(build(), OwnOptimizer(0.01), OwnLoss(2.0), [OwnMetric(name="surest")])


def own_functions(folder):
    return fit(build(), "sgd", own_loss, [lambda labels, scores: keras.ops.max(scores)])


def mixed_bfloat16(folder):
    return with_policy("mixed_bfloat16")


def mixed_float16(folder):
    return with_policy("mixed_float16")


def with_policy(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return fit(build())
    finally:
        keras.config.set_dtype_policy(before)


def dropout(folder):
    return fit(build(dropout_rate=0.1, attention_dropout_rate=0.1))


def our_trainer(folder):
    from keras_vit.training import SGD, Trainer, warmup_schedule

    model = build()
    fit(Trainer(model, accumulation_steps=2), SGD(warmup_schedule(0.03, steps=8, warmup_steps=2)))
    return model


def our_muon(folder):
    from keras_vit.training import Muon, Trainer

    model = build()
    fit(Trainer(model), Muon(1e-3))
    return model


def trainer_itself(folder):
    from keras_vit.training import SGD, Trainer

    return fit(Trainer(build()), SGD(0.03))


def lora(folder):
    model = build()
    for layer in model.layers[:-1]:
        layer.trainable = False
    for layer in model._flatten_layers():
        if hasattr(layer, "enable_lora") and layer.name != "predictions":
            layer.trainable = True
            layer.enable_lora(2)
    return fit(model)


def int8(folder):
    model = fit(build())
    model.quantize("int8")
    return model


# A model within the user's own.


def nested(folder):
    body = fit(build())  # Compiled itself, with an optimizer of its own.
    image = keras.Input((32, 32, 3))
    x = keras.layers.RandomFlip("horizontal")(image)
    return fit(keras.Model(image, keras.layers.Dense(3, "softmax")(body(x))), own(), own_loss)


def own():
    return OwnOptimizer(0.01)


def sequential(folder):
    layers = [keras.Input((32, 32, 3)), keras.layers.RandomFlip(), build()]
    return fit(keras.Sequential(layers))


def features(folder):
    body = build(include_top=False, pooling="token")
    head = keras.layers.Dense(3, "softmax", dtype="float32")
    normalize = keras.layers.Normalization(mean=[0.0] * 3, variance=[1.0] * 3)
    return fit(keras.Sequential([keras.Input((32, 32, 3)), normalize, body, head]))


PLAIN = (
    numpy_arrays, tf_data, image_folder, frozen, frozen_then_unfrozen, callbacks, sgd, adamw, lion,
    muon, own_names, own_functions, mixed_bfloat16, mixed_float16, dropout, our_trainer, our_muon,
    lora,
)  # fmt: skip
OTHERS = (trainer_itself, nested, sequential, features, int8)


def write(folder):
    for make in (*PLAIN, *OTHERS):
        model = make(folder)
        path = folder / f"{make.__name__}.keras"
        if not path.exists():  # Otherwise ModelCheckpoint has written it.
            model.save(path)
        np.save(path.with_suffix(".npy"), outputs(model))
        model.save(folder / "again.keras", overwrite=True)


def read(folder):
    found = {}
    for make in (*PLAIN, *OTHERS):
        path = folder / f"{make.__name__}.keras"
        expected = np.load(path.with_suffix(".npy"))
        found[make.__name__] = {
            way: difference(lambda f=function, p=path: outputs(f(p)), expected)
            for way, function in WAYS.items()
        }
    return found


def loaded(path):
    model = build()
    keras_vit.load_checkpoint(model, path)
    return model


def outputs(model):
    return np.asarray(model(INPUTS, training=False), "float32")


def difference(function, expected):
    """The largest difference of what a function returns, or the error that it raises."""
    try:
        return float(np.abs(function() - expected).max())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    command, place = sys.argv[1], pathlib.Path(sys.argv[2])
    if command == "write":
        write(place)
    else:
        print(json.dumps(read(place)))
