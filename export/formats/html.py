"""Web page of a classifier: one file that classifies images in a browser, without a network.

It is `browser/page.html` with the script `browser/classifier.js`, the facts of the classifier, its
ONNX file and the runtime.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from html import escape
from typing import TYPE_CHECKING, Any

from keras_vit.utils.fields import documented, setting
from keras_vit.utils.files import CLASSES

from .export_format import (
    NAMES,
    CheckImages,
    ExportFormat,
    OpenedExport,
    Signature,
    import_playwright,
    json_texts,
    texts_of_json,
)
from .onnx import onnx_content

if TYPE_CHECKING:
    from keras_vit.predictor import Predictor
    from keras_vit.preprocessing import Preprocessing

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

# Elements of the page by the names of the texts.
ELEMENTS = {name: name for name in NAMES} | {CLASSES: "classes"}

_TEXT = re.compile(rb'<script type="application/json" id="([^"]+)">(.*?)</script>\n?')

# Pictures (height, width), as long as an evaluation resizes without a crop before.
_TALL, _WIDE = (16_384, 512), (512, 16_384)

_TIMEOUT = 120_000  # Milliseconds.

# Playwright's `wait_for_function` needs `eval`, which the policy of the page refuses.
_NEXT_ROW = """async ([rows, timeout]) => {
  const end = Date.now() + timeout;
  while (kerasVit.rows.length <= rows) {
    if (Date.now() > end) throw new Error("The page gives no answer.");
    await new Promise((next) => setTimeout(next, 2));
  }
  return kerasVit.rows.at(-1);
}"""


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class HTML(ExportFormat):
    """A classifier as a web page.

    The page holds the model as ONNX in float32 and the runtime onnxruntime-web. It opens by a
    double click, without a server. It takes images that are dropped, chosen or photographed, and
    shows their classes and, for models with attention, where the model looked: the Attention
    Rollout over the picture. Its answers can be downloaded as a table. A model in mixed precision
    is exported as its float32 copy.
    """

    name = "html"
    suffix = ".html"
    packages = ("onnx", "tf2onnx")  # The model and its converter.

    runtime: str | os.PathLike | None = setting(
        None,
        "the npm package onnxruntime-web, or its folder dist",
        unit="FOLDER",
        absent="downloaded once, into Keras's cache",
    )

    def write(
        self, path: pathlib.Path, classifier: Predictor, images: CheckImages
    ) -> tuple[str, ...]:
        """Writes the page; see `ExportFormat.write`."""
        folder = classifier.folder
        title = folder.name if folder else classifier.model.name
        parts = classifier_files(classifier, self.runtime)
        path.write_text(page(title, facts_of(classifier), parts), encoding="utf-8")
        return ()

    @staticmethod
    def add_texts(path, texts):
        """Appends the texts as elements of JSON."""
        with path.open("a", encoding="utf-8") as file:
            for name, text in json_texts(texts, ELEMENTS).items():
                content = in_one_line(json.loads(text))
                file.write(f'<script type="application/json" id="{name}">{content}</script>\n')

    @staticmethod
    def open(path):
        """Returns the content of a page; see `ExportFormat.open`."""
        import_playwright()
        elements = _TEXT.findall(path.read_bytes())
        stored = {name.decode("utf-8"): text.decode("utf-8") for name, text in elements}
        texts = texts_of_json(stored, ELEMENTS)
        address = path.absolute().as_uri()
        return OpenedExport(texts, [path], lambda: {"serve": page_signature(address)})


def page(
    title: str, facts: Mapping[str, Any] | None = None, parts: Mapping[str, bytes] | None = None
) -> str:
    """Returns the page of a classifier.

    Args:
        title: Its title.
        facts: What its script knows of the classifier, as types of JSON.
        parts: The files that its script loads, by name.
    """
    from keras_vit.reports.pages import style_sheet

    folder = pathlib.Path(__file__).with_name("browser")
    template = (folder / "page.html").read_text(encoding="utf-8")
    script = (folder / "classifier.js").read_text(encoding="utf-8")
    elements = (
        f'<script type="application/gzip" id="{name}">{_packed(content)}</script>'
        for name, content in (parts or {}).items()
    )
    values = {
        "title": escape(title),
        "style": style_sheet(),
        "facts": in_one_line(facts),
        "parts": "\n".join(elements),
    }
    places = r"\{\{(\w+)\}\}"
    return re.sub(places, lambda match: values[match[1]], template.replace("{{script}}", script))


def _packed(content):
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def in_one_line(content: object) -> str:
    """Returns JSON as one line without "<", which may begin the end of an element."""
    return json.dumps(content).replace("<", "\\u003c")


def facts_of(classifier: Predictor) -> dict[str, Any]:
    """Returns what the script of a page knows of a classifier."""
    return {
        "classNames": classifier.description.labels.output_names,
        "thresholds": classifier.thresholds,
        "bitDepth": classifier.preprocessing.bit_depth,
        "view": _view(classifier.preprocessing),
    }


def classifier_files(
    classifier: Predictor, runtime: str | os.PathLike | None = None
) -> dict[str, bytes]:
    """Returns the contents of the files that classify images in a browser, by name.

    Args:
        classifier: The classifier.
        runtime: The npm package onnxruntime-web, or its folder `dist` with the files of `RUNTIME`;
            by default they are downloaded once, into Keras's cache.

    Raises:
        ValueError: If a file of the runtime is not the expected one.
        ImportError: If the extra `web` is not installed.
    """
    from keras_vit.inspection.attention_probabilities import has_rollout

    import_playwright()  # For the check.
    model = onnx_content(classifier, "uint8", attention=has_rollout(classifier.model))
    return {"model.onnx": model.SerializeToString(), **_runtime_files(runtime)}


def _view(preprocessing: Preprocessing) -> dict:
    """Returns what shows the part of a picture that the model receives.

    `resized` is the size (height, width) before the crop of its middle to `size`; with
    `keepsAspect` only the side that is scaled more becomes so. In a tall picture this is the
    width, in a wide one the height.
    """
    from keras_vit.images.resizing import EVALUATION_STEPS

    geometry, size = EVALUATION_STEPS[preprocessing.evaluation].geometry, preprocessing.image_size
    tall, wide = (geometry(sides, size, preprocessing.resize_size) for sides in (_TALL, _WIDE))
    keeps_aspect = tall.cropped is not None or tall.resized != wide.resized
    resized = int(wide.resized[0]), int(tall.resized[1])
    return {"keepsAspect": keeps_aspect, "resized": resized, "size": size}


def _runtime_files(folder):
    """Returns the contents of the runtime's files by name, whose checksums are right."""
    contents = {}
    for name, sha256 in RUNTIME.items():
        if folder is None:
            path = _downloaded(name, sha256)
        else:
            places = (pathlib.Path(folder), pathlib.Path(folder, "dist"))
            path = next((place / name for place in places if (place / name).is_file()), places[0])
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


def page_signature(address: str) -> Signature:
    """Returns the signature of a page; its images go through the page's own file input.

    Args:
        address: The address of its file.
    """
    import numpy as np
    import PIL.Image

    # Playwright's objects belong to the thread that made them.
    thread = ThreadPoolExecutor(max_workers=1)
    page = thread.submit(_open_page, address).result()

    def call(batch):
        answers = []
        for image in batch:
            content = io.BytesIO()
            PIL.Image.fromarray(image).save(content, "PNG")
            answers.append(thread.submit(_answer, page, content.getvalue()).result())
        return np.array(answers, "float32")

    return Signature(call, takes_pixels=True)


def _open_page(address):
    """Opens a page in a Chromium that reaches nothing.

    It has no network, and sends WebSockets and early connections too to a proxy that does not
    exist, and looks up no names.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    arguments = [
        "--proxy-server=http://127.0.0.1:9",  # The port of "discard", where nothing listens.
        "--proxy-bypass-list=<-loopback>",  # Else Chromium reaches every port of this machine.
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        arguments.append("--no-sandbox")  # The sandbox does not work for root.
    playwright = import_playwright().sync_playwright().start()
    try:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
    except Exception as error:
        playwright.stop()
        raise ValueError(
            "A web page runs in Chromium, which does not start here: install it (in Debian the "
            "package chromium; elsewhere: playwright install chromium)."
        ) from error
    page = browser.new_context(offline=True).new_page()
    page.goto(address)
    page.wait_for_selector("body[data-state]", timeout=_TIMEOUT)
    if page.get_attribute("body", "data-state") != "ready":
        raise ValueError(page.inner_text("#status"))
    return page


def _answer(page, png):
    """Returns a page's probabilities for the content of a PNG file, a list of K numbers."""
    rows = page.evaluate("kerasVit.rows.length")
    file = {"name": "image.png", "mimeType": "image/png", "buffer": png}
    page.set_input_files("#files", file)
    row = page.evaluate(_NEXT_ROW, [rows, _TIMEOUT])
    if row["error"]:
        raise ValueError(row["error"])
    return row["probabilities"]
