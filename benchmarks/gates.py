"""How often the gates of `keras-vit compare` pass wrongly, and how often they tell, on drawn pairs.

    python benchmarks/gates.py

Answers of two classifiers are drawn image by image; no model is run. The true difference lies
exactly at the limit of a gate for its false passes, and a stated distance inside for its power.
"""

from __future__ import annotations

import argparse

import numpy as np

from keras_vit.reports.report import markdown_table
from keras_vit.training.trust.paired import (
    FAILS,
    HOLDS,
    UNCLEAR,
    Measure,
    Pairs,
    judge,
    parse_gates,
)

CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, repeats = np.random.default_rng(arguments.seed), arguments.repeats
    rows = [("gate", "truth", "images", "passes", "fails", "cannot tell")]
    for count in (1000, 10_000):
        for gate, truth, draw in cases(count):
            rows.append(row(gate, truth, count, draw, rng, repeats))
    few = max(repeats // 5, 20)
    for per_class in (100, 300, 1000):
        count, gate = per_class * CLASSES, "class_recall > -3"
        worse = by_class(count, 0.1)
        rows.append(row(gate, "one class 10 points worse", count, worse, rng, few))
        spoiled = by_class(count, 0.1, flips=0.0)
        rows.append(row(gate, "the same answers, one class 10% spoiled", count, spoiled, rng, few))
        rows.append(row(gate, "equal", count, by_class(count, 0.0), rng, few))
        limit = by_class(count, 0.03)
        rows.append(row(gate, "one class 3 points worse", count, limit, rng, few))
    print(markdown_table(rows))


def row(text, truth, count, draw, rng, repeats):
    """Returns a row of the table: how often each outcome is, of the repeats."""
    (gate,) = parse_gates(text)
    outcomes = [judge(gate, draw(rng)).outcome for _ in range(repeats)]
    shares = (f"{outcomes.count(kind) / repeats:.1%}" for kind in (HOLDS, FAILS, UNCLEAR))
    return (text, truth, f"{count:,}", *shares)


def cases(count):
    """Yields gates on all images with the truth that is drawn; 2% or 6% of the answers flip."""
    for losses in (0.02, 0.06):
        for worse in (0.005, 0.0, -0.01):
            text = "equal" if worse == 0 else f"{abs(100 * worse):g} points "
            text += "" if worse == 0 else "worse" if worse > 0 else "better"
            gains = losses - worse

            def top_1(rng, losses=losses, gains=gains):
                shares = (0.9 - losses, losses, gains, 0.1 - gains)
                return [Measure("top_1", Pairs(*rng.multinomial(count, shares).tolist()))]

            yield "top_1 > -0.5", f"{text}, {losses:.0%} negative flips", top_1
    for flips in (0.01, 0.005):

        def negative(rng, flips=flips):
            return [Measure("negative_flips", (rng.binomial(count, flips), count))]

        yield "negative_flips < 1%", f"{flips:.1%} flip", negative


def by_class(count, worse, flips=0.02):
    """Returns a function that draws classes of equal size, of which the last is worse.

    In each class the share `flips` of the answers flips both ways.
    """
    size = count // CLASSES

    def draw(rng):
        measures = []
        for number in range(CLASSES):
            losses = flips + (worse if number == CLASSES - 1 else 0)
            shares = (0.9 - losses, losses, flips, 0.1 - flips)
            counts = rng.multinomial(size, shares).tolist()
            measures.append(Measure("class_recall", Pairs(*counts), str(number)))
        return measures

    return draw


if __name__ == "__main__":
    main()
