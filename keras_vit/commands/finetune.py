"""`keras-vit finetune`: a pre-trained model on one's own images, by the paper's recipe."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import TRAINING_BACKENDS, Command
from keras_vit.commands.shared_arguments import SETTINGS_GROUP, dry_run, run_job, run_several
from keras_vit.training.data.spec import DataSpec, check_output
from keras_vit.training.run.run_options import RunOptions
from keras_vit.training.settings import FineTuning
from keras_vit.utils.fields import part, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune(Command):
    """Fine-tune a pre-trained model on your own images."""

    data: DataSpec = part(DataSpec, group="data")
    options: RunOptions = part(RunOptions, group="output")
    folds: int | None = setting(
        None,
        "train K times, each without another K-th of the images, which is tested; the same command "
        "again continues",
        unit="K",
        limits=("at least 2", lambda value: value >= 2),
        group="output",
    )
    dry_run: bool = dry_run()
    settings: FineTuning = part(FineTuning, make=FineTuning.from_options, group=SETTINGS_GROUP)

    backends = TRAINING_BACKENDS

    def run(self) -> int:
        """Fine-tunes; returns 130 or 143 if a signal stopped it."""
        from keras_vit.training.run.job import Job

        if self.folds is not None and not self.dry_run:
            return self._run_folds(self.folds)
        options = dataclasses.replace(self.options, command=self.called_as)
        data = self.data
        if self.folds is not None:
            data = dataclasses.replace(data, fold=(1, self.folds))
        return run_job(Job(data, options, self.settings), dry_run=self.dry_run)

    def _run_folds(self, folds: int) -> int:
        from keras_vit.training.run.sweep import finetune_folds

        options = self.options
        if options.overwrite or options.resume:
            raise ValueError(
                "--folds has no --overwrite and --resume: the same command continues, and another "
                "needs another folder. "
                f"Received: --output {options.output}"
            )
        check_output(options.output, self.data.data)
        return run_several(
            options.output,
            self.called_as,
            lambda: finetune_folds(
                self.data, options.output, self.settings, folds=folds, command=self.called_as
            ),
        )
