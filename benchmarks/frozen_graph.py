"""Speed of ViT-B/16 as a frozen TensorFlow graph, a limit for `compare.py`.

Prints one table for one precision: our model, and the model as a frozen graph with constant
weights, whose memory layout TensorFlow can optimise; each also with one product for query, key
and value instead of three. All take turns with a 4096 x 4096 product.

    python benchmarks/frozen_graph.py [--precision float32] [--rounds 10] [--batch-size 8]
"""

import argparse
import math
import os
import statistics

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from compare import GFLOP_PER_IMAGE, IMAGE_SHAPE, MATRIX_SIDE, build, make_matrix_product


def attend_with_one_product(
    self, tokens, training=False, seed=None, return_attention=False, as_rows=False, patches=None
):
    """Replaces `SelfAttention.call` in inference."""
    from keras import ops

    length, dim = tokens.shape[1], self.num_heads * self.head_dim
    scales = (1 / math.sqrt(self.head_dim), 1.0, 1.0)
    parts = list(zip((self.query, self.key, self.value), scales, strict=True))
    kernel = ops.concatenate([ops.reshape(p.kernel, (dim, dim)) * s for p, s in parts], 1)
    bias = ops.concatenate([ops.reshape(p.bias, (dim,)) * s for p, s in parts], 0)
    x = ops.add(ops.matmul(ops.reshape(tokens, (-1, dim)), kernel), bias)
    x = ops.reshape(x, (-1, length, 3, self.num_heads, self.head_dim))
    query, key, value = ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3)
    logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    attention = ops.softmax(ops.cast(logits, "float32"))
    mixed = ops.matmul(ops.cast(attention, value.dtype), value)
    return self.out(ops.transpose(mixed, (0, 2, 1, 3))), attention


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="float32", help="or mixed_bfloat16")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8)
    arguments = parser.parse_args()

    import keras
    import numpy as np
    import tensorflow as tf
    from machine import describe, seconds_of
    from tensorflow.python.framework import convert_to_constants

    from keras_vit.layers import SelfAttention

    keras.config.set_dtype_policy(arguments.precision)
    shape = (arguments.batch_size, *IMAGE_SHAPE)
    images = tf.constant(np.random.default_rng(0).uniform(-1, 1, shape).astype("float32"))
    ours = SelfAttention.call
    steps = {}
    for name, attend in (("three products", ours), ("one product", attend_with_one_product)):
        SelfAttention.call = attend
        model = build("ours")
        graph = tf.function(lambda batch, model=model: model(batch, training=False))
        frozen = convert_to_constants.convert_variables_to_constants_v2(
            graph.get_concrete_function(images)
        )
        steps[f"variables, {name}"] = lambda graph=graph: graph(images).numpy()
        steps[f"constants, {name}"] = lambda frozen=frozen: frozen(images)[0].numpy()
    SelfAttention.call = ours
    steps["matrix"] = make_matrix_product(arguments.precision)
    times = {name: [] for name in steps}
    for _ in range(2):  # Tracing, then the first run of the traced graph.
        for step in steps.values():
            step()
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            times[name].append(seconds_of(step))
    rate = 2 * MATRIX_SIDE**3 / statistics.median(times.pop("matrix")) / 1e9
    print(describe("tensorflow", "keras"), "\n")
    print(f"matrix rate {rate:.0f} GFLOP/s\n")
    print("| graph | images/s | share of the matrix rate |\n| --- | --- | --- |")
    for name, measured in times.items():
        per_second = arguments.batch_size / statistics.median(measured)
        print(f"| {name} | {per_second:.2f} | {per_second * GFLOP_PER_IMAGE / rate:.2f} |")


if __name__ == "__main__":
    main()
