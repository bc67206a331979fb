"""Where the time of a step of ViT-B/16 goes, by kind of operation.

    python benchmarks/step_time.py [--precision float32] [--job training:8] [--steps 5]

Prints one table for TensorFlow: milliseconds of each kind of operation in the profiler's record of
whole steps, with one operation at a time. The last rows are the step as it is timed without the
profiler, and the dense products of the twelve blocks alone, forward and backward, as a graph of
nothing else; in inference also PyTorch's, where it is installed. All take turns.
"""

import argparse
import collections
import importlib.util
import os
import pathlib
import re
import statistics
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from compare import job_of, make_step
from machine import describe, seconds_of

from keras_vit.reports.report import markdown_table

# The first pattern found in "name of the operation:type" decides.
KINDS = (
    ("dense products, with bias and GELU", r":\w*MatMul$|Conv2D\w*$"),
    ("products of attention", r":\w*BatchMatMul\w*$"),
    ("GELU and LayerNorm (XLA)", r"^CpuExecutable::ExecuteAsyncOnStream$"),
    ("optimizer", r"^(sgd|adam)/|:Assign\w*$"),
    ("softmax", r":\w*Softmax\w*$|/Softmax_grad/|[Ss]oftmax.*:(Sum|Mul|Sub)$"),
    ("transpositions", r":\w*Transpose$"),
    ("gradients of biases", r":\w*BiasAddGrad$"),
    ("casts", r":\w*Cast$"),
    ("GELU", r"/Gelu|/dense_1\w*/.*:(Mul|Tanh|Add\w*|Erfc?|Neg|Pow)$"),
    ("LayerNorm", r"/(norm_\d|encoder_norm)\w*/"),
    ("scale of the queries", r"/attention\w*/mul\w*:Mul$|/attention\w*/.*:(Mul|Sum)$"),
    ("residuals and sums of gradients", r":(AddN|AddV2|Add)$"),
    ("other operations", r"^[\w/.<>-]+:\w+$"),
)
WIDTH, HIDDEN, BLOCKS, TOKENS = 768, 3072, 12, 197


def recorded(step, steps):
    """Returns milliseconds a step by kind, from the profiler's record of some steps."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    milliseconds = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)
        tf.profiler.experimental.start(folder, options=options)
        for _ in range(steps):
            step()
        tf.profiler.experimental.stop()
        (file,) = pathlib.Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(file.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                kind = next((kind for kind, pattern in KINDS if re.search(pattern, name)), None)
                if kind:
                    milliseconds[kind] += event.duration_ps / 1e9 / steps
    return milliseconds


def make_products(job, batch_size):
    """Yields names and functions that compute the dense products of the blocks alone."""
    import keras
    import tensorflow as tf

    dtype = keras.config.dtype_policy().compute_dtype
    sides = [(WIDTH, WIDTH)] * 4 + [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]

    def matrix(rows, columns):
        return tf.cast(tf.random.normal((rows, columns)), dtype)

    rows = batch_size * TOKENS
    # Different ones, as equal products are computed once.
    parts = [
        (matrix(rows, before), matrix(before, after), matrix(rows, after))
        for before, after in sides * BLOCKS
    ]

    yield "dense products alone", compute_products(job, parts)
    if job == "inference" and importlib.util.find_spec("torch"):
        yield "dense products alone, PyTorch", compute_torch_products(parts, dtype)


def compute_products(job, parts):
    """Returns a function that computes the products of inputs, kernels and gradients in a graph."""
    import tensorflow as tf

    @tf.function(autograph=False)
    def products():
        results = []
        for inputs, kernel, upstream in parts:
            results.append(tf.matmul(inputs, kernel))
            if job == "training":
                results.append(tf.matmul(upstream, kernel, transpose_b=True))
                results.append(tf.matmul(inputs, upstream, transpose_a=True))
        return [result[0, 0] for result in results]

    return lambda: products()[-1].numpy()


def compute_torch_products(parts, dtype):
    """Returns a function that computes the products of inputs and kernels in PyTorch."""
    import tensorflow as tf
    import torch

    torch.set_num_threads(os.cpu_count())
    pairs = [  # As timm holds them: a kernel has a row for each output.
        tuple(
            torch.tensor(tf.cast(matrix, "float32").numpy()).to(getattr(torch, dtype))
            for matrix in (inputs, tf.transpose(kernel))
        )
        for inputs, kernel, _ in parts
    ]

    def products():
        with torch.inference_mode():
            return [torch.nn.functional.linear(*pair) for pair in pairs][-1].float().numpy()

    return products


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="float32", help="or mixed_bfloat16")
    parser.add_argument("--job", type=job_of, default=("training", 8), metavar="JOB:BATCH")
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()

    import keras
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.config.set_dtype_policy(arguments.precision)
    job, batch_size = arguments.job
    timed = {"step": make_step("ours", job, batch_size), **dict(make_products(job, batch_size))}
    taken = [
        {name: 1000 * seconds_of(function) for name, function in timed.items()}
        for _ in range(arguments.steps + 2)
    ]
    medians = {name: statistics.median(turn[name] for turn in taken[2:]) for name in timed}
    whole = medians["step"]
    found = recorded(timed["step"], arguments.steps)
    rows = [(kind, ms) for kind, ms in found.most_common() if ms >= 0.1]
    rows += [("all operations", found.total()), *medians.items()]
    print(describe("tensorflow", "keras"), "\n")
    print(f"ViT-B/16, {job}, batch {batch_size}, {arguments.precision}\n")
    table = [(kind, f"{ms:.1f}", f"{ms / whole:.1%}") for kind, ms in rows]
    print(markdown_table([("operations", "ms", "share of the step"), *table]))


if __name__ == "__main__":
    main()
