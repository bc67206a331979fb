"""Adds what training saves to golden/saved_files.zip: see golden/README.md.

Run by commit 36f88251, before names of settings and options of trainers changed:

python tests/programs/write_saved_training.py FILE.zip
"""

import json
import os
import pathlib
import sys
import tempfile
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from PIL import Image

import keras_vit

CLASSES = {"blue": (30, 30, 220), "green": (30, 220, 30), "red": (220, 30, 30)}
STEPS = 3  # Before a model is saved, and after it.


def batches():
    """Returns one batch of images and labels for each step: (2 * STEPS, 4, 8, 8, 3)."""
    rng = np.random.default_rng(0)
    shape = (2 * STEPS, 4)
    return rng.uniform(-1, 1, (*shape, 8, 8, 3)).astype("float32"), rng.integers(0, 3, shape)


def tiny_model():
    """Returns a model whose weights are all away from their initial values."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(4, 16, 1, 16, 2, dropout_rate=0.1)
    model = keras_vit.build(
        config, classes=3, input_shape=(8, 8, 3), classifier_activation=None, name="tiny"
    )
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in weight.dtype:
            value = keras.ops.convert_to_numpy(weight)
            weight.assign(value + 0.1 * rng.standard_normal(weight.shape))
    return model


def compiled_trainers():
    """Returns two trainers with this package's optimizers, compiled."""
    from keras_vit.training import SGD, Adam, SoftmaxCrossentropy, Trainer, warmup_schedule

    schedule = warmup_schedule(0.05, steps=2 * STEPS, warmup_steps=2)
    compiled = {
        "trainer": (
            Trainer(
                tiny_model(),
                accumulation_steps=2,
                averaging=0.9,
                skip_nonfinite_steps=1,
                seed=3,
            ),
            Adam(schedule, weight_decay=0.1, global_clipnorm=1.0),
        ),
        "sgd": (Trainer(tiny_model()), SGD(schedule, momentum=0.8)),
    }
    for trainer, optimizer in compiled.values():
        trainer.compile(optimizer, SoftmaxCrossentropy(0.1), metrics=["accuracy"])
    return {name: trainer for name, (trainer, _) in compiled.items()}


# Batches of a step of the trainers that `write_trainers` writes.
BATCHES = {"trainer": 2, "sgd": 1}


def train(trainer, first, each):
    """Trains for `STEPS` steps of `each` equal batches."""
    images, labels = batches()
    labels = np.eye(3, dtype="float32")[labels]
    for step in range(first, first + STEPS):
        trainer.fit(
            np.concatenate([images[step]] * each),
            np.concatenate([labels[step]] * each),
            batch_size=4,
            shuffle=False,
            verbose=0,
        )


def logits(trainer):
    """Returns what the trained model computes for the first batch."""
    return np.asarray(trainer.model(batches()[0][0], training=False))


def write_trainers(folder):
    """Writes the trainers half trained; returns their logits then and at the end."""
    expected = {}
    for name, trainer in compiled_trainers().items():
        train(trainer, 0, BATCHES[name])
        trainer.save(folder / f"{name}.keras")
        expected[name] = logits(trainer)
        train(trainer, STEPS, BATCHES[name])
        expected[f"{name}_trained"] = logits(trainer)
    return expected


def write_optimizer(folder):
    """Writes a model that Keras itself trained with an optimizer of this package."""
    from keras_vit.training import Adam, SoftmaxCrossentropy

    model = tiny_model()
    model.compile(Adam(0.01, weight_decay=0.1), SoftmaxCrossentropy())
    images, labels = batches()
    model.fit(images[0], np.eye(3, dtype="float32")[labels[0]], epochs=STEPS, verbose=0)
    model.save(folder / "compiled.keras")
    return {
        "compiled": np.asarray(model(images[0], training=False)),
        "compiled_moments": np.asarray(model.optimizer.variables[2]),
    }


def write_run(folder):
    """Writes photos and the folder of a run on them."""
    from keras_vit.training import FineTuning, finetune
    from keras_vit.training.data import DataSpec

    rng = np.random.default_rng(0)
    photos = folder / "photos"
    for name, color in CLASSES.items():
        (photos / name).mkdir(parents=True)
        for number in range(10):
            pixels = np.clip(rng.normal(color, 25, (8, 8, 3)), 0, 255).astype("uint8")
            Image.fromarray(pixels).save(photos / name / f"{number}.png")
    settings = FineTuning(
        model=keras_vit.ViTConfig(4, 16, 1, 16, 2),
        weights=None,
        image_size=(8, 8),
        steps=12,
        batch_size=6,
        accumulate=1,
        learning_rate=0.1,
        averaging=0.9,
        clip_norm=0.5,
        label_smoothing=0.1,
        validation=0.2,
        samples="none",
    )
    data = DataSpec(data=str(photos), holdout=0.2)
    finished = finetune(data, folder / "run", settings, log=lambda text: None)
    paths = sorted(photos.rglob("*.png"))
    answers = [dict(answer.top) for answer in finished.classifier.predict(paths)]
    return {"run": np.array([[answer[name] for name in CLASSES] for answer in answers])}


def main(archive):
    """Adds the files below training/ to an archive, whose other files do not change."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expected = write_trainers(folder) | write_optimizer(folder) | write_run(folder)
        np.savez(folder / "expected.npz", **expected)
        print(json.dumps(sorted(path.name for path in (folder / "run").iterdir())))
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as opened:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                opened.write(path, "training" / path.relative_to(folder))


if __name__ == "__main__":
    main(sys.argv[1])
