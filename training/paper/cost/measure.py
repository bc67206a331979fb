"""Figure 12 on the machine at hand: images per second and the largest batch, cell by cell."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from keras_vit import configs
from keras_vit.training.evaluation.results import versions
from keras_vit.training.run.clock import clock
from keras_vit.training.run.machine import available_memory, process_memory, processor, usable_cores
from keras_vit.training.run.required import required
from keras_vit.training.settings import PRECISIONS

from .child import Child
from .results import MODES, Cell, Measurement, Results
from .search import Trial, largest_batch, rates_by_doubling

# The models of the paper, side by side.
MODELS = (
    "ViT-B/32",
    "ViT-B/16",
    "ViT-L/32",
    "ViT-L/16",
    "ViT-H/14",
    "BiT-R50x1",
    "BiT-R50x2",
    "BiT-R152x2",
    "R50+ViT-B/32",
    "R50+ViT-B/16",
    "R50+ViT-L/32",
    "R50+ViT-L/16",
    "Axial-ViT-B/32",
    "Axial-ViT-B/16",
)
SIZES = (64, 128, 224, 384, 512)
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured, and how.

    Args:
        models: Names of `keras_vit.list_models()`.
        sizes: Pixels per side.
        modes: Of "inference" and "training".
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        memory: Bytes that a process may hold, or a GPU; None looks for no largest batch.
        threads: Cores that TensorFlow may use; all of this process by default.
        runs: Timed runs, of which the median counts.
        min_seconds: Of a timed run.

    Raises:
        ValueError: If a name is unknown, a number not positive or an image too small.
    """

    models: tuple[str, ...] = MODELS
    sizes: tuple[int, ...] = SIZES
    modes: tuple[str, ...] = ("inference",)
    precision: str = "float32"
    memory: int | None = 4 * GIB
    threads: int | None = None
    runs: int = 5
    min_seconds: float = 0.25

    def __post_init__(self):
        for name in ("models", "sizes", "modes"):
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.threads is None:
            object.__setattr__(self, "threads", usable_cores())
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes:
            raise ValueError(f"modes must be of {MODES}. Received: modes={self.modes}")
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {PRECISIONS}. Received: precision={self.precision!r}"
            )
        numbers = {
            "threads": self.threads,
            "runs": self.runs,
            "min_seconds": self.min_seconds,
            "memory": self.memory,
            "sizes": min(self.sizes, default=0),
        }
        for name, value in numbers.items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive. Received: {name}={value}")
        for model in self.models:
            smallest = max(configs.resolve(model).min_image_size)
            if smallest > min(self.sizes):
                raise ValueError(
                    f"The images of {model} must be of {smallest} pixels or more. "
                    f"Received: sizes={self.sizes}"
                )

    def cells(self) -> Iterator[Cell]:
        """Yields what is measured, in this order."""
        for mode in self.modes:
            for model in self.models:
                for size in self.sizes:
                    yield Cell(model, size, mode, self.precision)

    def setting(self) -> dict[str, Any]:
        """Returns what all measurements have in common."""
        return {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": self.threads,
            "memory": self.memory,
            "runs": self.runs,
            "versions": versions(),
        }


def benchmark(
    output: str | os.PathLike,
    plan: Plan | None = None,
    *,
    log: Callable[[str], object] = print,
) -> Results:
    """Measures each model at each size and writes `benchmark.json`, `.csv` and `.md`.

    For each cell a process of its own runs batches of 1, 2, 4 ... images until the rate no
    longer grows, then the best one several times; then the largest batch is estimated from
    those and found by trial. The process is killed when it holds more than the memory given.
    Each cell is on disk when it is done, and is not measured again.

    Args:
        output: The folder; one with cells of the same setting is gone on with.
        plan: What to measure; the paper's models by default.
        log: Gets a line for each cell.

    Returns:
        All that is in the folder.

    Raises:
        ValueError: If the folder is of another setting, or the memory is more than is free.
        RuntimeError: If a measurement fails for another reason than memory.
        OSError: If files cannot be written, or the system tells no process's memory.
    """
    plan = plan or Plan()
    results = Results(output, plan.setting())
    cells = list(plan.cells())
    missing = [cell for cell in cells if cell not in results.cells]
    if len(missing) < len(cells):
        log(f"{len(cells) - len(missing)} of {len(cells)} are in {results.folder} already")
    results.folder.mkdir(parents=True, exist_ok=True)  # Told before anything is measured.
    began = time.monotonic()
    for number, cell in enumerate(missing, 1):
        found = measure(cell, plan)
        results.add(cell, found)
        used = time.monotonic() - began
        left = clock(used / number * (len(missing) - number))
        log(f"{number}/{len(missing)} {cell}: {describe(found)}; {clock(used)}, {left} left")
    return results


def measure(cell: Cell, plan: Plan) -> Measurement:
    """Returns the measurement of a cell."""
    began = time.monotonic()
    children: list[Child] = []
    peaks: dict[int, int] = {}
    notes: list[str] = []

    def run(batch_size, runs):
        if not children or not children[-1].alive:
            children.append(Child(cell, required(plan.threads, "threads"), plan.memory))
            _check_memory(children[-1])
        child = children[-1]
        answer = child.time(batch_size, runs, plan.min_seconds)
        if answer is None:
            notes.append(f"{batch_size}: {child.note}")
            return None
        peaks.setdefault(batch_size, answer[1])
        return answer

    def time_once(batch_size):
        answer = run(batch_size, 1)
        return None if answer is None else Trial(batch_size, answer[1], answer[0][0])

    def attempt(batch_size):
        answer = run(batch_size, 0)
        return None if answer is None else Trial(batch_size, answer[1])

    try:
        trials = rates_by_doubling(time_once)
        rate_of = {trial.batch_size: required(trial.rate, "rate") for trial in trials}
        best, rates = 0, ()
        for batch_size in sorted(rate_of, key=rate_of.__getitem__, reverse=True):
            timed = run(batch_size, plan.runs)
            if timed is not None:
                best, rates = batch_size, tuple(timed[0])
                break
        largest, too_large = None, None
        if plan.memory is not None:
            largest, too_large = (0, 1)
            if trials:
                largest, too_large = largest_batch(attempt, trials, plan.memory)
        device = next((child.device for child in children if child.device), "")
    finally:
        for child in children:
            child.close()
    return Measurement(
        batch_size=best,
        rates=rates,
        by_batch_size={str(batch_size): rate for batch_size, rate in rate_of.items()},
        memory=peaks[best] if best else 0,
        largest_batch=largest,
        too_large_batch=too_large,
        device=device,
        seconds=time.monotonic() - began,
        note="; ".join(notes),
    )


def describe(found: Measurement) -> str:
    """Returns a measurement in a few words."""
    if not found.rates:
        return "not one image fits"
    text = f"{found.images_per_second:.3g} images/s at batch {found.batch_size}"
    if found.largest_batch is not None:
        text += f", largest batch {found.largest_batch}"
    return text


def _check_memory(child):
    """A budget beyond what is free would be met by swapping, or by the death of others."""
    if child.budget is None or child.device != "CPU":
        return
    try:
        available = available_memory() + process_memory(child.process.pid)
    except OSError as error:
        raise OSError(
            "The largest batch is looked for on Linux, which tells what a process holds; "
            f"elsewhere leave it out (--memory none). {error}"
        ) from error
    if child.budget > available:
        raise ValueError(
            f"The memory must be free on this machine, which has {available / GIB:.1f} GiB "
            f"left. Received: {child.budget / GIB:.1f} GiB"
        )
