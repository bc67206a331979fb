"""Program that runs an export in its own runtime, without importing keras_vit.

    python runtimes.py FORMAT EXPORT IMAGES.npz FILES.json ANSWERS.npz

IMAGES has an array `(N, H, W, C)` float32, preprocessed images, for signatures such as `serve` or
`serve_384x384`; FILES is a list of the N image files. The program writes `<name>/probabilities`
`(N, K)` and `<name>/seconds` `(N,)`, one image a call, into ANSWERS, for these signatures and, in
a SavedModel, for those of files, such as `serve_bytes_384x384`. A signature that takes uint8
pixels gets the files as Pillow decodes them, and has `<name>/input_size`: the only size (height,
width) that it takes, or zeros.
"""

import functools
import io
import json
import os
import pathlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import PIL.ImageOps

# First calls compile and fill caches.
WARM_UP_CALLS = 2

_PAGE_TIMEOUT = 120_000  # Milliseconds.

# Of an export: of images, of encoded files, and of the file for transformers.js. A SavedModel has
# further ones with a suffix for another image size.
SIGNATURES = ("serve", "serve_bytes", "serve_transformers_js")

TRANSFORMERS_JS = "onnx/model.onnx"  # The path that its library prescribes.


class Signature(NamedTuple):
    """A callable signature of an export.

    Args:
        call: Function from a batch `(B, ...)` to probabilities `(B, K)`.
        takes_files: Whether the batch holds encoded files instead of images.
        images_per_call: Batch size that a call of one image computes, for the time per image.
        takes_pixels: Whether images are uint8 and not preprocessed.
        metadata: Texts in the file that its runtime reads, by name.
        input_size: The only size (height, width) of pixels that it takes, or None.
    """

    call: Callable[[np.ndarray], Any]
    takes_files: bool = False
    images_per_call: int = 1
    takes_pixels: bool = False
    metadata: Mapping[str, str] = {}
    input_size: tuple[int, int] | None = None


def saved_model(path):
    """Returns the signatures of a SavedModel by name."""
    import tensorflow as tf

    loaded = tf.saved_model.load(path)

    def call(name):
        # Keeps a reference to `loaded`: a signature alone does not keep its variables alive.
        function = loaded.signatures[name]
        (argument,) = function.structured_input_signature[1]
        return lambda batch: function(**{argument: tf.constant(batch)})["probabilities"].numpy()

    return {
        name: Signature(call(name), takes_files=name.startswith("serve_bytes"))
        for name in loaded.signatures
    }


def tflite(path):
    """Returns the one signature of a TFLite file."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=os.cpu_count())
    run = interpreter.get_signature_runner("serve")
    details = run.get_input_details()["images"]
    fixed, height, width, _ = map(int, details["shape_signature"])  # -1 for any.

    def call(batch):
        size = fixed if fixed > 0 else len(batch)
        answers = []
        for start in range(0, len(batch), size):
            part = batch[start : start + size]
            # Filled with copies of the last image.
            filled = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
            answers.append(run(images=filled)["probabilities"][: len(part)])
        return np.concatenate(answers)

    takes_pixels = details["dtype"] == np.uint8
    size = (height, width) if takes_pixels and height > 0 else None
    return {"serve": Signature(call, False, max(fixed, 1), takes_pixels, input_size=size)}


def onnx(path):
    """Returns the one signature of an ONNX file."""
    session = _onnx_session(path)
    return {
        "serve": Signature(
            lambda batch: session.run(["probabilities"], {"images": batch})[0],
            takes_pixels=session.get_inputs()[0].type == "tensor(uint8)",
            metadata=session.get_modelmeta().custom_metadata_map,
        )
    }


def _onnx_session(path):
    import onnxruntime

    # With a fallback an error is also printed, on four lines.
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"], enable_fallback=0)


def openvino(path):
    """Returns the one signature of an OpenVINO folder, computed in float32.

    By default OpenVINO computes in bfloat16 where the CPU has it.
    """
    import openvino

    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.compile_model(os.path.join(path, "model.xml"), "CPU", precision)
    takes_pixels = model.input("images").get_element_type() == openvino.Type.u8
    return {
        "serve": Signature(
            lambda batch: model({"images": batch})["probabilities"], takes_pixels=takes_pixels
        )
    }


def html(path):
    """Returns the one signature of a web page, in Chromium with the network off."""
    address = pathlib.Path(path).absolute().as_uri()
    return {"serve": _page_signature(address)}


def web(path):
    """Returns the signatures of a folder for web programs.

    Its page runs in Chromium, which reaches nothing but a server of this folder, and the file for
    transformers.js in ONNX Runtime.
    """
    handler = functools.partial(_FolderHandler, directory=path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = _page_signature(f"http://127.0.0.1:{server.server_port}/index.html")
    config = pathlib.Path(path, "config.json").read_text(encoding="utf-8")
    several_labels = "problem_type" in json.loads(config)
    session = _onnx_session(os.path.join(path, TRANSFORMERS_JS))

    def call(batch):
        pixel_values = np.moveaxis(batch, 3, 1).astype("float32")
        (logits,) = session.run(["logits"], {"pixel_values": pixel_values})
        if several_labels:
            return 1 / (1 + np.exp(-logits))
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)

    return {"serve": page, "serve_transformers_js": Signature(call, takes_pixels=True)}


class _FolderHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def _page_signature(address):
    """Returns the signature of a page; its images go through the page's own file input."""
    # Playwright's objects belong to the thread that made them.
    thread = ThreadPoolExecutor(max_workers=1)
    page = thread.submit(_open_page, address).result()

    def call(batch):
        return np.stack([thread.submit(_page_answer, page, image).result() for image in batch])

    return Signature(call, takes_pixels=True)


def _open_page(address):
    from playwright.sync_api import sync_playwright

    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    playwright = sync_playwright().start()
    try:
        browser = playwright.chromium.launch(executable_path=next(found, None), args=arguments)
    except Exception as error:
        playwright.stop()
        raise ValueError(
            "A web page runs in Chromium, which does not start here: install it (in Debian the "
            "package chromium; elsewhere: playwright install chromium)."
        ) from error
    origin, is_file = address.rpartition("/")[0], address.startswith("file:")
    context = browser.new_context(offline=is_file)
    if not is_file:
        context.route(lambda url: not url.startswith(origin), lambda route: route.abort())
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-state]", timeout=_PAGE_TIMEOUT)
    if page.get_attribute("body", "data-state") != "ready":
        raise ValueError(page.inner_text("#status"))
    return page


def _page_answer(page, image):
    """Returns a page's probabilities `(K,)` for pixels."""
    content = io.BytesIO()
    PIL.Image.fromarray(image).save(content, "PNG")
    rows = page.evaluate("kerasVit.rows.length")
    file: Any = {"name": "image.png", "mimeType": "image/png", "buffer": content.getvalue()}
    page.set_input_files("#files", file)
    page.wait_for_function(f"kerasVit.rows.length > {rows}", timeout=_PAGE_TIMEOUT)
    row = page.evaluate("kerasVit.rows.at(-1)")
    if row["error"]:
        raise ValueError(row["error"])
    return np.array(row["probabilities"], "float32")


FORMATS = {
    "saved_model": saved_model,
    "tflite": tflite,
    "onnx": onnx,
    "openvino": openvino,
    "html": html,
    "web": web,
}


def main(format_name, export, images, files, answers):
    """Runs every image through every signature and writes the answers."""
    files = json.loads(pathlib.Path(files).read_text(encoding="utf-8"))
    signatures = FORMATS[format_name](export)
    arrays: dict[str, Any] = {}
    with np.load(images, allow_pickle=False) as pixels:
        for name in pixels:
            for kind in SIGNATURES:
                key = name.replace("serve", kind, 1)
                if key in signatures:
                    arrays |= answers_of(key, signatures[key], pixels[name], files)
    np.savez(answers, **arrays)


def read_pixels(path: Any) -> np.ndarray:
    """Returns an image file's pixels as Pillow decodes them: uint8 `(H, W, 3)`, upright."""
    with PIL.Image.open(path) as image:
        return np.asarray(PIL.ImageOps.exif_transpose(image).convert("RGB"))


def with_size(pixels: np.ndarray, size: tuple[int, int] | None) -> np.ndarray:
    """Returns pixels resized by Pillow, with antialiasing; unchanged if the size is None."""
    if size is None or pixels.shape[:2] == tuple(size):
        return pixels
    height, width = size
    return np.asarray(
        PIL.Image.fromarray(pixels).resize((width, height), PIL.Image.Resampling.BILINEAR)
    )


def answers_of(name, signature, images, files):
    """Returns the arrays of one signature."""
    probabilities, seconds = [], []
    for index in [0] * WARM_UP_CALLS + list(range(len(images))):
        if signature.takes_files:
            batch = np.array([pathlib.Path(files[index]).read_bytes()], dtype=object)
        elif signature.takes_pixels:
            batch = with_size(read_pixels(files[index]), signature.input_size)[np.newaxis]
        else:
            batch = images[index : index + 1]
        start = time.perf_counter()
        probabilities.append(signature.call(batch)[0])
        seconds.append((time.perf_counter() - start) / signature.images_per_call)
    arrays = {
        f"{name}/probabilities": np.stack(probabilities[WARM_UP_CALLS:]),
        f"{name}/seconds": np.array(seconds[WARM_UP_CALLS:]),
    }
    if signature.takes_pixels:
        arrays[f"{name}/input_size"] = np.array(signature.input_size or (0, 0))
    return arrays


if __name__ == "__main__":
    main(*sys.argv[1:])
