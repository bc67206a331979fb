"""Whether an export says what the Keras model says, asked in the export's own runtime."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images import apply_preprocessing, read_image
from keras_vit.predicting import predict_batch

# More images tell little more and take minutes.
MAX_IMAGES = 256


@dataclasses.dataclass(frozen=True)
class Check:
    """How one signature of an export compares with the Keras model.

    Args:
        signature: Its name.
        agreement: Share of images with the same first class.
        largest_difference: Of any two probabilities.
        mean_difference: Of all probabilities, absolute.
        milliseconds: Per image, median of single calls.
        keras_milliseconds: The same of the Keras model.
    """

    signature: str
    agreement: float
    largest_difference: float
    mean_difference: float
    milliseconds: float
    keras_milliseconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of an export and its check; `str()` gives the table.

    Args:
        path: The artefact.
        format: "saved_model", "tflite" or "onnx".
        size: Bytes of the artefact.
        num_images: Real images that it was checked on.
        checks: One `Check` for each signature.
        notes: What the user should know besides.
    """

    path: str
    format: str
    size: int
    num_images: int
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def agreement(self) -> float:
        """Share of images with the model's first class, in the worst signature."""
        return min(check.agreement for check in self.checks)

    def figures(self) -> dict:
        """Returns the figures that go into the artefact, as JSON can hold them."""
        values = dataclasses.asdict(self)
        del values["path"]
        return values

    def __str__(self):
        lines = [
            f"{self.path}  {self.format}, {self.size / 1e6:.2f} MB, "
            f"checked on {self.num_images} images",
            f"{'signature':<24}{'agreement':>10}{'largest':>10}{'mean':>10}"
            f"{'ms/image':>10}{'Keras ms':>10}",
        ]
        for check in self.checks:
            lines.append(
                f"{check.signature:<24}{check.agreement:>10.2%}{check.largest_difference:>10.1e}"
                f"{check.mean_difference:>10.1e}{check.milliseconds:>10.2f}"
                f"{check.keras_milliseconds:>10.2f}"
            )
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


@dataclasses.dataclass(frozen=True)
class Reference:
    """What the Keras model says of the check images.

    Args:
        files: The image files.
        images: `(N, H, W, C)` float32, preprocessed.
        probabilities: `(N, K)` of the Keras model.
        seconds: `(N,)`, of single calls.
    """

    files: tuple[str, ...]
    images: np.ndarray
    probabilities: np.ndarray
    seconds: np.ndarray


def ask_keras(classifier: Classifier, files) -> Reference:
    """Returns the Keras model's answers, one image a call.

    Args:
        classifier: The classifier.
        files: Image files.
    """
    images = load_images(classifier, files)
    probabilities, seconds = [], []
    predict_batch(classifier.model, images[:1])  # Compiles.
    for index in range(len(images)):
        start = time.perf_counter()
        probabilities.append(predict_batch(classifier.model, images[index : index + 1])[0])
        seconds.append(time.perf_counter() - start)
    return Reference(
        tuple(map(os.fspath, files)),
        images,
        np.asarray(probabilities, "float32"),
        np.array(seconds),
    )


def load_images(classifier: Classifier, files) -> np.ndarray:
    """Returns image files as the model takes them, `(N, H, W, C)` float32."""
    return np.stack(
        [
            np.asarray(apply_preprocessing(read_image(file), classifier.preprocessing))
            for file in files
        ]
    )


def verify(artefact, format_name, references: dict[str, Reference], notes=()) -> Report:
    """Runs an artefact in its own runtime, in a new process, and compares.

    Args:
        artefact: Path of the SavedModel folder or the file.
        format_name: "saved_model", "tflite" or "onnx".
        references: The Keras model's answers, from `ask_keras`, by the suffix of the
            signatures that they are for.
        notes: What the user should know besides.

    Returns:
        The `Report`.

    Raises:
        ValueError: If the artefact does not run.
    """
    checks = []
    for suffix, reference in references.items():
        answers = _run(artefact, format_name, suffix, reference)
        for signature in dict.fromkeys(name.split("/")[0] for name in answers):
            received, seconds = (
                answers[f"{signature}/{name}"] for name in ("probabilities", "seconds")
            )
            checks.append(compare(signature, reference, received, seconds))
    num_images = len(reference.files)
    size = size_of(artefact)
    return Report(os.fspath(artefact), format_name, size, num_images, tuple(checks), tuple(notes))


def compare(signature: str, reference: Reference, received, seconds) -> Check:
    """Returns the comparison of an export's answers with the Keras model's.

    Args:
        signature: Name of the signature that answered.
        reference: The Keras model's answers.
        received: Probabilities `(N, K)`. A row with a value that is not finite agrees with
            nothing.
        seconds: `(N,)`, of single calls.
    """
    expected = reference.probabilities
    finite = np.isfinite(received).all(axis=1)
    same = finite & (expected.argmax(axis=1) == received.argmax(axis=1))
    difference = np.abs(expected.astype("float64") - received)
    return Check(
        signature,
        float(same.mean()),
        float(difference.max()),
        float(difference.mean()),
        1000 * float(np.median(seconds)),
        1000 * float(np.median(reference.seconds)),
    )


def size_of(path) -> int:
    """Returns the bytes of a file, or of a folder's files."""
    path = pathlib.Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _run(artefact, format_name, suffix, reference):
    program = pathlib.Path(__file__).with_name("runtimes.py")
    with tempfile.TemporaryDirectory() as scratch:
        images, files, answers = (
            os.path.join(scratch, name) for name in ("images.npy", "files.json", "answers.npz")
        )
        np.save(images, reference.images)
        pathlib.Path(files).write_text(
            json.dumps([os.path.abspath(file) for file in reference.files]), encoding="utf-8"
        )
        # -P: the program's own folder is not a place to import from.
        command = [sys.executable, "-P", program, format_name, artefact, suffix]
        done = subprocess.run(
            [*map(str, command), images, files, answers],
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise ValueError(f"The export does not run in its own runtime: {reason}")
        with np.load(answers) as arrays:
            return dict(arrays)
