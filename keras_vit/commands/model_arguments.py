"""Arguments of the commands that open a model by its name or weights of others."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.training.settings import UNKNOWN_FACTS, FineTuning
from keras_vit.utils.fields import REQUIRED, part, setting


def unknown_facts() -> Any:
    """Returns the field of what a file of weights may not hold; see `keras_vit.open_model`."""
    return part(FineTuning, make=dict, only=UNKNOWN_FACTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """MODEL, and the flags for a model's name and for weights of others."""

    model: str = setting(
        REQUIRED,
        "a classifier's folder, other weights, or a name of keras-vit models",
        unit="MODEL",
        positional=True,
    )
    weights: str | None = setting(
        None,
        "for a model's name: imagenet21k, imagenet, a key of the catalogue, a file, or random",
        unit="NAME",
    )
    image_size: int | None = setting(
        None, "images of another size", unit="PIXELS", absent="the weights', or 224"
    )
    facts: dict[str, Any] = unknown_facts()

    def open(self, **options: Any) -> Any:
        """Returns the opened model, an `EvaluatedModel`.

        Args:
            **options: More arguments of `build_evaluated`.
        """
        from keras_vit.training.evaluation.predictions import build_evaluated

        return build_evaluated(
            self.model,
            weights=self.weights,
            image_size=self.image_size,
            **self.facts,
            **options,
        )
