"""Settings of pre-training, with and without classes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from keras_vit.description.class_labels import MULTICLASS
from keras_vit.training import recipes
from keras_vit.utils.fields import Rule, changed, documented, setting

from .shared import Settings

TARGETS = ("mean-colour", "downsized", "patch")
OBJECTIVE = "masked-patches"  # Pre-training without classes, in commands and recipe.json.


@documented
@dataclasses.dataclass(frozen=True)
class PreTraining(Settings):
    """The paper's supervised pre-training; Table 3, the row "ViT-*, ImageNet"."""

    image_size: tuple[int, int] | None = changed(
        Settings, "image_size", (224, 224), source="paper, Table 3"
    )
    batch_size: int = changed(Settings, "batch_size", 4096, source="paper, Table 3")
    decay: str = changed(Settings, "decay", "cosine", source="paper, Table 3")
    clip_norm: float | None = changed(Settings, "clip_norm", 1.0, source="paper, Table 3")
    optimizer: str = changed(Settings, "optimizer", "adam", source="paper, Table 3")
    learning_rate: float = changed(Settings, "learning_rate", 3e-3, source="paper, Table 3")
    weight_decay: float = changed(Settings, "weight_decay", 0.3, source="paper, Table 3")
    dropout_rate: float = changed(Settings, "dropout_rate", 0.1, source="paper, Table 3")

    command: ClassVar[str] = "pretrain"


@documented
@dataclasses.dataclass(frozen=True)
class MaskedPatches(PreTraining):
    """The paper's masked patch prediction; Appendix B.1.2, which is silent on the rest.

    By default 1,000,000 steps, of which 10,000 are warm-up (a fifth of a run of less than
    50,000), and all images are trained on: without labels there is nothing to choose the best
    weights by. With `validation` the best weights are chosen by the accuracy of the colours of
    the validation images.
    """

    learning_rate: float = changed(Settings, "learning_rate", 2e-4, source="paper, B.1.2")
    weight_decay: float = changed(Settings, "weight_decay", 0.1, source="paper, section 4.1")
    steps: int | None = changed(Settings, "steps", None, absent="1,000,000", source="paper, B.1.2")
    warmup_steps: int | None = changed(
        Settings,
        "warmup_steps",
        None,
        absent="10,000, or a fifth of a short run",
        source="paper, B.1.2",
    )
    clip_norm: float | None = changed(
        Settings, "clip_norm", None, absent="no clipping", source=None
    )
    dropout_rate: float = changed(Settings, "dropout_rate", 0.0, source="paper, Table 3, JFT-300M")
    validation: float | None = changed(Settings, "validation", 0.0, source=None)
    target: str = setting(
        "mean-colour",
        "what is predicted of a corrupted patch: its mean colour, the colours of its 4x4 version, "
        "or all its pixels",
        choices=TARGETS,
        source="paper, B.1.2",
    )
    corruption: float = setting(
        0.5,
        "share of the patches that is corrupted; the paper also tried 0.15",
        unit="SHARE",
        source="paper, B.1.2",
        limits=("in (0, 1)", lambda value: 0 < value < 1),
    )

    command = f"pretrain --objective {OBJECTIVE}"

    RULES = (
        *PreTraining.RULES,
        Rule("class_weights need classes", ("class_weights",), lambda s: s.class_weights is None),
        Rule("samples need classes", ("samples",), lambda s: s.samples is None),
    )

    def resolve(
        self,
        num_images: int,
        data_size: tuple[int, int] | None = None,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on others filled in.

        Args:
            num_images: Images to train with, including the validation images.
            data_size: Not used.
            task: Not used.
        """
        recipe = recipes.MASKED_PATCHES["ViT-B/16 JFT-300M masked patches"].settings
        steps = recipe["steps"] if self.steps is None else self.steps
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = min(recipe["warmup_steps"], steps // 5)
        filled = dataclasses.replace(self, steps=steps, warmup_steps=warmup_steps)
        return PreTraining.resolve(filled, num_images, data_size)
