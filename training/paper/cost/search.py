"""Which batch sizes to try: as few as tell the best and the largest one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

GROWTH = 1.02  # A rate that grows by less has stopped growing.
PATIENCE = 2  # Doublings without growth before the search ends: one may be noise.
LONGEST_STEP = 10.0  # Seconds; what a step costs beside its images no longer matters then.
REACH = 8  # An estimate is trusted up to so many times the largest batch that was measured.
CAUTION = 0.95  # Of the estimate: a batch that is too large costs a new process.
MAX_BATCH = 2**16


class Trial(NamedTuple):
    """What a batch size was found to need.

    Args:
        batch_size: Images.
        memory: Bytes at the peak.
        rate: Images per second; None where it was not timed.
    """

    batch_size: int
    memory: int
    rate: float | None = None


def rates_by_doubling(measure: Callable[[int], Trial | None]) -> list[Trial]:
    """Returns what batches of 1, 2, 4 ... images gave, until the rate no longer grows.

    A step of `LONGEST_STEP` is the last one: what grows there is noise, and memory.

    Args:
        measure: From a batch size to its trial, or to None where it does not fit.
    """
    trials: list[Trial] = []
    best, since = 0.0, 0
    batch_size = 1
    while batch_size <= MAX_BATCH and since < PATIENCE:
        trial = measure(batch_size)
        if trial is None or trial.rate is None:
            break
        trials.append(trial)
        since = 0 if trial.rate > GROWTH * best else since + 1
        best = max(best, trial.rate)
        if batch_size >= LONGEST_STEP * trial.rate:
            break
        batch_size *= 2
    return trials


def largest_batch(
    attempt: Callable[[int], Trial | None], trials: list[Trial], budget: int
) -> tuple[int, int | None]:
    """Returns the largest batch that fits a budget, to a sixteenth, and the next one tried.

    Memory grows by the same amount with each image, so the line through the two largest
    batches tells where to try next. It is only told from trials: the first number has
    fitted, the second, one step larger, has not.

    Args:
        attempt: From a batch size to its trial, or to None where it does not fit.
        trials: What is known already, of batches that fit.
        budget: Bytes.

    Returns:
        The largest batch, 0 if not even one image fits, and the smallest that was too
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
            batch_size = round_down((largest + too_large) / 2)
        batch_size = max(batch_size, following)
        trial = attempt(batch_size)
        if trial is None or trial.memory > budget:
            too_large = batch_size
        else:
            known[trial.batch_size] = trial.memory


def next_batch(batch_size: int) -> int:
    """Returns the next batch size that is tried: a step is a sixteenth to a thirty-second."""
    return batch_size + _step(batch_size)


def round_down(batch_size: float) -> int:
    """Returns the largest batch size that is tried and is not larger."""
    whole = int(batch_size)
    return whole - whole % _step(whole)


def _step(batch_size):
    return max(1, 2 ** (int(batch_size).bit_length() - 5))


def _estimate(known, budget):
    """Where the line through the two largest batches meets the budget."""
    batches = sorted(known)[-2:]
    if len(batches) < 2:
        return 1
    small, large = batches
    furthest = REACH * large
    slope = (known[large] - known[small]) / (large - small)
    if slope <= 0:
        return furthest
    meets = large + (budget - known[large]) / slope
    return round_down(min(CAUTION * meets, furthest))
