"""The main job in miniature, on real images: scikit-learn's 1,797 handwritten digits."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.configs import ViTConfig
from keras_vit.training.evaluation.classification import ClassificationReport, evaluate
from keras_vit.training.evaluation.features import feature_model
from keras_vit.training.run.job import finetune, pretrain
from keras_vit.training.run.transfer import build_model, find_body

from .data import open_source
from .evaluation import few_shot
from .fields import required
from .settings import FineTuning, PreTraining

FIRST, SECOND = "0-4", "5-9"  # Digits of the pre-training, and of the transfer.

MODEL = ViTConfig(patch_size=4, width=64, depth=4, mlp_dim=128, num_heads=4)

# Table 3's row of ImageNet, but for smaller batches, fewer steps, a lower learning rate and
# images that are not mirrored.
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
    warmup_steps=160,
    dropout_rate=0.1,
    augmentation="jitter",
    validation=0.0,
)

# Runs the command in a new process, whatever is on the path.
COMMAND = [
    sys.executable,
    "-c",
    "import sys; from keras_vit.command_line import main; sys.exit(main())",
]
PARTS = ("images", "pretrained", "classifier", "saved_model", "summary.txt")


@dataclasses.dataclass(frozen=True)
class Result:
    """What the demonstration measured.

    Args:
        pretraining_accuracy: Of the pre-trained model on held-out digits 0 to 4.
        before_transfer: On held-out digits 5 to 9, at the new resolution, of the model
            with its new head of zeros: no training has seen them, so this is chance.
        frozen_features: On held-out digits 5 to 9, of a least-squares map from the
            pre-trained model's representations, which stay as they are.
        after_transfer: On held-out digits 5 to 9, of the fine-tuned model.
        num_test: How many these are.
        export_agreement: Share of them with the same likeliest class in the SavedModel.
        seconds: Time of each step.
        output: Where everything is.
    """

    pretraining_accuracy: float
    before_transfer: float
    frozen_features: float
    after_transfer: float
    num_test: int
    export_agreement: float
    seconds: dict[str, float]
    output: pathlib.Path

    def __str__(self) -> str:
        test = f"{self.num_test} held-out digits 5 to 9"
        rows = [
            ("accuracy", ""),
            ("  pre-trained model on its own digits 0 to 4", f"{self.pretraining_accuracy:.2%}"),
            (f"  before transfer, {test}", ""),
            ("    new head of zeros (chance)", f"{self.before_transfer:.2%}"),
            ("    least squares on the frozen features", f"{self.frozen_features:.2%}"),
            (f"  after transfer, {test}", f"{self.after_transfer:.2%}"),
            ("top-1 agreement of the SavedModel with the model", f"{self.export_agreement:.2%}"),
            ("time", ""),
            *((f"  {name}", f"{seconds:.1f} s") for name, seconds in self.seconds.items()),
            ("  total", f"{sum(self.seconds.values()):.1f} s"),
            ("files", ""),
            *((f"  {part}", str(self.output / part)) for part in PARTS),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def demo(
    output: str | os.PathLike,
    *,
    seed: int = 0,
    overwrite: bool = False,
    pretraining: PreTraining = PRETRAINING,
    transfer: FineTuning = TRANSFER,
    log: Callable[[str], object] = print,
) -> Result:
    """Pre-trains, transfers, evaluates, predicts and exports a small ViT on real digits.

    A third of the images, of every digit, is held out: no training step sees them and
    nothing is chosen by them. The model is pre-trained on the digits 0 to 4 and transferred
    to 5 to 9 as in section 3.2 of the paper: new head of zeros, higher resolution,
    interpolated position embeddings, SGD. Prediction, export and the exported model run in
    processes of their own, the last one without this package.

    Args:
        output: A folder for everything that is made.
        seed: Of the held-out third, the weights and the order of the images.
        overwrite: Whether to replace an earlier demonstration.
        pretraining: The recipe of the pre-training.
        transfer: The recipe of the transfer.
        log: Where to tell what happens.

    Returns:
        A `Result`; `print` it for the closing table.

    Raises:
        ValueError: If the output is not empty and no earlier demonstration.
        ImportError: If scikit-learn is not installed.
    """
    output = pathlib.Path(output).absolute()
    _clear(output, overwrite)
    steps = _Steps(log)
    with steps("write the images"):
        count = write_digits(output / "images", seed)
        log(f"{count} images in {output / 'images'}")
    with steps("pre-train on digits 0 to 4"):
        pretrained = pretrain(
            output / "images" / FIRST,
            output / "pretrained",
            dataclasses.replace(pretraining, seed=seed),
            log=log,
        )
    transfer = dataclasses.replace(transfer, weights=str(output / "pretrained"), seed=seed)
    digits = output / "images" / SECOND
    with steps("evaluate before transfer"):
        before = _before_transfer(digits, transfer)
        frozen = _frozen_features(digits, pretrained.classifier)
    with steps("transfer to digits 5 to 9"):
        tuned = finetune(digits, output / "classifier", transfer, log=log)
    files = sorted((digits / "test").rglob("*.png"))
    with steps("predict in a new process"):
        shown = [str(file) for file in files[:: len(files) // 4]]
        arguments = ["predict", str(output / "classifier"), *shown, "--top", "3"]
        log(_run([*COMMAND, *arguments]))
    with steps("export a SavedModel"):
        arguments = ["export", str(output / "classifier"), "--to", "saved_model"]
        log(_run([*COMMAND, *arguments, "--output", str(output / "saved_model")]))
    with steps("run it without keras_vit"):
        program = pathlib.Path(__file__).with_name("run_saved_model.py")
        names = "\n".join(map(str, files))
        answers = json.loads(
            _run([sys.executable, "-P", str(program), str(output / "saved_model")], given=names)
        )
        agreement = _agreement(answers, tuned.classifier.predict(files, top=1))
    first, second = (required(run.report, "report") for run in (pretrained, tuned))
    result = Result(
        pretraining_accuracy=first.top_1,
        before_transfer=before.top_1,
        frozen_features=frozen,
        after_transfer=second.top_1,
        num_test=second.count,
        export_agreement=agreement,
        seconds=steps.seconds,
        output=output,
    )
    (output / "summary.txt").write_text(f"{result}\n", encoding="utf-8")
    return result


def write_digits(folder: pathlib.Path, seed: int) -> int:
    """Writes the digits as PNG files, `{0-4,5-9}/{train,test}/DIGIT/NUMBER.png`.

    Args:
        folder: Where to; must not exist.
        seed: Decides which third of every digit is the test part.

    Returns:
        How many were written.

    Raises:
        ImportError: If scikit-learn is not installed.
    """
    import tensorflow as tf

    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("The digits come with scikit-learn: pip install 'keras-vit[demo]'") from (
            error
        )
    digits = load_digits()
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


class _Steps:
    """Tells and times the steps: `with steps("name"):`."""

    def __init__(self, log):
        self.log = log
        self.seconds: dict[str, float] = {}

    def __call__(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.log(f"\n== {self.name}")
        self.began = time.monotonic()

    def __exit__(self, *_):
        self.seconds[self.name] = time.monotonic() - self.began


def _clear(output, overwrite):
    if output.exists() and not output.is_dir():
        raise ValueError(f"The output must be a folder. Received a file: {output}")
    there = {path.name for path in output.iterdir()} if output.exists() else set()
    made = {*PARTS, *(f"{part}.partial" for part in PARTS)}
    if there and not (overwrite and there <= made):
        raise ValueError(
            "The output folder must be new or empty, or hold an earlier demonstration and say "
            f"overwrite (--overwrite). Received: {output}, with {', '.join(sorted(there)[:5])}"
        )
    for name in there:
        path = output / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    output.mkdir(parents=True, exist_ok=True)


def _before_transfer(data, transfer) -> ClassificationReport:
    """Evaluates the model as the fine-tuning starts with it."""
    source = open_source(data, verify=False)
    body = find_body(transfer.model, transfer.weights)
    model, _ = build_model(
        body,
        classes=len(source.class_names),
        image_size=required(transfer.image_size, "image_size"),
    )
    return evaluate(
        model,
        source.splits["test"],
        source.class_names,
        preprocessing=transfer.preprocessing,
        from_logits=True,
    )


def _frozen_features(data, classifier: Classifier) -> float:
    source = open_source(data, verify=False)
    model = feature_model(classifier.model)
    parts = []
    for examples in (source.splits["train"], source.splits["test"]):
        images = classifier.preprocess([keras.utils.load_img(name) for name in examples.names])
        parts += [model.predict(images, verbose=0), examples.labels]
    return few_shot.accuracy(*parts)


def _agreement(answers, predictions) -> float:
    same = [
        answer == prediction.top[0][0]
        for answer, prediction in zip(answers, predictions, strict=True)
    ]
    return sum(same) / len(same)


def _run(command, given=None):
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(
            f"This command must succeed: {' '.join(command)}. Received: exit code "
            f"{done.returncode}, {done.stderr.strip()[-2000:]}"
        )
    return done.stdout.rstrip()
