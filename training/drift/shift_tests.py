"""Two-sample tests on the outputs of a classifier, and label shift from its confusion.

Rabanser, Gunnemann and Lipton, "Failing Loudly" (2018, arXiv:1810.11953); Lipton, Wang and Smola,
"Detecting and Correcting for Label Shift with Black Box Predictors" (2018, arXiv:1802.03916).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats

from keras_vit.monitoring.signals import CLASS, counts_of
from keras_vit.training.evaluation.intervals import holm

_LEAST_EXPECTED = 5  # Photos of a class in both samples, of which a chi-square test needs more.
# n m / (n + m) for samples of n and m photos. Asymptotic p-values of smaller samples are too small,
# such as 0 for a single photo beyond the reference.
_LEAST_ASYMPTOTIC = 100
_WORST_CONDITION = 1000  # Limit of the confusion: beyond it classes are too alike to solve for.


@dataclasses.dataclass(frozen=True)
class ShiftTest:
    """A two-sample test of one signal.

    Args:
        signal: Its name.
        name: "Kolmogorov-Smirnov" or "chi-square".
        statistic: The largest difference of the two distributions, or chi-square.
        p_value: Without a correction.
        corrected: By Holm's method for all tests of a report.
        class_name: The class whose output is tested, if the signal is the output of a class.
    """

    signal: str
    name: str
    statistic: float
    p_value: float
    corrected: float = 1.0
    class_name: str | None = None


def shift_tests(
    reference: Mapping[str, Mapping[int, int]],
    photos: Mapping[str, np.ndarray],
) -> list[ShiftTest]:
    """Returns the tests of all signals that both have, corrected by Holm's method.

    Args:
        reference: For each signal the counts of its numbers.
        photos: For each signal its numbers, int `(N,)`.
    """
    tests = []
    for signal, values in photos.items():
        if signal not in reference:
            continue
        counts = reference[signal]
        if signal == CLASS:
            statistic, p_value = chi_square(counts, counts_of({signal: values})[signal])
            tests.append(ShiftTest(signal, "chi-square", statistic, p_value))
        else:
            known = np.repeat(list(counts), list(counts.values()))
            size = len(known) * len(values) / (len(known) + len(values))
            method = "exact" if size < _LEAST_ASYMPTOTIC else "asymp"
            # Ties make exact p-values larger, never smaller.
            found: Any = scipy.stats.ks_2samp(known, values, method=method)
            name = "Kolmogorov-Smirnov"
            tests.append(ShiftTest(signal, name, float(found.statistic), float(found.pvalue)))
    corrected = holm([test.p_value for test in tests])
    return [
        dataclasses.replace(test, corrected=p) for test, p in zip(tests, corrected, strict=True)
    ]


def chi_square(first: Mapping[int, int], second: Mapping[int, int]) -> tuple[float, float]:
    """Returns chi-square and its p-value for two samples of classes.

    Classes whose expected count is below 5 in one of the samples are taken together.

    Args:
        first: Photos by class.
        second: The same of the other sample.
    """
    classes = sorted({*first, *second})
    table = np.array([[sample.get(k, 0) for k in classes] for sample in (first, second)])
    shares = table.sum(axis=1) / table.sum()
    rare = table.sum(axis=0) * shares.min() < _LEAST_EXPECTED
    table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return 0.0, 1.0
    found: Any = scipy.stats.chi2_contingency(table, correction=False)
    return float(found.statistic), float(found.pvalue)


def label_shift(
    confusion: Sequence[Sequence[int]], answers: np.ndarray, num_classes: int
) -> np.ndarray | None:
    """Returns the estimated share of each true class among photos, `(K,)`.

    Black box shift estimation: with C[i, j] the share of held-out photos that are answered i and
    are j, and u[i] the share of photos that are answered i, C w = u, and the share of class j is
    w[j] times its share of the held-out photos. Negative shares become 0.

    Args:
        confusion: `(true class, answer, photos)` of held-out photos.
        answers: The most probable classes of the photos, int `(N,)`.
        num_classes: K.

    Returns:
        The shares; None if the confusion does not tell the classes apart.
    """
    counts = np.zeros((num_classes, num_classes))
    for true, given, number in confusion:
        counts[given, true] += number
    joint = counts / counts.sum()
    if np.linalg.cond(joint) > _WORST_CONDITION:
        return None
    weights = np.linalg.solve(joint, np.bincount(answers, minlength=num_classes) / len(answers))
    shares = np.maximum(weights, 0) * joint.sum(axis=0)
    return shares / shares.sum()
