"""Few-shot linear evaluation: least squares on frozen features, in closed form.

Paper, section 4.1; the constants are those of the official evaluator, big_vision's
`fewshot_lsr`. The module can be called: `few_shot(model, data)` is `few_shot.evaluate`.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from keras_vit.training.data import Source

    from .subject import Subject

SHOTS = (1, 5, 10, 25)  # Images per class.
SEEDS = (0, 1, 2)
EVALUATION = "resize_central_crop"  # How the official evaluator makes images the model's size.
L2 = 1024.0  # Added to the diagonal of the summed, not averaged, squares.
BIAS_FEATURE = 100.0  # Large, so that its weight is nearly free of regularisation.
STD_EPSILON = 1e-5

_CHUNK = 4096  # Test rows standardised at a time: no second copy of all test features.


def choose(labels, *, shots, seed):
    """Returns the indices of `shots` examples of each class.

    As the official evaluator chooses them: one generator for the seed permutes the examples
    of each class, in the order of the classes, and the first are taken.

    Args:
        labels: Class indices `(N,)`.
        shots: Examples per class.
        seed: Seed of `numpy.random.default_rng`.

    Returns:
        Indices into `labels`, `(shots * K,)`, ascending.

    Raises:
        ValueError: If a class has fewer examples than `shots`.
    """
    labels = np.asarray(labels)
    if shots < 1:
        raise ValueError(f"shots must be at least 1. Received: shots={shots}")
    counts = np.bincount(labels)
    poor = np.flatnonzero(counts < shots)
    if len(poor):
        raise ValueError(
            f"Every class needs at least shots={shots} training images; class {poor[0]} has "
            f"{counts[poor[0]]} ({len(poor)} of {len(counts)} classes have too few). "
            f"Received: shots={shots}"
        )
    rng = np.random.default_rng(seed)
    permuted = [rng.permutation(np.flatnonzero(labels == k)) for k in range(len(counts))]
    return np.sort(np.concatenate([indices[:shots] for indices in permuted]))


class LinearMap:
    """The regularised least-squares map from features to class scores.

    With X the features, standardised by their own mean and standard deviation and with a
    constant column of 100 behind them, and Y the labels as {-1, 1}^K:

        W = (X' X + l2 I)^-1 X' Y = X' (X X' + l2 I)^-1 Y

    The smaller of the two systems is solved, by its eigenvalues as in the official code.
    In float32 that code's rounding is reproduced: LAPACK's divide and conquer, which JAX
    calls. With a small `l2` the rounding can decide an example whose best two scores differ
    by less than about 1e-3; float64 is exact there.

    Args:
        features: Training features `(N, D)`.
        labels: Their class indices `(N,)`.
        l2: The regularisation, positive.
        dtype: "float32", as the official code computes, or "float64".

    Raises:
        ValueError: If shapes do not fit, labels are no class indices, or a feature is not
            finite.
    """

    def __init__(self, features, labels, *, l2=L2, dtype="float32"):
        features, labels = _checked(features, labels)
        if not l2 > 0:
            raise ValueError(f"l2 must be positive. Received: l2={l2}")
        if dtype not in ("float32", "float64"):
            raise ValueError(f'dtype must be "float32" or "float64". Received: dtype={dtype!r}')
        features = features.astype(dtype, copy=False)
        self._mean = features.mean(axis=0)
        self._std = features.std(axis=0) + features.dtype.type(STD_EPSILON)
        x = self._standardize(features)  # (N, D + 1)
        y = np.full((len(x), labels.max() + 1), -1, dtype)
        y[np.arange(len(x)), labels] = 1  # (N, K)
        if len(x) >= x.shape[1]:
            eigenvalues, q = scipy.linalg.eigh(x.T @ x, driver="evd", overwrite_a=True)
            left, right = q, q.T @ (x.T @ y)
        else:
            eigenvalues, q = scipy.linalg.eigh(x @ x.T, driver="evd", overwrite_a=True)
            left, right = x.T @ q, q.T @ y
        self._weights = (left / (eigenvalues + eigenvalues.dtype.type(l2))) @ right  # (D + 1, K)

    def predict(self, features):
        """Returns the classes of features `(M, D)`, as indices `(M,)`."""
        features = np.asarray(features)
        classes = np.empty(len(features), dtype=np.int64)
        for start in range(0, len(features), _CHUNK):
            x = self._standardize(features[start : start + _CHUNK])
            classes[start : start + len(x)] = np.argmax(x @ self._weights, axis=1)
        return classes

    def _standardize(self, features):
        x = np.empty((len(features), len(self._mean) + 1), self._mean.dtype)
        x[:, :-1] = (features.astype(x.dtype, copy=False) - self._mean) / self._std
        x[:, -1] = BIAS_FEATURE
        return x


def accuracy(
    train_features,
    train_labels,
    test_features,
    test_labels,
    *,
    shots=None,
    seed=0,
    l2=L2,
    dtype="float32",
):
    """Returns the share of test examples that a few-shot linear map gets right.

    Args:
        train_features: `(N, D)`.
        train_labels: Class indices `(N,)`.
        test_features: `(M, D)`.
        test_labels: Class indices `(M,)`.
        shots: Training examples per class; None takes all.
        seed: Chooses which.
        l2: The regularisation, positive; see `LinearMap`.
        dtype: "float32", as the official code computes, or "float64".

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: If a class has fewer training examples than `shots`, if the test set has
            a class that the training set has not, or if shapes do not fit.
    """
    train_features, train_labels = _checked(train_features, train_labels)
    test_features, test_labels = _checked(test_features, test_labels)
    if train_features.shape[1] != test_features.shape[1]:
        raise ValueError(
            "Training and test features must have the same size. Received: "
            f"{train_features.shape[1]} and {test_features.shape[1]}"
        )
    unknown = np.setdiff1d(test_labels, train_labels)
    if len(unknown):
        raise ValueError(
            "Every class of the test set must be in the training set. Received: test labels "
            f"without training examples: {unknown[:10].tolist()}"
        )
    if shots is not None:
        chosen = choose(train_labels, shots=shots, seed=seed)
        train_features, train_labels = train_features[chosen], train_labels[chosen]
    predicted = LinearMap(train_features, train_labels, l2=l2, dtype=dtype).predict(test_features)
    return float(np.mean(predicted == test_labels))


@dataclasses.dataclass(frozen=True)
class Report:
    """Few-shot accuracies of a model.

    Args:
        accuracies: By shots, then by seed.
        feature: What was the representation; see `features.FEATURES`.
        dim: Its size, D.
        l2: The regularisation.
        num_train: Images that the shots were chosen from.
        num_test: Images evaluated.
        skipped: `(path, reason)` of images that could not be read.
    """

    accuracies: dict[int, dict[int, float]]
    feature: str
    dim: int
    l2: float
    num_train: int
    num_test: int
    skipped: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [
            f"feature  {self.feature}, {self.dim} numbers, l2 {self.l2:g}",
            f"images   {self.num_test} to test (each once), {self.num_train} to choose from",
            "",
            "shots  mean    by seed",
        ]
        for shots, by_seed in self.accuracies.items():
            values = "  ".join(f"{value:.4f}" for value in by_seed.values())
            lines.append(f"{shots:>5}  {statistics.fmean(by_seed.values()):.4f}  {values}")
        lines += [f"skipped {path}: {reason}" for path, reason in self.skipped]
        return "\n".join(lines)


def evaluate(
    subject: Subject,
    source: Source,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float = L2,
    feature: str = "pre_logits",
    dtype: str = "float32",
    batch_size: int = 32,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
) -> Report:
    """Evaluates a model by linear maps from its features, fitted to a few images per class.

    Args:
        subject: The model, from `subject.open_subject`.
        source: The data, from `keras_vit.training.data.open_source`; the shots are chosen
            from its training images.
        shots: Numbers of images per class.
        seeds: Each chooses other images.
        l2: The regularisation; see `LinearMap`.
        feature: "pre_logits", "token" or "avg"; see `features.feature_model`.
        dtype: "float32", the official one, or "float64"; of the linear map.
        batch_size: Images that the model takes at once.
        cache: Folder where features are kept, or None.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If the model does not have the feature, the data have no test images,
            or a class has fewer training images than a number of shots.

    Example:
    >>> subject = open_subject("ViT-B/16", weights="imagenet21k")
    >>> print(few_shot.evaluate(subject, open_source("tfds:oxford_iiit_pet"), shots=[5]))
    """
    # Here and not above: the linear map alone needs no TensorFlow.
    from .features import extract

    test = source.splits.get("test")
    if test is None or not len(test):
        raise ValueError("Few-shot evaluation needs test images. Received: data without any")
    train = source.splits["train"]
    _check_shots(train.labels, shots, source.class_names)
    train_features, test_features = (
        extract(
            subject.model,
            examples,
            preprocessing=subject.preprocessing,
            feature=feature,
            batch_size=batch_size,
            cache=cache,
            progress=progress,
        )
        for examples in (train, test)
    )
    accuracies = {
        count: {
            seed: accuracy(
                train_features.values,
                train_features.labels,
                test_features.values,
                test_features.labels,
                shots=count,
                seed=seed,
                l2=l2,
                dtype=dtype,
            )
            for seed in seeds
        }
        for count in shots
    }
    return Report(
        accuracies,
        feature,
        train_features.values.shape[1],
        l2,
        len(train),
        len(test),
        tuple(source.skipped),
    )


def _check_shots(labels, shots, class_names):
    """Raises before any feature is computed."""
    if not shots or min(shots) < 1:
        raise ValueError(f"shots must be numbers of at least 1. Received: {list(shots)}")
    counts = np.bincount(labels, minlength=len(class_names))
    poorest = int(counts.argmin())
    if counts[poorest] < max(shots):
        raise ValueError(
            f"Every class needs at least shots={max(shots)} training images; the class "
            f"{class_names[poorest]} has {counts[poorest]}. Received: shots={list(shots)}"
        )


def _checked(features, labels):
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ValueError(
            "Features must be (N, D) and labels (N,), N at least 1. Received: shapes "
            f"{features.shape} and {labels.shape}"
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ValueError(
            f"Labels must be class indices from 0. Received: dtype {labels.dtype}, "
            f"minimum {labels.min()}"
        )
    if not np.isfinite(features).all():
        raise ValueError("Features must be finite. Received: NaN or infinity")
    return features, labels


class _CallableModule(types.ModuleType):
    def __call__(self, *args, **kwargs):
        return self.evaluate(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
