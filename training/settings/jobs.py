"""Settings of fine-tuning and of pre-training with and without classes; options of a run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, get_args

from keras_vit.configs import Gelu
from keras_vit.description.class_labels import MULTICLASS
from keras_vit.preprocessing import NORMALIZATIONS
from keras_vit.training.recipes import MASKED_PATCHES
from keras_vit.utils.fields import (
    POSITIVE,
    POSITIVE_NUMBER,
    REQUIRED,
    Rule,
    changed,
    documented,
    image_size,
    setting,
)

from .declared import MODEL_GROUP
from .shared import DecisionSettings, Settings

TRAINED = ("all", "head", "lora")
# What a file of weights may not hold; see `keras_vit.load_classifier`.
UNKNOWN_FACTS = ("num_heads", "gelu", "normalization")
HEADS = ("keep", "extend", "new")
DISTILLATIONS = ("soft", "hard")
TARGETS = ("mean-color", "downsized", "patch")
OBJECTIVE = "masked-patches"  # Pre-training without classes, in commands and recipe.json.


@documented
@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where a run writes, whether it starts or continues, and what it calls.

    The flags of the commands and the keyword arguments of `finetune` are this one object.
    """

    output: str | os.PathLike = setting(
        REQUIRED,
        "the classifier's folder to write; until the end everything is in OUTPUT.partial",
        unit="DIR",
    )
    overwrite: bool = setting(False, "replace an existing output")
    resume: bool = setting(False, "continue a stopped run; only --output is needed then")
    command: str = setting(
        "",
        "the command to record in recipe.json, by which an unfinished run continues too",
        flag="",
    )
    log: Callable[[str], object] = setting(
        print, "receives the resolved recipe and the result", flag=""
    )
    callbacks: Sequence[Any] = setting(
        (),
        "Keras callbacks for fit, which is called once with one epoch of all steps",
        flag="",
    )
    given: tuple[str, ...] | None = setting(
        None,
        "names of the given settings and data options, with which a resumed run must have begun",
        absent="those whose values are not the defaults",
        flag="",
    )


@documented
@dataclasses.dataclass(frozen=True)
class FineTuning(Settings):
    """The paper's fine-tuning; Table 4, section 4.1, and the official code for the rest.

    By default 500 steps with fewer than 20,000 images, 10,000 with fewer than 500,000, else
    20,000: the rows of Table 4. A tenth, a fiftieth or a hundredth of the training images
    is kept for validation, as there.
    """

    image_size: tuple[int, int] | None = changed(
        Settings,
        "image_size",
        None,
        help="384, 384x512 for height x width, or auto: larger than the weights' size where a "
        "linear probe of larger images is clearly better and a step takes at most 8 times as long",
        absent="auto; 384 for weights of 224 pixels",
        none="auto",
        parse=lambda text: text if text == "auto" else image_size(text),
    )
    weights: str | None = setting(
        "imagenet21k",
        "the weights to start from: imagenet21k, imagenet, a name of the catalogue, a file, a "
        "classifier's folder, or none for random values",
        unit="WEIGHTS",
        none="none",
        group=MODEL_GROUP,
    )
    head: str | None = setting(
        None,
        "keep the rows of the weights' head for classes of the same name; extend it, so that all "
        "classes of the weights stay in addition to the data's; or a new head of zeros",
        choices=HEADS,
        absent="keep where the weights name a class of the data",
        off=(None,),
        line="head",
    )
    head_start: str = setting(
        "probe",
        "what a new head begins with: a linear probe, solved from the features of the training "
        "images, if it is better than the rows of the weights; or zeros, as in the paper",
        choices=("probe", "zero"),
        source="Kumar et al. 2022 (arXiv 2202.10054)",
        used=lambda settings: settings.weights is not None,
        needs="weights to start from",
        line="head_start",
    )
    learning_rate: float | None = changed(
        Settings,
        "learning_rate",
        None,
        absent="0.03, or 0.01 where the head of the weights is kept",
        source="the paper's sweep; docs/finetune.md",
    )
    augmentation: str | None = changed(
        Settings,
        "augmentation",
        None,
        absent="none with fewer than 20,000 images, else inception_crop",
        source="docs/finetune.md",
    )
    replay: str | None = setting(
        None,
        "images of the classes that the weights know, which are trained on again so that they are "
        "not forgotten; as --data",
        unit="DATA",
        absent="none",
        off=(None,),
    )
    replay_share: float = setting(
        0.2,
        "share of the images of each step that are replayed",
        unit="SHARE",
        limits=("in (0, 1)", lambda value: 0 < value < 1),
        used=lambda settings: settings.replay is not None,
        needs="--replay",
    )
    normalization: str | None = setting(
        None,
        "range of the pixels: half is -1 to 1, imagenet ImageNet's mean and standard deviation",
        choices=tuple(NORMALIZATIONS),
        absent="as in the weights",
        off=(None,),
        line="pixels",
    )
    gelu: str | None = setting(
        None,
        "form of GELU, where the weights do not state it",
        choices=get_args(Gelu),
        absent="as in the weights",
        off=(None,),
        line="gelu",
    )
    num_heads: int | None = setting(
        None,
        "attention heads, where the weights do not show them",
        unit="N",
        absent="as in the weights",
        limits=POSITIVE,
        off=(None,),
    )
    train: str = setting(
        "all",
        "all; the head alone, a linear probe; or lora, the head and small additions to the "
        "attention",
        choices=TRAINED,
        group="what is trained",
    )
    lora_rank: int = setting(
        8,
        "columns that LoRA adds for each head",
        unit="COLUMNS",
        limits=POSITIVE,
        used=lambda settings: settings.train == "lora",
        needs="--train lora",
    )
    teacher: str | None = setting(
        None,
        "a classifier to learn from in addition to the labels: its folder, or cifar10",
        unit="FOLDER",
        absent="none",
        off=(None,),
        line="teacher",
        group="teacher",
    )
    distillation: str = setting(
        "soft",
        "what is learned from the teacher: its probabilities, or its class",
        choices=DISTILLATIONS,
        source="Hinton et al. 2015; hard is DeiT's",
        used=lambda settings: bool(settings.teacher),
        needs="--teacher",
    )
    distillation_weight: float = setting(
        0.5,
        "share of the teacher in the loss; the labels have the rest",
        unit="SHARE",
        source="DeiT, equation 3",
        limits=("in [0, 1]", lambda value: 0 <= value <= 1),
        used=lambda settings: bool(settings.teacher),
        needs="--teacher",
    )
    temperature: float = setting(
        3.0,
        "what the logits of both are divided by in the distillation soft",
        unit="T",
        source="Hinton et al. 2015: 2.5 to 4 for small students",
        limits=POSITIVE_NUMBER,
        used=lambda settings: bool(settings.teacher) and settings.distillation == "soft",
        needs="--teacher and --distillation soft",
    )

    max_error: float | None = changed(
        DecisionSettings,
        "max_error",
        absent="none: without a decision",
        off=(None,),
        group="the answer unknown",
    )

    command = "finetune"

    RULES = (
        *Settings.RULES,
        Rule(
            'teacher needs loss="softmax", for one class an image',
            ("teacher", "loss"),
            lambda s: s.teacher is None or s.loss != "sigmoid",
        ),
        Rule(
            'layer_decay needs more than one layer to train, and train="head" trains the last',
            ("layer_decay", "train"),
            lambda s: s.train != "head" or s.layer_decay == 1,
        ),
        Rule(
            "replay needs weights and extends their head, without class_weight",
            ("replay", "weights", "head", "class_weight"),
            lambda s: (
                s.replay is None
                or (s.head in (None, "extend") and s.weights is not None)
                and not s.class_weight
            ),
        ),
    )

    @property
    def decision(self) -> DecisionSettings | None:
        """The bound of the decision that the run finds at its end; None without one."""
        return None if self.max_error is None else DecisionSettings(max_error=self.max_error)

    @property
    def extends_head(self) -> bool:
        """Whether the classes of the data are added to the classes of the weights."""
        return self.head == "extend" or self.replay is not None

    @property
    def unknown_facts(self) -> dict[str, Any]:
        """What the weights may not hold, as arguments of `keras_vit.load_classifier`."""
        return {name: getattr(self, name) for name in UNKNOWN_FACTS}


@documented
@dataclasses.dataclass(frozen=True)
class PreTraining(Settings):
    """The paper's supervised pre-training; Table 3, the row "ViT-*, ImageNet"."""

    image_size: tuple[int, int] | None = changed(
        Settings, "image_size", (224, 224), source="paper, Table 3"
    )
    batch_size: int = changed(Settings, "batch_size", 4096, source="paper, Table 3")
    decay: str = changed(Settings, "decay", "cosine", source="paper, Table 3")
    global_clipnorm: float | None = changed(
        Settings, "global_clipnorm", 1.0, source="paper, Table 3"
    )
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
    weights by.
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
    global_clipnorm: float | None = changed(
        Settings, "global_clipnorm", None, absent="no clipping", source=None
    )
    dropout_rate: float = changed(Settings, "dropout_rate", 0.0, source="paper, Table 3, JFT-300M")
    validation: float | None = changed(Settings, "validation", 0.0, source=None)
    target: str = setting(
        "mean-color",
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
        Rule("class_weight needs classes", ("class_weight",), lambda s: s.class_weight is None),
        Rule("samples need classes", ("samples",), lambda s: s.samples is None),
        Rule("validation needs classes", ("validation",), lambda s: not s.validation),
    )

    def resolve(
        self,
        num_images: int,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on others filled in.

        Args:
            num_images: Images to train with, including the validation images.
            task: Not used.
        """
        recipe = MASKED_PATCHES["ViT-B/16 JFT-300M masked patches"].settings
        steps = recipe["steps"] if self.steps is None else self.steps
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = min(recipe["warmup_steps"], steps // 5)
        filled = dataclasses.replace(self, steps=steps, warmup_steps=warmup_steps)
        return PreTraining.resolve(filled, num_images)
