"""The result of a sweep: its table, and its `result.json`."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from keras_vit.reports.report import markdown_table
from keras_vit.training.data.spec import NOT_LOOKED_FOR
from keras_vit.training.evaluation.measures import accuracy_text
from keras_vit.training.evaluation.results import RESULT, Result


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Args:
        learning_rate: The best learning rate.
        development: Accuracy on the development split by learning rate, None of a rate that
            diverged; empty for a single rate, which needs no choice.
        test: Accuracy on the test images by seed, None of a seed that diverged.
        folder: The folder of all runs.
        metric: Name in result files of what is called accuracy here: "top_1", or "mAP" of
            multi-label data.
        images: Images of the development split, and test images.
        num_new: Test images of things that were not trained on; None where it is not known.
        on_new_things: Share of right answers to these by seed; {} where they are none or all.
        ignores_copies: Whether copies were not looked for when the parts were drawn.
    """

    learning_rate: float
    development: dict[float, float | None]
    test: dict[int, float | None]
    folder: pathlib.Path
    metric: str
    images: tuple[int, int]
    num_new: int | None = None
    on_new_things: Mapping[int, float] = dataclasses.field(default_factory=dict)
    ignores_copies: bool = False

    @property
    def finished(self) -> dict[int, float]:
        """Accuracy on the test images by seed, without those that diverged."""
        return {seed: value for seed, value in self.test.items() if value is not None}

    @property
    def mean(self) -> float:
        """Mean of the test accuracy over the seeds that did not diverge."""
        return statistics.fmean(self.finished.values())

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of the test accuracy; None for a single seed."""
        return statistics.stdev(self.finished.values()) if len(self.finished) > 1 else None

    def __str__(self) -> str:
        """The table, in Markdown, and a line on photos that show one thing."""
        metric, (development, tested) = self.metric.replace("_", "-"), self.images
        rows = [("run", metric)]
        for rate, value in self.development.items():
            best = " (best)" if rate == self.learning_rate else ""
            text = "diverged" if value is None else self._score_text(value, development)
            rows.append((f"{rate:g}{best}, on the development split", text))
        for seed, value in self.test.items():
            name = f"seed {seed}, {self.learning_rate:g}, on test"
            text = "diverged" if value is None else self._score_text(value, tested)
            rows.append((name, text))
        deviation = "" if self.deviation is None else f", ± {100 * self.deviation:.2f} over seeds"
        of = ""
        if len(self.finished) < len(self.test):
            of = f" of the {len(self.finished)} of {len(self.test)} seeds that did not diverge"
        rows.append((f"mean{of}", self._score_text(self.mean, tested) + deviation))
        if self.on_new_things:
            new = statistics.fmean(self.on_new_things.values())
            name = f"right of the {self.num_new} test images of things that were not trained on"
            rows.append((f"{name}, mean", accuracy_text(new, self.num_new or 0)))
        lines = [markdown_table(rows)]
        if self.num_new == 0:
            lines.append(
                "things  none of the test images shows a thing that was not trained on: this test "
                "says nothing about new things"
            )
        if self.ignores_copies:
            lines.append(f"things  {NOT_LOOKED_FOR}")
        return "\n\n".join(lines)

    def _score_text(self, value, images):
        """An accuracy with its interval; an mAP, which is no share of images, has none."""
        return accuracy_text(value, images) if self.metric == "top_1" else f"{value:.2%}"


def write_result(result: SweepResult, command: str) -> None:
    """Writes `result.json` to the folder of a sweep.

    Args:
        result: The result.
        command: The command to record.
    """
    metric, first = result.metric, str(next(iter(result.finished)))
    metrics: dict[str, Any] = {
        metric: result.mean,
        f"{metric}_deviation": result.deviation,
        f"{metric}_by_seed": {str(seed): value for seed, value in result.test.items()},
        f"development_{metric}": {f"{rate:g}": v for rate, v in result.development.items()},
        "learning_rate": result.learning_rate,
    }
    if result.num_new is not None:
        right = {str(seed): value for seed, value in result.on_new_things.items()}
        metrics["new_things"] = {"images": result.num_new, f"{metric}_by_seed": right}
    final = Result.of_run(result.folder / "seeds" / first)
    swept = dataclasses.replace(
        final, protocol="sweep", metrics=metrics, seed=None, command=command
    )
    swept.write(result.folder / RESULT)
