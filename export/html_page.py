"""Web page of a classifier: one file that classifies images in a browser, without a network."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections.abc import Iterable

from keras_vit.classifier import Classifier
from keras_vit.files import CLASSES

from . import publish
from .browser_files import classifier_files, in_one_line, page, script, title_of
from .comparison import CHECK, ExportReport
from .options import MINIMUM_AGREEMENT


def html(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    title: str | None = None,
    runtime: str | os.PathLike | None = None,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float = MINIMUM_AGREEMENT,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier as a web page and checks it in Chromium with the network off.

    The page holds the model as ONNX in float32 and the runtime onnxruntime-web. It opens by a
    double click, without a server. It takes images that are dropped, chosen or photographed, and
    shows their classes and, for models with attention, where the model looked: the Attention
    Rollout over the picture. Its answers can be downloaded as a table.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The file to write, `*.html`.
        title: Title of the page; by default the name of the classifier's folder.
        runtime: Folder with the files of `browser_files.RUNTIME`, such as
            `node_modules/onnxruntime-web/dist`; by default they are downloaded once, into Keras's
            cache.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class.
        overwrite: Whether an older file is replaced.

    Returns:
        An `ExportReport`; `print` it for the table.

    Raises:
        ValueError: If an argument is out of range, the output exists, a file of the runtime is
            not the expected one, there are no check images, or the check fails. Nothing is
            written then.
        ImportError: If the extra `export` or `web` is not installed.
    """
    classifier, files = publish.prepare(
        classifier,
        path,
        "html",
        packages=["onnx", "tf2onnx"],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    contents = classifier_files(classifier, runtime)
    packed = [_packed(name, content) for name, content in contents.items()]
    texts = publish.texts_of(classifier, files)
    texts["classes"] = json.dumps(texts.pop(CLASSES).splitlines())

    def write():
        parts = "\n".join([*(_text(name, text) for name, text in texts.items()), *packed])
        text = page(title or title_of(classifier), script("in_page.js"), parts)
        file.write_text(text, encoding="utf-8")

    with publish.new_output(path, "html", overwrite=overwrite) as file:
        write()
        report = publish.check_export(
            file,
            path,
            {"": classifier},
            files,
            minimum_agreement=minimum_agreement,
            notes=publish.precision_notes(classifier.model),
        )
        texts[CHECK] = report.to_text()
        write()
    return report


def _packed(name, content):
    """Returns the element that holds bytes compressed."""
    text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{text}</script>'


def _text(name, text):
    """Returns the element that holds JSON."""
    content = in_one_line(json.loads(text))
    return f'<script type="application/json" id="{name}">{content}</script>'
