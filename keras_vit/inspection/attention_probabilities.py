"""Attention probabilities of a model, layer by layer, and the layout of its tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import keras
import numpy as np

from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import config_of
from keras_vit.images.pixels import check_no_paths
from keras_vit.layers import EncoderBlock, SplitLines

if TYPE_CHECKING:
    from keras_vit.predictor import Predictor

    ModelLike: TypeAlias = keras.Model | Predictor


def attention_by_layer(model: ModelLike, images: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the attention probabilities of a model, one layer at a time.

    Equation 7 of the paper, before dropout, as the model's own blocks compute it. Each block runs
    twice, so that memory holds the probabilities of one layer; the model's head does not run.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Yields:
        The block's name and a float32 array `(B, heads, T, T)`: a row for each query, whose
        sum is one; T counts class token, registers and patches, in this order.

    Raises:
        ValueError: If the model has no attention or attends along lines (Axial-ViT), or the images
            do not have its size.
    """
    model = keras_model(model)
    token_layout(model, check_images(model, images))  # Raises for a model without tokens.
    if not has_rollout(model):
        raise ValueError(
            f"The model must attend over all tokens. Received: {model.name}, which attends along "
            "rows and columns"
        )
    images = keras.ops.convert_to_tensor(images, dtype=model.inputs[0].dtype)
    blocks = [operation for operation in model.operations if isinstance(operation, EncoderBlock)]
    inputs = keras.Model(model.input, {block.name: block.input for block in blocks})(images)
    for block in blocks:
        tokens, *others = keras.tree.flatten(inputs[block.name])
        patches = others[0] if others else None
        # Not in a variable, which would keep it during the next block.
        yield (
            block.name,
            keras.ops.convert_to_numpy(block(tokens, patches=patches, return_attention=True)[1]),
        )


def attention_maps(model: ModelLike, images: np.ndarray) -> list[np.ndarray]:
    """Returns the attention probabilities of all layers of a model.

    They take `4 B L heads T^2` bytes for L layers; `attention_by_layer` holds one layer.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.

    Returns:
        For each layer a float32 array `(B, heads, T, T)`, as `attention_by_layer` yields it.

    Raises:
        ValueError: If the model has no attention, or the images do not have its size.

    Example:
    >>> model = keras_vit.build("ViT-Ti/16", input_shape=(32, 48, 3))
    >>> [maps.shape for maps in attention_maps(model, np.zeros((1, 32, 48, 3)))][:2]
    [(1, 3, 7, 7), (1, 3, 7, 7)]
    """
    return [attention for _, attention in attention_by_layer(model, images)]


def has_rollout(model: keras.Model) -> bool:
    """Returns whether a model has attention over all tokens, as a rollout needs."""
    kinds = {type(operation) for operation in model.operations}
    return any(issubclass(kind, EncoderBlock) for kind in kinds) and SplitLines not in kinds


def attention_of_batches(
    model: ModelLike, images: np.ndarray, batch_size: int
) -> Iterator[tuple[TokenLayout, Iterator[np.ndarray]]]:
    """Yields the layout of the tokens and the attention of each layer, for a few images at a time.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: `(B, H, W, C)`, preprocessed.
        batch_size: Images that run at once.

    Raises:
        ValueError: As `attention_by_layer`; if there are no images, or the batch size is not
            positive.
    """
    if batch_size < 1 or not len(images):
        raise ValueError(
            "There must be at least one image, and a batch size of at least 1. "
            f"Received: {len(images)} images, batch_size={batch_size}"
        )
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size]
        layout = token_layout(model, np.shape(batch)[1:3])
        yield layout, (attention for _, attention in attention_by_layer(model, batch))


def check_images(model: keras.Model, images: np.ndarray) -> tuple[int, int]:
    """Returns the pixels (height, width) of images.

    Raises:
        ValueError: If the images do not have the model's input shape.
    """
    check_no_paths(images)
    expected, shape = tuple(model.input_shape), tuple(np.shape(images))
    if len(shape) != 4 or any(
        side not in (None, received) for side, received in zip(expected[1:], shape[1:], strict=True)
    ):
        raise ValueError(
            f"Images must have the model's input shape {expected}. Received: shape {shape}"
        )
    return shape[1:3]


@dataclasses.dataclass(frozen=True)
class TokenLayout:
    """Layout of a model's token sequence: P prefix tokens, then N patches in raster order.

    Args:
        grid: Patches (down, across).
        patch_size: Pixels (down, across) from one patch to the next.
        num_prefix_tokens: P, the class token and registers before the patches.
        has_class_token: Whether the first token is a class token.
    """

    grid: tuple[int, int]
    patch_size: tuple[int, int]
    num_prefix_tokens: int
    has_class_token: bool

    def as_map(self, weights: np.ndarray) -> np.ndarray:
        """Returns the attention to each patch, of the class token or else the mean over patches.

        Args:
            weights: `(..., P + N, P + N)`, a row for each query.

        Returns:
            An array `(..., down, across)`. Its sum is below one by the attention to prefix
            tokens.
        """
        first = self.num_prefix_tokens
        if self.has_class_token:
            row = weights[..., 0, first:].copy()  # A copy, so that the other weights can be freed.
        else:
            row = weights[..., first:, first:].mean(axis=-2)
        return row.reshape(*row.shape[:-1], *self.grid)


def token_layout(model: ModelLike, image_size: tuple[int, int] | None = None) -> TokenLayout:
    """Returns the layout of a model's tokens.

    Args:
        model: A `keras.Model` of the package, or a `Classifier`.
        image_size: Pixels (height, width); by default the model's.

    Raises:
        ValueError: If the model has no tokens, or takes any image size and none is given.
    """
    model = keras_model(model)
    config = config_of(model)
    if not isinstance(config, ViTConfig):
        raise ValueError(
            "Tokens need a Vision Transformer, a hybrid or an Axial-ViT. "
            f"Received: {model.name}, a model of {type(config).__name__}"
        )
    if image_size is None:
        image_size = model.input_shape[1:3]
    if None in image_size:
        raise ValueError(
            "The model takes images of any size, so image_size is needed. Received: image_size=None"
        )
    down, across = config.patch_sizes
    stride = config.resnet.stride if config.resnet else 1
    return TokenLayout(
        grid=config.grid(image_size),
        patch_size=(down * stride, across * stride),
        num_prefix_tokens=config.num_prefix_tokens,
        has_class_token=config.has_class_token,
    )


def keras_model(model: ModelLike) -> keras.Model:
    """Returns the `keras.Model` of a `Classifier`, or the model itself.

    Raises:
        ValueError: If it is an export, which has no layers to look into.
    """
    found = model if hasattr(model, "layers") else model.model
    if not hasattr(found, "layers"):
        raise ValueError(
            "Inspection needs a Keras model, and an export holds none: give the classifier that it "
            f"was made of. Received: {type(found).__name__}"
        )
    return found
