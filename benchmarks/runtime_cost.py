"""What `keras-vit predict` of an ONNX export costs beside ten lines of ONNX Runtime, in a table.

    python benchmarks/runtime_cost.py pets.onnx photo.jpg --python runtime/bin/python

The command and the lines run by turns, each in a new process of an environment that has
keras-vit-runtime alone, and print the most probable classes.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

LINES = """
import json, sys
import numpy as np, onnxruntime
from PIL import Image, ImageOps
session = onnxruntime.InferenceSession(sys.argv[1])
names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
(scores,) = session.run(["probabilities"], {"images": np.asarray(image)[None]})[0]
for index in np.argsort(-scores)[:5]:
    print(f"{scores[index]:.2%}  {names[index]}")
"""


def cost(command):
    """Returns the processor seconds, seconds and megabytes of a command, and what it prints."""
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.perf_counter() - start
        printed.seek(0)
        text = printed.read().decode()
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return (used.ru_utime + used.ru_stime, elapsed, used.ru_maxrss / 1024), text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("photo")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--pairs", type=int, default=21)
    given = parser.parse_args()
    command = [str(pathlib.Path(given.python).with_name("keras-vit")), "predict"]
    commands = (
        [*command, given.model, given.photo],
        [given.python, "-c", LINES, given.model, given.photo],
    )
    print(cost(commands[0])[1], cost(commands[1])[1], sep="\n")  # Also warms the file cache.
    pairs = [[cost(each)[0] for each in commands] for _ in range(given.pairs)]
    print("| | command | lines | ratio |\n| --- | --- | --- | --- |")
    for index, (name, form) in enumerate(
        [("processor time", "{:.2f} s"), ("time", "{:.2f} s"), ("memory", "{:.0f} MB")]
    ):
        ours, theirs = ([pair[which][index] for pair in pairs] for which in (0, 1))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        shown = (form.format(statistics.median(values)) for values in (ours, theirs))
        print(f"| {name} | {' | '.join(shown)} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
