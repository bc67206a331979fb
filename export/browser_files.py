"""Files of a classifier in a browser: page, module `classifier.js`, model and runtime.

The page is one template, `browser/page.html`. A script in the same folder gets its answers:
`in_page.js` of `keras_vit.export.html`, `in_folder.js` of `keras_vit.export.web`, and
`on_server.js` of `keras_vit.export.serve`.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from keras_vit.preprocessing import Preprocessing

from .chromium import import_playwright
from .onnx_file import OPSET

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

SCRIPT = "classifier.js"
ONNX_MODEL = "model.onnx"

_TEMPLATES = pathlib.Path(__file__).with_name("browser")

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


def classifier_files(
    classifier: Classifier, runtime: str | os.PathLike | None = None
) -> dict[str, bytes]:
    """Returns the contents of the files that classify images in a browser, by name.

    Args:
        classifier: The classifier.
        runtime: Folder with the files of `RUNTIME`, such as `node_modules/onnxruntime-web/dist`;
            by default they are downloaded once, into Keras's cache.

    Raises:
        ValueError: If the model does not take 3 channels, or a file of the runtime is not the
            expected one.
        ImportError: If the extra `web` is not installed.
    """
    from .onnx_conversion import onnx_content

    import_playwright()  # For the check.
    if classifier.model.input_shape[-1] != 3:
        raise ValueError(
            "Images have 3 channels in a browser, so the model must take 3. "
            f"Received: a model with inputs of shape {classifier.model.input_shape}"
        )
    facts = {
        "classNames": classifier.class_names,
        "thresholds": classifier.thresholds,
        "view": _view(classifier.preprocessing),
    }
    # Many servers do not know .mjs, and browsers then refuse it.
    files = {
        name.replace(".mjs", ".js"): content for name, content in _runtime_files(runtime).items()
    }
    model = onnx_content(classifier, OPSET, "uint8", rollout=True)
    return {
        SCRIPT: script(SCRIPT, facts).encode(),
        ONNX_MODEL: model.SerializeToString(),
        **files,
    }


def title_of(classifier: Classifier) -> str:
    """Returns the default title of a page: the name of the classifier's folder."""
    return classifier.folder.name if classifier.folder else classifier.model.name


def page(title: str, source: str, parts: str = "", files: str = "") -> str:
    """Returns the page of a classifier.

    Args:
        title: Its title.
        source: The script that connects it with the classifier; see `script`.
        parts: HTML elements that the script reads.
        files: Where the page's own files are, "blob:" or "'self'"; its policy then allows no other
            connections. A server that sends the policy itself gives "".
    """
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(files)}">\n'
    return _filled(
        "page.html",
        title=escape(title),
        source=source,
        parts=parts,
        policy=policy if files else "",
    )


def _policy(files):
    return (
        f"default-src 'none'; script-src {files} 'unsafe-inline' 'wasm-unsafe-eval'; "
        f"connect-src {files}; style-src 'unsafe-inline'; img-src blob: data:; media-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def script(name: str, facts: Mapping[str, Any] | None = None) -> str:
    """Returns a script of the folder `browser`.

    Args:
        name: Its file name.
        facts: What it knows of the classifier, as types of JSON.
    """
    return _filled(name, facts=in_one_line(facts))


def in_one_line(content: Any) -> str:
    """Returns JSON as one line without "<", which may begin the end of an element."""
    return json.dumps(content).replace("<", "\\u003c")


def _filled(name, **values):
    text = (_TEMPLATES / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)


def _view(preprocessing: Preprocessing) -> dict:
    """Returns what shows the part of a picture that the model receives.

    `resized` is the size (height, width) before the crop of its middle to `size`; with
    `keepsAspect` only the side that is scaled more becomes so.
    """
    from keras_vit.images.resizing import small_side

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
    import keras

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
    except Exception as error:  # Keras raises plain `Exception`, urllib its own errors.
        raise ValueError(
            f"{ADDRESS + name} cannot be downloaded ({str(error).splitlines()[0]}). Pass "
            "runtime=FOLDER (--runtime) with the files of the npm package "
            f"onnxruntime-web {VERSION}: npm install onnxruntime-web@{VERSION}, then "
            "node_modules/onnxruntime-web/dist."
        ) from error
