"""The files of a classifier in the forms in which it is pushed to the Hub."""

from __future__ import annotations

import json
import pathlib
import shutil
import zipfile
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.hdf5 import check_keras_archive
from keras_vit.checkpoints.repositories import READ_FILES
from keras_vit.description.description_texts import TEXTS
from keras_vit.description.without_paths import without_paths
from keras_vit.images.listing import image_files
from keras_vit.utils.fields import required
from keras_vit.utils.files import (
    DECISION,
    HISTORY,
    RECIPE,
    SAMPLES,
    UNPACKED_MODEL,
    model_in,
)
from keras_vit.utils.json_files import read_json

from .browser_files import SERVED
from .browser_templates import ONNX_MODEL, SCRIPT, TRANSFORMERS_JS, TYPES
from .conversion import convert
from .html_page import HTML
from .publish import write_export
from .texts import NAMES
from .web_folder import PAGE, Web

# Names that a push of any form may have; another form removes them.
PUSHED_FILES = frozenset(
    (*READ_FILES, PAGE, TYPES, SCRIPT, ONNX_MODEL, *SERVED.values(), TRANSFORMERS_JS, *NAMES)
)


def write_form(
    form: str,
    classifier: pathlib.Path,
    folder: pathlib.Path,
    samples: bool,
    browser: Mapping[str, Any],
) -> list[str]:
    """Writes the files of a classifier in a form; returns a sentence for each difference.

    Args:
        form: A key of `keras_vit.hub.forms.FORMS`.
        classifier: The classifier's folder.
        folder: The folder to write, which does not exist.
        samples: Whether its photos are among the files of the form "folder".
        browser: Options of the form "web"; see `BrowserFormat`.

    Raises:
        ValueError: If it has no such form, or the check of an export fails.
    """
    if form == "folder":
        _write_folder(classifier, folder, samples)
        return []
    if form == "web":
        write_export(Web(**browser), classifier, folder)
        return []
    return convert(classifier, folder, to={"transformers": "huggingface"}.get(form, form))


def write_page(classifier: pathlib.Path, folder: pathlib.Path, browser: Mapping[str, Any]) -> None:
    """Writes the page of a classifier for a Space.

    Args:
        classifier: The classifier's folder.
        folder: The folder to write.
        browser: Options of the page; see `BrowserFormat`.

    Raises:
        ValueError: If the check of the page fails.
    """
    write_export(HTML(**browser), classifier, folder / PAGE)


def _write_folder(classifier, folder, samples):
    """The classifier's folder whose model Keras reads from the Hub: `model.keras` unpacked.

    Left out are the photos, names and hashes of the data, the last weights, and the bill of
    materials and the page of the run, which belong to the folder.
    """
    folder.mkdir(parents=True)
    model = required(model_in(classifier), "model.keras")
    check_keras_archive(model)
    if model.is_dir():
        for name in UNPACKED_MODEL:
            shutil.copyfile(model / name, folder / name)
    else:
        with zipfile.ZipFile(model) as archive:
            for name in UNPACKED_MODEL:
                with archive.open(name) as entry, open(folder / name, "wb") as file:
                    shutil.copyfileobj(entry, file)
    for name in (*TEXTS, HISTORY, DECISION):
        if (classifier / name).is_file():
            shutil.copyfile(classifier / name, folder / name)
    if (classifier / RECIPE).is_file():
        recipe = without_paths(read_json(classifier / RECIPE))
        (folder / RECIPE).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
    if samples and (classifier / SAMPLES).is_dir():
        (folder / SAMPLES).mkdir()
        for photo in image_files(classifier / SAMPLES):
            shutil.copyfile(photo, folder / SAMPLES / pathlib.Path(photo).name)
