"""Cost benchmark: images per second and the largest batch, the paper's Figure 12.

Imports neither NumPy nor TensorFlow: child processes measure.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from tqdm import tqdm

from keras_vit import configs
from keras_vit.training.evaluation.results import versions
from keras_vit.training.machine import available_memory, process_memory, processor, usable_cores
from keras_vit.training.settings import Settings
from keras_vit.utils.fields import POSITIVE, changed, check_fields, documented, required, setting

from .cost_results import MODES, BenchmarkCell, BenchmarkResults, Measurement

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
IMAGE_SIZES = (64, 128, 224, 384, 512)
GIB = 2**30

# The search for batch sizes.
GROWTH = 1.02  # Factor below which a rate no longer grows.
PATIENCE = 2  # Doublings without growth before the search ends: one may be noise.
LONGEST_STEP = 10.0  # Seconds; the fixed cost of a longer step no longer matters.
REACH = 8  # An estimate is trusted up to this multiple of the largest measured batch.
CAUTION = 0.95  # Factor on an estimate: a batch that is too large costs a new process.
MAX_BATCH = 2**16

WATCH_INTERVAL = 0.02  # Seconds between two looks at a child's memory.


@documented
@dataclasses.dataclass(frozen=True)
class BenchmarkPlan:
    """What a benchmark measures, and how.

    Raises:
        ValueError: If a name is unknown, a number not positive or an image too small.
    """

    models: tuple[str, ...] = setting(MODELS, "names of keras_vit.list_models()")
    sizes: tuple[int, ...] = setting(
        IMAGE_SIZES, "sides of the images", unit="PIXELS", limits=POSITIVE
    )
    modes: tuple[str, ...] = setting(
        MODES[:1],
        "what is timed; training is a step of fine-tuning",
        choices=MODES,
        flag="mode",
    )
    precision: str = changed(Settings, "precision")
    memory: int | None = setting(
        4 * GIB,
        "bytes that a process, or a GPU, may hold; None skips the largest batch",
        limits=POSITIVE,
    )
    threads: int | None = setting(
        None, "cores to use", unit="N", absent="all available", limits=POSITIVE
    )
    runs: int = setting(5, "timed runs, of which the median counts", unit="N", limits=POSITIVE)
    min_seconds: float = setting(0.25, "duration of a timed run", flag="", limits=POSITIVE)

    def __post_init__(self):
        check_fields(self)
        if not self.modes or not self.sizes:
            raise ValueError(
                "The numbers of modes and sizes must be positive. "
                f"Received: modes={self.modes}, sizes={self.sizes}"
            )
        if self.threads is None:
            object.__setattr__(self, "threads", usable_cores())
        for model in self.models:
            smallest = max(configs.resolve(model).min_image_size)
            if smallest > min(self.sizes):
                raise ValueError(
                    f"The images of {model} must be of {smallest} pixels or more. "
                    f"Received: sizes={self.sizes}"
                )

    def cells(self) -> list[BenchmarkCell]:
        """Returns the cells in the order of measuring, each once."""
        cells = (
            BenchmarkCell(model, size, mode, self.precision)
            for mode in self.modes
            for model in self.models
            for size in self.sizes
        )
        return list(dict.fromkeys(cells))

    def setting(self) -> dict[str, Any]:
        """Returns the conditions that all measurements share."""
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
    plan: BenchmarkPlan | None = None,
    *,
    log: Callable[[str], object] = print,
) -> BenchmarkResults:
    """Measures each model at each size and writes `benchmark.json`, `.csv` and `.md`.

    Every cell has its own process, which runs batches of 1, 2, 4 ... images until the rate
    stops growing, then times the best batch size several times, then searches the largest
    batch. The process is killed when it holds more than the given memory. A finished cell
    is on disk at once and is not measured again.

    Args:
        output: The folder. A folder of the same setting is continued.
        plan: What to measure; the paper's models by default.
        log: Receives a line for each cell.

    Returns:
        All results in the folder.

    Raises:
        ValueError: If the folder is of another setting, or the memory is not free.
        RuntimeError: If a measurement fails for another reason than memory.
        OSError: If files cannot be written, or the memory of a process cannot be read.
    """
    plan = plan or BenchmarkPlan()
    results = BenchmarkResults(output, plan.setting())
    cells = plan.cells()
    missing = [cell for cell in cells if cell not in results.cells]
    if len(missing) < len(cells):
        log(f"{len(cells) - len(missing)} of {len(cells)} are in {results.folder} already")
    results.folder.mkdir(parents=True, exist_ok=True)  # Fails before anything is measured.
    began = time.monotonic()
    for number, cell in enumerate(missing, 1):
        found = measure(cell, plan)
        results.add(cell, found)
        used = time.monotonic() - began
        left = used / number * (len(missing) - number)
        used_text, left_text = map(tqdm.format_interval, (used, left))
        log(f"{number}/{len(missing)} {cell}: {found}; {used_text}, {left_text} left")
    return results


def measure(cell: BenchmarkCell, plan: BenchmarkPlan) -> Measurement:
    """Returns the speed and the largest batch of a cell."""
    began = time.monotonic()
    processes: list[MeasuringProcess] = []  # A new one after each batch that does not fit.
    notes: list[str] = []

    def run(batch_size: int, runs: int) -> Trial | None:
        if not processes or not processes[-1].alive:
            processes.append(MeasuringProcess(cell, required(plan.threads, "threads"), plan.memory))
            _check_memory(processes[-1])
        timed = processes[-1].time(batch_size, runs, plan.min_seconds)
        if timed is None:
            notes.append(f"{batch_size}: {processes[-1].note}")
            return None
        rates, memory = timed
        return Trial(batch_size, memory, tuple(rates))

    best = Trial(0, 0)  # The fastest; its memory is the first peak of that batch size.
    largest: int | None = None
    too_large: int | None = None
    try:
        trials = rates_by_doubling(lambda batch_size: run(batch_size, 1))
        for trial in sorted(trials, key=lambda trial: trial.rate, reverse=True):
            timed = run(trial.batch_size, plan.runs)
            if timed is not None:
                best = trial._replace(rates=timed.rates)
                break
        if plan.memory is not None:
            largest, too_large = 0, 1
            if trials:
                largest, too_large = largest_batch(lambda size: run(size, 0), trials, plan.memory)
    finally:
        for process in processes:
            process.close()
    return Measurement(
        batch_size=best.batch_size,
        rates=best.rates,
        by_batch_size={str(trial.batch_size): trial.rate for trial in trials},
        memory=best.memory,
        largest_batch=largest,
        too_large_batch=too_large,
        device=next((process.device for process in processes if process.device), ""),
        seconds=time.monotonic() - began,
        note="; ".join(notes),
    )


def _check_memory(process: MeasuringProcess) -> None:
    """Refuses a budget beyond the free memory, which would swap or end other processes."""
    if process.budget is None or process.device != "CPU":
        return
    try:
        available = available_memory() + process_memory(process.pid)
    except OSError as error:
        raise OSError(
            "The largest batch can be searched on Linux only, where the memory of a process "
            f"can be read; elsewhere leave it out (--memory none). {error}"
        ) from error
    if process.budget > available:
        raise ValueError(
            f"The memory must be free on this machine, which has {available / GIB:.1f} GiB "
            f"left. Received: {process.budget / GIB:.1f} GiB"
        )


class Trial(NamedTuple):
    """A batch size that fits.

    Args:
        batch_size: Images.
        memory: Peak bytes.
        rates: Images per second of each timed run.
    """

    batch_size: int
    memory: int
    rates: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Images per second of the first run; 0 if it was not timed."""
        return self.rates[0] if self.rates else 0.0


def rates_by_doubling(measure: Callable[[int], Trial | None]) -> list[Trial]:
    """Returns the trials of batches of 1, 2, 4 ... images, until the rate stops growing.

    A step of `LONGEST_STEP` seconds is the last one: growth beyond it is noise.

    Args:
        measure: Gives the trial of a batch size, or None if it does not fit.
    """
    trials: list[Trial] = []
    best, since = 0.0, 0
    batch_size = 1
    while batch_size <= MAX_BATCH and since < PATIENCE:
        trial = measure(batch_size)
        if trial is None:
            break
        trials.append(trial)
        since = 0 if trial.rate > GROWTH * best else since + 1
        best = max(best, trial.rate)
        if batch_size >= LONGEST_STEP * trial.rate:
            break
        batch_size *= 2
    return trials


def largest_batch(
    measure: Callable[[int], Trial | None], trials: list[Trial], budget: int
) -> tuple[int, int | None]:
    """Returns the largest batch that fits a budget, and the next larger one, which does not.

    Memory grows by the same amount with each image, so the line through the two largest
    batches gives the next batch to try. The answer comes from trials alone. Steps between
    batch sizes are a sixteenth to a thirty-second.

    Args:
        measure: Gives the trial of a batch size, or None if it does not fit.
        trials: Known trials.
        budget: Bytes.

    Returns:
        The largest batch, 0 if one image does not fit, and the smallest batch that is too
        large; None if `MAX_BATCH` fits.
    """
    known = {trial.batch_size: trial.memory for trial in trials if trial.memory <= budget}
    too_large: int | None = None
    while True:
        largest = max(known, default=0)
        following = next_batch(largest)
        if following > MAX_BATCH or following == too_large:
            return largest, too_large
        batch_size = min(_estimate(known, budget), MAX_BATCH)
        if too_large is not None and batch_size >= too_large:
            batch_size = _round_down((largest + too_large) / 2)
        batch_size = max(batch_size, following)
        trial = measure(batch_size)
        if trial is None or trial.memory > budget:
            too_large = batch_size
        else:
            known[trial.batch_size] = trial.memory


def next_batch(batch_size: int) -> int:
    """Returns the next larger batch size that is tried."""
    return batch_size + _step(batch_size)


def _round_down(batch_size: float) -> int:
    whole = int(batch_size)
    return whole - whole % _step(whole)


def _step(batch_size: int) -> int:
    return max(1, 2 ** (batch_size.bit_length() - 5))


def _estimate(known: dict[int, int], budget: int) -> int:
    """The batch size at which the line through the two largest batches meets the budget."""
    batches = sorted(known)[-2:]
    if len(batches) < 2:
        return 1
    small, large = batches
    furthest = REACH * large
    slope = (known[large] - known[small]) / (large - small)
    if slope <= 0:
        return furthest
    meets = large + (budget - known[large]) / slope
    return _round_down(min(CAUTION * meets, furthest))


class MeasuringProcess:
    """A child process that runs `CostSteps` of a cell; killed beyond a memory budget.

    Each cell has a new process, so that earlier cells leave no memory behind.

    Args:
        cell: The cell to measure.
        threads: Cores that an operation may use.
        budget: Bytes that the process, or the GPU, may hold; None for no limit.

    Raises:
        RuntimeError: If the process fails for another reason than memory.
    """

    def __init__(self, cell: BenchmarkCell, threads: int, budget: int | None):
        context = multiprocessing.get_context("spawn")
        self.budget = budget
        self.note = ""  # Why it ended.
        self.connection, theirs = context.Pipe()
        # The standard error of the child, which TensorFlow fills with messages.
        self.messages = tempfile.NamedTemporaryFile("w+b", prefix="keras_vit_benchmark_")  # noqa: SIM115
        self.process = context.Process(
            target=_serve, args=(theirs, cell, threads, self.messages.name), daemon=True
        )
        self.process.start()
        self.pid = self.process.pid or 0
        theirs.close()
        self.alive = True
        self.device = ""  # Until it answers.
        self.device = self._answer() or ""

    def time(
        self, batch_size: int, runs: int, min_seconds: float
    ) -> tuple[list[float], int] | None:
        """Returns the result of `CostSteps.time`, or None if the batch does not fit.

        After None the process has ended: see `alive` and `note`.
        """
        if not self.alive:
            return None
        self.connection.send((batch_size, runs, min_seconds))
        answer = self._answer()
        if answer is None:
            # A failed operation may leave memory behind, so the process is not used again.
            self._end(self.note or "the allocator had no more memory")
            return None
        if self.budget is not None and answer[1] > self.budget:
            self._end("held more than the memory given")
            return None
        return answer

    def close(self) -> None:
        """Ends the process."""
        self.alive = False
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.messages.close()

    def _end(self, note: str) -> None:
        self.note = note
        self.close()

    def _answer(self) -> Any:
        """The child's answer; None if it ran out of memory or died."""
        try:
            while not self.connection.poll(WATCH_INTERVAL):
                if self._exceeds_budget():
                    self._end("killed: held more than the memory given")
                    return None
            kind, answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            lines = self.messages.read().decode(errors="replace").split("\n")
            last = next((line for line in reversed(lines) if line.strip()), "")
            code = self.process.exitcode or 0
            reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._end(f"died: {reason} {last[:200]}".rstrip())
            return None
        if kind == "failed":
            self.close()
            raise RuntimeError(f"The measurement failed.\n{answer}")
        return answer

    def _exceeds_budget(self) -> bool:
        if self.budget is None or self.device != "CPU":
            return False
        try:
            return process_memory(self.pid) > self.budget
        except OSError:  # The process has just ended.
            return False


def _serve(connection: Connection, cell: BenchmarkCell, threads: int, messages: str) -> None:
    """Measures in the child process until the parent closes the connection."""
    with open(messages, "ab") as file:
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # Keeps the cause of death in the last line.
    try:
        from .cost_steps import CostSteps, backend_devices

        devices = backend_devices()
        devices.limit_threads(threads)
        connection.send(("ready", devices.device_name()))
        steps = CostSteps(**dataclasses.asdict(cell))
        while True:
            connection.send(("timed", steps.time(*connection.recv())))
    except EOFError:
        return
    except MemoryError:
        os.abort()  # Ends as if killed by the system.
    except Exception:
        connection.send(("failed", traceback.format_exc()))
