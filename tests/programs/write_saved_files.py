"""Writes one file of each kind that the package saves, with what each gives: see golden/README.md.

python tests/programs/write_saved_files.py FOLDER     # A new folder.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from PIL import Image

import keras_vit
import keras_vit.export
from keras_vit.command_line import main
from keras_vit.configs import (
    AxialConfig,
    AxialResNetConfig,
    BiTConfig,
    ResNetStem,
    Rotary,
    ViTConfig,
)
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.training.data import DataSpec
from keras_vit.training.run.classifier_jobs import finetune, pretrain
from keras_vit.training.run.masked_patches import pretrain_masked_patches
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining

COLORS = {"blue": (30, 30, 220), "green": (30, 220, 30), "red": (220, 30, 30)}
LABELS = "mixed/labels.csv"
SIZES = {"patch_size": 4, "width": 16, "depth": 2, "mlp_dim": 16, "num_heads": 2}
TINY = ViTConfig(4, 8, 1, 8, 2)
WITH_REPRESENTATION = ViTConfig(4, 8, 1, 8, 2, representation_size=6)

# Each field of a config that is not the default in one of them; (height, width) of the images.
MODELS = {
    "qk_norm": (ViTConfig(**SIZES, qk_norm=True, layer_scale=True, num_registers=2), (8, 16)),
    "swiglu": (
        ViTConfig(**SIZES, gelu="swiglu", final_norm="pooled", classifier="gap", head_bias=-1.0),
        (16, 16),
    ),
    "rotary": (
        ViTConfig(
            **SIZES, rotary=Rotary(), position_embedding="none", gelu="exact", norm_epsilon=1e-5
        ),
        (8, 16),
    ),
    "rotary_learned": (
        ViTConfig(
            **SIZES,
            rotary=Rotary(10.0, "index", 0.5, (3, 5), True, "neighbours", True),
            num_registers=1,
        ),
        (16, 8),
    ),
    "relative_bias": (
        ViTConfig(
            **SIZES, block_norm="after", position_embedding="relative_bias", classifier="max"
        ),
        (8, 16),
    ),
    "relative": (
        ViTConfig(**SIZES, position_embedding="relative", gelu="quick", qk_norm=True),
        (8, 16),
    ),
    "learned_2d": (
        ViTConfig(**SIZES, position_embedding="learned_2d", position_embedding_at="every_block"),
        (12, 20),
    ),
    "shared_positions": (
        ViTConfig(
            **SIZES,
            position_embedding_at="every_block_shared",
            embedding_norm=True,
            classifier="token+gap",
            representation_size=12,
            stochastic_depth_rate=0.2,
            dropout_rate=0.1,
            attention_dropout_rate=0.1,
            remat=True,
        ),
        (16, 16),
    ),
    "map": (
        ViTConfig(
            **SIZES,
            classifier="map",
            map_num_heads=4,
            map_mlp_dim=12,
            map_reads_prefix=True,
            unread_class_token=True,
            final_norm="none",
            gelu="relu",
        ),
        (16, 16),
    ),
    "distillation": (
        ViTConfig(**{**SIZES, "patch_size": (4, 8)}, classifier="token+distillation"),
        (8, 16),
    ),
    "hybrid": (
        ViTConfig(
            **{**SIZES, "patch_size": 1},
            classifier="gap",
            resnet=ResNetStem((1,), 0.5, epsilon_in="variance"),
        ),
        (16, 24),
    ),
    "bit": (BiTConfig((1,), 0.5, head_bias=-2.0), (16, 16)),
    "axial_vit": (
        AxialConfig(**SIZES, classifier="token", position_embedding="learned_2d"),
        (8, 16),
    ),
    "axial_relative": (AxialConfig(**SIZES, position_embedding="relative"), (16, 8)),
    "axial_resnet": (AxialResNetConfig((1,), 0.5, num_heads=4), (16, 16)),
}

EXPORTS = {"saved_model": "_saved_model", "tflite": ".tflite", "onnx": ".onnx", "openvino": "_ir"}

# Models whose weights are also in a separate file.
WEIGHTS = ("qk_norm", "rotary", "learned_2d")


def random_model(config, image_size, classes=3, **arguments):
    """Returns a model whose weights are all away from their initial values."""
    keras.utils.set_random_seed(0)
    model = keras_vit.build(config, classes=classes, input_shape=(*image_size, 3), **arguments)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "float" in weight.dtype:
            weight.assign(
                keras.ops.convert_to_numpy(weight) + 0.1 * rng.standard_normal(weight.shape)
            )
    return model


def write_models(expected):
    """Writes `.keras` files of all kinds of models, and files of weights of some."""
    folder = pathlib.Path("models")
    folder.mkdir()
    described = {}
    for name, (config, image_size) in MODELS.items():
        model = random_model(config, image_size)
        model.save(folder / f"{name}.keras")
        expected[f"models/{name}"] = model(inputs(image_size), training=False)
        described[name] = description(model, config, image_size)
    model = random_model(TINY, (16, 8), include_top=False, pooling="token")
    model.save(folder / "without_head.keras")
    expected["models/without_head"] = model(inputs((16, 8)), training=False)
    described["without_head"] = description(model, TINY, (16, 8))
    (folder / "descriptions.json").write_text(json.dumps(described, indent=1) + "\n")
    pathlib.Path("weights").mkdir()
    for name in WEIGHTS:
        model = keras.saving.load_model(folder / f"{name}.keras")
        model.save_weights(f"weights/{name}.weights.h5")
    keras_vit.save_checkpoint(random_model(ViTConfig(**SIZES), (16, 16)), "weights/plain.npz")
    expected["weights/plain"] = random_model(ViTConfig(**SIZES), (16, 16))(inputs((16, 16)))


def description(model, config, image_size):
    """Returns the facts that a later version has to know of the model."""
    cost = keras_vit.describe(model)
    return {
        "config": {"type": type(config).__name__, **dataclasses.asdict(config)},
        "image_size": image_size,
        "parameters": cost.parameters,
        "flops": cost.flops,
        "sequence_length": cost.sequence_length,
    }


def inputs(image_size):
    """Returns two preprocessed images, the same for each size."""
    return np.random.default_rng(0).uniform(-1, 1, (2, *image_size, 3)).astype("float32")


def write_data():
    """Writes pictures of three colours, and of mixtures of them with a label for each."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 4)):
        for name, color in COLORS.items():
            folder = pathlib.Path("photos", part, name)
            folder.mkdir(parents=True)
            for number in range(count):
                write_png(folder / f"{number}.png", rng.normal(color, 25, (6, 6, 3)))
    rows = ["path,label,split"]
    pathlib.Path("mixed").mkdir()
    for number in range(24):
        bright = [bool(number >> bit & 1) for bit in range(3)]
        write_png(
            pathlib.Path("mixed", f"{number}.png"),
            rng.normal(np.where(bright, 200, 50), 25, (6, 6, 3)),
        )
        labels = ";".join(name for name, is_on in zip(COLORS, bright, strict=True) if is_on)
        rows.append(f"{number}.png,{labels},{'test' if number < 8 else 'train'}")
    pathlib.Path("mixed", "labels.csv").write_text("\n".join(rows) + "\n")


def write_png(path, pixels):
    """Writes an image of few colours, so that its file is small."""
    Image.fromarray(np.clip(pixels, 0, 255).astype("uint8") & 0xE0).save(path, optimize=True)


def write_runs():
    """Writes the folders of training runs: finished, stopped, and without classes."""
    common = {"image_size": (8, 8), "batch_size": 8, "accumulate": 1, "optimizer": "adam"}
    short = {"steps": 2, "evaluate_every": 1, "validation": 0.25, "learning_rate": 0.1}
    quiet = {"log": lambda line: None}
    tuned = FineTuning(model=TINY, weights=None, augmentation="none", **common, **short)
    finetune("photos", "runs/multiclass", tuned, command="keras-vit finetune", **quiet)
    finetune(LABELS, "runs/multilabel", tuned, command="keras-vit finetune", **quiet)
    pretraining = PreTraining(model=WITH_REPRESENTATION, **common, **short)
    pretrain("photos", "runs/pretrained", pretraining, command="keras-vit pretrain", **quiet)
    sweep("photos", "runs/sweep", tuned, learning_rates=(0.03, 0.1), seeds=(0,), **quiet)
    # Runs that a signal stopped, and what the same runs without it give.
    long = FineTuning(
        model=TINY,
        weights=None,
        steps=8,
        evaluate_every=2,
        validation=0.25,
        learning_rate=3e-3,
        averaging=0.9,
        mixup=0.2,
        augmentation="none",
        clip_norm=0.5,
        weight_decay=0.01,
        **{**common, "accumulate": 2},
    )
    finetune(LABELS, "runs/whole", long, **quiet)
    with contextlib.suppress(KeyboardInterrupt):
        finetune(LABELS, "runs/stopped", long, callbacks=[StopAfter(4)], **quiet)
    masked = MaskedPatches(
        model=TINY, steps=4, evaluate_every=1, warmup_steps=1, validation=0.25, **common
    )
    photos = DataSpec("photos")
    pretrain_masked_patches(photos, "runs/masked_patches", masked, **quiet)
    with contextlib.suppress(KeyboardInterrupt):
        pretrain_masked_patches(
            photos, "runs/stopped_masked_patches", masked, callbacks=[StopAfter(2)], **quiet
        )


class StopAfter(keras.callbacks.Callback):
    """Sends this process a signal after a number of steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.steps:
            os.kill(os.getpid(), signal.SIGTERM)


def write_conversions():
    """Writes the multiclass classifier as each code base has it, and a folder from a file."""
    for to, path in {
        "official": "converted/official.npz",
        "weights": "converted/keras.weights.h5",
        "huggingface": "converted/huggingface",
        "timm": "converted/timm",
    }.items():
        pathlib.Path(path).parent.mkdir(exist_ok=True)
        keras_vit.export.convert("runs/multiclass", path, to=to)
    keras_vit.export.convert("runs/multilabel", "converted/multilabel_timm", to="timm")
    keras_vit.export.convert("converted/huggingface", "converted/classifier")


def write_exports(expected):
    """Writes exports of both tasks, without browsers' formats, which hold a runtime of 11 MB."""
    pathlib.Path("exports").mkdir()
    for name in ("multiclass", "multilabel"):
        for to, suffix in EXPORTS.items():
            path = f"exports/{name}{suffix}"
            call("export", f"runs/{name}", "--to", to, "--output", path, "--minimum-agreement", "0")
            expected[path] = probabilities(open_classifier(path))


def probabilities(classifier):
    """Returns the probabilities of the test pictures, classes in their order."""
    paths = sorted(pathlib.Path("photos", "test").rglob("*.png"))
    found = classifier.predict(paths, top=len(classifier.class_names))
    return [[dict(answer.top)[name] for name in classifier.class_names] for answer in found]


def write_results():
    """Writes result files, features and TFRecords by the commands."""
    call("evaluate", "runs/multiclass", "--data", "photos", "--output", "results/multiclass")
    data = ["--data", LABELS]
    call("evaluate", "runs/multilabel", *data, "--output", "results/multilabel")
    shots = ["--shots", "2", "--seeds", "0", "1"]
    data = ["--data", "photos", "--output", "results/few_shot", "--no-cache"]
    call("few-shot", "runs/multiclass", *data, *shots)
    call("embed", "runs/multiclass", "photos/test", "--output", "results/features.npz")
    call("records", "--data", "photos", "--output", "records")


def call(*arguments):
    """Runs a command and returns what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(list(arguments))
    if code:
        raise RuntimeError(f"{arguments} ended with {code}")
    return printed.getvalue()


def write_all(folder):
    """Writes everything to a new folder; paths in the files are relative to it."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    os.chdir(folder)
    expected = {}
    write_data()
    write_models(expected)
    write_runs()
    for name in ("multiclass", "multilabel", "pretrained", "whole"):
        expected[f"runs/{name}"] = probabilities(keras_vit.load_classifier(f"runs/{name}"))
    pathlib.Path("results").mkdir()
    for name, feature in {"pretrained": "pre_logits", "masked_patches": "avg"}.items():
        options = ["--feature", feature, "--output", f"results/{name}.npz"]
        call("embed", f"runs/{name}", "photos/test", *options)
    write_conversions()
    converted = keras_vit.load_classifier("converted/classifier")
    expected["converted/classifier"] = probabilities(converted)
    write_exports(expected)
    write_results()
    arrays = {name: np.asarray(values, "float32") for name, values in expected.items()}
    np.savez_compressed("expected.npz", **arrays)


if __name__ == "__main__":
    write_all(*sys.argv[1:])
