"""The start of a run: the weights, by name and with their commit; nothing of them is read yet."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from keras_vit.hub.repositories import RepositoryName, cached_name, fixed_name
from keras_vit.opening import OpenedModel, open_model
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import HIGHER_RESOLUTION, FineTuning, Settings

DEFAULT_MODEL = "ViT-B/16"

Job = TypeVar("Job", bound=Settings)


def with_fixed_repositories(settings: Job, *, download: bool = True) -> Job:
    """Returns the settings of a run, in which a repository is named with its commit or version.

    The recipe holds it, so a run that is repeated or resumed starts from the same files.

    Args:
        settings: The settings.
        download: Whether a repository is downloaded.

    Raises:
        NotPrepared: If one is not in the cache and may not be downloaded.
        ValueError: If a repository has no weights that are read.
        OSError: If it cannot be downloaded.
    """
    fixed: dict[str, str] = {}
    for field in ("weights", "teacher"):
        name = getattr(settings, field, None)
        if RepositoryName.parse(name) is None:
            continue
        with_commit = fixed_name(name) if download else cached_name(name)
        if with_commit is None:
            raise NotPrepared(f"{name} would be downloaded")
        fixed[field] = with_commit
    return dataclasses.replace(settings, **fixed)


def find_start(settings: Settings) -> OpenedModel:
    """Returns what a run starts from, without downloading or building it.

    Args:
        settings: The settings of the run.

    Raises:
        ValueError: If the model or the weights are unknown, do not fit each other, or a fact
            about the weights was neither found nor given.
    """
    facts = getattr(settings, "unknown_facts", {})
    weights = getattr(settings, "weights", None)
    if weights is None:
        opened = open_model("random", model=settings.model or DEFAULT_MODEL, **facts)
    else:
        size = settings.image_size
        if size is None and settings.recipe != HYPER_RULE_NAME:
            size = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
        opened = open_model(weights, model=settings.model, image_size=size, **facts)
    if opened.description.config is None:
        raise ValueError(
            "The weights must be of a model of keras_vit.build. "
            f"Received: {weights}, another Keras model"
        )
    opened.preprocessing_for()  # An unknown range is an error before the data are read.
    return opened


def extends_head(settings: FineTuning) -> bool:
    """Returns whether a run adds the classes of its data to the classes of its weights."""
    return settings.head == "extend" or settings.replay is not None
