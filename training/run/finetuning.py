"""The paper's transfer: a pre-trained model fine-tuned on another data set, section 3.2."""

from __future__ import annotations

import os
from typing import Any

from keras_vit.training.settings import FineTuning

from .job import Finished, Job, run_job
from .transfer import build_model, choose_trained, find_body


def finetune(
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    **options: Any,
) -> Finished:
    """Fine-tunes a model on a data set and writes a classifier's folder.

    The pre-training head is removed and a linear layer of zeros put in its place, position
    embeddings are interpolated to the new resolution, and everything is trained: by default
    with SGD with momentum, cosine decay after a linear warm-up, gradients clipped at global
    norm 1. The weights, or their averages, with the best validation accuracy are kept, and
    evaluated on the test images, which nothing was chosen by.

    Args:
        data: A folder `{train,test}/<class>/*` or `<class>/*`, a CSV file of paths and
            labels, or "tfds:NAME". None with `resume`.
        output: The folder to write. Until the end everything is in `OUTPUT.partial`.
        settings: The recipe; the paper's by default.
        **options: `data_dir` (of TFDS, or that paths of a CSV file are relative to),
            `holdout` (share of the images for testing where the data have no test part),
            `strict` (whether an image that cannot be read is an error), `exclude` (images
            to leave out), `overwrite` (whether to replace a classifier that is there),
            `resume` (whether to go on with a run that was stopped; all else is as it was),
            `split_seed` (of what is held out; the settings' by default), `test` (whether to
            evaluate on the test images), `command` (what to write down as the command) and
            `log` (where the resolved recipe and the result go; `print` by default).

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> done = finetune("photos", "runs/photos", FineTuning(model="ViT-S/16", steps=500))
    >>> done.report.top_1
    0.9731
    """
    return run_job(FINETUNE, data, output, settings or FineTuning(), **options)


def _build(body, settings, classes):
    model, report = build_model(
        body,
        classes=classes,
        image_size=settings.image_size,
        dropout_rate=settings.dropout_rate,
        stochastic_depth_rate=settings.stochastic_depth_rate,
        remat=settings.remat,
        head_bias=settings.head_bias,
    )
    choose_trained(
        model, settings.train, lora_rank=settings.lora_rank, lora_alpha=settings.lora_alpha
    )
    said = "random" if report is None else f"{settings.weights}, a new head of zeros"
    if report is not None and report.resized:
        grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
        said += f", positions interpolated from {', '.join(sorted(grids))} patches"
    return model, said


FINETUNE = Job(
    name="finetune",
    settings_type=FineTuning,
    find_body=lambda settings: find_body(
        settings.model, settings.weights, settings.image_size or (None, None)
    ),
    build=_build,
)
