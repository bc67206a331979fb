"""What short trainings of a hybrid for 32 pixels reach, piece by piece, at equal compute.

    python benchmarks/pieces.py cifar10-images OUTPUT [--pflop 0.01] [--seeds 1] [PIECE ...]

A piece is a change of `Training`, a row of PIECES. Each is trained from random weights with the
same FLOPs, and tested on 5,000 training images that are held out; the test images are not read.
OUTPUT keeps the images as arrays and a line for each training, so that a stopped program goes on.
docs/results.md has the table.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import time
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.configs import MODELS
from keras_vit.layers import GroupNorm, StandardizedConv2D, residual_units
from keras_vit.models import resnet
from keras_vit.training import Adam, Muon, SoftmaxCrossentropy, Trainer, warmup_schedule

HELD_OUT = 5000
BASE = keras_vit.ViTConfig(
    1, 128, 1, 256, 4, classifier="gap", resnet=keras_vit.configs.PoolingStem((32, 128))
)
OPTIMIZERS = {
    "muon": Muon,
    "adam": Adam,
}


def group_norm(groups):
    return lambda _=32, **options: GroupNorm(groups, **options)


def batch_norm(_=32, **options):
    return keras.layers.BatchNormalization(momentum=0.9, **(options | {"epsilon": 1e-5}))


NORMS = {
    "32 groups": group_norm(32),
    "8 groups": group_norm(8),
    "1 group": group_norm(1),
    "batch": batch_norm,  # Depends on the other images of a batch: no part of the package.
}


@dataclasses.dataclass(frozen=True)
class Training:
    """A short training."""

    config: keras_vit.ViTConfig = BASE
    norm: str = "32 groups"
    standardized: bool = True  # Whether kernels are.
    start: str = "random"  # Or "identity", as in the package, or "whitening": see `prepare`.
    batch: int = 125
    precision: str = "float32"
    optimizer: str = "muon"
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    ema_momentum: float | None = None
    scale: float = 1.0  # Multiplies the logits.
    smoothing: float = 0.1
    flips: str = "random"  # Or "never" or "alternating": every other epoch.
    crop: int = 4  # Pixels of the grey border.
    cutout: int = 0  # Pixels per side.
    mixup: float = 0.0


def changed(**changes):
    return dataclasses.replace(BASE, **changes)


STEM = BASE.resnet
MODEL = MODELS["R7+ViT-Nano/8"]
# The stem and the rate of the model, with a smaller border than its recipe for so few epochs; the
# base has what the pieces are compared with.
CHOSEN = {"norm": "8 groups", "start": "identity", "learning_rate": 1e-2, "crop": 2}
OF_MODEL = CHOSEN | {"config": MODEL, "precision": "mixed_bfloat16"}
TWO_POOLS = dataclasses.replace(
    MODEL, patch_size=2, depth=2, resnet=dataclasses.replace(STEM, widths=(64, 256))
)
PIECES = {
    "base": {},
    "Adam": {"optimizer": "adam"},
    "rate 1e-3": {"learning_rate": 1e-3},
    "rate 1e-2": {"learning_rate": 1e-2},
    "rate 3e-2": {"learning_rate": 3e-2},
    "8 groups": {"norm": "8 groups"},
    "1 group": {"norm": "1 group"},
    "BatchNorm": {"norm": "batch", "standardized": False},
    "GroupNorm alone": {"standardized": False},
    "identity": {"start": "identity"},
    "8 groups, identity, rate 1e-2": {
        "norm": "8 groups",
        "start": "identity",
        "learning_rate": 1e-2,
    },
    "BatchNorm, rate 1e-2": {"norm": "batch", "standardized": False, "learning_rate": 1e-2},
    "Adam, rate 1e-3": {"optimizer": "adam", "learning_rate": 1e-3},
    "whitening": {"start": "whitening"},
    "two blocks": {"config": changed(depth=2)},
    "patches of 2 cells": {"config": changed(patch_size=2)},
    "class token": {"config": changed(classifier="token")},
    "three pools": {
        "config": changed(resnet=dataclasses.replace(STEM, widths=(32, 64, 128)), depth=2)
    },
    "alternating flips": {"flips": "alternating"},
    "no flips": {"flips": "never"},
    "border of 2": {"crop": 2},
    "no crop": {"crop": 0},
    "cutout": {"cutout": 8},
    "mixup 0.2": {"mixup": 0.2},
    "no label smoothing": {"smoothing": 0.0},
    "label smoothing 0.2": {"smoothing": 0.2},
    "scale 4": {"scale": 4.0},
    "ema_momentum": {"ema_momentum": 0.99},
    "model": OF_MODEL,
    "model, two pools": OF_MODEL | {"config": TWO_POOLS},
    "model, BatchNorm": OF_MODEL | {"norm": "batch", "standardized": False},
    "model, batch of 250": OF_MODEL | {"batch": 250},
    "model, batch of 250, GroupNorm alone": OF_MODEL | {"batch": 250, "standardized": False},
    "model, batch of 250, rate 2e-2": OF_MODEL | {"batch": 250, "learning_rate": 2e-2},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("pieces", nargs="*", choices=[[], *PIECES], default=[])
    parser.add_argument("--pflop", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_intermixed_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    images, labels = arrays(arguments.data, arguments.output / "images.npz")
    done = arguments.output / "pieces.jsonl"
    for seed in range(arguments.seeds):
        for name in arguments.pieces or PIECES:
            key = {"piece": name, "seed": seed, "pflop": arguments.pflop}
            if any(key.items() <= row.items() for row in rows(done)):
                continue
            training = Training(**PIECES[name])
            with other_stem(training):
                row = key | run(training, images, labels, arguments.pflop, seed)
            with done.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
    print_table([row for row in rows(done) if row["pflop"] == arguments.pflop])


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_table(found):
    print("| piece | held-out accuracy | seeds | steps | processor seconds |")
    print("| --- | --- | --- | --- | --- |")
    for name in PIECES:
        mine = [row for row in found if row["piece"] == name]
        if mine:
            accuracy, seconds = (
                statistics.mean(row[field] for row in mine) for field in ("accuracy", "seconds")
            )
            print(
                f"| {name} | {accuracy:.1f}% | {len(mine)} | {mine[0]['steps']} | {seconds:.0f} |"
            )


def arrays(data, path):
    """Returns the training images `(N, 32, 32, 3)` uint8 and their classes, in a fixed order."""
    if not path.exists():
        classes = sorted(folder.name for folder in (data / "train").iterdir())
        files = [
            (file, index)
            for index, name in enumerate(classes)
            for file in sorted((data / "train" / name).iterdir())
        ]
        order = np.random.default_rng(0).permutation(len(files))
        images = np.stack([np.asarray(Image.open(files[i][0]).convert("RGB")) for i in order])
        np.savez(path, images=images, labels=np.array([files[i][1] for i in order]))
    with np.load(path) as stored:
        return stored["images"], stored["labels"]


def run(training, images, labels, pflop, seed):
    """Trains and returns the accuracy on the held-out images, in percent, with its cost."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(training.precision)
    model = keras_vit.build(
        training.config, input_shape=(32, 32, 3), classes=10, classifier_activation=None
    )
    flops = keras_vit.describe(training.config, input_shape=(32, 32, 3), classes=10).flops
    prepare(model, training, images[HELD_OUT:])
    if training.scale != 1:
        model = keras.Model(model.input, model.output * training.scale)
    steps = round(1e15 * pflop / (3 * flops * training.batch))
    trainer = Trainer(model, ema_momentum=training.ema_momentum, seed=seed)
    schedule = warmup_schedule(
        training.learning_rate, steps=steps, warmup_steps=steps // 10, decay="linear"
    )
    trainer.compile(
        OPTIMIZERS[training.optimizer](schedule, weight_decay=training.weight_decay),
        SoftmaxCrossentropy(training.smoothing),
        metrics=["accuracy"],
    )
    data = tf.data.Dataset.from_generator(
        functools.partial(batches, training, images[HELD_OUT:], labels[HELD_OUT:], steps, seed),
        output_signature=(
            tf.TensorSpec((training.batch, 32, 32, 3), "float32"),
            tf.TensorSpec((training.batch, 10), "float32"),
        ),
    )
    start = time.process_time()
    trainer.fit(data.repeat().prefetch(8), epochs=1, steps_per_epoch=steps, verbose=0)
    seconds = time.process_time() - start
    with trainer.averaged_weights() if training.ema_momentum else contextlib.nullcontext():
        logits = model.predict(scaled(images[:HELD_OUT]), batch_size=500, verbose=0)
    accuracy = 100 * float((logits.argmax(axis=1) == labels[:HELD_OUT]).mean())
    return {"accuracy": accuracy, "steps": steps, "seconds": seconds}


@contextlib.contextmanager
def other_stem(training):
    """Makes stems with another norm, or without standardised kernels."""
    with contextlib.ExitStack() as patches:
        for place in (residual_units, resnet):
            patches.enter_context(mock.patch.object(place, "GroupNorm", NORMS[training.norm]))
        if not training.standardized:
            plain = mock.patch.object(
                StandardizedConv2D, "standardized_kernel", lambda layer: layer.kernel.value
            )
            patches.enter_context(plain)
        yield


def prepare(model, training, images):
    """Sets kernels of the stem at the start.

    "random": LeCun-normal values.
    "identity": each kernel of the units passes its inputs on (`PassingKernel`), the default.
    "whitening": "random", and the root's kernels are the directions of the largest variance of
    3x3 pixels, with both signs, each divided by its deviation.
    """
    if training.start != "identity":
        for weight in model.weights:
            if weight.path.endswith(("conv_1/kernel", "conv_2/kernel")):
                weight.assign(keras.initializers.LecunNormal()(weight.shape))
    if training.start == "whitening":
        root = model.get_layer("root_conv").kernel
        windows = np.lib.stride_tricks.sliding_window_view(
            scaled(images[:500]), (3, 3), axis=(1, 2)
        )[:, ::3, ::3]
        patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 27)
        values, vectors = np.linalg.eigh(np.cov(patches.T))
        largest = (vectors / np.sqrt(values + 5e-4))[:, ::-1][:, : root.shape[-1] // 2]
        root.assign(np.concatenate([largest, -largest], axis=1).reshape(root.shape))


def scaled(images):
    return images.astype("float32") / 127.5 - 1


def batches(training, images, labels, steps, seed):
    """Yields augmented batches and their label shares."""
    rng = np.random.default_rng(seed)
    mirrored = rng.random(len(images)) < 0.5
    order, epoch, size = np.empty(0, int), -1, training.batch
    for _ in range(steps):
        if len(order) < size:
            order, epoch = rng.permutation(len(images)), epoch + 1
        chosen, order = order[:size], order[size:]
        x, y = scaled(images[chosen]), np.eye(10, dtype="float32")[labels[chosen]]
        flipped = {
            "never": np.zeros(size, bool),
            "random": rng.random(size) < 0.5,
            "alternating": mirrored[chosen] ^ bool(epoch % 2),
        }[training.flips]
        x[flipped] = x[flipped, :, ::-1]
        if training.crop:
            border = training.crop
            padded = np.pad(x, ((0, 0), (border,) * 2, (border,) * 2, (0, 0)))
            down, across = rng.integers(0, 2 * border + 1, (2, size))
            views = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(1, 2))
            x = views[np.arange(size), down, across].transpose(0, 2, 3, 1)
        if training.cutout:
            side = training.cutout
            places = rng.integers(0, 33 - side, (2, size, 1))
            inside = (np.arange(32) >= places) & (np.arange(32) < places + side)
            x = np.where((inside[0][:, :, None] & inside[1][:, None])[..., None], 0, x)
        if training.mixup:
            share = np.float32(rng.beta(training.mixup, training.mixup))
            x, y = (share * each + (1 - share) * each[::-1] for each in (x, y))
        yield x, y


if __name__ == "__main__":
    main()
