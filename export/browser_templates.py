"""Page and scripts of a classifier in a browser, filled from the templates in `browser/`.

The page is one template, `browser/page.html`. A script in the same folder gets its answers:
`in_page.js` of `keras_vit.export.html`. The page and the module `classifier.js` share `bitmaps.js`.
This module imports neither Keras nor NumPy.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier

# Names by which the page and its scripts load the module and the model.
SCRIPT = "classifier.js"
ONNX_MODEL = "model.onnx"

_TEMPLATES = pathlib.Path(__file__).with_name("browser")


def title_of(classifier: Classifier) -> str:
    """Returns the default title of a page: the name of the classifier's folder."""
    return classifier.folder.name if classifier.folder else classifier.model.name


def page(title: str, source: str, files: str, parts: str = "") -> str:
    """Returns the page of a classifier.

    Args:
        title: Its title.
        source: The script that connects it with the classifier; see `script`.
        files: Where the page's own files are, "blob:" or "'self'"; its policy allows no other
            connections.
        parts: HTML elements that the script reads.
    """
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(files)}">\n'
    return _filled(
        "page.html",
        title=escape(title),
        source=source,
        parts=parts,
        policy=policy,
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
    values["bitmaps"] = _template("bitmaps.js")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], _template(name))


def _template(name):
    return (_TEMPLATES / name).read_text(encoding="utf-8")
