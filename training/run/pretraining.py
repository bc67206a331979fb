"""The paper's supervised pre-training, section 4.1 and Table 3."""

from __future__ import annotations

import os
from typing import Any

from keras_vit.training.settings import PreTraining

from .job import Finished, Job, run_job
from .transfer import build_model, find_body


def pretrain(
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: PreTraining | None = None,
    **options: Any,
) -> Finished:
    """Trains a model from random weights and writes a classifier's folder.

    By default with Adam and decoupled weight decay, clipping at global norm 1. `finetune`
    takes the folder as its `weights`.

    Args:
        data: As for `finetune`.
        output: The folder to write.
        settings: The recipe; that of ImageNet by default.
        **options: As for `finetune`.

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    return run_job(PRETRAIN, data, output, settings or PreTraining(), **options)


def _build(body, settings, classes):
    model, _ = build_model(
        body,
        classes=classes,
        image_size=settings.image_size,
        dropout_rate=settings.dropout_rate,
        stochastic_depth_rate=settings.stochastic_depth_rate,
        remat=settings.remat,
        head_bias=settings.head_bias,
    )
    return model, "random"


PRETRAIN = Job(
    name="pretrain",
    settings_type=PreTraining,
    find_body=lambda settings: find_body(settings.model, None),
    build=_build,
)
