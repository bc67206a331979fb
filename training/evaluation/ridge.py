"""Ridge regression with exact leave-one-out predictions, from one eigendecomposition.

With X the centred features `(N, D)`, Y the centred targets `(N, K)` and X'X = V S V':

    W        = V (S + l2 I)^-1 V' X'Y                  weights
    h(x)     = 1/N + x' V (S + l2 I)^-1 V' x           leverage of a row
    y_i - y_i without row i = r_i / (1 - h(x_i))       PRESS (Allen, 1974)

A row or a group of rows is left out, and any `l2` tried, without another decomposition. If
N < D, the eigenvectors come from XX' `(N, N)`. All is computed in float64.

`few_shot.LinearMap` computes the same weights with the rounding of the official code.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, qr

_CHUNK = 4096  # Rows in float64 at a time: no second copy of all features.
_CHOOSING = 4096  # Rows, or a group more, whose left-out errors choose the regularisation.


class Decomposition:
    """The eigendecomposition of features, for ridge regressions of any targets and `l2`.

    Args:
        features: `(N, D)`. They are kept, not copied: they must not change.
        bias: Whether the map has a constant term, which is not regularised.

    Raises:
        ValueError: If the shape does not fit or a feature is not finite.
    """

    def __init__(self, features: npt.ArrayLike, *, bias: bool = True):
        values = np.asarray(features)
        if values.ndim != 2 or len(values) < 2 or not values.shape[1]:
            raise ValueError(
                "Features must be (N, D), N at least 2 and D at least 1. "
                f"Received: shape={values.shape}"
            )
        if not np.isfinite(values).all():
            raise ValueError("Features must be finite. Received: NaN or infinity")
        rows, dim = values.shape
        self._features = values
        self._mean = values.mean(axis=0, dtype="float64") if bias else np.zeros(dim)
        self._bias = bias
        if rows > dim:
            gram = np.zeros((dim, dim))
            for _, centred in self._centred(np.arange(rows)):
                gram += centred.T @ centred
            eigenvalues, axes = np.linalg.eigh(gram)
        else:
            centred = values.astype("float64") - self._mean
            eigenvalues, vectors = np.linalg.eigh(centred @ centred.T)
            kept = eigenvalues > max(eigenvalues[-1], 0) * rows * np.finfo("float64").eps
            eigenvalues = eigenvalues[kept]
            axes = centred.T @ (vectors[:, kept] / np.sqrt(eigenvalues))
        self._eigenvalues = np.maximum(eigenvalues, 0)  # (R,)
        self._axes = axes  # V, (D, R)

    @property
    def mean_eigenvalue(self) -> float:
        """The sum of the squared centred features, over the smaller of N and D: a scale of `l2`."""
        return float(self._eigenvalues.sum() / min(self._features.shape))

    def l2_of(self, shares: Sequence[float]) -> list[float]:
        """Returns regularisations for `ridge` that are shares of the mean eigenvalue."""
        return [share * self.mean_eigenvalue for share in shares]

    def ridge(
        self,
        targets: npt.ArrayLike,
        l2: float | Sequence[float],
        *,
        groups: npt.ArrayLike | None = None,
    ) -> Ridge:
        """Returns the ridge regression of targets.

        Args:
            targets: `(N, K)`, finite.
            l2: Regularisation, added to the eigenvalues of the sums of squares. Of several, the
                one with the smallest squared leave-one-out error of 4,096 rows.
            groups: Group of each row, int `(N,)`: all rows of a group are left out together. By
                default each row is a group.

        Raises:
            ValueError: If the shapes do not fit, an `l2` is not a positive number, or all rows
                are in one group.
        """
        values = np.asarray(targets, "float64")
        rows = len(self._features)
        if values.ndim != 2 or len(values) != rows or not np.isfinite(values).all():
            raise ValueError(
                f"Targets must be finite numbers ({rows}, K). Received: shape={values.shape}"
            )
        choices = [float(value) for value in np.atleast_1d(np.asarray(l2, "float64"))]
        if not choices or not all(0 < value < np.inf for value in choices):
            raise ValueError(f"l2 must be positive numbers. Received: l2={l2}")
        places = _places_of_groups(groups, rows)
        mean = values.mean(axis=0) * self._bias
        centred, products = values - mean, self._products(values)
        chosen = choices[0]
        if len(choices) > 1:
            chosen = self._chosen(centred, products, choices, _some_places(places))
        root = self._root(chosen)
        weights = root @ (root.T @ products)
        residuals, leverages = np.empty(values.shape), np.empty(rows)
        for place, whitened, together in self._parts(places, root):
            fitted = whitened @ (root.T @ products)
            residuals[place], leverages[place] = self._left_out(
                centred[place] - fitted, whitened, together
            )
        return Ridge(
            weights,
            mean - self._mean @ weights,
            chosen,
            leverages,
            residuals,
            values - residuals,
            self,
        )

    def leverages(self, features: npt.ArrayLike, l2: float) -> np.ndarray:
        """Returns the leverages of new rows, `(M,)`; see `Ridge.leverage`."""
        values = np.asarray(features)
        if values.ndim != 2 or values.shape[1] != len(self._mean):
            raise ValueError(
                f"Features must be (M, {len(self._mean)}). Received: shape={values.shape}"
            )
        found = np.empty(len(values))
        for start in range(0, len(values), _CHUNK):
            centred = values[start : start + _CHUNK].astype("float64") - self._mean
            rotated = centred @ self._axes
            inside = np.square(rotated) @ (1 / (self._eigenvalues + l2))
            outside = 0.0  # What of a row lies outside the span of the training rows.
            if len(self._axes.T) < len(self._axes):
                outside = np.square(centred - rotated @ self._axes.T).sum(axis=1) / l2
            found[start : start + _CHUNK] = inside + outside
        return found + self._bias / len(self._features)

    def _centred(self, places) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields places of rows, a chunk at a time, and these rows without the mean."""
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            yield chunk, self._features[chunk].astype("float64") - self._mean

    def _rotated(self, places, root) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields places of rows, and these rows times the axes or a root, `(n, R)`."""
        for chunk, centred in self._centred(places):
            if root is self._axes or len(root) != len(root.T):
                yield chunk, centred @ root
            else:  # A triangular one, in half the time.
                yield chunk, blas.dtrmm(1.0, root.T, centred.T).T

    def _parts(self, places, root) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        """Yields what `_rotated` does, and whether the rows are left out together."""
        alone, groups = places
        for chunk, rotated in self._rotated(alone, root):
            yield chunk, rotated, False
        for some in _chunks_of_groups(groups):  # One product for many small groups.
            parts = [part for _, part in self._rotated(np.concatenate(some), root)]
            ends = np.cumsum([len(group) for group in some])
            split = np.split(np.concatenate(parts), ends[:-1])
            for group, part in zip(some, split, strict=True):
                yield group, part, True

    def _products(self, targets):
        """Returns X'Y, `(D, K)`."""
        products = np.zeros((len(self._mean), targets.shape[1]))
        for chunk, centred in self._centred(np.arange(len(targets))):
            products += centred.T @ targets[chunk]
        return products

    def _root(self, l2):
        """Returns M with M M' = (X'X + l2 I)^-1 in the span of the rows, triangular if square."""
        scaled = self._axes / np.sqrt(self._eigenvalues + l2)
        square = len(scaled) == len(scaled.T)
        return qr(scaled.T, mode="r")[0].T if square else scaled

    def _chosen(self, targets, products, choices, places):
        """Returns the regularisation with the smallest squared left-out error at some places."""
        errors = np.zeros(len(choices))
        moments = self._axes.T @ products
        for place, rotated, together in self._parts(places, self._axes):
            for number, l2 in enumerate(choices):
                scales = self._eigenvalues + l2
                fitted = rotated @ (moments / scales[:, np.newaxis])
                whitened = rotated / np.sqrt(scales)
                residuals, _ = self._left_out(targets[place] - fitted, whitened, together)
                errors[number] += np.square(residuals).sum()
        return choices[int(errors.argmin())]

    def _left_out(self, residuals, whitened, together):
        """Returns residuals `(n, K)` of rows that are left out, each or together, and leverages."""
        shift = self._bias / len(self._features)
        leverages = np.square(whitened).sum(axis=1) + shift
        if not together:
            return residuals / (1 - leverages)[:, np.newaxis], leverages
        # (I - Z Z')^-1, by the smaller of the two systems.
        columns = np.pad(whitened, ((0, 0), (0, 1)), constant_values=np.sqrt(shift))
        if len(columns) <= len(columns.T):
            left_out = np.linalg.solve(np.eye(len(columns)) - columns @ columns.T, residuals)
        else:
            rest = np.eye(len(columns.T)) - columns.T @ columns
            left_out = residuals + columns @ np.linalg.solve(rest, columns.T @ residuals)
        return left_out, leverages


@dataclasses.dataclass(frozen=True)
class Ridge:
    """A linear map from features to targets, and what it predicts of rows that are left out.

    Args:
        weights: `(D, K)`.
        constant: The constant term, `(K,)`; zeros without a bias.
        l2: The regularisation, chosen if there were several.
        leverages: h of each training row, `(N,)`, in [0, 1).
        left_out_residuals: Targets minus predictions of the map that is fitted without the row
            or its group, `(N, K)`.
        left_out_predictions: These predictions, `(N, K)`.
        decomposition: The decomposition of the training features.
    """

    weights: np.ndarray
    constant: np.ndarray
    l2: float
    leverages: np.ndarray
    left_out_residuals: np.ndarray
    left_out_predictions: np.ndarray
    decomposition: Decomposition = dataclasses.field(repr=False)

    @classmethod
    def fit(
        cls,
        features: npt.ArrayLike,
        targets: npt.ArrayLike,
        l2: float | Sequence[float],
        *,
        bias: bool = True,
        groups: npt.ArrayLike | None = None,
    ) -> Ridge:
        """Returns the ridge regression of targets `(N, K)` on features `(N, D)`.

        Args:
            features: See `Decomposition`.
            targets: See `Decomposition.ridge`.
            l2: See `Decomposition.ridge`.
            bias: See `Decomposition`.
            groups: See `Decomposition.ridge`.

        Raises:
            ValueError: If a shape does not fit, a number is not finite, or an `l2` is not
                positive.

        Example:
        >>> ridge = Ridge.fit(features, one_hot(labels), [1.0, 10.0, 100.0])
        >>> right = ridge.left_out_predictions.argmax(axis=1) == labels
        """
        return Decomposition(features, bias=bias).ridge(targets, l2, groups=groups)

    def predict(self, features: npt.ArrayLike) -> np.ndarray:
        """Returns the predictions of features `(M, D)`, `(M, K)`."""
        return np.asarray(features, "float64") @ self.weights + self.constant

    def leverage(self, features: npt.ArrayLike) -> np.ndarray:
        """Returns how far features `(M, D)` are from the training rows, `(M,)`.

        x' (X'X + l2 I)^-1 x, with the mean subtracted and 1/N added if the map has a constant
        term. A training row with the leverage h would as a new row, fitted without it, have
        h / (1 - h).

        Raises:
            ValueError: If the shape does not fit.
        """
        return self.decomposition.leverages(features, self.l2)


def one_hot(labels: npt.ArrayLike, classes: int | None = None) -> np.ndarray:
    """Returns class numbers `(N,)` as float64 `(N, K)`, 1 for the class and 0 elsewhere."""
    numbers = np.asarray(labels)
    return np.eye(int(numbers.max()) + 1 if classes is None else classes)[numbers]


def _places_of_groups(groups, rows):
    """Returns the places of rows that share no group, and the places of each group."""
    if groups is None:
        return np.arange(rows), []
    labels = np.asarray(groups)
    if labels.shape != (rows,):
        raise ValueError(f"There must be {rows} groups. Received: shape={labels.shape}")
    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        raise ValueError("The rows must be of two groups at least. Received: one group")
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.cumsum(counts)[:-1])
    alone = np.sort(np.concatenate([[], *(part for part in parts if len(part) == 1)]).astype(int))
    return alone, [part for part in parts if len(part) > 1]


def _some_places(places):
    """Returns places of rows and groups as `_places_of_groups` does, of `_CHOOSING` rows or so."""
    alone, groups = places
    rows = len(alone) + sum(map(len, groups))
    if rows <= _CHOOSING:
        return places
    rng, share = np.random.default_rng(0), _CHOOSING / rows
    chosen = rng.permutation(len(groups))[: math.ceil(share * len(groups))]
    alone = rng.permutation(alone)[: math.ceil(share * len(alone))]
    return np.sort(alone), [groups[number] for number in chosen]


def _chunks_of_groups(groups) -> Iterator[list[np.ndarray]]:
    """Yields lists of groups, each with at most `_CHUNK` rows together or of one group."""
    some: list[np.ndarray] = []
    for group in groups:
        if some and sum(map(len, some)) + len(group) > _CHUNK:
            yield some
            some = []
        some.append(group)
    if some:
        yield some
