"""`keras-vit few-shot`: a linear map fitted to a few images per class, on frozen features."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments, Processes, on_all_devices
from keras_vit.preprocessing import EVALUATIONS
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec, check_output
from keras_vit.training.evaluation.results import FEW_SHOT_RESIZE, L2, SEEDS, SHOTS, Result, task_of
from keras_vit.utils.fields import SEED, part, setting

if TYPE_CHECKING:
    from keras_vit.training.evaluation.few_shot import FewShotReport

# No run drew the parts: shots are of the training part, queries of the test part.
_DATA = (*EVALUATED_DATA, "split", "bit_depth")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShot(Command):
    """Evaluate frozen features with a few images per class."""

    model: ModelArguments = part(ModelArguments)
    data: DataSpec = part(DataSpec, only=_DATA, group="data")
    batch_size: int = shared_arguments.batch_size()
    processes: Processes = part(Processes, group="processes")
    shots: tuple[int, ...] = setting(SHOTS, "training images per class", unit="N")
    seeds: tuple[int, ...] = setting(SEEDS, "each chooses other images", unit="SEED", limits=SEED)
    l2: float = setting(L2, "regularisation")
    feature: str = shared_arguments.feature()
    evaluation: str = setting(
        FEW_SHOT_RESIZE,
        "how images are resized",
        choices=EVALUATIONS,
        source="as in the official code",
    )
    output: str | None = setting(None, "write result files", unit="DIR")

    @property
    def models(self) -> tuple[str | None, ...]:
        """The model."""
        return self.model.at_rest

    def result(self) -> FewShotReport:
        """Evaluates; writes result files with --output."""
        from keras_vit.representations import features
        from keras_vit.training.data import open_source
        from keras_vit.training.data.things import lines_of_things
        from keras_vit.training.evaluation import few_shot
        from keras_vit.training.evaluation.predictions import model_fields

        self.data.check_given()
        check_output(self.output, self.data.data)
        with on_all_devices(self.processes):
            model = self.model.open(evaluation=self.evaluation)
            self.note(str(model.description.facts))
            features(model.model, self.feature)  # An error here comes before the data are read.
            source = open_source(self.data)
            for note in source.notes:
                self.note(f"data    {note}")
            for line in lines_of_things(source, self.data):
                self.note(line)
            report = few_shot.evaluate(
                model.at_bit_depth(source.bit_depth),
                source,
                shots=self.shots,
                seeds=self.seeds,
                l2=self.l2,
                feature=self.feature,
                batch_size=self.batch_size,
                progress=True,
            )
        if self.output:
            self._write(report, model_fields(model))
        return report

    def run(self) -> None:
        """Evaluates and prints the accuracies."""
        print(self.result())
        if self.output:
            print(f"written {self.output}")

    def _write(self, report, described):
        """Writes a result file for each number of shots and each seed."""
        for shots, by_seed in report.accuracies.items():
            for seed, top_1 in by_seed.items():
                Result(
                    protocol="few-shot",
                    task=task_of(self.data.name),
                    model=described,
                    data={
                        "data": self.data.name,
                        "images": {"train": report.num_train, "test": report.num_test},
                        "skipped": len(report.skipped),
                    },
                    metrics={"top_1": top_1, **report.facts_of_new_things(shots, seed)},
                    images=report.num_test,
                    recipe={"shots": shots, "l2": report.l2, "feature": report.feature},
                    seed=seed,
                    command=self.called_as,
                ).write(f"{self.output}/result_{shots}_shot_seed_{seed}.json")
