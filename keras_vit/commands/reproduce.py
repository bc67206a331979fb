"""`keras-vit reproduce`: a recorded run once more, compared with its folder."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import FineTuning
from keras_vit.utils.fields import REQUIRED, changed, part, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Train a recorded run again and say whether the result is the same.

    The answer is: equal to the bit; equal to float32 rounding; accuracy within the recorded one's
    interval; or what differs: images, labels, settings, starting weights, versions, processor. If
    the images, the starting weights or the settings differ, nothing is trained. Exit code: 0 if the
    answer is at least as strong as --level, else 1.
    """

    folder: str = setting(REQUIRED, "the folder of a finished run", unit="RUN", positional=True)
    data: DataSpec = part(DataSpec, only=("data", "data_dir"))
    first_steps: int | None = setting(
        None,
        "train so many steps and compare the last one that the history has",
        unit="N",
        limits=("at least 1", lambda value: value >= 1),
        absent="all steps",
    )
    repeated: str | None = setting(
        None, "compare with this run, which was repeated already; train nothing", unit="RUN"
    )
    level: str = setting(
        "accuracy",
        "the answer that is asked for: weights equal to the bit, to float32 rounding, or accuracy "
        "within the interval",
        choices=("bits", "rounding", "accuracy"),
    )
    weights: str | None = changed(
        FineTuning, "weights", None, help="where the starting weights are now, if they are a path"
    )
    teacher: str | None = changed(
        FineTuning, "teacher", None, help="where the teacher is now, if there was one"
    )
    replay: str | None = changed(
        FineTuning, "replay", None, help="where the replayed images are now, if there were any"
    )
    class_weights: str | None = changed(
        FineTuning, "class_weights", None, help="where the CSV file of class weights is now"
    )

    def run(self) -> int:
        """Repeats the run and prints the answer; returns 0 if it reaches the level, else 1."""
        from keras_vit.training.run.repeated_run import PATHS, reproduce

        if self.repeated is not None and self.first_steps is not None:
            raise ValueError(
                "--first-steps is for a run that is trained now, not for --repeated. "
                f"Received: --first-steps {self.first_steps}"
            )
        found = reproduce(
            self.folder,
            self.data,
            first_steps=self.first_steps,
            repeated=self.repeated,
            paths={name: getattr(self, name) for name in PATHS},
        )
        print(found)
        return 0 if found.reaches(self.level) else 1
