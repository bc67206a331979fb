"""`keras-vit sweep`: the learning rate found on a development split, then several seeds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import TRAINING_BACKENDS, Command
from keras_vit.commands.shared_arguments import run_advised
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.recipes import SWEEP_RATES, SWEEP_SEEDS
from keras_vit.training.settings import FineTuning
from keras_vit.utils.fields import REQUIRED, SEED, part, setting

if TYPE_CHECKING:
    from keras_vit.training.run.sweep_result import SweepResult


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(Command):
    """Fine-tune with several learning rates, then the best with several seeds."""

    data: DataSpec = part(DataSpec, without=("split_seed",), group="data")
    output: str = setting(
        REQUIRED,
        "the folder of all runs; the same command again continues a stopped sweep",
        unit="DIR",
    )
    learning_rates: tuple[float, ...] | None = setting(
        None,
        "the rates to try",
        unit="RATE",
        absent=f"the recipe's, else {' '.join(map(str, SWEEP_RATES))}",
    )
    seeds: tuple[int, ...] = setting(
        SWEEP_SEEDS, "seeds of the final runs", unit="SEED", limits=SEED
    )
    settings: FineTuning = part(
        FineTuning,
        make=FineTuning.from_options,
        without=("learning_rate", "seed", "patience"),
    )

    backends = TRAINING_BACKENDS

    @property
    def models(self) -> tuple[str | None, ...]:
        """The weights to start from, and a teacher."""
        return self.settings.weights, self.settings.teacher

    def result(self) -> SweepResult:
        """Sweeps."""
        from keras_vit.training.run.sweep import sweep

        return sweep(
            self.data,
            self.output,
            self.settings,
            learning_rates=self.learning_rates,
            seeds=self.seeds,
            command=self.called_as,
            log=self.note,
        )

    def run(self) -> int:
        """Sweeps and prints the tables; returns 130 or 143 if a signal stopped it."""

        def sweep_and_print():
            done = self.result()
            print(f"\n{done}\n\nwritten {done.folder}")

        return run_advised(self.output, self.called_as, sweep_and_print)
