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
from scipy.sparse import csr_array

# Regularisations to choose from, in units of the mean eigenvalue.
L2_SHARES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_CHUNK = 1024  # Rows in float64 at a time: no second copy of all features.
_AT_ONCE = 2**20  # Predictions in memory, of rows that are left out one by one.
_CHOOSING = 4096  # Rows, or a group more, whose left-out errors choose the regularisation.


class Decomposition:
    """The eigendecomposition of features, for ridge regressions of any targets and `l2`.

    Args:
        features: `(N, D)`, finite. They are kept, not copied: they must not change.
    """

    def __init__(self, features: np.ndarray):
        rows, dim = features.shape
        self._features = features
        self._mean = features.mean(axis=0, dtype="float64")
        if rows > dim:
            gram = np.zeros((dim, dim))
            for _, centred in self._centred(np.arange(rows)):
                gram += centred.T @ centred
            eigenvalues, axes = np.linalg.eigh(gram)
        else:
            centred = features.astype("float64") - self._mean
            eigenvalues, vectors = np.linalg.eigh(centred @ centred.T)
            kept = eigenvalues > max(eigenvalues[-1], 0) * rows * np.finfo("float64").eps
            eigenvalues = eigenvalues[kept]
            axes = centred.T @ (vectors[:, kept] / np.sqrt(eigenvalues))
        self._eigenvalues = np.maximum(eigenvalues, 0)  # (R,)
        self._axes = axes  # V, (D, R)

    def l2_of(self, shares: Sequence[float]) -> list[float]:
        """Returns regularisations for `ridge` that are shares of the mean eigenvalue.

        That is the sum of the squared centred features, over the smaller of N and D.
        """
        mean = float(self._eigenvalues.sum() / min(self._features.shape))
        return [share * mean for share in shares]

    def ridge(
        self, targets: np.ndarray, l2: float | Sequence[float], *, groups: np.ndarray | None = None
    ) -> Ridge:
        """Returns the ridge regression of targets.

        Args:
            targets: `(N, K)`, finite.
            l2: Regularisation, added to the eigenvalues of the sums of squares. Of several, the
                one with the smallest squared leave-one-out error of 4,096 rows.
            groups: Group of each row, int `(N,)`, at least two: all rows of a group are left out
                together. By default each row is a group.
        """
        values = np.asarray(targets, "float64")
        mean, choices = values.mean(axis=0), [float(value) for value in np.atleast_1d(l2)]
        products = np.zeros((len(self._mean), values.shape[1]))
        for chunk, features in self._centred(np.arange(len(values))):
            products += features.T @ (values[chunk] - mean)
        moments, places = self._axes.T @ products, _places_of_groups(groups, len(values))
        chosen = choices[0]
        if len(choices) > 1:
            errors = np.zeros(len(choices))
            for place, rotated, together in self._parts(_some_places(places)):
                for number, choice in enumerate(choices):
                    targets_of_place = values[place] - mean
                    left_out = self._left_out(targets_of_place, moments, rotated, choice, together)
                    errors[number] += np.square(left_out).sum()
            chosen = choices[int(errors.argmin())]
        residuals = np.empty(values.shape)
        for place, rotated, together in self._parts(places):
            residuals[place] = self._left_out(
                values[place] - mean, moments, rotated, chosen, together
            )
        weights = self._axes @ (moments / (self._eigenvalues + chosen)[:, np.newaxis])
        return Ridge(weights, mean - self._mean @ weights, chosen, residuals, values - residuals)

    def chosen_l2(
        self, labels: np.ndarray, l2: Sequence[float], *, groups: np.ndarray | None = None
    ) -> float:
        """Returns the one of several `l2` that `ridge` takes for `one_hot(labels)`.

        Args:
            labels: Class numbers `(N,)`.
            l2: The choices.
            groups: See `ridge`.
        """
        some, errors = _some_places(_places_of_groups(groups, len(labels))), np.zeros(len(l2))
        for number, choice in enumerate(l2):
            for place, scores in self._scores(labels, choice, some):
                scores[np.arange(len(place)), labels[place]] -= 1
                errors[number] += np.square(scores).sum()
        return l2[int(errors.argmin())]

    def left_out_scores(
        self, labels: np.ndarray, l2: float, *, groups: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields places of rows, and what the map that is fitted without them predicts, `(n, K)`.

        It is `left_out_predictions` of `ridge(one_hot(labels), l2)`, some rows at a time: memory
        does not grow with N times K.

        Args:
            labels: Class numbers `(N,)`.
            l2: The regularisation.
            groups: See `ridge`.
        """
        yield from self._scores(labels, l2, _places_of_groups(groups, len(labels)))

    def _scores(self, labels, l2, places):
        shares = np.bincount(labels) / len(labels)
        sums = np.zeros((len(self._mean), len(shares)))  # As the features are centred, so is it.
        for chunk, features in self._centred(np.arange(len(labels))):
            rows = np.arange(len(chunk))
            own = csr_array((np.ones(len(chunk)), (rows, labels[chunk])), (len(rows), len(shares)))
            sums += (own.T @ features).T
        moments = self._axes.T @ sums
        for part, rotated, together in self._parts(places):
            step = len(part) if together else max(_AT_ONCE // len(shares), 1)
            for start in range(0, len(part), step):
                place, rows = part[start : start + step], rotated[start : start + step]
                targets = np.zeros((len(place), len(shares)))
                targets[np.arange(len(place)), labels[place]] = 1
                yield place, targets - self._left_out(targets - shares, moments, rows, l2, together)

    def _centred(self, places) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields places of rows, a chunk at a time, and these rows without the mean."""
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            yield chunk, self._features[chunk].astype("float64") - self._mean

    def _parts(self, places) -> Iterator[tuple[np.ndarray, np.ndarray, bool]]:
        """Yields places of rows, these rows times the axes, and whether they are left out together.

        The rows times the axes are `(n, R)`.
        """
        alone, groups = places
        for chunk, centred in self._centred(alone):
            yield chunk, centred @ self._axes, False
        for group in groups:
            parts = [centred @ self._axes for _, centred in self._centred(group)]
            yield group, np.concatenate(parts), True

    def _left_out(self, targets, moments, rotated, l2, together):
        """Returns residuals `(n, K)` of rows that are left out, each or together."""
        scales = self._eigenvalues + l2
        residuals = targets - rotated @ (moments / scales[:, np.newaxis])
        whitened, shift = rotated / np.sqrt(scales), 1 / len(self._features)
        if not together:
            leverages = np.square(whitened).sum(axis=1) + shift
            return residuals / (1 - leverages)[:, np.newaxis]
        # (I - Z Z')^-1, by the smaller of the two systems.
        columns = np.pad(whitened, ((0, 0), (0, 1)), constant_values=np.sqrt(shift))
        if len(columns) <= len(columns.T):
            return np.linalg.solve(np.eye(len(columns)) - columns @ columns.T, residuals)
        rest = np.eye(len(columns.T)) - columns.T @ columns
        return residuals + columns @ np.linalg.solve(rest, columns.T @ residuals)


@dataclasses.dataclass(frozen=True)
class Ridge:
    """A linear map from features to targets, and what it predicts of rows that are left out.

    Args:
        weights: `(D, K)`.
        constant: The constant term, `(K,)`.
        l2: The regularisation, chosen if there were several.
        left_out_residuals: Targets minus predictions of the map that is fitted without the row
            or its group, `(N, K)`.
        left_out_predictions: These predictions, `(N, K)`.
    """

    weights: np.ndarray
    constant: np.ndarray
    l2: float
    left_out_residuals: np.ndarray
    left_out_predictions: np.ndarray

    def predict(self, features: npt.ArrayLike) -> np.ndarray:
        """Returns the predictions of features `(M, D)`, `(M, K)`."""
        return np.asarray(features, "float64") @ self.weights + self.constant


def one_hot(labels: npt.ArrayLike, classes: int | None = None) -> np.ndarray:
    """Returns class numbers `(N,)` as float64 `(N, K)`, 1 for the class and 0 elsewhere."""
    numbers = np.asarray(labels)
    rows = np.zeros((len(numbers), int(numbers.max()) + 1 if classes is None else classes))
    rows[np.arange(len(numbers)), numbers] = 1
    return rows


def _places_of_groups(groups, rows):
    """Returns the places of rows that share no group, and the places of each group."""
    if groups is None:
        return np.arange(rows), []
    _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
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
