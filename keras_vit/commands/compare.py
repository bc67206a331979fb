"""`keras-vit compare`: a new classifier against an old one, with gates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.evaluate import Evaluate
from keras_vit.commands.shared_arguments import OR_CLASSIFIER
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec
from keras_vit.utils.fields import REQUIRED, changed, part, setting

if TYPE_CHECKING:
    from keras_vit.training.trust import Comparison


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Compare a new classifier with an old one on the same images, with gates.

    Exit code 0: every gate holds, by the bound of its 95% interval. 1: a gate fails. 3: it cannot
    be decided with these images.
    """

    old: str = setting(
        REQUIRED,
        "a classifier's folder, or an export of any format",
        unit="OLD",
        python=OR_CLASSIFIER,
        positional=True,
    )
    new: str = setting(
        REQUIRED,
        "the same, of the classifier that is to replace it",
        unit="NEW",
        python=OR_CLASSIFIER,
        positional=True,
    )
    data: DataSpec = part(DataSpec, only=EVALUATED_DATA, group="data")
    split: str | None = changed(
        Evaluate, "split", absent="the images that each run held out or that are new to it"
    )
    gate: str | None = setting(
        None,
        "conditions between commas, such as 'top_1 > -0.5, class_recall > -3'; see docs/compare.md",
        unit="GATES",
    )
    batch_size: int = shared_arguments.batch_size()
    output: str | None = setting(
        None, "write the images that only one of the two has right, a new .csv", unit="FILE"
    )

    takes_data_of_run = True

    @property
    def models(self) -> tuple[str | None, ...]:
        """The classifiers."""
        return self.old, self.new

    def result(self) -> Comparison:
        """Compares, and writes the file."""
        self.data.check_given()
        from keras_vit.training.trust import compare_classifiers

        return compare_classifiers(
            self.old,
            self.new,
            self.data,
            gate=self.gate,
            split=self.split,
            batch_size=self.batch_size,
            output=self.output,
            progress=True,
        )

    def run(self) -> int:
        """Compares, and prints the summary."""
        found = self.result()
        print(found)
        if self.output:
            print(f"written {self.output}")
        return found.exit_code
