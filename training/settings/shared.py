"""Settings from flags, recipes and files, filled in from the data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.recognition import config_of_json
from keras_vit.description.class_labels import MULTICLASS, MULTILABEL, UNKNOWN, Labels
from keras_vit.training.recipes import (
    augmentation_of_size,
    find_recipe,
    finetuning_of_size,
    finetuning_warmup,
)
from keras_vit.utils.fields import (
    REQUIRED,
    changed,
    check_fields,
    check_json,
    check_used,
    documented,
    field_info,
    setting,
)
from keras_vit.utils.json_files import changed_fields, with_present_names

from .declared import DeclaredSettings

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
    def from_options(cls, given: Mapping[str, Any]) -> Self:
        """Returns the settings from the flags of a command.

        Args:
            given: Fields and their values; the recipe or the defaults have the others. "recipe" is
                a name for `from_recipe`.

        Raises:
            ValueError: If a value has no effect, or as `from_recipe`.
        """
        fields = {name: value for name, value in given.items() if name != "recipe"}
        recipe = given.get("recipe")
        settings = cls(**fields) if recipe is None else cls.from_recipe(recipe, **fields)
        check_used(settings, fields)
        return settings

    @classmethod
    def from_recipe(cls, name: str, **given: Any) -> Self:
        """Returns the settings of one of the paper's recipes.

        Given values win over the recipe's. With other `steps` the warm-up keeps its share of the
        run.

        Args:
            name: A name for `find_recipe`.
            **given: Fields and their values.

        Raises:
            ValueError: If there is no such recipe, it is for another command, or a value is
                out of range.
        """
        recipe = find_recipe(name)
        if recipe.command != cls.command:
            raise ValueError(
                f"The recipe must be one for keras-vit {cls.command}; this one is for "
                f"keras-vit {recipe.command}. Received: {recipe.name!r}"
            )
        settings = cls(**recipe.settings, recipe=recipe.name, recipe_source=recipe.source)
        changes: dict[str, int | None] = {}
        if given.get("epochs") is not None:  # The steps are not known before the data are.
            changes = {"steps": None, "warmup_steps": None}
        elif given.get("steps"):
            warmup_steps = round(settings.warmup_steps * given["steps"] / settings.steps)
            changes["warmup_steps"] = min(warmup_steps, given["steps"] - 1)
        return dataclasses.replace(settings, **(changes | given))

    def resolve(
        self,
        num_images: int,
        task: str = MULTICLASS,
    ) -> Self:
        """Returns the settings with every value that depends on the data filled in.

        Args:
            num_images: Images to train with, including the validation images.
            task: "multiclass" or "multilabel".

        Raises:
            ValueError: If the loss is not for the task, or steps do not fit each other.
        """
        if task == MULTILABEL and self.loss == "softmax":
            raise ValueError(
                "Multi-label data need the loss sigmoid (--loss, loss=), as the "
                'probabilities of a softmax sum to 1. Received: loss="softmax"'
            )
        steps = self.steps
        if steps is None:
            steps = finetuning_of_size(num_images).settings["steps"]
        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            warmup_steps = finetuning_warmup(steps)
        executed = self.steps_per_execution
        evaluate_every = self.evaluate_every or math.ceil(steps / 10 / executed) * executed
        if steps % executed or evaluate_every % executed:
            raise ValueError(
                "steps_per_execution must divide the steps of the run and those between two "
                f"validations. Received: steps_per_execution={executed}, steps={steps}, "
                f"evaluate_every={evaluate_every}"
            )
        return dataclasses.replace(
            self,
            steps=steps,
            warmup_steps=warmup_steps,
            validation=self.validation_share(num_images),
            evaluate_every=evaluate_every,
            augmentation=self.augmentation or augmentation_of_size(num_images),
            loss=self.loss or ("sigmoid" if task == MULTILABEL else "softmax"),
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
        return finetuning_of_size(num_images).settings["validation"]

    @property
    def weights(self) -> str | None:
        """The weights to start from; None for random ones."""
        return None

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
        fields = with_present_names(fields)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolvedSettings(Settings):
    """The shared settings as a run computes with them: no value is open."""

    image_size: tuple[int, int] = changed(Settings, "image_size", REQUIRED)
    steps: int = changed(Settings, "steps", REQUIRED)
    accumulate: int = changed(Settings, "accumulate", REQUIRED)
    learning_rate: float = changed(Settings, "learning_rate", REQUIRED)
    warmup_steps: int = changed(Settings, "warmup_steps", REQUIRED)
    loss: str = changed(Settings, "loss", REQUIRED)
    augmentation: str = changed(Settings, "augmentation", REQUIRED)
    evaluation: str = changed(Settings, "evaluation", REQUIRED)
    validation: float = changed(Settings, "validation", REQUIRED)
    evaluate_every: int = changed(Settings, "evaluate_every", REQUIRED)
    weights: str | None = setting(None, "the weights to start from")

    @classmethod
    def of(cls, filled: Settings) -> Self:
        """Returns the shared ones of settings in which every open value is filled in."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: getattr(filled, name) for name in names})
