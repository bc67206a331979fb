"""Which token of a sequence is which part of the image."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from keras_vit.configs import AxialResNetConfig, ViTConfig
from keras_vit.models.recognition import config_of

QUERIES = ("token", "patches")


@dataclasses.dataclass(frozen=True)
class TokenLayout:
    """The tokens of a model's sequence: P in front, then N patches in raster order.

    Args:
        grid: Patches (down, across).
        patch_size: Pixels (down, across) from one patch to the next.
        num_prefix_tokens: Class tokens and registers in front of the patches, P.
        has_class_token: Whether the first token is a class token.
    """

    grid: tuple[int, int]
    patch_size: tuple[int, int]
    num_prefix_tokens: int
    has_class_token: bool

    def query(self, name: str | None) -> str:
        """Returns what looks at the image: "token", or "patches" for the mean over them.

        Args:
            name: One of the two; None for the class token where there is one.

        Raises:
            ValueError: If it is neither, or the class token of a model without one.
        """
        if name is None:
            return "token" if self.has_class_token else "patches"
        if name not in QUERIES:
            raise ValueError(f"query must be one of {QUERIES}. Received: query={name!r}")
        if name == "token" and not self.has_class_token:
            raise ValueError(
                'query="token" needs a model with a class token; this one has none: use '
                f'"patches". Received: query={name!r}'
            )
        return name

    def as_map(self, weights: np.ndarray, query: str | None = None) -> np.ndarray:
        """Returns what the query sees of each patch.

        Args:
            weights: `(..., P + N, P + N)`, a row for each query.
            query: As for `query`.

        Returns:
            An array `(..., down, across)`. The sum is less than one where the query also
            looks at tokens in front.
        """
        first = self.num_prefix_tokens
        if self.query(query) == "token":
            row = weights[..., 0, first:].copy()  # Or all weights would stay in memory.
        else:
            row = weights[..., first:, first:].mean(axis=-2)
        return row.reshape(*row.shape[:-1], *self.grid)


def token_layout(model: Any, image_size: tuple[int, int] | None = None) -> TokenLayout:
    """Returns the layout of a model's tokens.

    Args:
        model: A `keras.Model` of the package, or a `Classifier`.
        image_size: Pixels (height, width); those of the model by default.

    Raises:
        ValueError: If the model has no tokens, or the size is free and not given.
    """
    model = keras_model(model)
    config = config_of(model)
    if not isinstance(config, ViTConfig):
        kind = "an Axial-ResNet" if isinstance(config, AxialResNetConfig) else "a ResNet"
        raise ValueError(
            "A sequence of tokens is that of a Vision Transformer, a hybrid or an Axial-ViT. "
            f"Received: {model.name}, {kind}"
        )
    if image_size is None:
        image_size = model.input_shape[1:3]
    if None in image_size:
        raise ValueError("The model takes images of any size: say which. Received: image_size=None")
    down, across = config.patch_sizes
    stride = config.resnet.stride if config.resnet else 1
    return TokenLayout(
        grid=config.grid(image_size),
        patch_size=(down * stride, across * stride),
        num_prefix_tokens=config.num_prefix_tokens,
        has_class_token=config.has_class_token,
    )


def keras_model(model: Any) -> Any:
    """Returns the `keras.Model` of a `Classifier`, and any other model as it is."""
    return model if hasattr(model, "layers") else model.model
