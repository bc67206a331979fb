"""`keras-vit vtab`: one model on the 19 tasks of VTAB-1k."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.commands import Command
from keras_vit.commands.jobs import SETTINGS_GROUP, report_stop
from keras_vit.commands.model_arguments import ModelArguments
from keras_vit.training.evaluation.protocols import VtabOptions
from keras_vit.training.recipes import FINETUNING
from keras_vit.training.settings import FineTuning
from keras_vit.utils.fields import REQUIRED, changed, part, setting

_RECIPE = FINETUNING["VTAB"].settings


@dataclasses.dataclass(frozen=True)
class VtabSettings:
    """The settings of fine-tuning that have flags; the protocol has the others."""

    steps: int = changed(FineTuning, "steps", _RECIPE["steps"])
    batch_size: int = changed(FineTuning, "batch_size", _RECIPE["batch_size"])
    accumulate: int | None = changed(FineTuning, "accumulate")
    learning_rate: float = changed(FineTuning, "learning_rate", _RECIPE["learning_rate"])
    precision: str = changed(FineTuning, "precision")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vtab(Command):
    """Evaluate a model on the 19 tasks of VTAB-1k."""

    model: ModelArguments = part(ModelArguments, without=("image_size",))
    image_size: int | None = changed(
        ModelArguments, "image_size", absent=f"{_RECIPE['image_size'][0]}"
    )
    output: str = setting(
        REQUIRED,
        "folder of the results; the same command continues a stopped run",
        unit="DIR",
    )
    options: VtabOptions = part(VtabOptions)
    settings: dict[str, Any] = part(VtabSettings, make=dict, group=SETTINGS_GROUP)

    def run(self) -> int:
        """Runs the tasks and prints the results with the paper's."""
        from keras_vit.training.paper import vtab_benchmark
        from keras_vit.training.run.loop import Interrupted

        given = {**self.settings, **self.model.facts}
        if self.image_size:
            given["image_size"] = self.image_size
        try:
            results = vtab_benchmark.run_vtab(
                self.model.model,
                self.output,
                weights=self.model.weights,
                settings=dataclasses.replace(vtab_benchmark.SETTINGS, **given),
                command=self.called_as,
                **dataclasses.asdict(self.options),
            )
        except Interrupted as stop:
            return report_stop(stop, self.called_as)
        print(vtab_benchmark.summarize(results))
        protocol = results[0].protocol
        if protocol != "vtab":
            print(f"\nThe results are of the protocol {protocol}, unlike the paper's columns.")
        return 0
