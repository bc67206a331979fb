"""Everything that decides a pre-training by masked patches; imports no TensorFlow."""

from __future__ import annotations

import dataclasses

from . import recipes
from .settings import PreTraining

OBJECTIVE = "masked-patches"  # In a recipe, what tells that the model has no classes.
TARGETS = ("mean-colour", "downsized", "patch")  # See patch_targets.py.

_RECIPE = recipes.MASKED_PATCHES["ViT-B/16 JFT-300M masked patches"]


@dataclasses.dataclass(frozen=True)
class MaskedPatches(PreTraining):
    """The paper's masked patch prediction; Appendix B.1.2, which is silent on the rest.

    By default 1,000,000 steps, of which 10,000 are warm-up (a fifth of a run of less than
    50,000), and all images are trained on: without labels there is nothing to choose the best
    weights by. With `validation` it is the accuracy of the colours of images kept out.

    Args:
        target: What is predicted of a corrupted patch: its "mean-colour", the colours of its
            "downsized" version of 4x4, or all pixels of the "patch".
        corruption: Share of the patches that is corrupted; the paper also tried 0.15.
        **kwargs: See `PreTraining`.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    batch_size: int = _RECIPE.batch_size
    learning_rate: float = _RECIPE.base_lr
    weight_decay: float = _RECIPE.weight_decay
    clip_norm: float | None = _RECIPE.global_clipnorm
    dropout_rate: float = 0.0  # As on JFT-300M in Table 3, where B.1.2 trains.
    validation: float | None = 0.0
    target: str = _RECIPE.target
    corruption: float = _RECIPE.corruption

    recipe_type = recipes.MaskedPatchRecipe

    def __post_init__(self):
        super().__post_init__()
        if self.target not in TARGETS:
            raise ValueError(f"target must be one of {TARGETS}. Received: target={self.target!r}")
        if not 0 < self.corruption < 1:
            raise ValueError(
                f"corruption must be a share in (0, 1). Received: corruption={self.corruption}"
            )

    def resolve(self, num_images: int, data_size: tuple[int, int] | None = None) -> MaskedPatches:
        """Returns the settings with every value that depends on others filled in.

        Args:
            num_images: Images to train with, those for validation included.
            data_size: Not needed here.
        """
        steps = _RECIPE.steps if self.steps is None else self.steps
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = min(_RECIPE.warmup_steps, steps // 5)
        filled = dataclasses.replace(self, steps=steps, warmup_steps=warmup_steps)
        return super(MaskedPatches, filled).resolve(num_images, data_size)
