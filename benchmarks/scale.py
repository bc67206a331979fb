"""Photos a second of `predict` and of workers of Ray, the share of decoding, and a GPU on paper.

    RAY_PYTHON=ENVIRONMENT/bin/python python benchmarks/scale.py [--photos 2000] [--turns 3]
    python benchmarks/scale.py --turns 0    # The arithmetic alone.

The environment has what `examples/ray_predict.py` needs: ray[data], onnxruntime, pillow. JPEG
files of ImageNet's usual size (500 x 375, about 110 kB) are answered by an ONNX export

- by `keras-vit predict`, one process that decodes and computes on all cores;
- by `examples/ray_predict.py` with one and more workers, in a local cluster of four CPUs;
- by the functions of that example on one core without Ray: decoding, the model, both.

All take turns. The tables have the range of the rates, and medians of the rest. The clock runs from
a quarter of the answers to the last one, without the start. Seconds of the processor are read from
the processes in the same time: other work of the machine changes them far less. Decoding includes
reading and copies; "program" is the example, and "Ray" the other processes of Ray.

On paper each core but one decodes, and the last one feeds the GPU, which computes at the same time:
the slower of the two is the rate of both. Left out are storage, network, the way of the pixels to
the GPU and their resizing there.
"""

import argparse
import collections
import contextlib
import json
import math
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from machine import describe

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"
BATCH = 32
DIFFERENT = 500  # Photos; the others are links to them.
CLUSTER_CPUS = 4  # A worker takes one; the others decode.
TICKS = os.sysconf("SC_CLK_TCK")  # Units of processor time in a second.
MILLION = 1_000_000
STORE = 1_000_000_000  # Bytes between decoding and model: few photos, as of a million few fit.
PROGRAM, REST = "program", "Ray"
WORDS = {"decode": "decoding", "ReadBinary": "decoding", "Classifier": "model"}  # In names of work.
ROLES = ("decoding", "model", PROGRAM, REST)

# What the arithmetic takes: value, unit and source.
MEASURED = 'docs/speed.md, "A million photos"'
INPUTS = {
    "cores": (16, "cores beside the GPU, of which one feeds it", "a choice"),
    "decode_ms": (2.3, "ms of a core to read and decode a photo and to pass it on", MEASURED),
    "ray_ms": (0.9, "ms of a core for a photo in the program and in Ray", MEASURED),
    "gpu_rate": (
        3951,
        "images/s of ViT-B/16 at 224 on an H100, JAX in float32 (TF32), as an ONNX file computes",
        'docs/speed.md, "One H100, three backends" (there 7597 in bfloat16)',
    ),
    "core_rate": (
        3.67,
        "images/s of ViT-B/16 at 224 on a core of a Xeon, ONNX in float32",
        'docs/speed.md, "Exports" (136.4 ms an image on 2 cores)',
    ),
}


def main():
    """Prints what was measured and the arithmetic, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["vit_mini4_cifar10", "ViT-Ti/16"])
    parser.add_argument("--photos", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3, help="0 for the arithmetic alone")
    for name, (value, unit, source) in INPUTS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=float, default=value, help=f"{unit}; {source}")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        print(json.dumps(alone(*map(pathlib.Path, arguments.alone))))
        return
    if arguments.turns:
        measure(arguments)
    on_paper(arguments)


def measure(arguments):
    """Prints two tables: the rates of the ways, and the processor time of a photo without Ray."""
    from keras_vit.reports.report import markdown_table

    print(describe("onnxruntime", "keras"), "\n")
    rates = [["model", "way", "photos/s", "of predict", "processor ms a photo", "", "", "", ""]]
    rates.append(["", "", "", "", *ROLES, "in all"])
    shares = [["model", "decoding", "model", "both", "share of decoding"]]
    with tempfile.TemporaryDirectory() as name, start_cluster() as cluster:
        folder = pathlib.Path(name)
        make_photos(folder / "photos", arguments.photos)
        for model in arguments.models:
            export = folder / f"{model.replace('/', '-')}.onnx"
            write_export(model, export)
            turns = []
            for _ in range(arguments.turns):
                turns.append(one_turn(export, folder / "photos", arguments, cluster))
            rates += [[model, *row] for row in rate_rows(turns)]
            shares.append([model, *share_cells([turn["alone"] for turn in turns])])
    print(markdown_table(rates), "\n")
    print("Processor ms a photo of the example's functions on one core:\n")
    print(markdown_table(shares), "\n")


def make_photos(folder, count):
    """Writes JPEG files, each of another part of a photograph; beyond some they are links."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    photographs = [Image.fromarray(array) for array in load_sample_images().images]
    folder.mkdir()
    for number in range(count):
        path = folder / f"{number:06d}.jpg"
        if number >= DIFFERENT:
            os.link(folder / f"{number % DIFFERENT:06d}.jpg", path)
            continue
        part = (number % 20, number % 13, 600 + number % 40, 400 + number % 27)
        photographs[number % 2].crop(part).resize((500, 375)).save(path, quality=96)


def write_export(model, path):
    """Writes the ONNX file of a classifier in the package, or of a model with random weights."""
    from predict_speed import open_or_build

    import keras_vit

    keras_vit.export.onnx(open_or_build(model), path)


def one_turn(export, photos, arguments, cluster):
    """Returns what each way took, by its name."""
    ways = {"predict": of_predict(export, photos, arguments.photos)}
    for count in arguments.workers:
        name = f"{count} worker{'s' if count > 1 else ''}"
        ways[name] = of_workers(export, photos, arguments.photos, count, cluster)
    command = [os.environ["RAY_PYTHON"], __file__, "--alone", export, photos]
    # One core, or the libraries would use all.
    done = subprocess.run(
        ["taskset", "--cpu-list", "0", *command], check=True, capture_output=True, text=True
    )
    ways["alone"] = json.loads(done.stdout.splitlines()[-1])
    return ways


def of_predict(export, photos, count):
    """Returns the rate of `keras-vit predict` and its processor time of a photo."""
    command = pathlib.Path(sys.executable).with_name("keras-vit")
    words = ["predict", export, photos, "--format", "json"]
    first = count // 4
    with subprocess.Popen([command, *words], stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # The bracket of the list.
        for number in range(count):
            if number == first:
                start = time.perf_counter(), processor_seconds(process.pid)
            process.stdout.readline()
        end = time.perf_counter(), processor_seconds(process.pid)
        process.stdout.read()  # The other bracket.
    if process.returncode:
        raise RuntimeError("keras-vit predict failed")
    in_all = (end[1] - start[1]) / (count - first)
    return {"rate": (count - first) / (end[0] - start[0]), "in all": in_all}


def of_workers(export, photos, count, workers, cluster):
    """Returns the rate of the example and the processor time of its processes for a photo."""
    part = count // 20
    with tempfile.TemporaryDirectory() as name:
        answers = pathlib.Path(name)
        program = [os.environ["RAY_PYTHON"], EXAMPLES / "ray_predict.py", export, photos, answers]
        options = ["--workers", str(workers), "--part-size", str(part)]
        environment = {**os.environ, "RAY_ADDRESS": cluster.address}
        with open(answers / "log", "w") as log:
            process = subprocess.Popen(
                [*program, *options], env=environment, stdout=log, stderr=log
            )
        start, seconds, roles = None, {}, {process.pid: PROGRAM}
        while process.poll() is None:
            seconds |= processes_of(cluster.head, roles)
            with contextlib.suppress(OSError):  # It has just ended.
                seconds[process.pid] = processor_seconds(process.pid)
            parts = len(list(answers.glob("part-*.jsonl")))
            if start is None and parts >= 5:  # A quarter.
                start = time.time(), parts, dict(seconds)
            time.sleep(0.05)
        if process.returncode:
            raise RuntimeError((answers / "log").read_text()[-3000:])
        end = max(path.stat().st_mtime for path in answers.glob("part-*.jsonl"))
    answered = count - start[1] * part
    took = dict.fromkeys(ROLES, 0)
    for number, total in seconds.items():
        role = roles.get(number, REST)
        took[role] += (total - start[2].get(number, 0)) / answered
    return {"rate": answered / (end - start[0]), **took, "in all": sum(took.values())}


def processes_of(head, roles):
    """Returns the processor seconds of the processes of a cluster by their numbers.

    Args:
        head: The number of the process that started the others.
        roles: The roles of processes, to which those are added that are seen at work.
    """
    names, children = {}, collections.defaultdict(list)
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # A process that just ended.
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            children[int(parent)].append(int(folder.name))
            names[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
    seconds, waiting = {}, [head]
    while waiting:
        number = waiting.pop()
        waiting += children[number]
        with contextlib.suppress(OSError):
            seconds[number] = processor_seconds(number)
        for word, role in WORDS.items():
            if names.get(number, "").startswith("ray::") and word in names[number]:
                roles[number] = role
    return seconds


def processor_seconds(process):
    """Returns the processor time of a process so far."""
    text = pathlib.Path(f"/proc/{process}/stat").read_text()
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


class Cluster(NamedTuple):
    """A cluster of Ray on this machine: its address, and the number of its first process."""

    address: str
    head: int


@contextlib.contextmanager
def start_cluster():
    """Starts a cluster, yields it and ends it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ray = pathlib.Path(os.environ["RAY_PYTHON"]).with_name("ray")
    options = ["--head", "--block", f"--port={port}", f"--num-cpus={CLUSTER_CPUS}"]
    options += [f"--object-store-memory={STORE}", "--include-dashboard=false"]
    options += ["--disable-usage-stats"]
    head = subprocess.Popen([ray, "start", *options], stdout=subprocess.DEVNULL)
    try:
        while True:
            if head.poll() is not None:
                raise RuntimeError("The cluster did not start")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.5)
        yield Cluster(f"127.0.0.1:{port}", head.pid)
    finally:
        head.terminate()
        head.wait(timeout=60)


def alone(export, photos):
    """Returns the processor seconds of a photo: decoding, the model, and both; without Ray."""
    import numpy as np

    sys.path.insert(0, os.fspath(EXAMPLES))
    import ray_predict
    from pyarrow import fs

    classifier = ray_predict.Classifier(fs.LocalFileSystem(), os.fspath(export), 0, 5)
    paths = sorted(path for path in photos.rglob("*") if path.is_file())

    def decoded(batch):
        rows = []
        for path in batch:
            rows.append(ray_predict.decode({"path": str(path), "bytes": path.read_bytes()}))
        return {key: np.array([row[key] for row in rows], object) for key in rows[0]}

    batches = [paths[first : first + BATCH] for first in range(0, len(paths), BATCH)]
    classifier(decoded(batches[0]))
    took = {"decoding": 0, "model": 0}
    for batch in batches:
        start = time.process_time()
        photos_of_batch = decoded(batch)
        middle = time.process_time()
        classifier(photos_of_batch)
        took["decoding"] += (middle - start) / len(paths)
        took["model"] += (time.process_time() - middle) / len(paths)
    return took


def rate_rows(turns):
    """Returns the cells of each way: the range of its rate, and medians; "-" for no number."""
    rows = []
    for way in turns[0]:
        if way == "alone":
            continue
        rates = [turn[way]["rate"] for turn in turns]
        ratio = statistics.median(turn[way]["rate"] / turn["predict"]["rate"] for turn in turns)
        row = [way, f"{min(rates):,.0f} to {max(rates):,.0f}", f"{ratio:.2f}"]
        for role in (*ROLES, "in all"):
            if role in turns[0][way]:
                row.append(f"{statistics.median(turn[way][role] for turn in turns) * 1000:.2f}")
            else:
                row.append("-")
        rows.append(row)
    return rows


def share_cells(turns):
    """Returns milliseconds and the share of decoding, medians over the turns."""
    decoding = statistics.median(turn["decoding"] for turn in turns)
    model = statistics.median(turn["model"] for turn in turns)
    share = statistics.median(turn["decoding"] / sum(turn.values()) for turn in turns)
    times = [f"{1000 * seconds:.2f}" for seconds in (decoding, model, decoding + model)]
    return [*times, f"{share:.0%}"]


def on_paper(given):
    """Prints the inputs and the arithmetic of a million photos."""
    from keras_vit.reports.report import markdown_table

    rows = [["input", "value", "unit", "source"]]
    for name, (_, unit, source) in INPUTS.items():
        rows.append([name, f"{getattr(given, name):g}", unit, source])
    print("On paper, not measured:\n")
    print(markdown_table(rows), "\n")
    milliseconds = given.decode_ms + given.ray_ms
    decoding = (given.cores - 1) * 1000 / milliseconds
    together = min(decoding, given.gpu_rate)
    bottleneck = "decoding, by its cores" if decoding < given.gpu_rate else "the model, by its GPU"
    enough = math.ceil(given.gpu_rate * milliseconds / 1000) + 1
    on_cores = given.cores / (milliseconds / 1000 + 1 / given.core_rate)
    share = f"{milliseconds:g} / 1000"
    lines = [
        f"decoding: ({given.cores:g} - 1) / ({share}) = {decoding:,.0f} photos/s",
        f"model: {given.gpu_rate:,g} photos/s",
        f"both: the slower, {together:,.0f} photos/s; the bottleneck is {bottleneck}",
        f"the GPU computes {together / given.gpu_rate:.0%} of the time",
        f"a million photos: 1e6 / {together:,.0f} / 60 = {MILLION / together / 60:.1f} minutes",
        f"cores that keep the GPU busy: {given.gpu_rate:g} x {share} + 1 = {enough}",
        f"the cores' part of a million: 1e6 x {share} / 3600 = {milliseconds / 3.6:.1f} core hours",
        f"without a GPU: {given.cores:g} / ({share} + 1 / {given.core_rate:g}) = {on_cores:.0f} "
        f"photos/s, {MILLION / on_cores / 3600:.1f} hours for a million",
    ]
    print("\n".join(f"- {line}" for line in lines))


if __name__ == "__main__":
    main()
