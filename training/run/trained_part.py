"""What of a model is trained: all of it, its head, or small additions to its attention."""

from __future__ import annotations

import re
from typing import Any

import keras

from keras_vit.layers import SelfAttention

HEAD = re.compile(r"(?:^|/)(?:predictions|pre_logits|\w+_token_head)/")


def choose_trained(
    model: keras.Model, part: str = "all", *, lora_rank: int = 8, lora_alpha: float | None = None
) -> None:
    """Says which weights of a model are trained; to be called before a trainer is made.

    "head" is a linear probe: the head alone. "lora" (arXiv 2106.09685) trains the head and
    adds to the kernels of query and value, `(D, k, D_h)`, a product of two small arrays,

        W + alpha / rank * A B,    A: (D, k, rank), B: (rank, D_h)

    as `keras.layers.EinsumDense.enable_lora` has it. B starts at zero, so the model starts as
    it was. Keras adds the product to the kernel when the model is saved: what is loaded is a
    plain model.

    Args:
        model: A model of `keras_vit.build` with a head.
        part: "all", "head" or "lora".
        lora_rank: Columns of A for each head; less than D_h.
        lora_alpha: Strength of the product; None for the rank.

    Raises:
        ValueError: If the model has no attention to add to, or the rank is not smaller than
            what it adds to.
    """
    if part == "all":
        return
    for weight in model.trainable_variables:
        weight.trainable = bool(HEAD.search(weight.path))
    if part == "lora":
        projections = _query_and_value(model)
        if not projections:
            raise ValueError(
                "LoRA needs the self-attention of a Vision Transformer. "
                f"Received: {model.name}, without any"
            )
        for projection in projections:
            head_dim = projection.kernel.shape[-1]
            if lora_rank >= head_dim:
                raise ValueError(
                    "The rank of LoRA must be less than the units of a head. "
                    f"Received: lora_rank={lora_rank}, {head_dim} units"
                )
            projection.enable_lora(lora_rank, lora_alpha=lora_alpha)


def merged_weights(model: keras.Model) -> dict[str, Any]:
    """Returns a model's weights by path, with what LoRA adds inside the kernels.

    Args:
        model: A model that `choose_trained` may have changed.
    """
    weights = {weight.path: weight for weight in model.weights}
    for projection in _query_and_value(model):
        if projection.lora_enabled:
            kernel = next(weight for weight in projection.weights if weight.name == "kernel")
            weights[kernel.path] = projection.kernel
    return {path: keras.ops.convert_to_numpy(weight) for path, weight in weights.items()}


def _query_and_value(model):
    attentions = [getattr(layer, "attention", None) for layer in model.layers]
    return [
        projection
        for attention in attentions
        if isinstance(attention, SelfAttention)
        for projection in (attention.query, attention.value)
    ]
