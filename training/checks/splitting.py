"""A split of labelled images that keeps groups together and the classes in proportion."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import coo_array

TRAIN = "train"
SHARES = {"test": 0.2, "validation": 0.1}  # The others are trained on.


def grouped_split(
    targets: np.ndarray,
    groups: np.ndarray,
    *,
    shares: Mapping[str, float] = SHARES,
    seed: int = 0,
) -> np.ndarray:
    """Returns the part of each image, text `(N,)`.

    Groups are taken in random order. Each goes to the first part that lacks at least half of its
    images. A class of enough groups is in every part.

    Args:
        targets: Whether each image has each class, `(N, K)`.
        groups: Group of each image, int from 0 `(N,)`.
        shares: Share of every class by part; the others are "train".
        seed: Seed of the order.
    """
    # Images without labels are in proportion too.
    targets = np.concatenate([targets, targets.sum(axis=1, keepdims=True) == 0], axis=1)
    rows, classes = np.nonzero(targets)
    ones = np.ones(len(rows), "int64")
    shape = (int(groups.max()) + 1, targets.shape[1])
    counts = coo_array((ones, (groups[rows], classes)), shape).tocsr()
    counts.sum_duplicates()
    totals, in_groups = counts.sum(axis=0), (counts > 0).sum(axis=0)
    missing = [
        np.where(in_groups > place, np.maximum(share * totals, 1), 0).astype("float64")
        for place, share in enumerate(shares.values(), 1)
    ]
    parts = np.full(shape[0], TRAIN, object)
    for group in np.random.default_rng(seed).permutation(shape[0]):
        inside = slice(counts.indptr[group], counts.indptr[group + 1])
        present, numbers = counts.indices[inside], counts.data[inside]
        for name, lack in zip(shares, missing, strict=True):
            if 2 * np.minimum(numbers, lack[present]).sum() >= numbers.sum():
                lack[present] = np.maximum(lack[present] - numbers, 0)
                parts[group] = name
                break
    return parts[groups]
