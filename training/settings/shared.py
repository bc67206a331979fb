"""Settings from flags, recipes and files, filled in from the data."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.recognition import config_of_json
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, UNKNOWN, Labels
from keras_vit.training import recipes
from keras_vit.utils.fields import (
    check_fields,
    check_json,
    check_used,
    documented,
    field_info,
    required,
    setting,
)
from keras_vit.utils.json_files import changed_fields

from .declared import RESIZED_CROP, DeclaredSettings

_BETWEEN = ("in (0, 1)", lambda value: 0 < value < 1)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """When a classifier may answer.

    Raises:
        ValueError: If a value is out of range.
    """

    max_error: float | None = setting(
        None,
        "largest share of wrong answers, such as 0.02; other images are answered with unknown",
        unit="SHARE",
        absent="no bound: only strange images are refused",
        limits=_BETWEEN,
    )
    confidence: float = setting(
        0.95,
        "probability with which the bound of --max-error holds",
        unit="SHARE",
        limits=_BETWEEN,
    )
    strange: float = setting(
        0.01,
        "largest share of known images that are refused as strange",
        unit="SHARE",
        limits=_BETWEEN,
    )

    def __post_init__(self):
        check_fields(self)

    def check(self, labels: Labels) -> None:
        """Raises ValueError for multi-label classifiers and a class that is named "unknown"."""
        if labels.is_multilabel:
            raise ValueError(
                "A bound on the errors is for classifiers with one class an image; the thresholds "
                "of multi-label ones stay. Received: a multi-label classifier"
            )
        if UNKNOWN in (labels.names or ()):
            raise ValueError(
                f'With a decision no class may have the name "{UNKNOWN}": images without an answer '
                "get it. Give the class another name, or the photos with --unknown."
            )


@documented
@dataclasses.dataclass(frozen=True)
class Settings(DeclaredSettings):
    """The settings that fine-tuning and pre-training share.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    @classmethod
    def from_options(
        cls, *, recipe: str | None = None, scale: float | None = None, **given: Any
    ) -> Self:
        """Returns the settings from the flags of a command.

        Args:
            recipe: A name for `from_recipe`.
            scale: See `from_recipe`.
            **given: Fields and their values; the recipe or the defaults have the others.

        Raises:
            ValueError: If there is a scale without a recipe, a value has no effect, or as
                `from_recipe`.
        """
        if recipe is None and scale is not None:
            raise ValueError(
                "--scale needs a recipe (--recipe); without one, --steps and --batch-size make a "
                f"run smaller. Received: --scale {scale:g} alone"
            )
        if recipe is None:
            settings = cls(**given)
        else:
            settings = cls.from_recipe(recipe, 1.0 if scale is None else scale, **given)
        check_used(settings, given)
        return settings

    @classmethod
    def from_recipe(cls, name: str, scale: float = 1.0, **given: Any) -> Self:
        """Returns the settings of one of the paper's recipes.

        Given values win over the recipe's. With other `steps` the warm-up and the boundaries
        keep their share of the run; with another `decay` the boundaries are dropped.

        Args:
            name: A name for `find_recipe`, or "BiT HyperRule", whose values `resolve` fills
                in from the data.
            scale: In (0, 1], for a smaller machine; see `scaled`.
            **given: Fields and their values.

        Raises:
            ValueError: If there is no such recipe, it is for another command, or a value is
                out of range.
        """
        by_rule = name.lower() == recipes.HYPER_RULE_NAME.lower()
        recipe = recipes.bit_hyper_rule(1, (1, 1)) if by_rule else recipes.find_recipe(name)
        if recipe.command != cls.command:
            raise ValueError(
                f"The recipe must be one for keras-vit {cls.command}; this one is for "
                f"keras-vit {recipe.command}. Received: {recipe.name!r}"
            )
        settings = cls(**recipe.settings, recipe=recipe.name, recipe_source=recipe.source).scaled(
            scale
        )
        changes: dict[str, Any] = {}
        if by_rule:
            changes |= dict.fromkeys(recipes.BY_HYPER_RULE)
        elif given.get("epochs") is not None:  # The steps are not known before the data are.
            changes |= {"steps": None, "warmup_steps": None}
        elif given.get("steps"):
            changes |= settings._with_steps(given["steps"])
        if given.get("decay", settings.decay) != settings.decay:
            changes["boundaries"] = ()
        return dataclasses.replace(settings, **(changes | given))

    def scaled(self, scale: float) -> Self:
        """Returns the settings for a smaller machine, to see `scale` times as many images.

        Steps and batch shrink alike, each by about sqrt(scale): the batch to a power of two,
        8 at least, the steps by the rest. The warm-up keeps its share of the steps. The
        learning rate follows the batch, in proportion for SGD, by its square root for Adam.

        Args:
            scale: In (0, 1].

        Raises:
            ValueError: If `scale` is out of range.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale must be in (0, 1]. Received: scale={scale}")
        if scale == 1:
            return self
        wanted = self.batch_size * math.sqrt(scale)
        batch_size = min(self.batch_size, max(8, 2 ** round(math.log2(wanted))))
        share = batch_size / self.batch_size
        steps = max(1, round(required(self.steps, "steps") * scale / share))
        return dataclasses.replace(
            self,
            scale=self.scale * scale,
            steps=steps,
            batch_size=batch_size,
            learning_rate=required(self.learning_rate, "learning_rate")
            * (share if self.optimizer == "sgd" else math.sqrt(share)),
            **self._with_steps(steps),
        )

    def resolve(
        self,
        num_images: int,
        data_size: tuple[int, int] | None = None,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on the data filled in.

        Args:
            num_images: Images to train with, including the validation images.
            data_size: Pixels (height, width) of the images; only for BiT's HyperRule.
            task: "multiclass" or "multilabel".

        Raises:
            ValueError: If the loss is not for the task, or steps do not fit each other.
        """
        settings = self
        if task == MULTILABEL and self.loss == "softmax":
            raise ValueError(
                "Multi-label data need the loss sigmoid (--loss, loss=), as the "
                'probabilities of a softmax sum to 1. Received: loss="softmax"'
            )
        if self.recipe == recipes.HYPER_RULE_NAME:
            settings = self._by_hyper_rule(num_images, data_size)
        steps = settings.steps
        if steps is None:
            steps = recipes.finetuning_of_size(num_images).settings["steps"]
        warmup_steps = settings.warmup_steps
        if warmup_steps is None:
            warmup_steps = recipes.finetuning_warmup(steps)
        executed = settings.steps_per_execution
        evaluate_every = settings.evaluate_every or math.ceil(steps / 10 / executed) * executed
        if steps % executed or evaluate_every % executed:
            raise ValueError(
                "steps_per_execution must divide the steps of the run and those between two "
                f"validations. Received: steps_per_execution={executed}, steps={steps}, "
                f"evaluate_every={evaluate_every}"
            )
        return dataclasses.replace(
            settings,
            steps=steps,
            warmup_steps=warmup_steps,
            validation=settings.validation_share(num_images),
            evaluate_every=evaluate_every,
            augmentation=settings.augmentation or recipes.augmentation_of_size(num_images),
            loss=settings.loss or ("sigmoid" if task == MULTILABEL else "softmax"),
        )

    def with_epochs(self, num_images: int) -> Self:
        """Returns the settings with the steps in which each image is seen `epochs` times.

        Args:
            num_images: Images to train with, without the validation images.
        """
        if self.epochs is None:
            return self
        images, executed = self.batch_size * self.steps_per_execution, self.steps_per_execution
        steps = math.ceil(self.epochs * num_images / images) * executed
        return dataclasses.replace(self, epochs=None, steps=steps)

    def validation_share(self, num_images: int) -> float:
        """Returns the share of a number of training images that is kept for validation."""
        if self.validation is not None:
            return self.validation
        return recipes.finetuning_of_size(num_images).settings["validation"]

    @property
    def decision(self) -> DecisionSettings | None:
        """The bounds of the decision that the run finds at its end; None without one."""
        return None

    @property
    def micro_batch_size(self) -> int:
        """Images in memory at once."""
        return self.batch_size // (self.accumulate or 1)

    def to_json(self) -> dict:
        """Returns the fields as JSON can hold them."""
        fields = dataclasses.asdict(self)
        if isinstance(self.model, (ViTConfig, BiTConfig)):
            fields["model"] = {"config": type(self.model).__name__, **changed_fields(self.model)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        }

    @classmethod
    def from_json(cls, fields: dict) -> Self:
        """Returns the settings that `to_json` wrote.

        Raises:
            ValueError: If a field is unknown or its value is wrong.
        """
        check_json(cls, fields, "the recipe")
        model = fields.get("model")
        if isinstance(model, dict):
            values = {name: value for name, value in model.items() if name != "config"}
            fields = {**fields, "model": config_of_json(values, model.get("config"))}
        return cls(**fields)

    def in_use(self) -> dict[str, Any]:
        """Returns the settings that change something, by name, as JSON can hold them."""
        values = self.to_json()
        return {
            field.name: values[field.name]
            for field in dataclasses.fields(self)
            if not field_info(field).is_off(self, getattr(self, field.name))
        }

    def _with_steps(self, steps):
        """Returns warm-up and boundaries as the same shares of other steps."""
        share = steps / self.steps
        return {
            "warmup_steps": min(round(self.warmup_steps * share), steps - 1),
            "boundaries": tuple(round(boundary * share) for boundary in self.boundaries or ()),
        }

    def _by_hyper_rule(self, num_images, data_size):
        size = data_size or self.image_size
        if size is None:
            raise ValueError("BiT's HyperRule needs the size of the images. Received: None")
        rule = type(self)(**recipes.bit_hyper_rule(num_images, size).settings).scaled(self.scale)
        values = {name: getattr(rule, name) for name in recipes.BY_HYPER_RULE}
        if self.steps is not None:
            values |= rule._with_steps(self.steps)
        if self.image_size is not None:
            share = required(rule.resize, "resize")[0] / required(rule.image_size, "image_size")[0]
            values["resize"] = tuple(round(share * side) for side in self.image_size)
        if self.augmentation != RESIZED_CROP:
            values["resize"] = None
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return dataclasses.replace(self, **missing)
