"""Features of image files with their names, in a file: `keras-vit embed`."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.training.data.image_files import FileExamples, undecodable
from keras_vit.utils.files import atomic_write
from keras_vit.utils.optional_packages import import_optional

from .features import extract
from .predictions import EvaluatedModel, weights_hash

SUFFIXES = (".npz", ".parquet")

_FACTS = ("model", "weights_sha256", "feature")


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """Features of images.

    Args:
        names: The N image files.
        values: float32 `(N, D)`.
        facts: The model's name, the hash of its weights and the feature.
    """

    names: list[str]
    values: np.ndarray
    facts: dict[str, str]

    def write(self, path: str | os.PathLike) -> None:
        """Writes the features.

        `.npz` has the arrays `names`, `features` and one for each fact. `.parquet` has the
        columns `name` and `features`, a list of D numbers, and the facts as its metadata.

        Raises:
            ValueError: If the path ends otherwise.
            ImportError: For `.parquet` without pyarrow.
        """
        suffix = check_suffix(path)
        with atomic_write(path) as partial:
            if suffix == ".npz":
                arrays: dict[str, Any] = {"names": self.names, "features": self.values}
                with open(partial, "wb") as file:
                    np.savez(file, **arrays, **self.facts)  # type: ignore[arg-type]
                return
            arrow, parquet = _pyarrow()
            rows = arrow.FixedSizeListArray.from_arrays(
                self.values.reshape(-1), self.values.shape[1]
            )
            table = arrow.table({"name": self.names, "features": rows})
            parquet.write_table(table.replace_schema_metadata(self.facts), partial)


def read_embeddings(path: str | os.PathLike) -> Embeddings:
    """Reads what `Embeddings.write` wrote.

    Raises:
        ValueError: If the file holds something else.
        ImportError: For `.parquet` without pyarrow.
    """
    try:
        if check_suffix(path) == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                names, values = arrays["names"].tolist(), arrays["features"]
                facts = {name: str(arrays[name]) for name in _FACTS}
        else:
            _, parquet = _pyarrow()
            table = parquet.read_table(path)
            names = table["name"].to_pylist()
            values = np.array(table["features"].to_pylist(), "float32")
            found = table.schema.metadata or {}
            facts = {name: found[name.encode()].decode() for name in _FACTS}
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} must be a file of features that keras-vit embed wrote. {error}"
        ) from error
    if values.ndim != 2 or len(values) != len(names) or not np.isfinite(values).all():
        raise ValueError(
            f"{path} must hold a row of finite features for each name. "
            f"Received: {len(names)} names, features of shape {values.shape}"
        )
    return Embeddings(names, values.astype("float32", copy=False), facts)


def embed(
    model: EvaluatedModel,
    files: Sequence[str],
    *,
    feature: str = "pre_logits",
    batch_size: int = 32,
    progress: bool = False,
) -> tuple[Embeddings, list[tuple[str, str]]]:
    """Returns the features of image files, and `(file, reason)` of those that cannot be read.

    Args:
        model: The model, from `predictions.build_evaluated`.
        files: Image files.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If no file can be read, or the model does not have the feature.
    """
    checked = list(undecodable(files))
    skipped = [(files[place], reason) for place, reason in checked if reason is not None]
    bad = {place for place, reason in checked if reason is not None}
    names = [file for place, file in enumerate(files) if place not in bad]
    if not names:
        raise ValueError(f"There must be an image that can be read. Received: {skipped[0][1]}")
    found = extract(
        model.model,
        FileExamples(names, np.zeros(len(names)), any(reason is None for _, reason in checked)),
        preprocessing=model.preprocessing,
        feature=feature,
        batch_size=batch_size,
        progress=progress,
    )
    facts = {
        "model": model.name,
        "weights_sha256": weights_hash(model.model),
        "feature": feature,
    }
    return Embeddings(names, found.values, facts), skipped


def check_suffix(path: str | os.PathLike) -> str:
    """Returns the suffix of a file of features.

    Raises:
        ValueError: If it is not one of `SUFFIXES`.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"A file of features must end in {' or '.join(SUFFIXES)}. Received: {path}"
        )
    return suffix


def _pyarrow():
    arrow = import_optional("pyarrow", "A Parquet file", "parquet")
    return arrow, import_optional("pyarrow.parquet", "A Parquet file", "parquet")
