"""`keras-vit benchmark`: images per second and the largest batch, the paper's Figure 12."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from keras_vit.commands import Command, shared_arguments
from keras_vit.training.paper import cost, cost_results
from keras_vit.utils.fields import REQUIRED, part, setting

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "MB": 10**6, "GB": 10**9}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark(Command):
    """Measure images per second and the largest batch by image size.

    Writes benchmark.json, .csv and .md after each model and size, and the two plots of the figure
    at the end. The same command with the same --output continues a stopped run. Each model and
    size runs in its own process, which is killed beyond --memory.
    """

    names: tuple[str, ...] | None = setting(
        None,
        'models, such as "ViT-B/16"',
        unit="NAME",
        absent="the models of the paper",
        positional=True,
    )
    output: str = setting(REQUIRED, "the folder to write", unit="DIR")
    plan: dict[str, Any] = part(cost.BenchmarkPlan, make=dict, without=("models", "memory"))
    memory: str = setting(
        "4GiB",
        "memory limit of the process, or of the GPU, such as 4GiB or 900MiB; none skips the "
        "largest batch",
        unit="SIZE",
    )
    no_pictures: bool = shared_arguments.no_pictures()

    without_tensorflow = True

    def run(self) -> None:
        """Measures, prints the tables and draws the figures."""
        models = cost.MODELS if self.names is None else self.names
        plan = cost.BenchmarkPlan(models=models, memory=_bytes(self.memory), **self.plan)
        if not self.no_pictures:
            from keras_vit.utils.plots import new_figure

            new_figure((1, 1))  # Without matplotlib the error comes now, not after hours.
        results = cost.benchmark(self.output, plan, log=lambda line: print(line, flush=True))
        print(f"\n{results.to_markdown()}")
        if not self.no_pictures:
            for path in cost_results.write_cost_figures(results):
                print(f"written {path}")


def _bytes(text):
    """Bytes of "4GiB"; None of "none"."""
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"--memory must be a size such as 4GiB or 900MiB. Received: {text}")
    return int(float(match[1]) * UNITS[match[2].upper()])
