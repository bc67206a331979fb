"""The check of an export: its answers in its own runtime, compared with known ones.

After an export the known answers are the Keras model's, for real images. The export then holds what
`verify` compares on any machine: a few images with its own answers, and checksums of its parts.

    python -m keras_vit.export.check FORMAT EXPORT FOLDER

is the program that runs an export, in a process without the Keras model; see `run_export`. Neither
TensorFlow nor Keras is imported, except for a comparison with the Keras model and, in the program,
for a SavedModel and for files of which an export takes preprocessed images.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import keras_vit
from keras_vit.description.run_record import RunRecord
from keras_vit.images.transcoding import read_image, read_pixels, transcoded_file, with_size
from keras_vit.models.outputs import predict_batch
from keras_vit.predictor import Predictor
from keras_vit.reports.report import NamedFact, Report, Table
from keras_vit.utils.fields import required
from keras_vit.utils.json_files import parse_json
from keras_vit.utils.safe_text import for_line

from .checksums import check_parts
from .formats.artefacts import open_export, reason_of, report_program
from .formats.export_format import (
    GOLDEN,
    ORIGIN,
    VERIFY_SECONDS,
    CheckImages,
    read_facts,
)
from .formats.table import FORMATS, format_of

# Largest difference of probabilities from those that an export gave when it was written.
TOLERANCE = 1e-3

# Whether an export is run in a new process. Tests do so once for each format.
SEPARATE_PROCESS = True

# First calls compile and fill caches.
WARM_UP_CALLS = 2

# Signatures of an export: for images, and for encoded files.
SIGNATURES = ("serve", "serve_bytes")


CHECK_COLUMNS = ("signature", "agreement", "largest", "mean", "ms/image", "Keras ms")

_LONGEST = 300  # Characters of a line, whose text is from the file.


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """Comparison of one signature of an export with known answers.

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

    def cells(self) -> list[str | None]:
        """Returns the cells of its row below `CHECK_COLUMNS`."""
        keras_time = self.keras_milliseconds
        return [
            self.signature,
            f"{self.agreement:.2%}",
            f"{self.largest_difference:.1e}",
            f"{self.mean_difference:.1e}",
            f"{self.milliseconds:.2f}",
            None if keras_time is None else f"{keras_time:.2f}",
        ]


@dataclasses.dataclass(frozen=True, repr=False)
class ExportReport:
    """Size of an export and its comparison with known answers; `str()` gives a table.

    Args:
        path: The folder or file.
        format: A key of `formats.FORMATS`.
        size: Bytes on disk.
        num_images: Number of images.
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
        """Agreement in the worst signature; see `SignatureCheck`."""
        return min(check.agreement for check in self.checks)

    def to_text(self) -> str:
        """Returns the content of `check.json`: all fields except the path."""
        return json.dumps(self.report().to_json(), indent=2) + "\n"

    def __repr__(self) -> str:
        return (
            f"<ExportReport: {self.path}, {self.format}, {self.size / 1e6:.2f} MB; agreement "
            f"{self.agreement:.2%} on {self.num_images} images; print() shows all>"
        )

    def report(self) -> Report:
        """Returns the report, of which `str()` is the text."""
        size, images = f"{self.size / 1e6:.2f} MB", f"checked on {self.num_images} images"
        values = dataclasses.asdict(self)
        del values["path"]
        fact = NamedFact(self.path, f"{self.format}, {size}, {images}", numbers=values)
        rows = [check.cells() for check in self.checks]
        notes = [f"Note: {note}" for note in self.notes]
        return Report([fact], {"signatures": Table(CHECK_COLUMNS, rows)}, "signatures", notes)

    def __str__(self) -> str:
        return str(self.report())


def compare(
    signature: str,
    expected: np.ndarray,
    received: np.ndarray,
    *,
    seconds: np.ndarray,
    keras_seconds: np.ndarray | None = None,
    thresholds: Sequence[float] | None = None,
) -> SignatureCheck:
    """Returns the comparison of an export's probabilities with known ones.

    Args:
        signature: Name of the export's signature.
        expected: `(N, K)`, the known probabilities.
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
    same = (expected.argmax(axis=1) == received.argmax(axis=1)).astype("float64")
    if thresholds is not None:
        expected_labels, received_labels = (
            scores > np.array(thresholds) for scores in (expected, received)
        )
        both = (expected_labels & received_labels).sum(axis=1)
        either = (expected_labels | received_labels).sum(axis=1)
        same = np.divide(both, either, out=same, where=either > 0)
    difference = np.abs(expected.astype("float64") - received)
    return SignatureCheck(
        signature,
        float((same * np.isfinite(received).all(axis=1)).mean()),
        float(difference.max()),
        float(difference.mean()),
        1000 * float(np.median(seconds)),
        None if keras_seconds is None else 1000 * float(np.median(keras_seconds)),
    )


def size_of(path: str | os.PathLike) -> int:
    """Returns the bytes of a file, or of a folder's files."""
    path = pathlib.Path(path)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


# An export in its own runtime


def run_export(
    path: str | os.PathLike,
    files: Sequence[str],
    images: np.ndarray | None = None,
    *,
    time_limit: float | None = None,
) -> dict[str, np.ndarray]:
    """Returns an export's answers to images, one image a call, from a separate process.

    Args:
        path: The export.
        files: The N image files.
        images: The files as preprocessed images `(N, H, W, C)`; by default the program
            preprocesses them, if it needs them.
        time_limit: Seconds after which the process is ended, or None.

    Returns:
        `<name>/probabilities` `(N, K)` and `<name>/seconds` `(N,)` of its `SIGNATURES`. A signature
        that takes uint8 pixels gets the files as `read_image` decodes them, and has
        `<name>/input_size`: the only size (height, width) that it takes, or zeros.

    Raises:
        ValueError: If the export cannot be run, or not in this time.
    """
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        np.save(scratch / "images.npy", np.zeros(0) if images is None else images)
        decodable = [os.path.abspath(transcoded_file(file, folder)) for file in files]
        (scratch / "files.json").write_text(json.dumps(decodable), encoding="utf-8")
        arguments = (format_of(path).name, os.fspath(path), folder)
        if SEPARATE_PROCESS:
            _run_in_process(arguments, time_limit)
        else:
            main(*arguments)
        with np.load(scratch / "answers.npz") as arrays:
            return dict(arrays)


def _run_in_process(arguments, time_limit):
    """Runs `main` in a separate process; raises ValueError if it fails, or not within seconds."""
    # This package, from wherever it was imported.
    folders = [str(pathlib.Path(keras_vit.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    try:
        done = subprocess.run(
            # -P: nothing is imported from the current folder.
            [sys.executable, "-P", "-m", "keras_vit.export.check", *arguments],
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


def main(format_name: str, export: str, folder: str) -> None:
    """Runs every image through every signature and writes the answers; see `run_export`."""
    scratch = pathlib.Path(folder)
    files = json.loads((scratch / "files.json").read_text(encoding="utf-8"))
    opened = FORMATS[format_name].open(pathlib.Path(export))
    signatures = opened.signatures()
    images = np.load(scratch / "images.npy", allow_pickle=False)
    arrays: dict[str, Any] = {}
    for name in SIGNATURES:
        if name in signatures:
            arrays |= _answers(name, signatures[name], files, images, opened.texts)
    np.savez(scratch / "answers.npz", **arrays)


def _answers(name, signature, files, images, texts):
    """Returns the arrays of one signature."""
    preprocessing = required(read_facts(texts)[0].preprocessing, "preprocessing")
    bit_depth = preprocessing.bit_depth
    if not (images.size or signature.takes_files or signature.takes_pixels):
        from keras_vit.images.decoding import apply_preprocessing
        from keras_vit.images.samples import read_images

        photos = read_images(files, bit_depth)
        images = np.stack([apply_preprocessing(photo, preprocessing) for photo in photos])
    probabilities, seconds = [], []
    for index in [0] * WARM_UP_CALLS + list(range(len(files))):
        if signature.takes_files:
            batch = np.array([pathlib.Path(files[index]).read_bytes()], dtype=object)
        elif signature.takes_pixels:
            pixels = read_image(files[index], bit_depth)
            batch = with_size(pixels, signature.input_size)[np.newaxis]
        else:
            batch = images[index : index + 1]
        start = time.perf_counter()
        probabilities.append(signature.probabilities(batch)[0])
        seconds.append(time.perf_counter() - start)
    arrays = {
        f"{name}/probabilities": np.stack(probabilities[WARM_UP_CALLS:]),
        f"{name}/seconds": np.array(seconds[WARM_UP_CALLS:]),
    }
    if signature.takes_pixels:
        arrays[f"{name}/input_size"] = np.array(signature.input_size or (0, 0))
    return arrays


# The Keras model's answers


def compare_with_keras(
    path: str | os.PathLike,
    classifier: Predictor,
    images: CheckImages,
    notes: Iterable[str] = (),
) -> tuple[ExportReport, dict[str, np.ndarray]]:
    """Runs an export in a new process and compares its probabilities with Keras's.

    Args:
        path: The export.
        classifier: The exported classifier.
        images: The images to check it on, and those it will hold, which it answers alone.
        notes: Remarks for the user, kept in the report.

    Returns:
        The `ExportReport`, and the export's answers to `images.golden` by signature, `(N, K)`.

    Raises:
        ValueError: If the export cannot be run or gives another number of classes.
    """
    from .formats.check_images import load_images, preprocessed

    files, count = [*images.files, *images.golden], len(images.files)
    inputs = load_images(classifier, files)
    answers = run_export(path, files, inputs)
    batch, size = inputs[:count], answers.get("serve/input_size")
    if size is not None:
        # Pixels as the program above gives them to a signature.
        bit_depth = classifier.preprocessing.bit_depth
        pixels = (read_image(file, bit_depth) for file in images.files)
        height, width = map(int, size)
        only_size = (height, width) if height else None
        batch = preprocessed(classifier, (with_size(each, only_size) for each in pixels))
    expected, keras_seconds = [], []
    predict_batch(classifier.model, batch[:1])  # Compiles.
    for index in range(count):
        start = time.perf_counter()
        expected.append(predict_batch(classifier.model, batch[index : index + 1])[0])
        keras_seconds.append(time.perf_counter() - start)
    checks = [
        compare(
            name,
            np.asarray(expected, "float32"),
            answers[f"{name}/probabilities"][:count],
            keras_seconds=np.array(keras_seconds),
            seconds=answers[f"{name}/seconds"][:count],
            thresholds=classifier.thresholds,
        )
        for name in SIGNATURES
        if f"{name}/probabilities" in answers
    ]
    golden = {
        name: answers[f"{name}/probabilities"][count:]
        for name in SIGNATURES
        if f"{name}/probabilities" in answers
    }
    return _report(path, count, checks, notes), golden


def _report(path, num_images, checks, notes):
    return ExportReport(
        path=os.fspath(path),
        format=format_of(path).name,
        size=size_of(path),
        num_images=num_images,
        checks=tuple(checks),
        notes=tuple(notes),
    )


# What an export holds, to be verified anywhere


def golden_json(images: CheckImages, answers: Mapping[str, np.ndarray]) -> str:
    """Returns the text of `golden.json`: a few images with the export's answers.

    Args:
        images: The images of the export.
        answers: By signature, its answers to the golden ones, `(N, K)`.
    """
    samples = []
    for index, file in enumerate(images.golden):
        content = pathlib.Path(file).read_bytes()
        sample = {
            "synthetic": images.has_synthetic_golden,
            "png": base64.b64encode(content).decode(),
            "answers": {name: list(map(_rounded, rows[index])) for name, rows in answers.items()},
        }
        samples.append(sample)
    return json.dumps(samples)


def _rounded(probability):
    return float(f"{probability:.7g}")


def verify(path: str | os.PathLike, *, time_limit: float = VERIFY_SECONDS) -> ExportReport:
    """Compares the parts of an export with their checksums, and its probabilities with known ones.

    These are the golden samples in the export: a few images with the probabilities that it gave
    when it was written. They must agree to `TOLERANCE`.

    Args:
        path: A folder or file that an export wrote. Its signatures of `SIGNATURES` are run, in a
            separate process.
        time_limit: Seconds in which the export must give all answers.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If a part of the export is missing, damaged or changed; or if it cannot be run,
            gives no answer in time, another number of classes, no probabilities, or fails its
            golden samples.
        ImportError: If its runtime is not installed.
    """
    path = pathlib.Path(path)
    try:
        texts = open_export(path).texts
        check_parts(path, texts)
        report_program(os.path.abspath(path))
        return _compare_with_golden(path, texts, time_limit)
    except ImportError:
        raise
    except Exception as error:  # Each library raises different errors of damaged files.
        reason = reason_of(error)
        names_it = str(path) in reason
        raise ValueError(reason if names_it else f"{path} fails its check. {reason}") from error


def _compare_with_golden(path, texts, time_limit):
    """Returns the report of an export on the images that it holds."""
    samples = parse_json(texts[GOLDEN], GOLDEN)
    with tempfile.TemporaryDirectory() as scratch:
        files = []
        for number, sample in enumerate(samples, 1):
            file = pathlib.Path(scratch, f"{number}.png")
            file.write_bytes(base64.b64decode(sample["png"], validate=True))
            read_pixels(file, formats=("PNG",))  # No other decoder sees what the file holds.
            files.append(str(file))
        answers = run_export(path, files, time_limit=time_limit)
    checks = []
    for name in samples[0]["answers"]:
        expected = np.array([sample["answers"][name] for sample in samples])
        received, seconds = answers[f"{name}/probabilities"], answers[f"{name}/seconds"]
        check = compare(name, expected, received, seconds=seconds)
        # Written so that NaN fails too.
        if not check.largest_difference <= TOLERANCE:
            raise ValueError(
                "An export must give the probabilities of its golden samples within "
                f"{TOLERANCE:.1e}. Received: {check.largest_difference:.1e} of the signature {name}"
            )
        checks.append(check)
    note = f"Golden samples: probabilities within {TOLERANCE:.1e}."
    return _report(path, len(samples), checks, (note, *describe_contents(texts)))


def describe_contents(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Returns lines about samples, data, command, versions and license in the texts of an export.

    Raises:
        ValueError: If a text is wrong.
    """
    description, facts = read_facts(texts)
    recipe = RunRecord.from_json(facts)
    origin, samples = parse_json(texts[ORIGIN], ORIGIN), parse_json(texts[GOLDEN], GOLDEN)
    kind = "synthetic images" if samples[0]["synthetic"] else "photos"
    lines = [
        f"Samples: {len(samples)} {kind}, which keras-vit verify runs.",
        f"Classes: {len(description.labels.names or ())} names.",
        f"License of the starting weights: {description.license}.",
        f"Made with {origin['made_by']}, keras {origin['keras']}, tensorflow "
        f"{origin['tensorflow']} on {origin['date']}.",
    ]
    if recipe.data:
        lines.append(f"Data: {recipe.data.get('data')}.")
    if recipe.command:  # A run in Python has none.
        lines.append(f"Command: {recipe.command}")
    return tuple(for_line(line)[:_LONGEST] for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
