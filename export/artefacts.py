"""Exports as classifiers: the same predictions, computed in the runtime of the export."""

from __future__ import annotations

import os
import pathlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.classifier import Classifier, load_classifier
from keras_vit.description_files import TEXTS, description_of_texts
from keras_vit.fields import required
from keras_vit.files import CLASSES, PREPROCESSING
from keras_vit.json_files import parse_json
from keras_vit.optional_packages import import_optional

from . import runtimes
from .browser_files import ONNX_MODEL
from .comparison import CHECK, OPENVINO_FILE, SAVED_MODEL_FILE, format_of
from .golden import GOLDEN
from .publish import ORIGIN, import_export_package
from .tflite_file import LABELS

_CHANNELS = 3
_TEXTS = (*TEXTS, ORIGIN, GOLDEN, CHECK)
_MAX_TEXT = 2**26  # Bytes of a text.


class RuntimeModel:
    """An export in its own runtime, with what prediction and evaluation need of a Keras model.

    `takes_pixels` is whether its input is uint8 and it does the preprocessing itself.

    Args:
        signature: The signature of pixels.
        image_size: Pixels (height, width).
        files: The files that hold the weights.
    """

    def __init__(
        self,
        signature: runtimes.Signature,
        image_size: tuple[int, int],
        files: Sequence[pathlib.Path],
    ):
        self.takes_pixels = signature.takes_pixels
        sides = (None, None) if self.takes_pixels else image_size
        self.input_shape = (None, *sides, _CHANNELS)
        self._dtype = "uint8" if self.takes_pixels else "float32"
        self._signature, self._files = signature, files
        # This also compiles, and shows early if the graph cannot be run.
        size = signature.input_size or image_size
        answer = signature.call(np.zeros((1, *size, _CHANNELS), self._dtype))
        self.output_shape = (None, *answer.shape[1:])

    @property
    def weights(self) -> list[np.ndarray]:
        """The bytes of its files, by which result files identify weights."""
        return [np.fromfile(file, "uint8") for file in self._files]

    def predict_on_batch(self, images: Any) -> np.ndarray:
        """Returns probabilities `(B, K)`; as of a Keras model they may be NaN.

        Args:
            images: `(B, H, W, 3)` float32, preprocessed; or uint8 pixels of any height and width.
        """
        size = self._signature.input_size
        batch = images if size is None else [runtimes.with_size(image, size) for image in images]
        probabilities = self._signature.call(np.asarray(batch, self._dtype))
        # Of an image that is not valid an export gives zeros.
        return np.where(probabilities.any(axis=1, keepdims=True), probabilities, np.nan)


class OpenedExport(NamedTuple):
    """Texts by their file names, the signatures by theirs, and the files of weights."""

    texts: Mapping[str, str]
    signatures: Mapping[str, runtimes.Signature]
    files: Sequence[pathlib.Path]


def open_classifier(path: str | os.PathLike) -> Classifier:
    """Returns the classifier of a folder, or of an export; see `load_artefact`.

    Raises:
        ValueError: If it is neither, or cannot be read.
    """
    return load_artefact(path) if is_artefact(path) else load_classifier(path)


def is_artefact(path: str | os.PathLike) -> bool:
    """Returns whether a path looks like an export; see `format_of`."""
    try:
        format_of(path)
    except ValueError:
        return False
    return True


def load_artefact(path: str | os.PathLike) -> Classifier:
    """Returns an export of this package as a classifier that its own runtime computes.

    Class names, task, thresholds, preprocessing and recipe are read from the export. Images are
    decoded and preprocessed as for the classifier that was exported.

    Args:
        path: A folder of SavedModel, OpenVINO or `--to web`, or a file that an export wrote. It
            is a program that is run, so it must be from people you trust.

    Raises:
        ValueError: If it is no export, not one of this package, or cannot be run.
        OSError: If it cannot be read.
        ImportError: If its runtime is not installed.
    """
    path = pathlib.Path(path)
    try:
        texts, signatures, files = open_export(path)
        description = description_of_texts(texts, "")
        origin = parse_json(texts.get(ORIGIN, "{}"), ORIGIN)
        recipe = origin.get("recipe") if isinstance(origin, dict) else None
        image_size = required(description.preprocessing, "preprocessing").image_size
        # Not a Keras model, but it has all that is called of one.
        model: Any = RuntimeModel(signatures["serve"], image_size, files)
        return Classifier.of(model, description, recipe if isinstance(recipe, dict) else None, path)
    except (ImportError, OSError):
        raise
    except Exception as error:  # Each runtime has errors of its own.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path} cannot be opened as an export. {reason[0]}") from error


def open_export(path: str | os.PathLike) -> OpenedExport:
    """Returns the content of an export; errors are those of its runtime, and `ValueError`."""
    return _OPENERS[format_of(path)](pathlib.Path(path))


def _open_saved_model(path):
    texts = _texts_below(path / "assets")
    files = [path / SAVED_MODEL_FILE, *sorted((path / "variables").glob("variables.data-*"))]
    return OpenedExport(texts, runtimes.saved_model(os.fspath(path)), files)


def _open_openvino(path):
    import_export_package("openvino")
    texts = _texts_below(path)
    files = [path / OPENVINO_FILE, (path / OPENVINO_FILE).with_suffix(".bin")]
    return OpenedExport(texts, runtimes.openvino(os.fspath(path)), files)


def _texts_below(folder):
    paths = {name: folder / name for name in _TEXTS}
    texts = {name: _text(path.read_bytes()) for name, path in paths.items() if path.is_file()}
    _check_written_here(texts)
    return texts


def _open_tflite(path):
    import_export_package("ai_edge_litert.interpreter")
    texts = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = CLASSES if entry.filename == LABELS else entry.filename
                if name in _TEXTS and entry.file_size <= _MAX_TEXT:
                    texts[name] = _text(archive.read(entry))
    _check_written_here(texts)
    return OpenedExport(texts, runtimes.tflite(os.fspath(path)), [path])


def _open_onnx(path):
    import_export_package("onnxruntime")
    signatures = runtimes.onnx(os.fspath(path))
    metadata = signatures["serve"].metadata
    stored = {name: metadata.get(pathlib.Path(name).stem) for name in _TEXTS}
    texts = {name: text for name, text in stored.items() if text is not None}
    if "class_names" in metadata:
        names = parse_json(metadata["class_names"], "class_names")
        texts[CLASSES] = "".join(f"{name}\n" for name in names)
    _check_written_here(texts)
    return OpenedExport(texts, signatures, [path])


def _open_html(path):
    import_optional("playwright.sync_api", "A web page", "web")
    content = path.read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', content)
    stored = dict(found)
    texts = {name: stored[name] for name in _TEXTS if name in stored}
    if "classes" in stored:
        names = parse_json(stored["classes"], "classes")
        texts[CLASSES] = "".join(f"{name}\n" for name in names)
    _check_written_here(texts)
    return OpenedExport(texts, runtimes.html(os.fspath(path)), [path])


def _open_web(path):
    import_optional("playwright.sync_api", "A web page", "web")
    import_export_package("onnxruntime")
    texts = _texts_below(path)
    return OpenedExport(texts, runtimes.web(os.fspath(path)), [path / ONNX_MODEL])


# By format.
_OPENERS = {
    "saved_model": _open_saved_model,
    "tflite": _open_tflite,
    "onnx": _open_onnx,
    "openvino": _open_openvino,
    "html": _open_html,
    "web": _open_web,
}


def _text(content):
    return content.decode("utf-8")


def _check_written_here(texts):
    missing = [name for name in (CLASSES, PREPROCESSING) if name not in texts]
    if missing:
        raise ValueError(
            "It must hold the class names and the preprocessing that keras-vit export writes. "
            f"Missing: {', '.join(missing)}"
        )
