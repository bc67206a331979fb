"""`keras-vit pretrain`: a model from random weights, by the paper's recipe."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.commands import Command
from keras_vit.commands.jobs import SETTINGS_GROUP, JobArguments, run_job
from keras_vit.fields import part, setting
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import OBJECTIVE, MaskedPatches, PreTraining

CLASSES = "classes"  # The objective with labels.
WITH_CLASSES = [field.name for field in dataclasses.fields(PreTraining)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainCommand(Command):
    """Train a model from random weights."""

    data: DataSpec = part(DataSpec, group="data")
    job: JobArguments = part(JobArguments, group="output")
    settings: dict[str, Any] = part(PreTraining, make=dict, group=SETTINGS_GROUP)
    objective: str = setting(
        CLASSES,
        "predict classes; or without any labels the colours of corrupted patches, which gives "
        "weights to fine-tune",
        choices=(CLASSES, OBJECTIVE),
        group="objective",
    )
    masked_patches: dict[str, Any] = part(
        MaskedPatches, make=dict, without=WITH_CLASSES, group=f"--objective {OBJECTIVE}"
    )

    def run(self) -> int:
        """Pre-trains; returns 130 or 143 if a signal stopped it."""
        if self.objective == OBJECTIVE:
            masked = MaskedPatches.from_options(**self.settings, **self.masked_patches)
            from keras_vit.training.paper.masked_patches import PretrainMaskedPatches

            return run_job(PretrainMaskedPatches, self.data, masked, self.job, self.called_as)
        for name in self.masked_patches:
            raise ValueError(
                f"--{name} needs --objective {OBJECTIVE}. Received: --objective {self.objective}"
            )
        settings = PreTraining.from_options(**self.settings)
        from keras_vit.training.run import job

        return run_job(job.Pretrain, self.data, settings, self.job, self.called_as)
