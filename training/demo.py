"""Demonstration of the package: pre-train, transfer, predict and export on handwritten digits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit._installation import import_optional
from keras_vit.classifier import Classifier
from keras_vit.configs import ViTConfig
from keras_vit.training.evaluation.predictions import extract
from keras_vit.training.run.finetune import build_model, evaluate_images, finetune, pretrain
from keras_vit.training.run.job import Job
from keras_vit.training.run.run_options import RunOptions
from keras_vit.utils.fields import required
from keras_vit.utils.report import align_columns

from .data import DataSpec, open_source
from .evaluation import few_shot
from .evaluation.measures import accuracy_text
from .settings import FineTuning, PreTraining

FIRST, SECOND = "0-4", "5-9"  # Digits of the pre-training, and of the transfer.

MODEL = ViTConfig(patch_size=4, width=64, depth=4, mlp_dim=128, num_heads=4)

# Table 3's row of ImageNet with smaller batches, fewer steps, a lower learning rate, and images
# that are not mirrored.
PRETRAINING = PreTraining(
    model=MODEL,
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

# The command, in a new process.
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from keras_vit.command_line import main; sys.exit(main())",
]
PARTS = ("images", "pretrained", "classifier", "saved_model", "summary.txt")


def demo(
    output: str | os.PathLike,
    *,
    seed: int = 0,
    overwrite: bool = False,
    log: Callable[[str], object] = print,
) -> DemoResult:
    """Pre-trains, transfers, evaluates, predicts and exports a small ViT on real digits.

    The images are scikit-learn's 1,797 handwritten digits. A third of each digit is held out
    and used for testing alone. The model is pre-trained on the digits 0 to 4 and transferred
    to 5 to 9 as in section 3.2 of the paper: new head of zeros, higher resolution,
    interpolated position embeddings, SGD. Prediction, export and the exported model run in
    new processes, the last one without this package.

    Args:
        output: A folder for all files.
        seed: Seed of the held-out third, the weights and the order of the images.
        overwrite: Whether to replace an earlier demonstration.
        log: Receives messages.

    Returns:
        A `DemoResult`; `print` it for the closing table.

    Raises:
        ValueError: If the output is not empty and not an earlier demonstration.
        ImportError: If scikit-learn is not installed.
    """
    output = pathlib.Path(output).absolute()
    _clear(output, overwrite)
    images, digits = output / "images", output / "images" / SECOND
    pretraining = dataclasses.replace(PRETRAINING, seed=seed)
    transfer = dataclasses.replace(TRANSFER, weights=str(output / "pretrained"), seed=seed)
    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(name):
        log(f"\n== {name}")
        began = time.monotonic()
        yield
        seconds[name] = time.monotonic() - began

    with step("write the images"):
        log(f"{write_digits(images, seed)} images in {images}")
    with step("pre-train on digits 0 to 4"):
        pretrained = pretrain(images / FIRST, output / "pretrained", pretraining, log=log)
    with step("evaluate before transfer"):
        before = accuracy_before_transfer(digits, output / "classifier", transfer)
        frozen = accuracy_of_frozen_features(digits, pretrained.classifier)
    with step("transfer to digits 5 to 9"):
        tuned = finetune(digits, output / "classifier", transfer, log=log)
    files = sorted((digits / "test").rglob("*.png"))
    with step("predict in a new process"):
        shown = [str(file) for file in files[:: len(files) // 4]]
        log(_run([*COMMAND, "predict", str(output / "classifier"), *shown, "--top", "3"]))
    with step("export a SavedModel"):
        places = [str(output / "classifier"), "--output", str(output / "saved_model")]
        log(_run([*COMMAND, "export", *places, "--to", "saved_model"], KERAS_BACKEND="tensorflow"))
    with step("run it without keras_vit"):
        program = pathlib.Path(__file__).with_name("run_saved_model.py")
        command = [sys.executable, "-P", str(program), str(output / "saved_model")]
        exported = json.loads(_run(command, stdin="\n".join(map(str, files))))
    predicted = [prediction.top[0][0] for prediction in tuned.classifier.predict(files, top=1)]

    pretrained_report = required(pretrained.report, "report")
    tuned_report = required(tuned.report, "report")
    result = DemoResult(
        pretraining_accuracy=pretrained_report.top_1,
        num_pretraining_test=pretrained_report.count,
        before_transfer=before,
        frozen_features=frozen,
        after_transfer=tuned_report.top_1,
        num_test=tuned_report.count,
        export_agreement=float(np.mean(np.array(exported) == np.array(predicted))),
        seconds=seconds,
        output=output,
    )
    (output / "summary.txt").write_text(f"{result}\n", encoding="utf-8")
    return result


def write_digits(folder: pathlib.Path, seed: int) -> int:
    """Writes the digits as PNG files, `{0-4,5-9}/{train,test}/DIGIT/NUMBER.png`.

    Args:
        folder: The folder to write; must not exist.
        seed: Seed of the choice of a third of each digit for the test part.

    Returns:
        The number of images.

    Raises:
        ImportError: If scikit-learn is not installed.
    """
    digits = import_optional("sklearn.datasets", "The demo", "demo").load_digits()
    # 8x8 pixels with values from 0 to 16, scanned from real forms.
    images = np.round(digits.images * (255 / 16)).astype("uint8")[..., np.newaxis]
    rng = np.random.default_rng(seed)
    for digit in range(10):
        numbers = rng.permutation(np.flatnonzero(digits.target == digit))
        held_out = set(numbers[: len(numbers) // 3].tolist())
        for number in numbers.tolist():
            part = "test" if number in held_out else "train"
            place = folder / (FIRST if digit < 5 else SECOND) / part / str(digit)
            place.mkdir(parents=True, exist_ok=True)
            encoded = tf.io.encode_png(images[number]).numpy()
            (place / f"{number:04}.png").write_bytes(encoded)
    return len(images)


def accuracy_before_transfer(
    data: pathlib.Path, output: pathlib.Path, transfer: FineTuning
) -> float:
    """Returns the test accuracy with which the fine-tuning starts: a new head of zeros.

    Args:
        data: A folder of images.
        output: The folder that the transfer will write.
        transfer: The recipe of the transfer.
    """
    plan = Job(DataSpec(data), RunOptions(output), transfer).plan()
    model, _ = build_model(plan)
    return evaluate_images(plan, model, plan.source.splits["test"], from_logits=True).top_1


def accuracy_of_frozen_features(data: pathlib.Path, classifier: Classifier) -> float:
    """Returns the test accuracy of a least-squares map from a classifier's features.

    Args:
        data: A folder of images.
        classifier: The classifier; its weights do not change.
    """
    source = open_source(data, verify=False)
    train, test = (
        extract(classifier.model, source.splits[part], preprocessing=classifier.preprocessing)
        for part in ("train", "test")
    )
    return few_shot.accuracy(train.values, train.labels, test.values, test.labels)


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """Accuracies and times of the demonstration.

    Args:
        pretraining_accuracy: Accuracy of the pre-trained model on held-out digits 0 to 4.
        before_transfer: Accuracy on held-out digits 5 to 9, at the new resolution, with a
            new head of zeros: chance.
        frozen_features: Accuracy on held-out digits 5 to 9 of a least-squares map from the
            frozen representations of the pre-trained model.
        after_transfer: Accuracy of the fine-tuned model on held-out digits 5 to 9.
        num_test: Number of held-out digits 5 to 9.
        num_pretraining_test: Number of held-out digits 0 to 4.
        export_agreement: Fraction of them with the same top class in the SavedModel.
        seconds: Time of each step.
        output: The folder of all files.
    """

    pretraining_accuracy: float
    before_transfer: float
    frozen_features: float
    after_transfer: float
    num_test: int
    num_pretraining_test: int
    export_agreement: float
    seconds: dict[str, float]
    output: pathlib.Path

    def __str__(self) -> str:
        test = f"{self.num_test} held-out digits 5 to 9"
        pretrained = accuracy_text(self.pretraining_accuracy, self.num_pretraining_test)
        rows = [
            ("accuracy, with its 95% interval", ""),
            ("  pre-trained model on its own digits 0 to 4", pretrained),
            (f"  before transfer, {test}", ""),
            ("    new head of zeros (chance)", self._text(self.before_transfer)),
            ("    least squares on the frozen features", self._text(self.frozen_features)),
            (f"  after transfer, {test}", self._text(self.after_transfer)),
            ("top-1 agreement of the SavedModel with the model", f"{self.export_agreement:.2%}"),
            ("time", ""),
            *((f"  {name}", f"{seconds:.1f} s") for name, seconds in self.seconds.items()),
            ("  total", f"{sum(self.seconds.values()):.1f} s"),
            ("files", ""),
            *((f"  {part}", str(self.output / part)) for part in PARTS),
        ]
        return align_columns(rows)

    def _text(self, accuracy):
        return accuracy_text(accuracy, self.num_test)


def _clear(output, overwrite):
    if output.exists() and not output.is_dir():
        raise ValueError(f"The output must be a folder. Received a file: {output}")
    existing = {path.name for path in output.iterdir()} if output.exists() else set()
    known = {*PARTS, *(f"{part}.partial" for part in PARTS)}
    if existing and not (overwrite and existing <= known):
        raise ValueError(
            "The output folder must be new or empty; an earlier demonstration is replaced with "
            f"--overwrite. Received: {output}, with {', '.join(sorted(existing)[:5])}"
        )
    for name in existing:
        path = output / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    output.mkdir(parents=True, exist_ok=True)


def _run(command, stdin=None, **environment):
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, env={**os.environ, **environment}
    )
    if done.returncode:
        raise ValueError(
            f"This command must succeed: {' '.join(command)}. Received: exit code "
            f"{done.returncode}, {done.stderr.strip()[-2000:]}"
        )
    return done.stdout.rstrip()
