"""Requests a second and times of `keras-vit serve`, by size of batches and number of clients.

    python benchmarks/serving.py [MODEL] [--images FILE ...] [--max-batch 1 8] [--clients 1 4 16]

Clients of one process send one image at a time, each the next one as soon as its answer is
there (a closed loop), over connections that stay open, for some seconds. One request in ten holds
a broken image. "CPU ms" is the server's CPU time a request. Every answer is compared with
`Classifier.predict`, and the table ends with the number of requests that had no answer or another
one. Server and clients share the machine.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from keras_vit.models.opened_classifier import open_classifier
from keras_vit.training.machine import describe

BROKEN_SHARE = 0.1
WARM_UP = 1.0  # Seconds.
TOLERANCE = 1e-3  # Largest difference of probabilities: batches of other sizes round differently.
COLUMNS = (
    "max batch", "clients", "requests/s", "p50 ms", "p99 ms", "mean batch", "CPU ms", "requests",
)  # fmt: skip
COUNTS = ("keras_vit_batch_images_count", "keras_vit_batch_images_sum", "process_cpu_seconds_total")
START = "import sys; from keras_vit.command_line import main; sys.exit(main(sys.argv[1:]))"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="cifar10", help="a folder or an export")
    parser.add_argument("--images", nargs="+", help="by default the classifier's samples")
    parser.add_argument("--max-batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--batch-wait", type=float, default=2.0)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    arguments = parser.parse_args()

    classifier = open_classifier(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        images = arguments.images or [classifier.folder / "samples"]
        good = classifier.predict(images)
        broken = pathlib.Path(folder) / "cut.jpg"
        broken.write_bytes(pathlib.Path(good[0].path).read_bytes()[:-100])
        requests = [request_of(prediction) for prediction in [*good, *classifier.predict(broken)]]
    wrong = total = 0
    print(f"{arguments.model}, {len(good)} images; {describe()}")
    print(" | ".join(COLUMNS))
    for max_batch in arguments.max_batch:
        options = ["--max-batch", str(max_batch), "--batch-wait", str(arguments.batch_wait)]
        with Server(arguments.model, options) as server:
            for clients in arguments.clients:
                measure(server, requests, clients, WARM_UP)
                before = server.counts()
                loads = measure(server, requests, clients, arguments.seconds)
                batches, computed, cpu = np.subtract(server.counts(), before)
                seconds = np.concatenate([load.seconds for load in loads])
                p50, p99 = 1000 * np.percentile(seconds, [50, 99])
                wrong += sum(load.wrong for load in loads)
                total += len(seconds)
                print(
                    f"{max_batch} | {clients} | {len(seconds) / arguments.seconds:.0f} | "
                    f"{p50:.1f} | {p99:.1f} | {computed / batches:.1f} | "
                    f"{1000 * cpu / len(seconds):.1f} | {len(seconds)}",
                    flush=True,
                )
    print(f"lost or different: {wrong} of {total} requests")
    return 1 if wrong else 0


def request_of(prediction):
    """Returns body, headers and expected answer of a request with one file."""
    head = (
        "--limit\r\nContent-Disposition: form-data; name=images; "
        f'filename="{os.path.basename(prediction.path)}"\r\n\r\n'
    )
    body = head.encode() + pathlib.Path(prediction.path).read_bytes() + b"\r\n--limit--\r\n"
    return body, {"Content-Type": "multipart/form-data; boundary=limit"}, prediction


class Server:
    """The command in a separate process; it must end with exit code 0."""

    def __init__(self, model, options):
        command = ["serve", model, "--port", "0", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *command], stdout=subprocess.PIPE, text=True
        )
        self.address = re.search(r"http://(\S+)", self.process.stdout.readline())[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()
        if self.process.returncode:
            raise ValueError(f"The server ended with exit code {self.process.returncode}.")

    def counts(self):
        """Returns batches, images in them, and the server's CPU time in seconds (on Linux)."""
        with urllib.request.urlopen(f"http://{self.address}/metrics") as response:
            text = response.read().decode()
        found = [re.search(rf"^{name} (\S+)", text, re.M) for name in COUNTS]
        return [float(value[1]) if value else np.nan for value in found]


class Load(threading.Thread):
    """A client that sends the next request as soon as it has an answer, until a time."""

    def __init__(self, address, requests, seed, end):
        super().__init__()
        self.connection = http.client.HTTPConnection(address, timeout=120)
        self.requests, self.end = requests, end
        self.rng = np.random.default_rng(seed)
        self.seconds, self.wrong = [], 0

    def run(self):
        *good, broken = self.requests
        while time.perf_counter() < self.end:
            is_broken = self.rng.random() < BROKEN_SHARE
            body, headers, expected = broken if is_broken else good[self.rng.integers(len(good))]
            began = time.perf_counter()
            try:
                self.connection.request("POST", "/classify", body, headers)
                response = self.connection.getresponse()
                content = response.read()
                self.seconds.append(time.perf_counter() - began)
                self.wrong += response.status != 200 or differs(json.loads(content), expected)
            except (OSError, http.client.HTTPException):
                self.seconds.append(time.perf_counter() - began)
                self.wrong += 1
        self.connection.close()


def differs(content, expected):
    """Returns whether an answer differs from `predict`."""
    (answer,) = content["predictions"]
    ours = {row["class"]: row["probability"] for row in answer["top"]}
    theirs = dict(expected.top)
    return (
        answer.get("error") != expected.error
        or len(ours) != len(theirs)
        or max((abs(ours.get(name, 2) - theirs[name]) for name in theirs), default=0) > TOLERANCE
    )


def measure(server, requests, clients, seconds):
    """Returns the loads of some clients after they ran for some seconds."""
    end = time.perf_counter() + seconds
    loads = [Load(server.address, requests, seed, end) for seed in range(clients)]
    for load in loads:
        load.start()
    for load in loads:
        load.join()
    return loads


if __name__ == "__main__":
    sys.exit(main())
