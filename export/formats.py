"""Base classes of the export formats: options as fields, and the methods `write` and `open`.

This module and the modules of the formats import neither TensorFlow nor Keras nor NumPy: the
command line reads the options of all formats, and a new process runs an export in its own runtime
alone. `write` imports the module that converts the classifier.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from keras_vit.utils.fields import check_fields, setting
from keras_vit.utils.optional_packages import import_optional

if TYPE_CHECKING:
    import numpy as np

    from keras_vit.classifier import Classifier

# What a file takes: uint8 pixels of any size, or the model's own input.
INPUTS = ("uint8", "float")

# By precision: least share of check images on which an export must have the Keras model's first
# class.
MINIMUM_AGREEMENT = {"float32": 0.99, "float16": 0.99, "dynamic_int8": 0.98, "int8": 0.98}

# Precisions with integer weights.
INTEGER_PRECISIONS = ("dynamic_int8", "int8")

OUTPUTS = ("features", "attention")  # Further outputs, where a format has any number of them.

ROUNDING = 1e-3  # Allowed for probabilities and their sum; some runtimes have few bits.

_KNOWN_OUTPUTS = (f"of {', '.join(OUTPUTS)}", lambda name: set(name.split(",")) <= {*OUTPUTS})
_SHARE = ("a share in [0, 1]", lambda value: 0 <= value <= 1)


class Signature(NamedTuple):
    """A callable signature of an export.

    Args:
        call: Function from a batch `(B, ...)` to probabilities `(B, K)`.
        takes_files: Whether the batch holds encoded files instead of images.
        images_per_call: Batch size that a call of one image computes, for the time per image.
        takes_pixels: Whether images are uint8 and not preprocessed.
        input_size: The only size (height, width) of pixels that it takes, or None.
        classes: K, where the graph states it.
    """

    call: Callable[[np.ndarray], Any]
    takes_files: bool = False
    images_per_call: int = 1
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
        texts: What it holds of `texts.NAMES`, by name.
        files: The files of its weights.
        signatures: Loads it into its runtime; returns the signatures by name, such as "serve".
    """

    texts: Mapping[str, str]
    files: Sequence[pathlib.Path]
    signatures: Callable[[], Mapping[str, Signature]]


class Written(NamedTuple):
    """Facts about an export that was written, for its texts and its check.

    Args:
        check_files: The images to check it on.
        notes: Remarks for the user.
        variants: Further classifiers in it, by the suffix of their signatures: "_384x384" for
            `serve_384x384`.
        input_size: The only size (height, width) of pixels that it takes, or None.
    """

    check_files: Sequence[str]
    notes: tuple[str, ...] = ()
    variants: Mapping[str, Classifier] = {}
    input_size: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFormat(abc.ABC):
    """An export: its format is the subclass, its options are the fields.

    A format is a subclass in a separate file and a row of `all_formats.FORMATS`; the flags of
    `keras-vit export` are made from its fields. `publish.write_export` calls `write`, then
    `add_texts`, runs the export in a new process by `open`, and adds the report of this check.

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
        "may have several), else nothing is written",
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

    @property
    def least_agreement(self) -> float:
        """`minimum_agreement`, or its default."""
        given = self.minimum_agreement
        return MINIMUM_AGREEMENT["float32"] if given is None else given

    @property
    def has_integers(self) -> bool:
        """Whether its answers differ from the Keras model's by more than rounding."""
        return False

    @abc.abstractmethod
    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the export without its texts.

        Args:
            path: The file, or an empty folder.
            classifier: The classifier.
            files: Real images, to check the export on.
        """

    @staticmethod
    @abc.abstractmethod
    def add_texts(path: pathlib.Path, texts: Mapping[str, str]) -> None:
        """Adds texts to an export.

        Args:
            path: The export.
            texts: By their names, some of `texts.NAMES`.
        """

    @staticmethod
    @abc.abstractmethod
    def open(path: pathlib.Path) -> OpenedExport:
        """Returns the content of an export; raises the errors of its runtime, and `ValueError`.

        It runs nothing of it; its `signatures` do.
        """

    @staticmethod
    def content(path: pathlib.Path) -> Iterable[bytes | memoryview]:
        """Returns the bytes of a file, in pieces, except for its texts.

        Not for folders, where the texts are files.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantizedFormat(ExportFormat):
    """Options of the formats that have several precisions, and take pixels."""

    precision: str = setting(
        "float32",
        "dynamic_int8 has integer weights, int8 integer activations too",
        choices=tuple(MINIMUM_AGREEMENT),
    )
    input: str = setting(
        "uint8",
        "uint8: pixels of any size, preprocessed in the export; float: images that the caller has "
        "preprocessed",
        choices=INPUTS,
    )
    calibration_images: str | os.PathLike | Iterable | None = setting(
        None,
        "with int8: real images for the ranges of the activations",
        unit="PATH",
        several=True,
        absent="every second check image",
    )

    def __post_init__(self):
        if self.precision not in self.precisions:
            raise ValueError(
                f"precision must be one of {self.precisions} for {self.name}. "
                f"Received: precision={self.precision!r}"
            )
        super().__post_init__()

    @property
    def has_integers(self) -> bool:
        """Whether its answers differ from the Keras model's by more than rounding."""
        return self.precision in INTEGER_PRECISIONS

    @property
    def calibrates_on_check_images(self) -> bool:
        """Whether the check images are also those for the ranges of activations."""
        return self.precision == "int8" and self.calibration_images is None

    @property
    def least_agreement(self) -> float:
        """`minimum_agreement`, or the default of the precision."""
        given = self.minimum_agreement
        return MINIMUM_AGREEMENT[self.precision] if given is None else given


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrowserFormat(ExportFormat):
    """Options of the formats that run in a browser."""

    title: str | None = setting(
        None, "title of the page", unit="TEXT", absent="the name of the classifier's folder"
    )
    runtime: str | os.PathLike | None = setting(
        None,
        "files of the npm package onnxruntime-web (its folder dist)",
        unit="FOLDER",
        absent="downloaded once, into Keras's cache",
    )


def further_outputs() -> Any:
    """Returns the field of the formats that have any number of outputs."""
    return setting(
        (),
        "further outputs: features, the input of the head, and attention, the Attention Rollout",
        unit="NAME",
        limits=_KNOWN_OUTPUTS,
    )


def output_names(outputs: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of further outputs, which may stand between commas."""
    return tuple(dict.fromkeys(name for given in outputs for name in given.split(",")))


def import_export_package(module: str, extra: str = "export") -> Any:
    """Returns a module that writes or runs exports; see `import_optional`."""
    return import_optional(module, "This export", extra)


def import_playwright() -> Any:
    """Returns the module of the extra `web` that controls Chromium; see `import_optional`."""
    return import_optional("playwright.sync_api", "A web page", "web")
