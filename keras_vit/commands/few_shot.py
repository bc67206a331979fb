"""`keras-vit few-shot`: a linear map fitted to a few images per class, on frozen features."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments
from keras_vit.preprocessing import EVALUATIONS
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec, check_output
from keras_vit.training.evaluation.protocols import (
    DTYPES,
    FEW_SHOT_RESIZE,
    L2,
    SEEDS,
    SHOTS,
)
from keras_vit.training.evaluation.results import Result, task_of
from keras_vit.utils.fields import part, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShot(Command):
    """Evaluate frozen features with a few images per class."""

    model: ModelArguments = part(ModelArguments)
    data: DataSpec = part(DataSpec, only=EVALUATED_DATA)
    batch_size: int = shared_arguments.batch_size()
    shots: tuple[int, ...] = setting(SHOTS, "training images per class", unit="N")
    seeds: tuple[int, ...] = setting(SEEDS, "each chooses other images", unit="SEED")
    folds: int | None = shared_arguments.folds(
        "choose images K times, each without another K-th of the training images, which is tested"
    )
    l2: float = setting(L2, "regularisation")
    feature: str = shared_arguments.feature()
    dtype: str = setting(
        DTYPES[0], "of the linear map", choices=DTYPES, source="as in the official code"
    )
    evaluation: str = setting(
        FEW_SHOT_RESIZE,
        "how images are resized",
        choices=EVALUATIONS,
        source="as in the official code",
    )
    cache: str | None = setting(
        None, "folder for computed features", unit="DIR", absent="in Keras's cache"
    )
    no_cache: bool = setting(False, "do not store features")
    output: str | None = setting(None, "write result files", unit="DIR")

    def run(self) -> None:
        """Evaluates and prints the accuracies; writes result files with --output."""
        from keras_vit.models.rebuild import feature_model
        from keras_vit.training.evaluation import few_shot
        from keras_vit.training.evaluation.features import default_cache

        self.data.check_given()
        check_output(self.output, self.data.data)
        model = self.model.open(evaluation=self.evaluation)
        print(model.description.facts)
        feature_model(model.model, self.feature)  # An error here comes before the data are read.
        options = {
            "shots": self.shots,
            "seeds": self.seeds,
            "l2": self.l2,
            "feature": self.feature,
            "dtype": self.dtype,
            "batch_size": self.batch_size,
            "cache": None if self.no_cache else self.cache or default_cache(),
            "progress": True,
        }
        data = self.data if self.folds is None else dataclasses.replace(self.data, holdout=0.0)
        report = few_shot.evaluate(model, data.open(), folds=self.folds, **options)
        if self.output:
            described = model.to_json()
            for number, part in enumerate(report.parts, 1):
                fold = {} if self.folds is None else {"fold": [number, self.folds]}
                self._write(report, part, described, fold)
        print(report)
        if self.output:
            print(f"written {self.output}")

    def _write(self, report, part, described, fold):
        """Writes a result file for each number of shots and each seed."""
        for shots, by_seed in part.accuracies.items():
            for seed, top_1 in by_seed.items():
                name = f"{shots}_shot_seed_{seed}"
                if fold:
                    name += f"_fold_{fold['fold'][0]}"
                Result(
                    protocol="few-shot",
                    task=task_of(self.data.data),
                    model=described,
                    data={
                        "data": self.data.data,
                        "images": {"train": part.num_train, "test": part.num_test},
                        "skipped": len(report.skipped),
                    },
                    metrics={"top_1": top_1},
                    images=part.num_test,
                    recipe={
                        "shots": shots,
                        "l2": report.l2,
                        "feature": report.feature,
                        "dtype": self.dtype,
                        **fold,
                    },
                    seed=seed,
                    command=self.called_as,
                ).write(f"{self.output}/result_{name}.json")
