"""`keras-vit drift`: whether a folder of photos is like the calibration images."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.description.drift_reference import ALARM_LEVEL
from keras_vit.utils.fields import REQUIRED, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drift(Command):
    """Test whether photos are like those that a classifier was calibrated on.

    Exit code 0: no drift was found. 1: the photos have drifted.
    """

    model: str = shared_arguments.classifier()
    photos: str = setting(REQUIRED, "the folder of photos", unit="PHOTOS", positional=True)
    like: str | None = setting(
        None, "photos to compare with, instead of the calibration images", unit="FOLDER"
    )
    alarm_level: float = setting(
        ALARM_LEVEL, "probability of an alarm if nothing has drifted", unit="SHARE"
    )
    batch_size: int = shared_arguments.batch_size()
    output: str = setting("drift", "the folder of the files, new or empty", unit="DIR")

    def run(self) -> int:
        """Tests, prints the summary and writes the files."""
        from keras_vit.training.drift import find_drift

        found = find_drift(
            self.model,
            self.photos,
            like=self.like,
            alarm_level=self.alarm_level,
            batch_size=self.batch_size,
            output=self.output,
            progress=True,
        )
        print(found)
        for path in found.written:
            print(f"written {path}")
        return found.exit_code
