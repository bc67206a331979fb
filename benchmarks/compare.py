"""Speed and memory of ViT-B/16 at 224 pixels, here and in KerasHub.

Prints one table, with the machine's matrix rate. The two libraries take turns in one process, so
a machine whose speed drifts slows both; a ratio is the median over pairs of runs. Peak memory is
measured in a separate process for each library.

    python benchmarks/compare.py [--rounds 8] [--precisions float32 mixed_bfloat16]
                                 [--jobs inference:8 training:8]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from keras_vit.training.machine import describe, peak_memory

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

IMAGE_SHAPE = (224, 224, 3)
GFLOP_PER_IMAGE = 35.1  # Forward, multiply and add counted as two; `keras-vit models ViT-B/16`.
MATRIX_SIDE = 4096
SIDES = ("ours", "KerasHub")
JOBS = (("inference", 1), ("inference", 8), ("training", 8))


def build(side):
    """Returns a classifier of 1000 classes that gives logits."""
    import keras

    if side == "ours":
        import keras_vit

        # As KerasHub has it. The official tanh form, our default, costs a little more.
        return keras_vit.build("ViT-B/16", classifier_activation=None, gelu="exact")
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=IMAGE_SHAPE,
        patch_size=16,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        mlp_dim=3072,
    )
    logits = keras.layers.Dense(1000, dtype="float32")(backbone.output[:, 0])
    return keras.Model(backbone.input, logits)


def make_step(model, job, batch_size):
    """Returns a function without arguments that runs one batch to its end."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(0)
    images = tf.constant(rng.uniform(-1, 1, (batch_size, *IMAGE_SHAPE)).astype("float32"))
    if job == "inference":
        call = tf.function(lambda batch: model(batch, training=False))
        return lambda: call(images).numpy()
    labels = tf.constant(rng.integers(0, 1000, batch_size))
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return lambda: model.train_on_batch(images, labels)


def make_matrix_product(precision):
    """Returns a function that multiplies two square matrices of the compute dtype."""
    import tensorflow as tf

    dtype = precision.removeprefix("mixed_")
    matrix = tf.cast(tf.random.normal((MATRIX_SIDE, MATRIX_SIDE)), dtype)
    call = tf.function(lambda: tf.cast(tf.matmul(matrix, matrix)[0, 0], "float32"))
    return lambda: call().numpy()


def seconds(step):
    """Returns how long a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def peak_memory_of(side, precision, job, batch_size):
    """Returns the MiB that a process of its own needs for a few steps."""
    command = [sys.executable, __file__, "--memory-of", side, precision, job, str(batch_size)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr[-2000:])
    return json.loads(run.stdout.splitlines()[-1])


def print_own_peak_memory(side, precision, job, batch_size):
    """Runs a few steps and prints the peak of this process in MiB."""
    import keras

    keras.config.set_dtype_policy(precision)
    step = make_step(build(side), job, int(batch_size))
    for _ in range(3):
        step()
    print(peak_memory())


def compare(precision, job, batch_size, rounds):
    """Returns one row of the table."""
    import keras

    keras.config.set_dtype_policy(precision)
    steps = {side: make_step(build(side), job, batch_size) for side in SIDES}
    steps["matrix"] = make_matrix_product(precision)
    times = {name: [] for name in steps}
    for _ in range(2):  # Tracing, then the first run of the traced graph.
        for step in steps.values():
            step()
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds(step))
    rate = 2 * MATRIX_SIDE**3 / statistics.median(times["matrix"]) / 1e9
    flops = GFLOP_PER_IMAGE * batch_size * (3 if job == "training" else 1)
    median = {side: statistics.median(times[side]) for side in SIDES}
    pairs = zip(times["KerasHub"], times["ours"], strict=True)
    memory = {side: peak_memory_of(side, precision, job, batch_size) for side in SIDES}
    return [
        precision,
        f"{job}, batch {batch_size}",
        *(f"{batch_size / median[side]:.2f}" for side in SIDES),
        f"{statistics.median(theirs / ours for theirs, ours in pairs):.2f}",
        f"{rate:.0f}",
        *(f"{flops / median[side] / rate:.2f}" for side in SIDES),
        *(f"{memory[side]}" for side in SIDES),
    ]


def job_of(text):
    """Returns the job and batch size of "inference:8"."""
    job, _, batch_size = text.partition(":")
    return job, int(batch_size)


HEADER = [
    "precision",
    "job",
    "ours, images/s",
    "KerasHub, images/s",
    "ours / KerasHub",
    "matrix rate, GFLOP/s",
    "ours, share of rate",
    "KerasHub, share of rate",
    "ours, peak MiB",
    "KerasHub, peak MiB",
]


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--precisions", nargs="+", default=["float32", "mixed_bfloat16"])
    parser.add_argument("--jobs", nargs="+", default=JOBS, type=job_of, metavar="JOB:BATCH")
    parser.add_argument("--memory-of", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print_own_peak_memory(*arguments.memory_of)
        return
    print(describe("tensorflow", "keras", "keras-hub"), "\n")
    print(f"| {' | '.join(HEADER)} |\n| {' | '.join('---' for _ in HEADER)} |")
    for precision in arguments.precisions:
        for job, batch_size in arguments.jobs:
            row = compare(precision, job, batch_size, arguments.rounds)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
