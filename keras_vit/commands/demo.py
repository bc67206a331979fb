"""`keras-vit demo`: pre-train, transfer, predict and export on handwritten digits."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import TRAINING_BACKENDS, Command
from keras_vit.utils.fields import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Run the main job on real digits: pre-train, transfer, evaluate, predict, export."""

    output: str = setting("demo", "the folder to write", unit="DIR")
    seed: int = setting(0, "seed of the two trainings")
    overwrite: bool = setting(False, "replace an earlier demonstration")

    backends = TRAINING_BACKENDS

    def run(self) -> None:
        """Runs the demonstration and prints its closing table."""
        from keras_vit.training.demo import demo

        result = demo(self.output, seed=self.seed, overwrite=self.overwrite)
        print(f"\n{result}")
