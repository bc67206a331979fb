"""Web page of a classifier: one file that classifies images in a browser, without a network."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vit.utils.fields import documented
from keras_vit.utils.files import CLASSES

from .browser_templates import in_one_line, page, script, title_of
from .formats import BrowserFormat, OpenedExport, Written, import_playwright
from .texts import NAMES, json_texts, texts_of_json

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

# Elements of the page by the names of the texts.
ELEMENTS = {name: name for name in NAMES} | {CLASSES: "classes"}

_TEXT = re.compile(rb'<script type="application/json" id="([^"]+)">(.*?)</script>\n?')
_PACKED = '<script type="application/gzip"'  # The first of the elements that hold the model.


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class HTML(BrowserFormat):
    """Exports a classifier as a web page and checks it in Chromium with the network off.

    The page holds the model as ONNX in float32 and the runtime onnxruntime-web. It opens by a
    double click, without a server. It takes images that are dropped, chosen or photographed, and
    shows their classes and, for models with attention, where the model looked: the Attention
    Rollout over the picture. Its answers can be downloaded as a table. A model in mixed precision
    is exported as its float32 copy.
    """

    name = "html"
    suffix = ".html"
    packages = ("onnx", "tf2onnx")  # The model and its converter.

    def write(self, path: pathlib.Path, classifier: Classifier, files: Sequence[str]) -> Written:
        """Writes the page; see `ExportFormat.write`."""
        from . import browser_files, exported_model

        contents = browser_files.classifier_files(classifier, self.runtime)
        packed = "\n".join(_packed(name, content) for name, content in contents.items())
        text = page(self.title or title_of(classifier), script("in_page.js"), "blob:", packed)
        path.write_text(text, encoding="utf-8")
        return Written(files, exported_model.precision_notes(classifier.model))

    @staticmethod
    def add_texts(path, texts):
        """Adds the texts as elements of JSON, before the elements of the model."""
        elements = [json_element(*element) for element in json_texts(texts, ELEMENTS).items()]
        before, packed, after = path.read_text(encoding="utf-8").partition(_PACKED)
        path.write_text(f"{before}{''.join(elements)}{packed}{after}", encoding="utf-8")

    @staticmethod
    def open(path):
        """Returns the content of a page; see `ExportFormat.open`."""
        import_playwright()
        found = _TEXT.findall(path.read_bytes())
        stored = {name.decode("utf-8"): text.decode("utf-8") for name, text in found}
        texts = texts_of_json(stored, ELEMENTS)
        address = path.absolute().as_uri()
        return OpenedExport(texts, [path], lambda: _signatures(address))

    @staticmethod
    def content(path):
        """Returns the page without the elements of its texts; see `ExportFormat.content`."""
        return [_TEXT.sub(b"", path.read_bytes())]


def json_element(name: str, text: str) -> str:
    """Returns the line with the element that holds JSON."""
    return f'<script type="application/json" id="{name}">{in_one_line(json.loads(text))}</script>\n'


def _packed(name, content):
    """Returns the element that holds bytes compressed."""
    text = base64.b64encode(gzip.compress(content, mtime=0)).decode()
    return f'{_PACKED} id="{name}">{text}</script>'


def _signatures(address):
    from .chromium import page_signature  # With a web server, which no other format needs.

    return {"serve": page_signature(address)}
