"""`keras-vit finetune`: a pre-trained model on one's own images, by the paper's recipe."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import TRAINING_BACKENDS, Command
from keras_vit.commands.shared_arguments import Processes, dry_run, result_of_job, run_job
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import FineTuning, RunOptions
from keras_vit.utils.fields import part

if TYPE_CHECKING:
    from keras_vit.training.run.finetune import Finished


COMMON_FLAGS = (
    "--data",
    "--holdout",
    "--group-by",
    "--calibration",
    "--checked",
    "--output",
    "--resume",
    "--dry-run",
    "--weights",
    "--image-size",
    "--steps",
    "--epochs",
    "--batch-size",
    "--learning-rate",
    "--max-error",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune(Command):
    """Fine-tune a pre-trained model on your own images."""

    data: DataSpec = part(DataSpec, group="data")
    options: RunOptions = part(RunOptions, group="output", without=("log",))
    dry_run: bool = dry_run()
    processes: Processes = part(Processes, group="processes")
    settings: FineTuning = part(FineTuning, make=FineTuning.from_options)

    backends = TRAINING_BACKENDS
    common_flags = COMMON_FLAGS

    @property
    def models(self) -> tuple[str | None, ...]:
        """The weights to start from, and a teacher."""
        return self.settings.weights, self.settings.teacher

    @property
    def least_classes(self) -> int:
        """One class is enough where it is added to the classes of the weights."""
        return 1 if self.settings.extends_head else 2

    def result(self) -> Finished:
        """Fine-tunes and writes the folder."""
        return result_of_job(self.data, self.options, self.settings, log=self.note)

    def run(self) -> int:
        """Fine-tunes; returns 130 or 143 if a signal stopped it."""
        options = dataclasses.replace(self.options, command=self.called_as)
        return run_job(self.data, options, self.settings, dry_run=self.dry_run)
