"""The trainings of a claim, and their results in a file."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from claims import BASE, RATES, SEEDS, Claim

from keras_vit.utils.files import write_text

RESULTS = pathlib.Path(__file__).parent / "results" / "results.json"

# A training: a side's changes of `BASE`, with learning rate, seed and the training it starts from.
Run = dict[str, Any]


class Results:
    """Results by training, in a file with a line for each.

    Args:
        path: The file.
    """

    def __init__(self, path: pathlib.Path = RESULTS):
        self.path = path
        stored = {"base": BASE, "results": []}
        if path.exists():
            stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["base"] != BASE:
            raise ValueError(
                "The results must be of trainings of the same BASE; move the file to begin again. "
                f"Received: {path} of {stored['base']}"
            )
        self._rows = {_key(row["run"]): row for row in stored["results"]}

    def get(self, run: Run) -> dict[str, Any] | None:
        """Returns the result of a training, or None."""
        return self._rows.get(_key(run))

    def add(self, run: Run, result: dict[str, Any]) -> None:
        """Adds a result and saves all."""
        self._rows[_key(run)] = {"run": run, **result}
        lines = ",\n".join(json.dumps(row, allow_nan=False) for row in self._rows.values())
        base = json.dumps(BASE)
        write_text(self.path, f'{{"base": {base},\n"results": [\n{lines}\n]}}\n')


def model_file(folder: pathlib.Path, run: Run) -> pathlib.Path:
    """Returns where the model of a training is kept for those that start from it."""
    return folder / f"{hashlib.sha256(_key(run).encode()).hexdigest()[:16]}.keras"


def _key(run):
    return json.dumps(run, sort_keys=True)


def run_of(claim: Claim, name: str, rate: float, seed: int, results: Results) -> Run | None:
    """Returns a training of a side, or None while the rate of the one it starts from is open."""
    changes = claim.sides[name].changes | {"learning_rate": rate, "seed": seed}
    run = {field: value for field, value in changes.items() if BASE.get(field, "") != value}
    if start := run.get("start"):
        _, best = rates_of(claim, start, results)
        run["start"] = best and run_of(claim, start, best, seed, results)
        if run["start"] is None:
            return None
    return run


def rates_of(claim: Claim, name: str, results: Results) -> tuple[list[float], float | None]:
    """Returns the learning rates of a side that are trained, and the best of them.

    The best is chosen with the first seed by validation images; None while one is not finished.
    """
    side = claim.sides[name]
    if side.fixed_rate:
        return [side.rate], side.rate
    first = last = RATES.index(side.rate)
    first, last = first - 1, last + 1
    while True:
        rates = list(RATES[first : last + 1])
        runs = [run_of(claim, name, rate, SEEDS[0], results) for rate in rates]
        found = [run and results.get(run) for run in runs]
        if not all(found):
            return rates, None
        accuracies = [result["validation"] for result in found if result]
        best = accuracies.index(max(accuracies))
        if best == 0 and first > 0:
            first -= 1
        elif best == len(rates) - 1 and last < len(RATES) - 1:
            last += 1
        else:
            return rates, rates[best]


def finished(claim: Claim, name: str, results: Results) -> list[dict[str, Any]] | None:
    """Returns the results of a side at its best rate, one for each seed; None if one is missing."""
    _, best = rates_of(claim, name, results)
    if best is None:
        return None
    runs = [run_of(claim, name, best, seed, results) for seed in SEEDS]
    found = [run and results.get(run) for run in runs]
    return found if all(found) else None


def missing(claim: Claim, results: Results) -> Iterator[tuple[str, Run]]:
    """Yields the trainings, with their side, that are not finished and could be started."""
    for name, side in claim.sides.items():
        rates, best = rates_of(claim, name, results)
        for seed in SEEDS:
            chosen = rates if side.every_seed or seed == SEEDS[0] else [best]
            for rate in chosen:
                run = rate and run_of(claim, name, rate, seed, results)
                if not run or results.get(run):
                    continue
                start = run.get("start")
                if start is None or results.get(start):
                    yield name, run


def results_of(claim: Claim, results: Results) -> dict[str, dict[str, Any]]:
    """Returns the results of all trainings of a claim, at every learning rate."""
    found = {}
    for name in claim.sides:
        for rate in rates_of(claim, name, results)[0]:
            for seed in SEEDS:
                run = run_of(claim, name, rate, seed, results)
                if run and (result := results.get(run)):
                    found[_key(run)] = result
    return found
