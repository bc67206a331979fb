"""oneDNN in TensorFlow, on and off, beside timm, KerasHub, ONNX Runtime and OpenVINO.

    pip install -e ".[bench,peers]"
    python benchmarks/onednn.py [--models ViT-B/16 ...] [--precisions float32 bfloat16]
                                [--jobs inference:8 training:8] [--rounds 5] [--isa AVX2]
                                [--sides on timm ...]

TensorFlow reads TF_ENABLE_ONEDNN_OPTS once a process, so each side has its own process, and all
take turns: one call that is not timed, then one that is. A ratio is the median over the turns:
images per second of `on` over the other side's. Prints a table in Markdown, one row a cell;
a side that fails, or that has no such model or job, says "not run".

`--isa AVX2` has libraries behave as on a processor without AVX-512: oneDNN (also PyTorch's and
OpenVINO's), XLA, MKL, ATen and the compiler of PyTorch have a setting for it. ONNX Runtime has
none, and Eigen in TensorFlow's wheel is compiled for AVX2 at most. It is not such a processor: its
clock and memory are this one's.
"""

import argparse
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import PIL.Image
from compare import job_of
from machine import describe, seconds_of

SIDES = ("on", "off", "timm", "timm compiled", "KerasHub", "ONNX", "OpenVINO")
TIMM = {
    "ViT-Ti/16": "vit_tiny_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "ViT-B/16": "vit_base_patch16_224",
    "ViT-L/16": "vit_large_patch16_224",
    "R26+ViT-S/32": "vit_small_r26_s32_224",
    "R50+ViT-L/32": "vit_large_r50_s32_224",
    "BiT-R50x1": "resnetv2_50x1_bit",
}
KERAS_HUB = {  # Blocks, heads, width, width of the MLP.
    "ViT-Ti/16": (12, 3, 192, 768),
    "ViT-S/16": (12, 6, 384, 1536),
    "ViT-B/16": (12, 12, 768, 3072),
    "ViT-L/16": (24, 16, 1024, 4096),
}
EXPORTS = ("ONNX", "OpenVINO")
SLOW = 20  # Seconds of a call, above which two rounds are enough.


def environment_of(side, isa):
    """Returns the environment of a side's process."""
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(side == "on"))}
    if side not in ("on", "off"):
        del environment["TF_ENABLE_ONEDNN_OPTS"]  # As people have it.
        if isa:
            environment["TF_ENABLE_ONEDNN_OPTS"] = "0"
    if isa:
        environment |= {
            "ONEDNN_MAX_CPU_ISA": isa,
            "DNNL_MAX_CPU_ISA": isa,
            "MKL_ENABLE_INSTRUCTIONS": isa,
            "ATEN_CPU_CAPABILITY": isa.lower(),
            "XLA_FLAGS": f"--xla_cpu_max_isa={isa}",
            "INDUCTOR_WIDTH": "256",
        }
    return environment


def make_step(side, name, precision, job, batch_size):
    """Returns a function without arguments that computes one batch to its end."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 1000, batch_size)
    if side.startswith("timm"):
        return timm_step(side, name, precision, job, labels)
    import keras

    keras.config.set_dtype_policy(precision)
    model = keras_model(side, name)
    images = rng.uniform(-1, 1, (batch_size, *model.input_shape[1:])).astype("float32")
    if side in EXPORTS:
        call = export_of(side, name)
        return lambda: call(images)
    images, labels = map(keras.ops.convert_to_tensor, (images, labels))
    if job == "training":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
        return lambda: model.train_on_batch(images, labels)
    import tensorflow as tf

    call = tf.function(lambda batch: model(batch, training=False))
    return lambda: np.asarray(call(images))


@functools.cache
def keras_model(side, name):
    """Returns a model of 1000 classes that gives logits, with random weights."""
    import keras

    if side != "KerasHub":
        import keras_vit

        gelu = {} if name.startswith("BiT") else {"gelu": "exact"}  # As the others have it.
        activation = "softmax" if side in EXPORTS else None
        return keras_vit.build(
            name, classifier_activation=activation, input_shape=(224, 224, 3), **gelu
        )
    import keras_hub

    blocks, heads, width, mlp = KERAS_HUB[name]
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(224, 224, 3),
        patch_size=16,
        num_layers=blocks,
        num_heads=heads,
        hidden_dim=width,
        mlp_dim=mlp,
    )
    logits = keras.layers.Dense(1000, dtype="float32")(backbone.output[:, 0])
    return keras.Model(backbone.input, logits)


@functools.cache
def timm_model(side, name, precision):
    """Returns timm's model."""
    import timm
    import torch

    torch.set_num_threads(os.cpu_count())
    model = timm.create_model(TIMM[name], num_classes=1000).to(getattr(torch, precision))
    if side != "timm compiled":
        return model
    import torch._inductor.config

    if width := os.environ.get("INDUCTOR_WIDTH"):
        torch._inductor.config.cpp.simdlen = int(width)
    return torch.compile(model)


def timm_step(side, name, precision, job, labels):
    """Returns `make_step` of timm's model."""
    import torch

    model = timm_model(side, name, precision)
    images = torch.rand(len(labels), 3, 224, 224, dtype=getattr(torch, precision)) * 2 - 1
    labels = torch.from_numpy(labels)
    if job == "inference":

        def predict():
            model.eval()
            with torch.inference_mode():
                return model(images).float().numpy()

        return predict
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step():
        model.train()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@functools.cache
def export_of(side, name):
    """Returns a model's export as a function of images."""
    import keras_vit.export
    from keras_vit.export.formats.artefacts import open_export
    from keras_vit.export.formats.table import FORMATS
    from keras_vit.predictor import Predictor
    from keras_vit.preprocessing import Preprocessing

    model = keras_model(side, name)
    size = model.input_shape[1:3]
    classifier = Predictor(model, [str(label) for label in range(1000)], Preprocessing(size))
    folder = pathlib.Path(tempfile.mkdtemp())
    samples = folder / "samples"
    samples.mkdir()
    rng = np.random.default_rng(0)
    for index in range(4):
        pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
        PIL.Image.fromarray(pixels).save(samples / f"{index}.png")
    write = getattr(keras_vit.export, side.lower())
    options = {"check_images": samples, "minimum_agreement": 0, "input": "float"}
    report = write(classifier, folder / ("export" + FORMATS[side.lower()].suffix), **options)
    return open_export(report.path).signatures()["serve"].call


def serve(side, name, precision):
    """Computes a batch for each line of the standard input, a job, and prints its seconds."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What libraries print is no answer.
    steps = functools.cache(functools.partial(make_step, side, name, precision))
    for line in sys.stdin:
        print(seconds_of(steps(*job_of(line.strip()))), file=lines, flush=True)


class Side:
    """The process of a side."""

    def __init__(self, side, isa, name, precision):
        command = [sys.executable, __file__, "--serve", side, name, precision]
        self.process = subprocess.Popen(
            command,
            env=environment_of(side, isa),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seconds(self, job, batch_size):
        """Returns the seconds of a batch; None if the process has ended."""
        try:
            self.process.stdin.write(f"{job}:{batch_size}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            return None

    def end(self):
        """Ends the process."""
        self.process.kill()
        self.process.wait()


def exists(side, name, precision, job):
    """Returns whether a side has such a model and job."""
    if side in EXPORTS:
        return job == "inference" and precision == "float32"
    return {"KerasHub": KERAS_HUB, "timm": TIMM, "timm compiled": TIMM}.get(side, {name: 0}).get(
        name
    ) is not None


def measured(sides, rounds, job, batch_size):
    """Returns the seconds of each turn by side."""
    first = {}
    for side, process in sides.items():
        process.seconds(job, batch_size)  # Tracing.
        first[side] = process.seconds(job, batch_size)
    times = {side: [] for side, seconds in first.items() if seconds is not None}
    slowest = max(first[side] for side in times)
    for _ in range(2 if slowest > SLOW else rounds):
        for side, seconds in times.items():
            sides[side].seconds(job, batch_size)  # What ran before leaves its threads and caches.
            seconds.append(sides[side].seconds(job, batch_size))
    return times


def row_of(sides, cell, times):
    """Returns a row of the table."""
    name, precision, job, batch_size = cell
    reference = sides[0]

    def shown(side):
        if side not in times:
            return "not run"
        if side == reference:
            return f"{batch_size / statistics.median(times[side]):.2f}"
        pairs = zip(times[side], times[reference], strict=True)
        return f"{statistics.median(theirs / ours for theirs, ours in pairs):.2f}"

    return [name, precision, f"{job}, batch {batch_size}", *map(shown, sides)]


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["ViT-B/16"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"])
    jobs = [("inference", 1), ("inference", 8), ("inference", 32), ("training", 8)]
    parser.add_argument("--jobs", nargs="+", default=jobs, type=job_of, metavar="JOB:BATCH")
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--isa", help="the instructions that libraries may use, as AVX2")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    limit = f", limited to {arguments.isa}" if arguments.isa else ""
    print(f"{describe('tensorflow', 'keras')}{limit}\n")
    header = [f"{arguments.sides[0]}, images/s", *arguments.sides[1:]]
    print("| model | precision | job |", " | ".join(header), "|")
    print("|", " | ".join(["---"] * (3 + len(header))), "|")
    for name in arguments.models:
        for precision in arguments.precisions:
            running = {
                side: Side(side, arguments.isa, name, precision)
                for side in arguments.sides
                if any(exists(side, name, precision, job) for job, _ in arguments.jobs)
            }
            for job, batch_size in arguments.jobs:
                sides = {
                    side: process
                    for side, process in running.items()
                    if exists(side, name, precision, job)
                }
                times = measured(sides, arguments.rounds, job, batch_size)
                cell = name, precision, job, batch_size
                print(
                    "|",
                    " | ".join(row_of(arguments.sides, cell, times)),
                    "|",
                    flush=True,
                )
            for process in running.values():
                process.end()


if __name__ == "__main__":
    main()
