"""Layers with random weights, and self-attention as loops in NumPy."""

import keras
import numpy as np

array = keras.ops.convert_to_numpy


def randomized(layer, shape, scale=0.5):
    """Builds a layer with weights so large that every term counts."""
    layer.build(shape)
    rng = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(0, scale, variable.shape))
    return layer


def tokens(*shape):
    """Returns random tokens, float32."""
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def attention_by_loops(layer, sequences):
    """Equations 5 to 8 of the paper, a number at a time; float64.

    With relative positions each offset's embedding is a second key for the query's content.

    Returns:
        The outputs `(B, N, D)` and the probabilities `(B, k, N, N)`.
    """
    query, key, value = (
        np.einsum("bnd,dhe->bhne", sequences, array(part.kernel).astype("float64"))
        + array(part.bias)[:, None]
        for part in (layer.query, layer.key, layer.value)
    )
    table, prefix = getattr(layer, "offset_embedding", None), getattr(layer, "num_prefix_tokens", 0)
    table = None if table is None else array(table)
    batch, heads, length, dim = query.shape
    mixed, attention = np.zeros_like(query), np.zeros((batch, heads, length, length))
    for place in np.ndindex(batch, heads, length):
        image, head, i = place
        logits = np.array([query[place] @ key[image, head, j] for j in range(length)])
        if table is not None and i >= prefix:
            for j in range(prefix, length):
                logits[j] += query[place] @ table[i - j + length - prefix - 1, head]
        weights = np.exp((logits - logits.max()) / np.sqrt(dim))
        attention[place] = weights / weights.sum()
        mixed[place] = attention[place] @ value[image, head]
    outputs = np.einsum("bhne,hed->bnd", mixed, array(layer.out.kernel)) + array(layer.out.bias)
    return outputs, attention
