"""Options, methods, signatures and texts that all export formats share.

This module and the files of the formats import neither TensorFlow nor Keras nor NumPy at their top:
the command line reads the options of all formats, and a new process runs an export in its own
runtime alone. The functions that write an export import what they need.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import os
import pathlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from keras_vit._installation import import_optional
from keras_vit.configs.model_table import ANSWERS, LEVERAGE
from keras_vit.description import Description, check_class_names, description_texts
from keras_vit.utils.fields import check_fields, setting
from keras_vit.utils.files import CLASSES
from keras_vit.utils.json_files import parse_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from keras_vit.predictor import Predictor


# What a file takes: uint8 pixels of any size, or the model's own input.
INPUTS = ("uint8", "float")

# By precision: least share of check images on which an export must have the Keras model's first
# class.
MINIMUM_AGREEMENT = {
    "float32": 0.99,
    "float16": 0.99,
    "dynamic_int8": 0.98,
    "int8": 0.98,
}

# Precisions with integer weights. LayerNorm, residual additions, softmax, GELU and attention's
# products stay in float in every format. They are little of the work, and the residual stream of a
# Vision Transformer has a few values far above all others, which 8 bits cannot hold together with
# the rest. The activations of "int8" have ranges from images.
INTEGER_PRECISIONS = ("dynamic_int8", "int8")

PIXELS = "pixel_preprocessing"  # The layer that resizes and scales.

# In names of operations. Preprocessing and "unknown" stay in float, as do the first and the last
# layer, as is usual: for ViT-B/16 they add 5% to the bytes and 1% to the work, and remove a quarter
# of the error or more.
FLOAT_LAYERS = f"(root_conv|patch_embedding|predictions|token_head|{LEVERAGE}|{ANSWERS}|{PIXELS})"

# In names of operations: products that are added to the residual stream. Their results have the
# outliers of the stream, so one range for all of them cuts these off or leaves few steps for the
# other values.
RESIDUAL_PRODUCTS = r"(attention\w*/out\w*/|mlp\w*/dense_2\w*/|/conv_(3|projection)\w*/)"

ROUNDING = 1e-3  # Allowed for probabilities and their sum; some runtimes have few bits.

VERIFY_SECONDS = 600.0  # In which an export answers its golden samples.

# Texts in an export, which each format stores in its own way: what it knows of its classifier,
# golden samples, and the report of its check.
ORIGIN = "origin.json"
GOLDEN = "golden.json"
CHECK = "check.json"
CHECKSUMS = "checksums.json"  # SHA-256 of all other parts.
NAMES = (*description_texts.EXPORT_TEXTS, ORIGIN, GOLDEN, CHECK, CHECKSUMS)

# Formats that `convert` writes, with the end of the file's name; "" is a folder.
CONVERSION_FORMATS = {
    "classifier": "",
    "official": ".npz",  # As the paper's code.
    "huggingface": "",
}

_SHARE = ("a share in [0, 1]", lambda value: 0 <= value <= 1)


@dataclasses.dataclass(frozen=True)
class CheckImages:
    """The images of an export, as files: to be checked and calibrated on, and to be held by it.

    Args:
        files: Images on which the export is compared with the Keras model.
        notes: Remarks for the user about the images.
        calibration: Images for the ranges of activations.
        golden: PNG files of the images that the export holds.
        has_synthetic_golden: Whether those are synthetic instead of photos.
    """

    files: Sequence[str]
    notes: tuple[str, ...] = ()
    calibration: Sequence[str] = ()
    golden: Sequence[str] = ()
    has_synthetic_golden: bool = False


class Signature(NamedTuple):
    """A callable signature of an export.

    Args:
        call: Function from a batch `(B, ...)` to probabilities `(B, K)`.
        takes_files: Whether the batch holds encoded files instead of images.
        takes_pixels: Whether images are uint8 and not preprocessed.
        input_size: The only size (height, width) of pixels that it takes, or None.
        classes: K, where the graph states it.
    """

    call: Callable[[np.ndarray], npt.ArrayLike]
    takes_files: bool = False
    takes_pixels: bool = False
    input_size: tuple[int, int] | None = None
    classes: int | None = None

    def probabilities(self, batch: np.ndarray) -> np.ndarray:
        """Returns the answer to a batch, `(B, K)`; values that are no numbers pass.

        Raises:
            ValueError: If it is not a row of probabilities for each image.
        """
        import numpy as np

        answer = np.asarray(self.call(batch))
        if answer.ndim != 2 or len(answer) != len(batch) or answer.dtype.kind != "f":
            raise ValueError(
                "An export must give a row of probabilities for each image. "
                f"Received: {answer.dtype} of shape {answer.shape} for {len(batch)} images"
            )
        wrong = answer[(answer < -ROUNDING) | (answer > 1 + ROUNDING)]
        if wrong.size:
            raise ValueError(
                f"An export must give probabilities, numbers from 0 to 1. Received: {wrong[0]:g}"
            )
        return answer


class OpenedExport(NamedTuple):
    """The content of an export.

    Args:
        texts: What it holds of `NAMES`, by name.
        files: The files of its weights.
        signatures: Loads it into its runtime; returns the signatures by name, such as "serve".
    """

    texts: Mapping[str, str]
    files: Sequence[pathlib.Path]
    signatures: Callable[[], Mapping[str, Signature]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFormat(abc.ABC):
    """An export: its format is the subclass, its options are the fields.

    A format is a subclass in a separate file, which `__init__` imports; the flags of `keras-vit
    export` are made from its fields. `publish.write_export` calls `write`, runs the
    export in a new process by `open`, and adds its texts: `add_texts`.

    Class attributes:
        name: The format in `--to`, and of its public function.
        suffix: The end of a file's name; "" for a folder.
        marker: A file that each folder of the format has; "" for a file.
        max_bytes: Largest size of a model in float32, or None.
        precisions: Keys of `MINIMUM_AGREEMENT`.
        runs_in_tensorflow: Whether its runtime is TensorFlow.
    """

    name: ClassVar[str]
    suffix: ClassVar[str] = ""
    marker: ClassVar[str] = ""
    max_bytes: ClassVar[int | None] = 2**31 - 1  # FlatBuffers, protocol buffers: 32-bit offsets.
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    runs_in_tensorflow: ClassVar[bool] = False

    check_images: str | os.PathLike | Iterable | None = setting(
        None,
        "real images, files or folders, on which the export must agree with the Keras model",
        unit="PATH",
        several=True,
        absent="the classifier's samples, or synthetic images",
    )
    samples: str | int | None = setting(
        None,
        "photos that the export holds, without metadata, so that keras-vit verify has images on "
        "any machine: a number of the classifier's samples, a folder of others, or none, which "
        "takes synthetic images",
        unit="N|FOLDER|none",
        absent="3 of the classifier's samples, none where it has none",
    )
    minimum_agreement: float | None = setting(
        None,
        "least share of check images with the same first class (or of their labels, where an image "
        "may have several), else nothing is written; an export with integers fails only if "
        "the images show that the share is less",
        unit="SHARE",
        absent="0.99, with integers 0.98",
        limits=_SHARE,
    )
    overwrite: bool = setting(False, "replace an export of this kind")

    def __post_init__(self):
        check_fields(self)

    @property
    def packages(self) -> tuple[str, ...]:
        """Modules of the extra `export` that `write` and the check import."""
        return ()

    @abc.abstractmethod
    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the export without its texts; returns remarks for the user.

        Args:
            path: The file, or an empty folder.
            classifier: The classifier.
            images: The images that it is calibrated on, and will be checked on.
        """

    @staticmethod
    @abc.abstractmethod
    def add_texts(path: pathlib.Path, texts: Mapping[str, str]) -> None:
        """Adds texts to an export, behind the model's bytes if it is a file.

        Args:
            path: The export.
            texts: By their names, some of `NAMES`.
        """

    @staticmethod
    @abc.abstractmethod
    def open(path: pathlib.Path) -> OpenedExport:
        """Returns the content of an export; raises the errors of its runtime, and `ValueError`.

        It runs nothing of it; its `signatures` do.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizedFormat(ExportFormat):
    """Options of the formats that have several precisions, and take pixels."""

    precision: str = setting(
        "float32",
        "dynamic_int8 has integer weights; int8 has integer activations too",
        choices=tuple(MINIMUM_AGREEMENT),
    )
    input: str = setting(
        "uint8",
        "uint8: pixels of any size, preprocessed in the export; float: images that the caller has "
        "preprocessed",
        choices=INPUTS,
    )

    def __post_init__(self):
        if self.precision not in self.precisions:
            raise ValueError(
                f"precision must be one of {self.precisions} for {self.name}. "
                f"Received: precision={self.precision!r}"
            )
        super().__post_init__()


def import_export_package(module: str, extra: str = "export") -> types.ModuleType:
    """Returns a module that writes or runs exports; see `import_optional`."""
    return import_optional(module, "This export", extra)


def import_playwright() -> types.ModuleType:
    """Returns the module of the extra `web` that controls Chromium; see `import_optional`."""
    return import_optional("playwright.sync_api", "A web page", "web")


def read_facts(texts: Mapping[str, str]) -> tuple[Description, dict[str, Any]]:
    """Returns the description and the recipe in the texts of an export.

    Raises:
        ValueError: If a text is missing, or is not one that `publish.texts_of` writes.
    """
    origin = parse_json(texts.get(ORIGIN, "{}"), ORIGIN)
    recipe = origin.get("recipe") if isinstance(origin, dict) else None
    description = Description.stored(texts, "")
    return description, recipe if isinstance(recipe, dict) else {}


def write_texts(path: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Writes texts into a folder, each as a file."""
    for name, text in texts.items():
        (path / name).write_text(text, encoding="utf-8")


def json_texts(texts: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns texts as JSON by other names; class names become a list.

    Args:
        texts: By their names, some of `NAMES`.
        names: The other names by the names of the texts.
    """
    return {
        names[name]: json.dumps(text.splitlines()) if name == CLASSES else text
        for name, text in texts.items()
    }


def texts_of_json(stored: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts of which `json_texts` made `stored`, which may also hold others.

    Raises:
        ValueError: If the class names are no list, or one of them is not a line of text.
    """
    texts = {name: stored[other] for name, other in names.items() if other in stored}
    if CLASSES in texts:
        class_names = parse_json(texts[CLASSES], names[CLASSES])
        check_class_names(class_names if isinstance(class_names, list) else [class_names])
        texts[CLASSES] = "".join(f"{name}\n" for name in class_names)
    return texts


def check_is_no_pattern(path: str | os.PathLike, format_type: type[ExportFormat]) -> None:
    """Raises ValueError if TensorFlow, which takes it as a pattern, would not find a path again."""
    if format_type.runs_in_tensorflow and {*"*?["} & {*os.path.abspath(path)}:
        raise ValueError(
            "TensorFlow reads the path of a SavedModel as a pattern: the names of its folders must "
            f"not have *, ? or [. Received: {os.path.abspath(path)}"
        )


def any_of(names: Iterable[str]) -> str:
    """Returns names as "a, b or c"."""
    *first, last = names
    return " or ".join(filter(None, (", ".join(first), last)))
