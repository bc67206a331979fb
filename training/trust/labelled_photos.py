"""`check_photos`: the check of a folder of photos, from Python."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from keras_vit.models.opening import is_model_name
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.evaluation.features import default_cache
from keras_vit.training.evaluation.predictions import build_evaluated, weights_hash
from keras_vit.utils.safe_text import for_line

from .check_files import exceeded, summary, write_check
from .photo_check import PhotoCheck, check_examples

DEFAULT_MODEL = "ViT-B/16"


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The findings about labelled photos; `str` gives the summary.

    Args:
        findings: All findings, as arrays.
        exceeded: A line for each finding above its level.
        written: The files that were written.
        notes: What the data are, and what was left out of them.
    """

    findings: PhotoCheck
    exceeded: tuple[str, ...]
    written: tuple[pathlib.Path, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [*summary(self.findings), *(("data", for_line(note)) for note in self.notes)]
        return "\n".join(f"{word:<9}  {line}" for word, line in lines)


def check_photos(
    data: Data,
    *,
    weights: str = "imagenet21k",
    model: str | None = None,
    image_size: int | None = None,
    feature: str = "pre_logits",
    batch_size: int = 32,
    output: str | os.PathLike | None = None,
    cache: bool | str | os.PathLike = True,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> CheckReport:
    """Checks labelled photos before training. It changes and deletes none of them.

    Args:
        data: The photos, as for `keras_vit.training.finetune`, or a `DataSpec`.
        weights: Weights whose features are used: "imagenet21k", a name of the catalogue, a
            file, or a classifier's folder. Best those that will be fine-tuned.
        model: A model's name; by default the model of the weights, or ViT-B/16.
        image_size: Pixels; by default the weights', or 224.
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        output: Folder for check.html, check.json and split.csv; None writes nothing.
        cache: Folder for computed features; True for the commands' folder, False for none.
        seed: Seed of the split and of permutations.
        progress: Whether to show lines with the rate and the time left.
        **options: Other fields of `DataSpec`.

    Raises:
        ValueError: If the data or the weights do not exist or do not fit, or there are fewer than
            ten images.

    Example:
    >>> report = check_photos("photos", weights="runs/first", output="check")
    >>> print(report)
    >>> report.findings.doubts[0].ranked()[:10]
    """
    spec = dataclasses.replace(data_spec(data, **options), holdout=0.0)
    spec.open(verify=False)  # An error here comes before weights are downloaded.
    named = model or (DEFAULT_MODEL if _needs_name(weights) else None)
    opened = build_evaluated(
        named or weights, weights=weights if named else None, image_size=image_size
    )
    source = spec.open()
    folder = default_cache() if cache is True else cache or None
    groups = source.groups and np.array(
        [source.groups[name] for examples in source.splits.values() for name in examples.names]
    )
    found = check_examples(
        opened,
        source.splits,
        source.class_names,
        groups=groups,
        feature=feature,
        batch_size=batch_size,
        cache=folder,
        unreadable=tuple(source.skipped),
        seed=seed,
        progress=progress,
    )
    written = []
    if output is not None:
        facts = {
            "data": spec.name,
            "model": opened.name,
            "weights": opened.weights,
            "weights_sha256": weights_hash(opened.model),
            "feature": feature,
            "group_by": spec.group_by,
            "seed": seed,
        }
        written = write_check(
            found,
            source.splits,
            output,
            title=f"Check of {spec.name}",
            relative=lambda path: spec.relative(path) if os.path.exists(path) else path,
            facts=facts,
            seed=seed,
        )
    notes = (f"classes: {source.class_line}", *source.notes)
    return CheckReport(found, tuple(exceeded(found)), tuple(written), notes)


def _needs_name(weights):
    """Returns whether weights fit models of several names, so that one must be named."""
    return weights in ("imagenet21k", "imagenet", "random") or is_model_name(weights)
