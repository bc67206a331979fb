"""Pre-training compute of the paper's scaling study, Table 6."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.models.counting import describe

JFT_IMAGES = 303e6  # Paper, section 4.1.
JFT_CLASSES = 18_291  # Sun et al., 2017 (arXiv 1707.02968); "18k" in the paper.
BACKWARD = 2  # The backward pass costs about two forward passes.

# Name, epochs over JFT-300M, exaFLOPs of the paper.
TABLE_6 = (
    ("ViT-B/32", 7, 55),
    ("ViT-B/16", 7, 224),
    ("ViT-L/32", 7, 196),
    ("ViT-L/16", 7, 783),
    ("ViT-L/16", 14, 1567),
    ("ViT-H/14", 14, 4262),
    ("BiT-R50x1", 7, 50),
    ("BiT-R50x2", 7, 199),
    ("BiT-R101x1", 7, 96),
    ("BiT-R152x1", 7, 141),
    ("BiT-R152x2", 7, 563),
    ("BiT-R152x2", 14, 1126),
    ("BiT-R200x3", 14, 3306),
    ("R50+ViT-B/32", 7, 106),
    ("R50+ViT-B/16", 7, 274),
    ("R50+ViT-L/32", 7, 246),
    ("R50+ViT-L/16", 7, 859),
    ("R50+ViT-L/16", 14, 1668),
)


@dataclasses.dataclass(frozen=True)
class Compute:
    """A row of Table 6.

    Args:
        name: The model.
        epochs: Passes over JFT-300M.
        counted: exaFLOPs, counted from the model's config.
        published: exaFLOPs of the paper.
    """

    name: str
    epochs: int
    counted: float
    published: float

    @property
    def ratio(self) -> float:
        """How many times the paper's number ours is."""
        return self.counted / self.published


def pretraining_flops(
    name_or_config: Any, *, images: float, epochs: float, **arguments: Any
) -> float:
    """Returns the FLOPs of a pre-training: images x epochs x 3 x those of a forward pass.

    Args:
        name_or_config: The model.
        images: Images of the data set.
        epochs: Passes over it.
        **arguments: Passed to `keras_vit.describe`, such as `input_shape`.
    """
    return images * epochs * (1 + BACKWARD) * describe(name_or_config, **arguments).flops


def table_6() -> list[Compute]:
    """Returns the rows of Table 6, at 224 pixels."""
    return [
        Compute(
            name,
            epochs,
            pretraining_flops(name, images=JFT_IMAGES, epochs=epochs, classes=JFT_CLASSES) / 1e18,
            published,
        )
        for name, epochs, published in TABLE_6
    ]
