"""`keras-vit pretrain`: a model from random weights, by the paper's recipe."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from keras_vit.commands import TRAINING_BACKENDS, Command
from keras_vit.commands.shared_arguments import Processes, dry_run, result_of_job, run_job
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import OBJECTIVE, MaskedPatches, PreTraining, RunOptions
from keras_vit.utils.fields import part, setting

if TYPE_CHECKING:
    from keras_vit.training.run.finetune import Finished

CLASSES = "classes"  # The objective with labels.
WITH_CLASSES = [field.name for field in dataclasses.fields(PreTraining)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainCommand(Command):
    """Train a model from random weights."""

    data: DataSpec = part(DataSpec, group="data")
    options: RunOptions = part(RunOptions, group="output", without=("log",))
    dry_run: bool = dry_run()
    processes: Processes = part(Processes, group="processes")
    settings: dict[str, Any] = part(PreTraining, make=dict)
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

    backends = TRAINING_BACKENDS

    @property
    def reads_labels(self) -> bool:
        return self.objective == CLASSES

    def result(self) -> Finished:
        """Pre-trains and writes the folder."""
        return result_of_job(self.data, self.options, self._job_settings(), log=self.note)

    def run(self) -> int:
        """Pre-trains; returns 130 or 143 if a signal stopped it."""
        options = dataclasses.replace(self.options, command=self.called_as)
        return run_job(self.data, options, self._job_settings(), dry_run=self.dry_run)

    def _job_settings(self) -> PreTraining:
        if self.objective == OBJECTIVE:
            return MaskedPatches.from_options({**self.settings, **self.masked_patches})
        for name in self.masked_patches:
            raise ValueError(
                f"--{name} needs --objective {OBJECTIVE}. Received: --objective {self.objective}"
            )
        return PreTraining.from_options(self.settings)
