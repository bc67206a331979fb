"""Peak memory of `keras-vit serve` for each kind of request, alone and several at once.

Prints a table: memory when the server is ready, and the peak above it while the requests of a
row are answered. Linux only: the peak is read from /proc, and set back before each row.

    python benchmarks/server_memory.py [MODEL] [--at-once 4]
"""

import argparse
import base64
import io
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
from PIL import Image

COMMAND = "import sys; from keras_vit.command_line import main; sys.exit(main(sys.argv[1:]))"
SIDE = 7000  # 49 megapixels; the default bound is 50 million.
BODY = 32_000_000  # Bytes; the default of --max-body.


def image_file(kind):
    """Returns a file of 49 megapixels that compresses well."""
    Image.new("RGB", (SIDE, SIDE), (200, 30, 30)).save(
        file := io.BytesIO(), kind, **({"compression": "tiff_lzw"} if kind == "TIFF" else {})
    )
    return file.getvalue()


def noise():
    """Returns a JPEG of noise, of nearly the bytes of a body."""
    pixels = np.random.default_rng(0).integers(0, 256, (3300, 3300, 3), dtype="uint8")
    Image.fromarray(pixels).save(file := io.BytesIO(), "JPEG", quality=95)
    return file.getvalue()


def requests(name):
    """Yields the name of each kind of request and a function that sends it."""
    predict = f"/v1/models/{name}:predict"

    def uploads(*files):
        return lambda client: client.post(
            "/classify", files=[("images", (f"{n}.jpg", file)) for n, file in enumerate(files)]
        )

    def posted(body):
        return lambda client: client.post(predict, content=body)

    small = io.BytesIO()
    Image.new("RGB", (640, 480)).save(small, "JPEG")
    for kind in ("JPEG", "PNG", "TIFF", "AVIF"):
        try:
            yield f"{kind}, 49 megapixels", uploads(image_file(kind))
        except (KeyError, OSError):
            print(f"{kind}: this Pillow does not write it")
    large = noise()
    yield f"JPEG of {len(large) / 1e6:.0f} MB", uploads(large)
    yield "64 JPEG of 640x480", uploads(*[small.getvalue()] * 64)
    encoded = base64.b64encode(large).decode()
    yield "the same in JSON", posted(json.dumps({"instances": [{"b64": encoded}]}).encode())
    entries = b'{"instances": [' + b"{}," * (BODY // 3 - 10) + b"{}]}"
    yield f"JSON of {len(entries) // 3:,} empty objects", posted(entries)
    text = json.dumps({"instances": [{"b64": "é" + "A" * (BODY - 100)}]}, ensure_ascii=False)
    yield "JSON of a text that is not ASCII", posted(text.encode()[:BODY])


def status(process, field):
    """Returns a field of /proc/PID/status in megabytes."""
    text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="cifar10")
    parser.add_argument("--at-once", type=int, default=4)
    arguments = parser.parse_args()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", arguments.model, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        ready = process.stdout.readline()
        address, name = ready.split(", ")[1].strip(), ready.partition(":")[0]
        print(f"ready: {status(process, 'VmRSS'):.0f} MB")
        print(f"{'request':<36} {'status':>6} {'one, MB':>8} {arguments.at_once:>3} at once, MB")
        for kind, send in requests(name):
            peaks = []
            for count in (1, arguments.at_once):
                before = status(process, "VmRSS")
                pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")

                def ask(_, send=send):
                    with httpx2.Client(base_url=address, timeout=600) as client:
                        return send(client).status_code

                with ThreadPoolExecutor(count) as pool:
                    codes = set(pool.map(ask, range(count)))
                peaks.append(status(process, "VmHWM") - before)
            codes = "/".join(map(str, sorted(codes)))
            print(f"{kind:<36} {codes:>6} {peaks[0]:>8.0f} {peaks[1]:>11.0f}", flush=True)
        print(f"at the end: {status(process, 'VmRSS'):.0f} MB")
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
