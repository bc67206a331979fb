"""Attention in one kernel of a GPU: where it is used, and its check beside the plain path."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

HALF_PRECISION = "float16", "bfloat16"
# The largest error against float32 in units of the values' size; bfloat16 rounds by 2^-9.
_TOLERANCE = 0.02


def fused_attention(query: Any) -> Callable | None:
    """Returns the function that computes attention in one kernel here, or None for the plain path.

    On JAX that is cuDNN's kernel on an NVIDIA GPU, in float16 and bfloat16; on PyTorch
    `scaled_dot_product_attention`, on a CPU in float32 only, as half precision takes longer
    there. Both take the softmax in float32 and hold no `(N, N)` probabilities. Elsewhere, and
    after `keras.config.disable_flash_attention()`, the answer is None. Dropout, returned
    probabilities and logits of positions need the plain path.

    The kernel of JAX is first tried: its errors come when a program is compiled, which is too
    late for another choice. Where it fails, a line is logged.

    Args:
        query: Queries `(B, k, N, D_h)`; only shape, dtype and device are read.

    Returns:
        A function of scaled queries, keys and values `(B, k, N, D_h)`, which gives
        `softmax(q k^T) v` in this shape; or None.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow" or keras.config.is_flash_attention_enabled() is False:
        return None
    if backend == "torch":
        is_faster = query.is_cuda or keras.backend.standardize_dtype(query.dtype) == "float32"
        return _scaled_dot_product_attention if is_faster else None
    _, heads, tokens, units = query.shape
    dtype, capability = keras.backend.standardize_dtype(query.dtype), compute_capability()
    if dtype not in HALF_PRECISION or capability is None or capability < 8:
        return None
    if units % 8 or units > (256 if capability >= 9 else 128) or not isinstance(tokens, int):
        return None
    return _cudnn if _cudnn_is_right(dtype, heads, tokens, units) else None


def compute_capability() -> float | None:
    """Returns the compute capability of the NVIDIA GPU that JAX computes on; None for others."""
    import jax

    config: Any = jax.config
    device = config.jax_default_device or jax.devices()[0]
    if keras.distribution.distribution() is not None:
        device = keras.distribution.distribution().device_mesh.devices.flat[0]
    platform = getattr(device, "platform", str(device).partition(":")[0])
    if platform not in ("gpu", "cuda"):
        return None
    found = str(getattr(jax.devices(platform)[0], "compute_capability", ""))
    try:
        return float(found)
    except ValueError:  # AMD's are names.
        return None


def _scaled_dot_product_attention(query, key, value):
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(query, key, value, scale=1.0)


def _cudnn(query, key, value):
    """JAX's call of cuDNN, which has heads behind tokens; XLA removes double transpositions."""
    import jax
    from jax import numpy as jnp

    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    # With lengths cuDNN masks what its tiles hold beyond the sequence.
    lengths = jnp.full((query.shape[0],), query.shape[1], "int32")
    mixed = jax.nn.dot_product_attention(
        query,
        key,
        value,
        scale=1.0,
        query_seq_lengths=lengths,
        key_value_seq_lengths=lengths,
        implementation="cudnn",
    )
    return jnp.swapaxes(mixed, 1, 2)


@functools.cache
def _cudnn_is_right(dtype, heads, tokens, units):
    """Whether cuDNN compiles a tiny value and gradient, equal to the plain path's.

    Runs once for a shape, outside of the trace that may be under way.
    """
    import jax
    from jax import numpy as jnp

    def values_and_gradients(attend, *arrays):
        *inputs, upstream = arrays
        answers = attend(*inputs)  # Without a gradient it is another kernel.
        values, pull_back = jax.vjp(attend, *inputs)
        return answers, values, *pull_back(upstream)

    def plain(query, key, value):
        probabilities = jax.nn.softmax(query @ jnp.swapaxes(key, 2, 3))
        return probabilities @ value

    shape = (4, 2, heads, tokens, units)
    arrays = np.random.default_rng(0).normal(size=shape).astype("float32")
    arrays[0] *= units**-0.5  # Scaled queries.
    try:
        with jax.ensure_compile_time_eval():
            half = [jnp.asarray(array, dtype) for array in arrays]
            wide = [array.astype("float32") for array in half]
            found = jax.jit(functools.partial(values_and_gradients, _cudnn))(*half)
            expected = jax.jit(functools.partial(values_and_gradients, plain))(*wide)
            errors = [
                float(np.linalg.norm(np.asarray(a, "float32") - b) / np.linalg.norm(b))
                for a, b in zip(found, map(np.asarray, expected), strict=True)
            ]
        reason = f"its error is {max(errors):.2g} of the values"
        is_right = all(error < _TOLERANCE for error in errors)  # False for NaN.
    except (RuntimeError, ValueError) as error:  # XLA's errors, and JAX's of what it can tell.
        reason, is_right = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", False
    if not is_right:
        logging.getLogger("keras_vit").warning(
            "cuDNN's attention is not used for %s tokens of %s heads of %s units in %s: %s",
            *(tokens, heads, units, dtype, reason),
        )
    return is_right
