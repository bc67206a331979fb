"""The paper's main job in miniature: pre-train, transfer, evaluate, predict, export.

    python examples/digits.py OUTPUT [--seed 0]

The images are scikit-learn's 1,797 handwritten digits. A third of each digit is held out and used
for testing alone. A small ViT is pre-trained on the digits 0 to 4 and transferred to 5 to 9 as in
section 3.2 of the paper: new head of zeros, higher resolution, interpolated position embeddings,
SGD. The exported model runs in a new process without this package. It takes about five minutes on
two cores.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import FineTuning, PreTraining, finetune, pretrain
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.measures import accuracy_text

FIRST, SECOND = "0-4", "5-9"  # Digits of the pre-training, and of the transfer.

# Table 3's row of ImageNet with smaller batches, fewer steps, a lower learning rate, and images
# that are not mirrored.
PRETRAINING = PreTraining(
    model=keras_vit.ViTConfig(patch_size=4, width=64, depth=4, mlp_dim=128, num_heads=4),
    image_size=(16, 16),
    steps=1200,
    batch_size=64,
    accumulate=1,
    learning_rate=1e-3,
    warmup_steps=100,
    decay="linear",
    weight_decay=0.3,
    dropout_rate=0.1,
    augmentation="jitter",
    validation=0.0,
)
TRANSFER = FineTuning(
    image_size=(24, 24),
    steps=1600,
    batch_size=64,
    accumulate=1,
    learning_rate=0.1,
    head_start="zero",
    warmup_steps=160,
    dropout_rate=0.1,
    augmentation="jitter",
    validation=0.0,
)


def write_digits(folder: pathlib.Path, seed: int) -> None:
    """Writes the digits as PNG files, `{0-4,5-9}/{train,test}/DIGIT/NUMBER.png`.

    Args:
        folder: The folder to write; must not exist.
        seed: Seed of the choice of a third of each digit for the test part.
    """
    digits = load_digits()
    # 8x8 pixels with values from 0 to 16, scanned from real forms.
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    rng = np.random.default_rng(seed)
    for digit in range(10):
        numbers = rng.permutation(np.flatnonzero(digits.target == digit)).tolist()
        held_out = set(numbers[: len(numbers) // 3])
        for number in numbers:
            part = "test" if number in held_out else "train"
            class_folder = folder / (FIRST if digit < 5 else SECOND) / part / str(digit)
            class_folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[number]).save(class_folder / f"{number:04}.png")


def accuracy_of_frozen_features(classifier: keras_vit.Classifier, data: pathlib.Path) -> float:
    """Returns the test accuracy of a least-squares map from a classifier's features."""
    body = keras.Model(classifier.model.input, classifier.model.get_layer("encoder_norm").output)
    arrays: list[np.ndarray] = []
    for part in ("train", "test"):
        files = sorted((data / part).rglob("*.png"))
        inputs = classifier.preprocess([Image.open(file) for file in files])
        tokens = body.predict(inputs, verbose=0)  # (N, tokens, D)
        arrays += [tokens[:, 0], np.array([int(file.parent.name) for file in files])]
    return few_shot.accuracy(*arrays)


# The command in a new process, of the same installation.
COMMAND = (
    sys.executable,
    "-c",
    "import sys; from keras_vit.command_line import main; sys.exit(main())",
)


def run(*command: str, **options: Any) -> str:
    """Runs a command in a new process and returns what it printed."""
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def main(output: pathlib.Path, seed: int = 0) -> dict[str, float]:
    """Runs all steps, prints their results, and returns the accuracies."""
    images = output / "images"
    write_digits(images, seed)

    print(f"\n== Pre-train on the digits {FIRST}")
    settings = dataclasses.replace(PRETRAINING, seed=seed)
    pretrained = pretrain(images / FIRST, output / "pretrained", settings)
    frozen = accuracy_of_frozen_features(
        keras_vit.load_classifier(output / "pretrained"), images / SECOND
    )

    print(f"\n== Transfer to the digits {SECOND}")
    settings = dataclasses.replace(TRANSFER, weights=str(output / "pretrained"), seed=seed)
    tuned = finetune(images / SECOND, output / "classifier", settings)

    print("\n== Predict, and export a SavedModel")
    files = [str(file) for file in sorted((images / SECOND / "test").rglob("*.png"))]
    classifier, saved_model = str(output / "classifier"), str(output / "saved_model")
    print(run(*COMMAND, "predict", classifier, *files[:: len(files) // 4], "--top", "3"))
    print(
        run(
            *(*COMMAND, "export", classifier, "--to", "saved_model", "--output", saved_model),
            env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        )
    )

    # Runs without this package.
    program = str(pathlib.Path(__file__).with_name("run_saved_model.py"))
    answers = json.loads(run(sys.executable, program, saved_model, input="\n".join(files)))
    own = [prediction.top[0][0] for prediction in tuned.classifier.predict(files, top=1)]
    accuracies = {
        "pretrained": pretrained.report.top_1,
        "frozen": frozen,
        "transferred": tuned.report.top_1,
        "agreement": float(np.mean(np.array(answers) == np.array(own))),
    }
    print(f"""
top-1 on held-out digits, with its 95% interval
  pre-trained, its own {FIRST}: {accuracy_text(pretrained.report.top_1, pretrained.report.count)}
  frozen features, least squares on {SECOND}: {accuracy_text(frozen, len(files))}
  after transfer to {SECOND}: {accuracy_text(tuned.report.top_1, len(files))}
SavedModel with the same answer: {accuracies["agreement"]:.2%}""")
    return accuracies


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pre-train, transfer and export on real digits.")
    parser.add_argument("output", type=pathlib.Path, help="a new folder for all files")
    parser.add_argument("--seed", type=int, default=0, help="of the parts and of both trainings")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)  # Fails if it exists.
    main(arguments.output, arguments.seed)
