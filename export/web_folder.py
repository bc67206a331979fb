"""Folder of a classifier for web programs: an ES module, a page, and a model of transformers.js."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vit.description.description_texts import read_texts
from keras_vit.description.tasks import MULTILABEL
from keras_vit.utils.fields import documented
from keras_vit.utils.files import CONFIG

from .browser_templates import (
    ONNX_MODEL,
    SCRIPT,
    TRANSFORMERS_JS,
    TYPES,
    page,
    script,
    title_of,
)
from .export_format import (
    BrowserFormat,
    OpenedExport,
    Signature,
    Written,
    import_export_package,
    import_playwright,
)
from .onnx_file import session_of
from .texts import NAMES, write_texts

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

PAGE = "index.html"


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Web(BrowserFormat):
    """Exports a classifier as a folder for web programs and checks it in Chromium.

    Any server of static files serves the folder. It holds

    - `classifier.js`, a module with the function `classify`, with its types in `classifier.d.ts`,
      and `model.onnx` and the runtime onnxruntime-web, which it loads;
    - `index.html`, the page of `keras_vit.export.html`, with this module;
    - `config.json`, `preprocessor_config.json` and `onnx/model.onnx`, which transformers.js reads:
      `pipeline("image-classification", FOLDER)`. The file preprocesses as the
      classifier does: its input `pixel_values` `(1, 3, H, W)` float32 has pixels of any size from
      0 to 255, of one image a call. A softmax of its output `logits` `(1, K)` (a sigmoid, of
      a multi-label classifier) gives the probabilities;
    - `description.json`, `classes.txt`, `preprocessing.json`, `origin.json`, `golden.json`,
      `check.json` and `checksums.json`, and of a multi-label classifier `task.json`.

    The check runs the page without other hosts than the folder's, and `onnx/model.onnx` in ONNX
    Runtime. A model in mixed precision is exported as its float32 copy.
    """

    name = "web"
    marker = SCRIPT
    packages = ("onnx", "tf2onnx", "onnxruntime")  # The models, their converter, their runtime.

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the files; see `ExportFormat.write`."""
        from . import browser_files, exported_model

        contents = {
            PAGE: page(
                self.title or title_of(classifier), script("in_folder.js"), files="'self'"
            ).encode(),
            TYPES: script(TYPES).encode(),
            **browser_files.classifier_files(classifier, self.runtime),
            **browser_files.transformers_js_files(classifier),
        }
        (path / TRANSFORMERS_JS).parent.mkdir()
        for name, content in contents.items():
            (path / name).write_bytes(content)
        notes = exported_model.precision_notes(classifier.model)
        return Written(files, (*notes, *_notes(classifier)))

    add_texts = staticmethod(write_texts)

    @staticmethod
    def open(path):
        """Returns the content of a folder for web programs; see `ExportFormat.open`."""
        import_playwright()
        import_export_package("onnxruntime")
        return OpenedExport(read_texts(path, NAMES), [path / ONNX_MODEL], lambda: _signatures(path))


def _notes(classifier):
    """Returns a remark where the pipeline of transformers.js computes something else."""
    if classifier.task != MULTILABEL:
        return ()
    return (
        'transformers.js computes a softmax in pipeline("image-classification"), also for a '
        "multi-label classifier: use AutoModelForImageClassification, and a sigmoid of its logits.",
    )


def _signatures(path):
    """Returns the signatures of the page and of the file for transformers.js."""
    import numpy as np

    from .chromium import folder_signature  # With a web server, which no other format needs.

    config = (path / CONFIG).read_text(encoding="utf-8")
    is_multilabel = "problem_type" in json.loads(config)
    session = session_of(path / TRANSFORMERS_JS)

    def call(batch):
        pixel_values = np.moveaxis(batch, 3, 1).astype("float32")
        (logits,) = session.run(["logits"], {"pixel_values": pixel_values})
        if is_multilabel:
            return 1 / (1 + np.exp(-logits))
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    return {
        "serve": folder_signature(path, PAGE),
        "serve_transformers_js": Signature(call, takes_pixels=True),
    }
