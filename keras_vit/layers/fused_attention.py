"""Attention in one kernel of a GPU: where it is used, and its check beside the plain path."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

if TYPE_CHECKING:
    import jax

HALF_PRECISION = "float16", "bfloat16"
# The largest error against float32 in units of the values' size; bfloat16 rounds by 2^-9.
_TOLERANCE = 0.02


class FusedAttention(NamedTuple):
    """Attention in one kernel.

    Args:
        attend: A function of scaled queries, keys and values `(B, k, N, D_h)`, which gives
            `softmax(q k^T) v` in this shape.
        padding: Tokens that must be added behind the others; no other attends to them, and
            their outputs and gradients are zero.
    """

    attend: Callable
    padding: int = 0


def fused_attention(tokens: keras.KerasTensor, num_heads: int) -> FusedAttention | None:
    """Returns how attention is computed in one kernel here, or None for the plain path.

    On JAX that is cuDNN's kernel on an NVIDIA GPU, in float16 and bfloat16; on PyTorch
    `scaled_dot_product_attention`, on a CPU in float32 only, as half precision takes longer
    there. Both take the softmax in float32 and hold no `(N, N)` probabilities. Elsewhere, and
    after `keras.config.disable_flash_attention()`, the answer is None, and with XLA's flags
    for deterministic operations, under which JAX's call fails. Dropout, returned
    probabilities and logits of positions need the plain path.

    The kernel of JAX is first tried: its errors come when a program is compiled, which is too
    late for another choice. Where it fails, a line is logged.

    Args:
        tokens: `(B, N, D)` in the dtype of the computation; only shape, dtype and device are
            read.
        num_heads: Attention heads, k.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow" or keras.config.is_flash_attention_enabled() is False:
        return None
    if backend == "torch":
        is_faster = tokens.is_cuda or keras.backend.standardize_dtype(tokens.dtype) == "float32"
        return _OF_TORCH if is_faster else None
    _, length, dim = tokens.shape
    units, capability = dim // num_heads, compute_capability()
    dtype = keras.backend.standardize_dtype(tokens.dtype)
    if dtype not in HALF_PRECISION or capability is None or capability < 8:
        return None
    if "deterministic_ops=true" in os.environ.get("XLA_FLAGS", ""):
        return None  # JAX 0.11 then ends in an IndexError where a program has many of the kernels.
    if units % 8 or units > (256 if capability >= 9 else 128) or not isinstance(length, int):
        return None
    # JAX takes no gradient at an odd length. One that is 64 beyond a multiple of 128 gave NaN
    # under PyTorch with a mask.
    padding = length % 2
    if padding and (length + padding) % 128 == 64:
        padding += 2
    if not _cudnn_is_right(dtype, num_heads, length, units, padding):
        return None
    return FusedAttention(functools.partial(_cudnn, padding=padding), padding)


def compute_capability() -> float | None:
    """Returns the compute capability of the NVIDIA GPU that JAX computes on; None for others."""
    device = device_of_jax()
    try:
        return float(device.compute_capability) if device.platform == "gpu" else None
    except ValueError:  # AMD's are names.
        return None


def device_of_jax() -> jax.Device:
    """Returns the device that JAX computes on here, the first of several."""
    import jax

    config: Any = jax.config
    distribution = keras.distribution.distribution()
    device = config.jax_default_device or jax.devices()[0]
    if distribution is not None:
        device = distribution.device_mesh.devices.flat[0]
    # Both may be a name, as "gpu:0".
    return jax.devices(device.partition(":")[0])[0] if isinstance(device, str) else device


def _scaled_dot_product_attention(query, key, value):
    from torch.nn.functional import scaled_dot_product_attention

    return scaled_dot_product_attention(query, key, value, scale=1.0)


_OF_TORCH = FusedAttention(_scaled_dot_product_attention)


def _cudnn(query, key, value, padding=0):
    """JAX's call of cuDNN, which has heads behind tokens; XLA removes double transpositions."""
    import jax
    from jax import numpy as jnp

    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    lengths = None
    if padding:
        lengths = jnp.full((query.shape[0],), query.shape[1] - padding, "int32")
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
def _cudnn_is_right(dtype, heads, length, units, padding):
    """Whether cuDNN compiles a tiny value and gradient, equal to the plain path's.

    Runs once for a shape, outside of the trace that may be under way.
    """
    import jax
    from jax import numpy as jnp

    def values_and_gradients(attend, query, key, value, upstream):
        answers = attend(query, key, value)  # Without a gradient it is another kernel.
        values, pull_back = jax.vjp(attend, query, key, value)
        return answers, values, *pull_back(upstream)

    def plain(query, key, value):
        key, others = key[:, :, :length], query[:, :, length:]
        probabilities = jax.nn.softmax(query[:, :, :length] @ jnp.swapaxes(key, 2, 3))
        return jnp.concatenate([probabilities @ value[:, :, :length], 0 * others], axis=2)

    shape = (4, 2, heads, length + padding, units)
    arrays = np.random.default_rng(0).normal(size=shape).astype("float32")
    arrays[0] *= units**-0.5  # Scaled queries.
    arrays[3, :, :, length:] = 0  # Nothing depends on the answers of the padding.
    try:
        with jax.ensure_compile_time_eval():
            half = [jnp.asarray(array, dtype) for array in arrays]
            wide = [array.astype("float32") for array in half]
            fused = functools.partial(_cudnn, padding=padding)
            received = jax.jit(functools.partial(values_and_gradients, fused))(*half)
            expected = jax.jit(functools.partial(values_and_gradients, plain))(*wide)
            errors = [
                float(np.linalg.norm(np.asarray(a, "float32") - b) / np.linalg.norm(b))
                for a, b in zip(received, map(np.asarray, expected), strict=True)
            ]
        reason = f"its errors are {max(errors):.2g} of the values"
        is_right = all(error < _TOLERANCE for error in errors)  # False for NaN.
    except (RuntimeError, ValueError) as error:  # XLA's errors, and JAX's of what it can tell.
        reason, is_right = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", False
    if not is_right:
        logging.getLogger("keras_vit").warning(
            "cuDNN's attention is not used for %s tokens of %s heads of %s units in %s: %s",
            *(length, heads, units, dtype, reason),
        )
    return is_right
