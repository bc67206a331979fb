"""Folder of a classifier for web programs: an ES module, a page, and a model of transformers.js."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from keras_vit.checkpoints.metadata import PREPROCESSOR
from keras_vit.classifier import Classifier
from keras_vit.tasks import MULTILABEL

from . import publish
from .browser_files import classifier_files, page, script, title_of
from .comparison import CHECK, ExportReport
from .onnx_file import transformers_js_content
from .options import MINIMUM_AGREEMENT, ONNX_OPSET
from .other_code_bases import CONFIG, labels_json
from .runtimes import TRANSFORMERS_JS

# transformers.js then passes pixels on as they are: `onnx/model.onnx` preprocesses them.
_PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": False,
    "do_rescale": False,
    "do_normalize": False,
}


def web(
    classifier: Classifier | str | os.PathLike,
    path: str | os.PathLike,
    *,
    title: str | None = None,
    runtime: str | os.PathLike | None = None,
    check_images: str | os.PathLike | Iterable | None = None,
    minimum_agreement: float = MINIMUM_AGREEMENT,
    overwrite: bool = False,
) -> ExportReport:
    """Exports a classifier as a folder for web programs and checks it in Chromium.

    Any server of static files serves the folder. It holds

    - `classifier.js`, a module with the function `classify`, with `model.onnx` and the runtime
      onnxruntime-web, which it loads;
    - `index.html`, the page of `keras_vit.export.html`, with this module;
    - `config.json`, `preprocessor_config.json` and `onnx/model.onnx`, which transformers.js reads:
      `pipeline("image-classification", FOLDER)`. Preprocessing is in the file, so that it is that
      of the classifier: its input `pixel_values` `(1, 3, H, W)` float32 has pixels of any size from
      0 to 255, of one image a call. A softmax of its output `logits` `(1, K)` (a sigmoid, of
      several labels an image) gives the probabilities;
    - `classes.txt`, `preprocessing.json`, `origin.json`, `golden.json` and `check.json`, and of
      several labels an image `task.json`.

    The check runs the page without other hosts than the folder's, and `onnx/model.onnx` in ONNX
    Runtime.

    Args:
        classifier: A `Classifier`, or its folder. A model in mixed precision is exported as
            its float32 copy.
        path: The folder to write.
        title: See `keras_vit.export.html`.
        runtime: See `keras_vit.export.html`.
        check_images: Real images for the check, files or a folder; by default the
            classifier's samples.
        minimum_agreement: Least share of check images with the Keras model's first class.
        overwrite: Whether an older export is replaced.

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
        "web",
        packages=["onnx", "tf2onnx", "onnxruntime"],
        check_images=check_images,
        minimum_agreement=minimum_agreement,
        overwrite=overwrite,
    )
    contents = classifier_files(classifier, runtime)
    contents[TRANSFORMERS_JS] = transformers_js_content(classifier, ONNX_OPSET).SerializeToString()
    config = {
        # The class of transformers.js; all of them run the file.
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **labels_json(classifier.class_names, classifier.task),
        # Else a browser would ask for weights in 8 bits.
        "transformers.js_config": {"dtype": "fp32"},
    }
    texts = {
        "index.html": page(title or title_of(classifier), script("in_folder.js")),
        CONFIG: json.dumps(config, indent=2) + "\n",
        PREPROCESSOR: json.dumps(_PROCESSOR, indent=2) + "\n",
        **publish.texts_of(classifier, files),
    }
    with publish.new_output(path, "web", overwrite=overwrite) as folder:
        (folder / TRANSFORMERS_JS).parent.mkdir()
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        publish.write_texts(folder, texts)
        report = publish.check_export(
            folder,
            path,
            {"": classifier},
            files,
            minimum_agreement=minimum_agreement,
            notes=(*publish.precision_notes(classifier.model), *_notes(classifier)),
        )
        publish.write_texts(folder, {CHECK: report.to_text()})
    return report


def _notes(classifier):
    """Returns a remark where the pipeline of transformers.js computes something else."""
    if classifier.task != MULTILABEL:
        return ()
    return (
        'transformers.js computes a softmax in pipeline("image-classification"), also of several '
        "labels an image: use AutoModelForImageClassification, and a sigmoid of its logits.",
    )
