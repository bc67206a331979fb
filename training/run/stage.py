"""A stage of a run: what it does in addition to training, before and after it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

from keras_vit.description import Labels
from keras_vit.description.recipe import Fact, Recipe
from keras_vit.opening import OpenedModel
from keras_vit.training.settings import Settings

from .images import RunImages

if TYPE_CHECKING:
    from .job import Job
    from .settle import Settled


@dataclasses.dataclass
class Outcome:
    """What a run has trained, as the stages after training change it.

    Args:
        model: The model with its best weights, giving probabilities.
        labels: Its classes.
        sections: Sections that the model card gets.
    """

    model: keras.Model
    labels: Labels
    sections: list[str] = dataclasses.field(default_factory=list)


class Stage:
    """A stage; a run has those whose `prepare` gives one."""

    facts: Mapping[str, Fact] = {}  # What it adds to the plan, unless the run began with it.

    @classmethod
    def prepare(
        cls, weights: OpenedModel, images: RunImages, settings: Settings, begun: Recipe
    ) -> Stage | None:
        """Returns the stage, or None for a run without it.

        Args:
            weights: The weights to start from.
            images: The images of the run.
            settings: The settings that the user gave.
            begun: The record of a run to resume.

        Raises:
            ValueError: If something does not fit: before anything is trained.
        """
        raise NotImplementedError

    def trainer(self, plan: Settled) -> dict[str, Any]:
        """Returns arguments of `make_trainer` that it wants."""
        return {}

    def before(self, job: Job, plan: Settled, model: keras.Model) -> None:
        """Changes the model before its first step; not of a resumed run."""

    def after(self, job: Job, plan: Settled, outcome: Outcome) -> None:
        """Changes the trained model before it is tested and written."""
