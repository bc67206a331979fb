"""Speed and memory of ViT-B/16 at 224 pixels, here, in KerasHub, timm and the official JAX code.

Prints one table, with the machine's matrix rate. The libraries take turns in one process, so a
machine whose speed drifts slows all; a ratio is the median over pairs of runs. Peak memory is
measured in a separate process for each library.

timm runs on the CPU, eagerly and by `torch.compile`, on as many threads as TensorFlow takes; under
`mixed_bfloat16` by `torch.autocast`, under `bfloat16` with weights of that dtype. It is left out
where it is not installed: pip install -e ".[bench,peers]".

    python benchmarks/compare.py [--rounds 8] [--precisions float32 mixed_bfloat16]
                                 [--jobs inference:8 training:8]
    KERAS_BACKEND=jax python benchmarks/compare.py [--official CHECKOUT]

CHECKOUT is one of github.com/google-research/vision_transformer; it needs flax and optax. The
official model computes in float32; it gets no dropout, as the others, and the same SGD.
"""

import argparse
import functools
import importlib.util
import os
import statistics
import sys

from machine import describe, peak_memory, seconds_of
from own_process import run_program

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

IMAGE_SHAPE = (224, 224, 3)
GFLOP_PER_IMAGE = 35.1  # Forward, multiply and add counted as two; `keras-vit models ViT-B/16`.
MATRIX_SIDE = 4096
JOBS = (("inference", 1), ("inference", 8), ("training", 8))
TIMM = ("timm", "timm compiled")
CHECKOUT = "OFFICIAL_CHECKOUT"  # In the environment, also of the processes for peak memory.


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


def make_step(side, job, batch_size):
    """Returns a function without arguments that runs one batch to its end."""
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch_size, *IMAGE_SHAPE)).astype("float32")
    labels = rng.integers(0, 1000, batch_size)
    if side == "official":
        return make_official_step(job, images, labels)
    if side in TIMM:
        return make_timm_step(job, images, labels, is_compiled=side == TIMM[1])
    images, labels = map(keras.ops.convert_to_tensor, (images, labels))
    model = build(side)
    if job == "training":
        model.compile(
            keras.optimizers.SGD(0.01, momentum=0.9),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return lambda: model.train_on_batch(images, labels)
    call = compiled(lambda *batch: model(*batch, training=False))
    return lambda: np.asarray(call(images))


def compiled(function):
    """Returns a function of tensors, compiled by the backend as Keras does it."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function)


def make_official_step(job, images, labels):
    """Returns `make_step` of the official code's model."""
    import jax
    import numpy as np

    sys.path.insert(0, os.environ[CHECKOUT])
    import optax
    from vit_jax.models_vit import VisionTransformer

    class Patches:
        size = (16, 16)

    options = {"mlp_dim": 3072, "num_heads": 12, "num_layers": 12, "dropout_rate": 0.0}
    options["attention_dropout_rate"] = 0.0
    model = VisionTransformer(
        num_classes=1000, patches=Patches, transformer=options, hidden_size=768
    )
    images, labels = jax.numpy.asarray(images), jax.numpy.asarray(labels)
    params = jax.jit(lambda: model.init(jax.random.key(0), images, train=False))()
    if job == "inference":
        call = jax.jit(lambda params, images: model.apply(params, images, train=False))
        return lambda: np.asarray(call(params, images))
    optimizer = optax.sgd(0.01, momentum=0.9)

    def loss_of(params, images, labels):
        logits = model.apply(params, images, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def train(params, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    held = [params, jax.jit(optimizer.init)(params)]

    def step():
        *held[:], loss = train(*held, images, labels)
        return float(loss)

    return step


def make_timm_step(job, images, labels, is_compiled):
    """Returns `make_step` of timm's model, in the precision of Keras's dtype policy."""
    import keras
    import timm
    import torch

    policy = keras.config.dtype_policy()
    weights, compute = (
        getattr(torch, name) for name in (policy.variable_dtype, policy.compute_dtype)
    )
    torch.set_num_threads(os.cpu_count())
    model = timm.create_model("vit_base_patch16_224").to(weights).train(job == "training")
    call = torch.compile(model) if is_compiled else model
    images = torch.tensor(images.transpose(0, 3, 1, 2), dtype=weights)
    precision = functools.partial(torch.autocast, "cpu", compute, enabled=weights != compute)
    if job == "inference":

        def predict():
            with torch.inference_mode(), precision():
                return call(images).float().numpy()

        return predict
    labels = torch.from_numpy(labels)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step():
        optimizer.zero_grad()
        with precision():
            logits = call(images)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def make_matrix_product(precision):
    """Returns a function that multiplies two square matrices of the compute dtype."""
    import numpy as np
    from keras import ops

    dtype = precision.removeprefix("mixed_")
    rng = np.random.default_rng(0)
    matrix = ops.cast(rng.normal(size=(MATRIX_SIDE, MATRIX_SIDE)).astype("float32"), dtype)
    call = compiled(lambda matrix: ops.cast(ops.matmul(matrix, matrix)[0], "float32"))
    return lambda: np.asarray(call(matrix))


def peak_memory_of(side, precision, job, batch_size):
    """Returns the MiB that a separate process needs for a few steps."""
    return run_program(__file__, "--memory-of", side, precision, job, batch_size)


def print_own_peak_memory(side, precision, job, batch_size):
    """Runs a few steps and prints the peak of this process in MiB."""
    import keras

    keras.config.set_dtype_policy(precision)
    step = make_step(side, job, int(batch_size))
    for _ in range(3):
        step()
    print(peak_memory())


def compare(sides, precision, job, batch_size, rounds):
    """Returns one row of the table."""
    import keras

    keras.config.set_dtype_policy(precision)
    steps = {side: make_step(side, job, batch_size) for side in sides}
    steps["matrix"] = make_matrix_product(precision)
    times = {name: [] for name in steps}
    for _ in range(2):  # Tracing, then the first run of the traced graph.
        for step in steps.values():
            step()
    for _ in range(rounds):
        for name, step in steps.items():
            step()  # What ran before leaves its own caches and waiting threads.
            times[name].append(seconds_of(step))
    rate = 2 * MATRIX_SIDE**3 / statistics.median(times["matrix"]) / 1e9
    flops = GFLOP_PER_IMAGE * batch_size * (3 if job == "training" else 1)
    median = {side: statistics.median(times[side]) for side in sides}

    def ratio(side):
        pairs = zip(times[side], times["ours"], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    return [
        precision,
        f"{job}, batch {batch_size}",
        *(f"{batch_size / median[side]:.2f}" for side in sides),
        *(f"{ratio(side):.2f}" for side in sides[1:]),
        f"{rate:.0f}",
        f"{flops / median['ours'] / rate:.2f}",
        *(f"{peak_memory_of(side, precision, job, batch_size)}" for side in sides),
    ]


def header(sides):
    """Returns the names of the columns."""
    return [
        "precision",
        "job",
        *(f"{side}, images/s" for side in sides),
        *(f"ours / {side}" for side in sides[1:]),
        "matrix rate, GFLOP/s",
        "ours, share of rate",
        *(f"{side}, peak MiB" for side in sides),
    ]


def job_of(text):
    """Returns the job and batch size of "inference:8"."""
    job, _, batch_size = text.partition(":")
    return job, int(batch_size)


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--precisions", nargs="+", default=["float32", "mixed_bfloat16"])
    parser.add_argument("--jobs", nargs="+", default=JOBS, type=job_of, metavar="JOB:BATCH")
    parser.add_argument("--official", metavar="CHECKOUT", help="of the official code, on JAX")
    parser.add_argument("--memory-of", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print_own_peak_memory(*arguments.memory_of)
        return
    if arguments.official and arguments.precisions != ["float32"]:
        parser.error("The official model computes in float32: add --precisions float32.")
    packages, sides = ["keras", "keras-hub"], ["ours", "KerasHub"]
    if arguments.official:
        os.environ[CHECKOUT] = arguments.official
        sides.append("official")
        packages.append("flax")
    if all(map(importlib.util.find_spec, ("timm", "torch"))):
        sides += TIMM
        packages += ["timm", "torch"]
    else:
        print('timm is left out: pip install -e ".[peers]" installs it.\n')
    import keras

    print(describe(keras.backend.backend(), *packages), "\n")
    print(f"| {' | '.join(header(sides))} |\n| {' | '.join('---' for _ in header(sides))} |")
    for precision in arguments.precisions:
        for job, batch_size in arguments.jobs:
            row = compare(sides, precision, job, batch_size, arguments.rounds)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
