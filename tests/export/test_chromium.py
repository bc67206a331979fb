"""The browser of the check, in which a page reaches nothing."""

import socket
import threading

import pytest

from keras_vit.export.html import _isolation, page_signature

# Ways in which a page may open a connection, each to the address in place of HOST.
PAGE = """<!DOCTYPE html>
<link rel="preconnect" href="http://HOST/">
<link rel="dns-prefetch" href="http://HOST/">
<img src="http://HOST/image.png">
<body><p id="status"></p>
<input id="files" type="file">
<script>
  var kerasVit = { rows: [] };
  navigator.sendBeacon("http://HOST/beacon", "pixels");
  const ended = [
    fetch("http://HOST/fetch", { mode: "no-cors" }).catch(() => 0),
    new Promise((end) => { new WebSocket("ws://HOST/socket").onclose = end; }),
    new Promise((end) => { new EventSource("http://HOST/events").onerror = end; }),
  ];
  files.onchange = () => kerasVit.rows.push({ error: "", probabilities: [1] });
  Promise.all(ended).then(() => setTimeout(() => { document.body.dataset.state = "ready"; }, 500));
</script>
"""


@pytest.fixture
def listener():
    """Yields the address of a port of this machine, and the first bytes of each connection."""
    received = []

    def accept(server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(0.2)
                try:
                    received.append(connection.recv(100))
                except OSError:
                    received.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", received
        server.shutdown(socket.SHUT_RDWR)


def test_a_page_reaches_no_other_address(listener, tmp_path):
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    import numpy as np

    host, received = listener
    path = tmp_path / "page.html"
    path.write_text(PAGE.replace("HOST", host))
    signature = page_signature(path.as_uri())
    assert signature.call(np.zeros((1, 8, 8, 3), "uint8")).tolist() == [[1]]
    assert received == []


def test_only_the_address_of_the_page_goes_past_the_proxy():
    assert "--proxy-bypass-list=<-loopback>;127.0.0.1:81" in _isolation("127.0.0.1:81")
