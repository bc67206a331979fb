"""Folder of a classifier for web programs: an ES module, a page, and a model of transformers.js."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vit.fields import documented
from keras_vit.tasks import MULTILABEL

from .browser_files import ONNX_MODEL, SCRIPT, classifier_files, page, script, title_of
from .chromium import folder_signature, import_playwright
from .export_format import (
    BrowserFormat,
    OpenedExport,
    Signature,
    Written,
    export_function,
    import_export_package,
)
from .onnx_file import OPSET, session_of
from .texts import read_texts, write_texts

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

PAGE = "index.html"

# Paths that transformers.js prescribes.
TRANSFORMERS_JS = "onnx/model.onnx"
CONFIG = "config.json"

# transformers.js then passes pixels on as they are: `onnx/model.onnx` preprocesses them.
_PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": False,
    "do_rescale": False,
    "do_normalize": False,
}


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Web(BrowserFormat):
    """Exports a classifier as a folder for web programs and checks it in Chromium.

    Any server of static files serves the folder. It holds

    - `classifier.js`, a module with the function `classify`, with `model.onnx` and the runtime
      onnxruntime-web, which it loads;
    - `index.html`, the page of `keras_vit.export.html`, with this module;
    - `config.json`, `preprocessor_config.json` and `onnx/model.onnx`, which transformers.js reads:
      `pipeline("image-classification", FOLDER)`. Preprocessing is in the file, so that it is that
      of the classifier: its input `pixel_values` `(1, 3, H, W)` float32 has pixels of any size from
      0 to 255, of one image a call. A softmax of its output `logits` `(1, K)` (a sigmoid, of
      a multi-label classifier) gives the probabilities;
    - `classes.txt`, `preprocessing.json`, `origin.json`, `golden.json` and `check.json`, and of
      a multi-label classifier `task.json`.

    The check runs the page without other hosts than the folder's, and `onnx/model.onnx` in ONNX
    Runtime. A model in mixed precision is exported as its float32 copy.
    """

    name = "web"
    marker = SCRIPT

    @property
    def packages(self) -> tuple[str, ...]:
        """ONNX, its converter and its runtime."""
        return ("onnx", "tf2onnx", "onnxruntime")

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the files; see `ExportFormat.write`."""
        from keras_vit.checkpoints.metadata import PREPROCESSOR

        from .exported_model import precision_notes
        from .onnx_conversion import transformers_js_content
        from .other_code_bases import labels_json

        contents = classifier_files(classifier, self.runtime)
        contents[TRANSFORMERS_JS] = transformers_js_content(classifier, OPSET).SerializeToString()
        config = {
            # The class of transformers.js; all of them run the file.
            "architectures": ["ViTForImageClassification"],
            "model_type": "vit",
            **labels_json(classifier.class_names, classifier.task),
            # Else a browser would ask for weights in 8 bits.
            "transformers.js_config": {"dtype": "fp32"},
        }
        texts = {
            PAGE: page(self.title or title_of(classifier), script("in_folder.js"), files="'self'"),
            CONFIG: json.dumps(config, indent=2) + "\n",
            PREPROCESSOR: json.dumps(_PROCESSOR, indent=2) + "\n",
        }
        (path / TRANSFORMERS_JS).parent.mkdir()
        for name, content in contents.items():
            (path / name).write_bytes(content)
        write_texts(path, texts)
        return Written(files, (*precision_notes(classifier.model), *_notes(classifier)))

    @staticmethod
    def add_texts(path, texts):
        """Writes the texts as files."""
        write_texts(path, texts)

    @staticmethod
    def open(path):
        """Returns the content of a folder for web programs; see `ExportFormat.open`."""
        import_playwright()
        import_export_package("onnxruntime")
        return OpenedExport(read_texts(path), [path / ONNX_MODEL], lambda: _signatures(path))


web = export_function(Web)


def _notes(classifier):
    """Returns a remark where the pipeline of transformers.js computes something else."""
    if classifier.task != MULTILABEL:
        return ()
    return (
        'transformers.js computes a softmax in pipeline("image-classification"), also of several '
        "labels an image: use AutoModelForImageClassification, and a sigmoid of its logits.",
    )


def _signatures(path):
    """Returns the signature of the page, and that of the file for transformers.js."""
    import numpy as np

    config = (path / CONFIG).read_text(encoding="utf-8")
    several_labels = "problem_type" in json.loads(config)
    session = session_of(path / TRANSFORMERS_JS)

    def call(batch):
        pixel_values = np.moveaxis(batch, 3, 1).astype("float32")
        (logits,) = session.run(["logits"], {"pixel_values": pixel_values})
        if several_labels:
            return 1 / (1 + np.exp(-logits))
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    return {
        "serve": folder_signature(path, PAGE),
        "serve_transformers_js": Signature(call, takes_pixels=True),
    }
