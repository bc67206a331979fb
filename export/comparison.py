"""Comparison of an export's answers with known ones, and running it in its own runtime.

Neither TensorFlow nor Keras is imported.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import keras_vit
from keras_vit.images.transcoding import transcoded_file

from .all_formats import format_of


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """Comparison of one signature of an export with the Keras model.

    Args:
        signature: The signature's name.
        agreement: Share of images with the same first class. For a multi-label classifier the
            mean share of labels that both give, of the labels that either gives; where neither
            gives any, whether the first class is the same.
        largest_difference: Largest absolute difference of two probabilities.
        mean_difference: Mean absolute difference of all probabilities.
        milliseconds: Time per image, the median of single calls.
        keras_milliseconds: The same of the Keras model, or None if it was not run.
    """

    signature: str
    agreement: float
    largest_difference: float
    mean_difference: float
    milliseconds: float
    keras_milliseconds: float | None


@dataclasses.dataclass(frozen=True)
class ExportReport:
    """Size of an export and its comparison with the Keras model; `str()` gives a table.

    Args:
        path: The folder or file.
        format: A key of `all_formats.FORMATS`.
        size: Bytes on disk.
        num_images: Number of check images.
        checks: One `SignatureCheck` for each signature.
        notes: Remarks for the user, such as a change of precision.
    """

    path: str
    format: str
    size: int
    num_images: int
    checks: tuple[SignatureCheck, ...]
    notes: tuple[str, ...] = ()

    @property
    def agreement(self) -> float:
        """Agreement with the Keras model in the worst signature; see `SignatureCheck`."""
        return min(check.agreement for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Returns all fields except the path, for the copy that is stored in the export."""
        values = dataclasses.asdict(self)
        del values["path"]
        return values

    def to_text(self) -> str:
        """Returns the content of `check.json`."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    def __str__(self):
        lines = [
            f"{self.path}  {self.format}, {self.size / 1e6:.2f} MB, "
            f"checked on {self.num_images} images",
            f"{'signature':<24}{'agreement':>10}{'largest':>10}{'mean':>10}"
            f"{'ms/image':>10}{'Keras ms':>10}",
        ]
        for check in self.checks:
            keras_time = check.keras_milliseconds
            lines.append(
                f"{check.signature:<24}{check.agreement:>10.2%}{check.largest_difference:>10.1e}"
                f"{check.mean_difference:>10.1e}{check.milliseconds:>10.2f}"
                + ("-".rjust(10) if keras_time is None else f"{keras_time:>10.2f}")
            )
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


def compare(
    signature: str,
    expected: np.ndarray,
    received: np.ndarray,
    *,
    seconds: np.ndarray,
    keras_seconds: np.ndarray | None = None,
    thresholds: Sequence[float] | None = None,
) -> SignatureCheck:
    """Returns the comparison of an export's probabilities with the Keras model's.

    Args:
        signature: Name of the export's signature.
        expected: `(N, K)`, the Keras model's probabilities.
        received: `(N, K)`, the export's. A row with a value that is not finite agrees with
            nothing.
        seconds: `(N,)`, of the export's single calls.
        keras_seconds: `(N,)`, of the Keras model's, if it was run.
        thresholds: The probabilities above which an image has each label, for a multi-label
            classifier.

    Raises:
        ValueError: If the shapes differ.
    """
    if received.shape != expected.shape:
        raise ValueError(
            f"An export must give the classifier's {expected.shape[1]} probabilities. "
            f"Received: shape={received.shape} of signature {signature}"
        )
    finite = np.isfinite(received).all(axis=1)
    same = finite * _agreement(expected, received, thresholds)
    difference = np.abs(expected.astype("float64") - received)
    return SignatureCheck(
        signature,
        float(same.mean()),
        float(difference.max()),
        float(difference.mean()),
        1000 * float(np.median(seconds)),
        None if keras_seconds is None else 1000 * float(np.median(keras_seconds)),
    )


def _agreement(expected, received, thresholds):
    """The share of the answer to each image that is the same, `(N,)`."""
    same_first = (expected.argmax(axis=1) == received.argmax(axis=1)).astype("float64")
    if thresholds is None:
        return same_first
    ours, theirs = (scores > np.array(thresholds) for scores in (expected, received))
    both, either = (ours & theirs).sum(axis=1), (ours | theirs).sum(axis=1)
    return np.divide(both, either, out=same_first, where=either > 0)


def size_of(path: str | os.PathLike) -> int:
    """Returns the bytes of a file, or of a folder's files."""
    path = pathlib.Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def run_export(
    path: str | os.PathLike,
    images: Mapping[str, np.ndarray],
    files: Sequence[str],
    *,
    time_limit: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns the arrays that the program `runtimes.py` writes, in a separate process.

    Args:
        path: The export.
        images: By signature, such as "serve", preprocessed images `(N, H, W, C)`; of size 0
            where the program preprocesses the files itself, if the signature needs it.
        files: The N image files.
        time_limit: Seconds after which the process is ended, or None.

    Raises:
        ValueError: If the export cannot be run, or not in this time.
    """
    # This package, from wherever it was imported.
    folders = [str(pathlib.Path(keras_vit.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    with tempfile.TemporaryDirectory() as scratch:
        images_path, files_path, answers = (
            os.path.join(scratch, name) for name in ("images.npz", "files.json", "answers.npz")
        )
        np.savez(images_path, **images)  # type: ignore[arg-type]
        decodable = [os.path.abspath(transcoded_file(file, scratch)) for file in files]
        pathlib.Path(files_path).write_text(json.dumps(decodable), encoding="utf-8")
        # -P: nothing is imported from the current folder.
        command = [sys.executable, "-P", "-m", "keras_vit.export.runtimes"]
        command += [format_of(path).name, os.fspath(path), images_path, files_path, answers]
        try:
            done = subprocess.run(
                list(map(str, command)),
                capture_output=True,
                text=True,
                errors="replace",
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, folders)),
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                },
                timeout=time_limit,
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(
                f"The export does not answer within {time_limit:g} s (--time-limit)."
            ) from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise ValueError(f"The export does not run in its own runtime: {reason}")
        with np.load(answers) as arrays:
            return dict(arrays)
