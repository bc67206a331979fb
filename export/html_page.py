"""Web page of a classifier: one file that classifies images in a browser, without a network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from html import escape

import keras

from keras_vit.classifier import Classifier
from keras_vit.files import CLASSES
from keras_vit.images.resizing import small_side
from keras_vit.optional_packages import import_optional
from keras_vit.preprocessing import Preprocessing

from . import publish
from .comparison import CHECK, ExportReport
from .onnx_file import onnx_content
from .options import MINIMUM_AGREEMENT, ONNX_OPSET

TEMPLATE = pathlib.Path(__file__).with_name("page.html")

# onnxruntime-web, with WebAssembly: browsers have it everywhere, it computes in float32 as the
# other runtimes do, and the page contains it. LiteRT.js is larger, and WebGPU gives other numbers
# and is missing in many browsers.
VERSION = "1.30.0"
ADDRESS = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
# SHA-256 of the package's files.
RUNTIME = {
    "ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    "ort-wasm-simd-threaded.wasm": (
        "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"
    ),
}


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
        runtime: Folder with the files of `RUNTIME`, such as `node_modules/onnxruntime-web/dist`;
            by default they are downloaded once, into Keras's cache.
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
    import_optional("playwright.sync_api", "The check of a web page", "web")
    parts = _runtime_files(runtime)
    content = onnx_content(classifier, ONNX_OPSET, "uint8", rollout=True)
    title = title or (classifier.folder.name if classifier.folder else classifier.model.name)
    elements = [
        _packed("runtime", parts["ort.wasm.bundle.min.mjs"]),
        _packed("wasm", parts["ort-wasm-simd-threaded.wasm"]),
        _packed("model", content.SerializeToString()),
    ]
    texts = publish.texts_of(classifier, files)
    texts["classes"] = json.dumps(texts.pop(CLASSES).splitlines())
    texts["view"] = json.dumps(_view(classifier.preprocessing))
    with publish.new_output(path, "html", overwrite=overwrite) as file:
        file.write_text(_page(title, elements, texts), encoding="utf-8")
        report = publish.check_export(
            file,
            path,
            {"": classifier},
            files,
            minimum_agreement=minimum_agreement,
            notes=publish.precision_notes(classifier.model),
        )
        texts[CHECK] = report.to_text()
        file.write_text(_page(title, elements, texts), encoding="utf-8")
    return report


def _page(title: str, packed: Iterable[str], texts: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
        title: Its title.
        packed: Elements of `_packed`.
        texts: JSON by the id of its element.
    """
    elements = [
        f'<script type="application/json" id="{name}">{_one_line(text)}</script>'
        for name, text in texts.items()
    ]
    page = TEMPLATE.read_text(encoding="utf-8").replace("{{title}}", escape(title))
    return page.replace("{{parts}}", "\n".join([*elements, *packed]))


def _packed(name, content):
    """Returns the element that holds bytes compressed."""
    text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f'<script type="application/gzip" id="{name}">{text}</script>'


def _one_line(text):
    """Returns JSON as one line without "<", which may begin the end of an element."""
    return json.dumps(json.loads(text)).replace("<", "\\u003c")


def _view(preprocessing: Preprocessing) -> dict:
    """Returns what shows the part of a picture that the model receives.

    `resized` is the size (height, width) before the crop of its middle to `size`; with
    `keepsAspect` only the side that is scaled more becomes so.
    """
    size, wanted = preprocessing.image_size, preprocessing.resize_size
    keeps_aspect, resized = {
        "resize": (False, size),
        "resize_small_central_crop": (True, tuple(map(small_side, size))),
        "resize_central_crop": (False, tuple(map(small_side, size))),
        "keras_hub": (True, size),
    }.get(
        preprocessing.evaluation,
        (True, (wanted, wanted)) if isinstance(wanted, int) else (False, wanted or size),
    )
    return {"keepsAspect": keeps_aspect, "resized": resized, "size": size}


def _runtime_files(folder):
    """Returns the contents of the runtime's files by name, whose checksums are right."""
    contents = {}
    for name, sha256 in RUNTIME.items():
        if folder is None:
            path = _downloaded(name, sha256)
        else:
            path = pathlib.Path(folder) / name
        if not path.is_file():
            raise ValueError(
                f"The runtime must be a folder with {' and '.join(RUNTIME)} of the npm package "
                f"onnxruntime-web {VERSION}. Received: {folder}"
            )
        contents[name] = path.read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != sha256:
            raise ValueError(
                f"{path} must be the file of onnxruntime-web {VERSION}. "
                "Received: a file with another checksum"
            )
    return contents


def _downloaded(name, sha256):
    """Returns the path of a file of the runtime in Keras's cache."""
    try:
        return pathlib.Path(
            keras.utils.get_file(
                f"onnxruntime-web-{VERSION}-{name}",
                ADDRESS + name,
                cache_subdir="keras_vit",
                file_hash=sha256,
                hash_algorithm="sha256",
            )
        )
    except Exception as error:  # Keras raises plain `Exception` and those of urllib.
        raise ValueError(
            f"{ADDRESS + name} cannot be downloaded ({str(error).splitlines()[0]}). Pass "
            "runtime=FOLDER (--runtime) with the files of the npm package "
            f"onnxruntime-web {VERSION}: npm install onnxruntime-web@{VERSION}, then "
            "node_modules/onnxruntime-web/dist."
        ) from error
