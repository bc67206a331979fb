"""Verification of an export: by its golden samples anywhere, or against its classifier."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.models.opening import open_classifier
from keras_vit.utils.fields import required
from keras_vit.utils.json_files import parse_json

from .all_formats import format_of
from .artefacts import open_export
from .check_images import find_check_images
from .comparison import ExportReport, compare, compare_with_keras, size_of
from .contents import describe_contents
from .golden import checksum, parse_golden
from .pillow_pixels import read_pixels
from .runtimes import SIGNATURES
from .texts import CHECK, GOLDEN, read_facts

# Largest difference of probabilities in float32; more where the check of the export measured more.
TOLERANCE = 1e-3


def verify(
    path: str | os.PathLike,
    classifier: Classifier | str | os.PathLike | None = None,
    *,
    check_images: str | os.PathLike | Iterable | None = None,
) -> ExportReport:
    """Runs an export in its own runtime and compares its probabilities.

    Without a classifier, they are compared with the golden samples in the export: a few images
    with the probabilities that the Keras model gave. They must agree to `TOLERANCE`, or
    to twice the difference that was measured when the export was written.

    Args:
        path: A folder or file that an export wrote. Its signatures of `runtimes.SIGNATURES` are
            run.
        classifier: A `Classifier`, or its folder, to compare with on `check_images`.
        check_images: Real images, files or a folder; by default the classifier's samples.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If there are no golden samples or check images, or if the export cannot be
            run, gives another number of classes, or fails its golden samples.
    """
    if classifier is None:
        if check_images is not None:
            raise ValueError("check_images are compared with a classifier: pass it too.")
        return _verify_golden(path)
    classifier = open_classifier(classifier)
    contents = describe_contents(open_export(path).texts)
    files = find_check_images(classifier, check_images)
    return compare_with_keras(path, {"": classifier}, files, contents)


def _verify_golden(path):
    opened = open_export(path)
    if GOLDEN not in opened.texts:
        raise ValueError(
            f"{path} holds no golden samples; compare it with its classifier (--classifier)."
        )
    samples = parse_golden(opened.texts[GOLDEN])
    description, _ = read_facts(opened.texts)
    preprocessing = required(description.preprocessing, "preprocessing")
    expected = np.array([sample.probabilities for sample in samples])
    pixels = []
    for number, sample in enumerate(samples, 1):
        pixels.append(read_pixels(io.BytesIO(sample.png)))
        if checksum(pixels[-1]) != sample.sha256:
            raise ValueError(
                f"Golden sample {number} of {path} has other pixels than when it was written: "
                "Pillow here decodes PNG files differently, or the file is damaged."
            )
    checks, signatures = [], opened.signatures()
    for name in filter(signatures.get, SIGNATURES):
        signature = signatures[name]
        answers, seconds = [], []
        for sample, image in zip(samples, pixels, strict=True):
            if signature.takes_files:
                batch = np.array([sample.png], dtype=object)
            elif signature.takes_pixels:
                batch = image[np.newaxis]
            else:
                batch = apply_preprocessing(image, preprocessing).numpy()[np.newaxis]
            start = time.perf_counter()
            answers.append(signature.call(batch)[0])
            seconds.append((time.perf_counter() - start) / signature.images_per_call)
        checks.append(compare(name, expected, np.array(answers), seconds=np.array(seconds)))
    limit = _limit(opened.texts)
    worst = max(checks, key=lambda check: check.largest_difference)
    # Written so that NaN fails too.
    if not worst.largest_difference <= limit:
        raise ValueError(
            f"An export must give the probabilities of its golden samples within {limit:.1e}. "
            f"Received: {worst.largest_difference:.1e} of the signature {worst.signature} of {path}"
        )
    note = f"Golden samples: pixels equal, probabilities within {limit:.1e}."
    name, size = format_of(path).name, size_of(path)
    notes = (note, *describe_contents(opened.texts))
    return ExportReport(os.fspath(path), name, size, len(samples), tuple(checks), notes)


def _limit(texts):
    check = parse_json(texts.get(CHECK, '{"checks": []}'), CHECK)
    try:
        measured = [float(part["largest_difference"]) for part in check["checks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{CHECK} must be the report of an export's check.") from error
    return max(TOLERANCE, 2 * max(measured, default=0.0))
