"""Attention Rollout from the output to the image; paper, Figures 6 and 14."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_vit.inspection.attention_probabilities import (
    attention_of_batches,
    has_rollout,
    token_layout,
)
from keras_vit.layers import EncoderBlock

if TYPE_CHECKING:
    from keras_vit.inspection.attention_probabilities import ModelLike


def rollout(attention: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the share of each input token in each output token.

    Abnar and Zuidema (arXiv 2005.00928), as Appendix D.7 uses it:

        A_l = rows normalised (mean over heads of attention_l + I)
        R   = A_L ... A_2 A_1

    The identity stands for the residual connection.

    Args:
        attention: `(B, heads, T, T)` for each layer, from the first to the last; an iterator
            is read one layer at a time.

    Returns:
        A float64 array `(B, T, T)`, whose rows sum to one.
    """
    result: Any = None
    for probabilities in attention:
        mixed = np.asarray(probabilities, "float64").mean(axis=1)
        mixed = mixed + np.eye(mixed.shape[-1])
        mixed = mixed / mixed.sum(axis=-1, keepdims=True)
        result = mixed if result is None else mixed @ result
    return result


def attention_rollout(model: ModelLike, images: np.ndarray, *, batch_size: int = 8) -> np.ndarray:
    """Returns the Attention Rollout to the patches of images.

    It is that from the class token, or the mean over patches of a model without one.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.
        batch_size: Images that run at once.

    Returns:
        A float64 array `(B, down, across)`, the share of each patch. The shares
        of prefix tokens are left out.

    Raises:
        ValueError: If the model has no attention, or the images do not have its size.
    """
    maps = []
    for layout, by_layer in attention_of_batches(model, images, batch_size):
        maps.append(layout.as_map(rollout(by_layer)))
    return np.concatenate(maps)


class _WithAttention(keras.layers.Layer):
    """A block with its attention: in Keras all calls of one layer have equally many outputs."""

    def __init__(self, block: EncoderBlock):
        super().__init__(name=block.name, dtype=block.dtype_policy)
        self.block = block

    def call(self, tokens, patches=None):
        return self.block(tokens, patches=patches, return_attention=True)

    def compute_output_spec(self, tokens, patches=None):
        return self.block.compute_output_spec(tokens, return_attention=True)


def rollout_model(model: keras.Model) -> keras.Model:
    """Returns a model of the same layers that also gives its Attention Rollout, in its graph.

    Its outputs are the model's and the shares of each patch, `(B, down, across)` float32, the
    numbers of `attention_rollout`.

    Args:
        model: A functional model of the package with attention over all tokens.

    Raises:
        ValueError: If the model has no attention, or attends along lines (Axial-ViT).
    """
    if not has_rollout(model):
        raise ValueError(
            "The model must attend over all tokens. "
            f"Received: {model.name}, with attention along lines or none"
        )
    by_layer = []

    def call(operation, *args, **kwargs):
        if not isinstance(operation, EncoderBlock):
            return operation(*args, **kwargs)
        tokens, attention = _WithAttention(operation)(*args, **kwargs)
        by_layer.append(attention)
        return tokens

    # Without what `compile` added: a clone is compiled again, from its config.
    bare = keras.Model(model.input, model.output)
    same = keras.models.clone_model(bare, clone_function=lambda kept: kept, call_function=call)
    result: Any = None
    for attention in by_layer:
        mixed = ops.mean(ops.cast(attention, "float32"), axis=1)
        # Rows of attention sum to one. A constant of NumPy becomes one of any exported graph.
        mixed = (mixed + np.eye(mixed.shape[-1], dtype="float32")) / 2
        result = mixed if result is None else ops.matmul(mixed, result)
    layout = token_layout(model)
    first = layout.num_prefix_tokens
    if layout.has_class_token:
        row = result[:, 0, first:]
    else:
        row = ops.mean(result[:, first:, first:], axis=1)
    return keras.Model(same.input, [same.outputs[0], ops.reshape(row, (-1, *layout.grid))])
