"""Everything that decides a training run, as frozen dataclasses; imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from typing import Any, ClassVar, Self

from keras_vit import configs
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.run.required import required

from . import recipes

OPTIMIZERS = ("sgd", "adam")
LOSSES = ("softmax", "sigmoid")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
STRATEGIES = ("auto", "cpu", "mirrored", "multiworker", "tpu")
TRAINED = ("all", "head", "lora")  # Of a model in fine-tuning; see run/transfer.py.
RESIZED_CROP = "resize_random_crop"  # The augmentation that `resize` is for.

# Where the recipe does not say: the rows of Table 4, told apart by the number of training
# images as in BiT's HyperRule.
BY_DATA_SIZE = ((0, "Oxford-IIIT Pets"), (20_000, "CIFAR-10"), (500_000, "ImageNet"))

# A recipe's field: that of the settings, where the names differ.
_RENAMED = {
    "base_lr": "learning_rate",
    "global_clipnorm": "clip_norm",
    "development_share": "validation",
    "name": "recipe",
    "source": "recipe_source",
}
# What BiT's HyperRule makes of the data.
_BY_HYPER_RULE = ("steps", "warmup_steps", "boundaries", "mixup", "image_size", "resize")

_FINETUNING = recipes.FINETUNING["ImageNet"]
_PRETRAINING = recipes.PRETRAINING["ViT-B/16 ImageNet"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What fine-tuning and pre-training have in common.

    Args:
        recipe: Name of the recipe that the values are from, or None; see `from_recipe`.
        recipe_source: Where the recipe is from.
        scale: What the recipe was scaled by; see `Recipe.scaled`.
        model: A name of `keras_vit.list_models()` or a config.
        image_size: Pixels (height, width). None: by BiT's HyperRule.
        steps: Optimizer steps.
        batch_size: Images of an optimizer step.
        accumulate: Micro-batches that make one step; None: as few as the memory allows.
        optimizer: "sgd" or "adam".
        learning_rate: The highest, after warm-up.
        warmup_steps: Optimizer steps of linear warm-up.
        decay: Of the learning rate after warm-up; see `WarmupSchedule`.
        boundaries: Steps after which a "staircase" falls to a tenth.
        timescale: Steps after which "rsqrt" has fallen to 0.71.
        cooldown_steps: Steps at the end over which "rsqrt" falls to 0.
        momentum: Share of SGD's buffer kept.
        beta_1: Share of Adam's first moment kept.
        beta_2: Share of Adam's second moment kept.
        weight_decay: Strength of decoupled decay of the kernels.
        weight_decay_times: What it is multiplied by: "learning_rate", or "schedule", the
            learning rate as a share of its highest. See `DecoupledOptimizer`.
        clip_norm: Largest norm of all gradients together; None does not clip.
        averaging: Factor of Polyak averaging, such as 0.9999: the averages are kept instead
            of the weights. None keeps the weights.
        skip_nonfinite_steps: Steps with NaN or infinity that are left out before a run stops.
        loss: "softmax", or "sigmoid": cross-entropy summed over the classes.
        head_bias: Logit of every class at the start.
        label_smoothing: Share of the label spread over all classes; of "softmax".
        layer_decay: What a layer's learning rate is of the next one's, in (0, 1]; see
            `layer_numbers`.
        dropout_rate: Share of units dropped, in [0, 1).
        stochastic_depth_rate: Share of examples that skip a part of the last block, in
            [0, 1); see `ViTConfig`.
        augmentation: Of training images; see `keras_vit.training.data`.
        mixup: Parameter of the beta distribution, 0 for none; None: the augmentation's own.
        resize: Pixels (height, width) before the random crop of "resize_random_crop".
        evaluation: How an image gets its size in evaluation; see `Preprocessing`.
        validation: Share of the training images that is kept out to choose the best
            weights; 0 keeps the last.
        evaluate_every: Optimizer steps between two validations.
        patience: Validations without a better one after which a run ends; None: never.
        seed: Of the weights, the order of images, augmentation and dropout.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        remat: Whether to recompute activations in the backward pass: less memory, about a
            third more time.
        strategy: Where to run, see `keras_vit.training.strategy`; None: one device.
        jit_compile: Whether to compile with XLA; None: where Keras would.
        steps_per_execution: Optimizer steps that are run at once.
        data_service: Address of a `tf.data` service that makes the training batches,
            "grpc://host:port"; None: this machine.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    recipe: str | None = None
    recipe_source: str | None = None
    scale: float = 1.0
    model: Any = None
    image_size: tuple[int, int] | None = (_FINETUNING.image_size, _FINETUNING.image_size)
    steps: int | None = None
    batch_size: int = _FINETUNING.batch_size
    accumulate: int | None = None
    # The optimizer and its schedule.
    optimizer: str = _FINETUNING.optimizer
    learning_rate: float = 0.03  # The official code's, of the paper's sweep.
    warmup_steps: int | None = None
    decay: str = _FINETUNING.decay
    boundaries: tuple[int, ...] | None = ()
    timescale: float = 10_000
    cooldown_steps: int = 0
    momentum: float = 0.9  # Paper, Table 4.
    beta_1: float = 0.9  # Paper, Table 3.
    beta_2: float = 0.999
    weight_decay: float = _FINETUNING.weight_decay
    weight_decay_times: str = _FINETUNING.weight_decay_times
    clip_norm: float | None = _FINETUNING.global_clipnorm
    layer_decay: float = 1.0
    averaging: float | None = None
    skip_nonfinite_steps: int = 0
    # The loss.
    loss: str = "softmax"
    head_bias: float = 0.0
    label_smoothing: float = 0.0
    dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    # The images.
    augmentation: str = _FINETUNING.augmentation
    mixup: float | None = None
    resize: tuple[int, int] | None = None
    evaluation: str = "resize"
    # What is kept, and when it is over.
    validation: float | None = None
    evaluate_every: int | None = None
    patience: int | None = None
    seed: int = 0
    # How it is computed, which changes no result but for rounding.
    precision: str = "float32"
    remat: bool = False
    strategy: str | None = None
    jit_compile: bool | None = None
    steps_per_execution: int = 1
    data_service: str | None = None

    recipe_type: ClassVar[type[recipes.Recipe]] = recipes.Recipe

    def __post_init__(self):
        for name in ("image_size", "resize"):
            size = getattr(self, name)
            if size is not None:
                size = (size, size) if isinstance(size, int) else tuple(size)
                object.__setattr__(self, name, size)
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", tuple(self.boundaries))
        positive = {
            "steps": self.steps,
            "batch_size": self.batch_size,
            "accumulate": self.accumulate,
            "evaluate_every": self.evaluate_every,
            "patience": self.patience,
            "steps_per_execution": self.steps_per_execution,
            "image_size": self.image_size and min(self.image_size),
            "resize": self.resize and min(self.resize),
            "clip_norm": self.clip_norm,
            "timescale": self.timescale,
        }
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive. Received: {name}={value}")
        if self.accumulate and self.batch_size % self.accumulate:
            raise ValueError(
                "accumulate must divide the batch size. "
                f"Received: accumulate={self.accumulate}, batch_size={self.batch_size}"
            )
        if not math.isfinite(self.learning_rate) or self.learning_rate <= 0:
            raise ValueError(
                "The learning rate must be a positive number. "
                f"Received: learning_rate={self.learning_rate}"
            )
        if self.validation is not None and not 0 <= self.validation < 1:
            raise ValueError(
                f"validation must be a share in [0, 1). Received: validation={self.validation}"
            )
        if not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"layer_decay must be in (0, 1]. Received: layer_decay={self.layer_decay}"
            )
        if self.mixup is not None and not self.mixup >= 0:
            raise ValueError(f"mixup must not be negative. Received: mixup={self.mixup}")
        if self.label_smoothing and self.loss != "softmax":
            raise ValueError(
                'label_smoothing is for loss="softmax". Received: '
                f"label_smoothing={self.label_smoothing}, loss={self.loss!r}"
            )
        if self.resize and self.augmentation != RESIZED_CROP:
            raise ValueError(
                f"resize is for augmentation={RESIZED_CROP!r}. Received: resize={self.resize}, "
                f"augmentation={self.augmentation!r}"
            )
        if self.resize and self.image_size and any(map(operator.lt, self.resize, self.image_size)):
            raise ValueError(
                "resize must not be less than the image size. "
                f"Received: resize={self.resize}, image_size={self.image_size}"
            )
        for name, known in (
            ("optimizer", OPTIMIZERS),
            ("loss", LOSSES),
            ("precision", PRECISIONS),
            ("strategy", (None, *STRATEGIES)),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} must be one of {known}. Received: {name}={getattr(self, name)!r}"
                )
        if self.data_service is not None and not re.fullmatch(r"grpc://.+:\d+", self.data_service):
            raise ValueError(
                "data_service must be an address such as grpc://host:5000. "
                f"Received: data_service={self.data_service!r}"
            )
        if self.warmup_steps is not None and self.steps is not None:
            _check_warmup(self.warmup_steps, self.steps)

    @classmethod
    def of(cls, recipe: recipes.Recipe) -> Self:
        """Returns the settings of a recipe as it stands."""
        return cls(**_values(recipe, cls))

    @classmethod
    def from_recipe(cls, name: str, scale: float = 1.0, **given: Any) -> Self:
        """Returns the settings of one of the paper's recipes.

        Values that are given win over the recipe's. With other `steps` the warm-up and the
        boundaries keep their share of the run; with another `decay` the boundaries go.

        Args:
            name: As `find_recipe` takes it, or "BiT HyperRule", whose values `resolve`
                fills in from the data.
            scale: In (0, 1], for a smaller machine; see `Recipe.scaled`.
            **given: Fields and their values.

        Raises:
            ValueError: If there is no such recipe, it is one of the other job, or a value is
                out of range.
        """
        by_rule = name.lower() == recipes.HYPER_RULE_NAME.lower()
        recipe = recipes.bit_hyper_rule(1, (1, 1)) if by_rule else recipes.find_recipe(name)
        if not isinstance(recipe, cls.recipe_type):
            raise ValueError(
                f"The recipe must be one for keras-vit {cls.recipe_type.command}; this one is for "
                f"keras-vit {recipe.command}. Received: {recipe.name!r}"
            )
        values = _values(recipe.scaled(scale), cls)
        values |= {"recipe": recipe.name, "scale": scale}
        if by_rule:
            values |= dict.fromkeys(_BY_HYPER_RULE)
        elif given.get("steps"):
            values |= _with_steps(values, given["steps"])
        if given.get("decay", recipe.decay) != recipe.decay:
            values["boundaries"] = ()
        return cls(**(values | given))

    def resolve(self, num_images: int, data_size: tuple[int, int] | None = None) -> Self:
        """Returns the settings with every value that depends on the data filled in.

        Args:
            num_images: Images to train with, those for validation included.
            data_size: Pixels (height, width) of the images; for BiT's HyperRule alone.
        """
        settings = self
        if self.recipe == recipes.HYPER_RULE_NAME:
            settings = self._by_hyper_rule(num_images, data_size)
        steps = _row(num_images).steps if settings.steps is None else settings.steps
        # 500 in the official recipes, 100 in that of 500 steps.
        warmup_steps = settings.warmup_steps
        if warmup_steps is None:
            warmup_steps = min(_FINETUNING.warmup_steps, steps // 5)
        evaluate_every = settings.evaluate_every or settings._whole_executions(steps / 10)
        _check_warmup(warmup_steps, steps)
        settings._check_executions(steps, evaluate_every)
        return dataclasses.replace(
            settings,
            steps=steps,
            warmup_steps=warmup_steps,
            validation=settings.validation_share(num_images),
            evaluate_every=evaluate_every,
        )

    def validation_share(self, num_images: int) -> float:
        """Returns the share of so many training images that is kept for validation."""
        return _row(num_images).development_share if self.validation is None else self.validation

    @property
    def micro_batch_size(self) -> int:
        """Images in memory at once."""
        return self.batch_size // (self.accumulate or 1)

    @property
    def preprocessing(self) -> Preprocessing:
        """How an image becomes the model's input in evaluation."""
        return Preprocessing(required(self.image_size, "image_size"), self.evaluation)

    def to_json(self) -> dict:
        """Returns the fields as JSON can hold them."""
        fields = dataclasses.asdict(self)
        if dataclasses.is_dataclass(self.model):
            fields["model"] = {"config": type(self.model).__name__, **fields["model"]}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }

    @classmethod
    def from_json(cls, fields: dict) -> Self:
        """Returns what `to_json` gave.

        Raises:
            ValueError: If a field is unknown or its value is wrong.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if set(fields) - known:
            raise ValueError(
                f"Settings must be fields of {cls.__name__}. "
                f"Received: {sorted(set(fields) - known)}"
            )
        model = fields.get("model")
        if isinstance(model, dict):
            types = {"ViTConfig", "BiTConfig", "AxialConfig", "AxialResNetConfig"}
            values = {name: value for name, value in model.items() if name != "config"}
            if model.get("config") not in types:
                raise ValueError(f"A config must be one of {sorted(types)}. Received: {model}")
            fields = {**fields, "model": getattr(configs, model["config"])(**values)}
        return cls(**fields)

    def _by_hyper_rule(self, num_images, data_size):
        size = data_size or self.image_size
        if size is None:
            raise ValueError("BiT's HyperRule needs the size of the images. Received: None")
        rule = _values(recipes.bit_hyper_rule(num_images, size).scaled(self.scale), type(self))
        if self.steps is not None:
            rule |= _with_steps(rule, self.steps)
        if self.image_size is not None:
            # As much larger as the rule's.
            share = rule["resize"] / rule["image_size"]
            rule["resize"] = tuple(round(share * side) for side in self.image_size)
        if self.augmentation != RESIZED_CROP:
            rule["resize"] = None
        missing = {name: rule[name] for name in _BY_HYPER_RULE if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)

    def _whole_executions(self, steps):
        return math.ceil(steps / self.steps_per_execution) * self.steps_per_execution

    def _check_executions(self, steps, evaluate_every):
        executed = self.steps_per_execution
        if steps % executed or evaluate_every % executed:
            raise ValueError(
                "steps_per_execution must divide the steps of the run and those between two "
                f"validations. Received: steps_per_execution={executed}, steps={steps}, "
                f"evaluate_every={evaluate_every}"
            )


@dataclasses.dataclass(frozen=True)
class FineTuning(Settings):
    """The paper's fine-tuning; Table 4, section 4.1, and the official code for the rest.

    By default 500 steps with fewer than 20,000 images, 10,000 with fewer than 500,000, else
    20,000: the rows of Table 4. A tenth, a fiftieth or a hundredth of the training images
    is kept for validation, as there.

    Args:
        weights: What to start from: "imagenet21k" or another name of `weights=`, a file, a
            classifier's folder, or None for random values.
        train: "all"; "head", a linear probe; or "lora", the head and small additions to the
            attention. See `choose_trained`.
        lora_rank: Columns that LoRA adds for each head.
        lora_alpha: Strength of what it adds; None for the rank.
        **kwargs: See `Settings`.
    """

    weights: str | None = "imagenet21k"
    train: str = "all"
    lora_rank: int = 8
    lora_alpha: float | None = None

    recipe_type = recipes.FinetuningRecipe

    def __post_init__(self):
        super().__post_init__()
        if self.train not in TRAINED:
            raise ValueError(f"train must be one of {TRAINED}. Received: train={self.train!r}")
        if self.lora_rank < 1:
            raise ValueError(f"lora_rank must be positive. Received: lora_rank={self.lora_rank}")
        if self.train == "head" and self.layer_decay != 1:
            raise ValueError(
                'layer_decay needs more than one layer to train, but train="head" trains the '
                f"last. Received: layer_decay={self.layer_decay}"
            )


@dataclasses.dataclass(frozen=True)
class PreTraining(Settings):
    """The paper's supervised pre-training; Table 3, the row "ViT-*, ImageNet".

    Args:
        **kwargs: See `Settings`.
    """

    image_size: tuple[int, int] | None = (_PRETRAINING.image_size, _PRETRAINING.image_size)
    batch_size: int = _PRETRAINING.batch_size
    optimizer: str = _PRETRAINING.optimizer
    learning_rate: float = _PRETRAINING.base_lr
    weight_decay: float = _PRETRAINING.weight_decay
    dropout_rate: float = _PRETRAINING.dropout_rate

    recipe_type: ClassVar[type[recipes.Recipe]] = recipes.PretrainingRecipe


def _check_warmup(warmup_steps, steps):
    if not 0 <= warmup_steps < steps:
        raise ValueError(
            "The warm-up must be shorter than the run. "
            f"Received: warmup_steps={warmup_steps}, steps={steps}"
        )


def _row(num_images):
    """The recipe of Table 4 for data of this size."""
    name = next(name for least, name in reversed(BY_DATA_SIZE) if num_images >= least)
    return recipes.FINETUNING[name]


def _values(recipe, settings_type):
    """A recipe's fields under the settings' names."""
    known = {field.name for field in dataclasses.fields(settings_type)}
    fields = {_RENAMED.get(name, name): value for name, value in vars(recipe).items()}
    return {name: value for name, value in fields.items() if name in known}


def _with_steps(values, steps):
    """Warm-up and boundaries as the same shares of other steps."""
    share = steps / values["steps"]
    return {
        "warmup_steps": min(round(values["warmup_steps"] * share), steps - 1),
        "boundaries": tuple(round(boundary * share) for boundary in values["boundaries"]),
    }
