"""Files of a classifier in a browser: module `classifier.js`, models and runtime."""

from __future__ import annotations

import hashlib
import os
import pathlib

import keras

from keras_vit.classifier import Classifier
from keras_vit.images.resizing import EVALUATION_STEPS
from keras_vit.inspection.rollouts import has_rollout
from keras_vit.preprocessing import Preprocessing

from .browser_templates import ONNX_MODEL, SCRIPT, script
from .export_format import import_playwright
from .exported_model import ATTENTION
from .onnx_conversion import onnx_content
from .onnx_file import OPSET

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
# Their names in exports: many servers do not know .mjs, and browsers then refuse it.
SERVED = {name: name.replace(".mjs", ".js") for name in RUNTIME}

# Pictures (height, width), as long as an evaluation resizes without a crop before.
_TALL, _WIDE = (16_384, 512), (512, 16_384)


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
    import_playwright()  # For the check.
    if classifier.model.input_shape[-1] != 3:
        raise ValueError(
            "Images have 3 channels in a browser, so the model must take 3. "
            f"Received: a model with inputs of shape {classifier.model.input_shape}"
        )
    facts = {
        "classNames": classifier.description.labels.output_names,
        "thresholds": classifier.thresholds,
        "view": _view(classifier.preprocessing),
    }
    files = {SERVED[name]: content for name, content in _runtime_files(runtime).items()}
    outputs = [ATTENTION] if has_rollout(classifier.model) else []
    model = onnx_content(classifier, OPSET, "uint8", outputs)
    return {
        SCRIPT: script(SCRIPT, facts).encode(),
        ONNX_MODEL: model.SerializeToString(),
        **files,
    }


def _view(preprocessing: Preprocessing) -> dict:
    """Returns what shows the part of a picture that the model receives.

    `resized` is the size (height, width) before the crop of its middle to `size`; with
    `keepsAspect` only the side that is scaled more becomes so. In a tall picture this is the
    width, in a wide one the height. With `fits` only the side that is scaled less becomes so, and
    the rest is filled.
    """
    steps, size = EVALUATION_STEPS[preprocessing.evaluation], preprocessing.image_size
    if steps.fills:
        return {"keepsAspect": True, "fits": True, "resized": size, "size": size}
    geometry = steps.geometry
    tall, wide = (geometry(sides, size, preprocessing.resize_size) for sides in (_TALL, _WIDE))
    keeps_aspect = tall.cropped is not None or tall.resized != wide.resized
    resized = int(wide.resized[0]), int(tall.resized[1])
    return {"keepsAspect": keeps_aspect, "fits": False, "resized": resized, "size": size}


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
    except Exception as error:  # Keras raises plain `Exception`, urllib its own errors.
        raise ValueError(
            f"{ADDRESS + name} cannot be downloaded ({str(error).splitlines()[0]}). Pass "
            "runtime=FOLDER (--runtime) with the files of the npm package "
            f"onnxruntime-web {VERSION}: npm install onnxruntime-web@{VERSION}, then "
            "node_modules/onnxruntime-web/dist."
        ) from error
