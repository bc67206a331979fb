"""Pages of a classifier in Chromium, as signatures of an export."""

from __future__ import annotations

import io
import os
import shutil
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .formats import Signature, import_playwright

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


def page_signature(address: str) -> Signature:
    """Returns the signature of a page; its images go through the page's own file input.

    The page reaches no other address than its own: Chromium sends everything else, WebSockets and
    early connections too, to a proxy that does not exist, and looks up no names.

    Args:
        address: Its address. From a file it is opened with the network off.
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


def _isolation(host):
    """Returns the arguments of Chromium that let it reach nothing but a host with its port."""
    return [
        "--proxy-server=http://127.0.0.1:9",  # The port of "discard", where nothing listens.
        # Without the first entry Chromium would reach every port of this machine.
        f"--proxy-bypass-list=<-loopback>;{host}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]


def _open_page(address):
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    # Chromium's sandbox does not work for root.
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    arguments += _isolation(urllib.parse.urlsplit(address).netloc)
    playwright = import_playwright().sync_playwright().start()
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
    page.wait_for_selector("body[data-state]", timeout=_TIMEOUT)
    if page.get_attribute("body", "data-state") != "ready":
        raise ValueError(page.inner_text("#status"))
    return page


def _answer(page, png):
    """Returns a page's probabilities for the content of a PNG file, a list of K numbers."""
    rows = page.evaluate("kerasVit.rows.length")
    file: Any = {"name": "image.png", "mimeType": "image/png", "buffer": png}
    page.set_input_files("#files", file)
    row = page.evaluate(_NEXT_ROW, [rows, _TIMEOUT])
    if row["error"]:
        raise ValueError(row["error"])
    return row["probabilities"]
