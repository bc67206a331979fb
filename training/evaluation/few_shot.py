"""Few-shot linear evaluation: least squares on frozen features, in closed form.

Paper, section 4.1; the constants are from the official evaluator, big_vision's
`fewshot_lsr`.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import scipy.linalg

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.training.data import Source
from keras_vit.training.data.labels import places_by_class, task_of
from keras_vit.training.data.parts import fold_numbers
from keras_vit.training.data.sources import describe_skipped

from .features import extract
from .intervals import accuracy_text, mean_interval
from .nearest import neighbour_accuracy
from .predictions import EvaluatedModel
from .protocols import DTYPES, L2, NEIGHBOURS, SEEDS, SHOTS

BIAS_FEATURE = 100.0  # Large, so that its weight is nearly free of regularisation.
STD_EPSILON = 1e-5

_CHUNK = 4096  # Test rows standardised at a time: no second copy of all test features.


def choose(labels: npt.ArrayLike, *, shots: int, seed: int) -> np.ndarray:
    """Returns the indices of `shots` examples of each class.

    As in the official evaluator: one random generator permutes the examples of each class,
    in the order of the classes, and the first `shots` of each are taken, or all if there are
    fewer.

    Args:
        labels: Class indices `(N,)`.
        shots: Examples per class.
        seed: Seed of `numpy.random.default_rng`.

    Returns:
        Indices into `labels`, ascending.

    Raises:
        ValueError: If `shots` is below 1.
    """
    classes = np.asarray(labels)
    if shots < 1:
        raise ValueError(f"shots must be at least 1. Received: shots={shots}")
    rng = np.random.default_rng(seed)
    permuted = [rng.permutation(places) for places in places_by_class(classes)]
    return np.sort(np.concatenate([indices[:shots] for indices in permuted]))


class LinearMap:
    """The regularised least-squares map from features to class scores.

    With X the features, standardised by their own mean and standard deviation and with a
    constant column of 100 behind them, and Y the labels as {-1, 1}^K:

        W = (X' X + l2 I)^-1 X' Y = X' (X X' + l2 I)^-1 Y

    The smaller of the two systems is solved, by its eigenvalues as in the official code.
    In float32 LAPACK's divide and conquer, which JAX calls too, nearly reproduces that code's
    rounding: of 45 pairs of numbers of shots and `l2`, 41 gave its accuracy exactly, and 4
    differed by 1 to 4 of 700 test examples. The rounding can change the class of an example
    whose best two scores differ by less than about 1e-3; float64 is free of it.

    Args:
        features: Training features `(N, D)`.
        labels: Their class indices `(N,)`.
        l2: Regularisation, positive.
        dtype: "float32", as the official code computes, or "float64".

    Raises:
        ValueError: If shapes do not fit, labels are not class indices, or a feature is not
            finite.
    """

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        l2: float = L2,
        dtype: str = "float32",
    ):
        values, classes = _checked(features, labels)
        if not l2 > 0:
            raise ValueError(f"l2 must be positive. Received: l2={l2}")
        if dtype not in DTYPES:
            raise ValueError(f'dtype must be "float32" or "float64". Received: dtype={dtype!r}')
        values = values.astype(dtype, copy=False)
        self._mean = values.mean(axis=0)
        self._std = values.std(axis=0) + values.dtype.type(STD_EPSILON)
        x = self._standardize(values)  # (N, D + 1)
        y = np.full((len(x), classes.max() + 1), -1, dtype)
        y[np.arange(len(x)), classes] = 1  # (N, K)
        if len(x) >= x.shape[1]:
            eigenvalues, q = scipy.linalg.eigh(x.T @ x, driver="evd", overwrite_a=True)
            left, right = q, q.T @ (x.T @ y)
        else:
            eigenvalues, q = scipy.linalg.eigh(x @ x.T, driver="evd", overwrite_a=True)
            left, right = x.T @ q, q.T @ y
        self._weights = (left / (eigenvalues + eigenvalues.dtype.type(l2))) @ right  # (D + 1, K)

    def predict(self, features: npt.ArrayLike) -> np.ndarray:
        """Returns the classes of features `(M, D)`, as indices `(M,)`."""
        values = np.asarray(features)
        classes = np.empty(len(values), dtype=np.int64)
        for start in range(0, len(values), _CHUNK):
            x = self._standardize(values[start : start + _CHUNK])
            classes[start : start + len(x)] = np.argmax(x @ self._weights, axis=1)
        return classes

    def _standardize(self, features):
        x = np.empty((len(features), len(self._mean) + 1), self._mean.dtype)
        x[:, :-1] = (features.astype(x.dtype, copy=False) - self._mean) / self._std
        x[:, -1] = BIAS_FEATURE
        return x


def accuracy(
    train_features: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    test_features: npt.ArrayLike,
    test_labels: npt.ArrayLike,
    *,
    shots: int | None = None,
    seed: int = 0,
    l2: float = L2,
    dtype: str = "float32",
) -> float:
    """Returns the test accuracy of a few-shot linear map.

    Args:
        train_features: `(N, D)`.
        train_labels: Class indices `(N,)`.
        test_features: `(M, D)`.
        test_labels: Class indices `(M,)`.
        shots: Training examples per class; None takes all.
        seed: Seed of their choice.
        l2: Regularisation, positive; see `LinearMap`.
        dtype: "float32", as the official code computes, or "float64".

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: If a class of the test set is missing in the training set, or if shapes do
            not fit.

    Warns:
        UserWarning: If classes have fewer training examples than `shots`: all are taken.
    """
    poor = {} if shots is None else _poor(train_labels, shots)
    if poor:
        named = ", ".join(f"{k} has {count}" for k, count in poor.items())
        warnings.warn(
            f"Classes with fewer than shots={shots} training examples: {named}", stacklevel=2
        )
    return _accuracy(
        train_features, train_labels, test_features, test_labels, shots, seed, l2, dtype
    )


def _accuracy(train_features, train_labels, test_features, test_labels, shots, seed, l2, dtype):
    train, train_classes = _checked(train_features, train_labels)
    test, test_classes = _checked(test_features, test_labels)
    if train.shape[1] != test.shape[1]:
        raise ValueError(
            "Training and test features must have the same size. Received: "
            f"{train.shape[1]} and {test.shape[1]}"
        )
    unknown = np.setdiff1d(test_classes, train_classes)
    if len(unknown):
        raise ValueError(
            "Every class of the test set must be in the training set. Received: test labels "
            f"without training examples: {unknown[:10].tolist()}"
        )
    if shots is not None:
        chosen = choose(train_classes, shots=shots, seed=seed)
        train, train_classes = train[chosen], train_classes[chosen]
    predicted = LinearMap(train, train_classes, l2=l2, dtype=dtype).predict(test)
    return float(np.mean(predicted == test_classes))


@dataclasses.dataclass(frozen=True)
class FewShotReport:
    """Few-shot accuracies of a model.

    Args:
        accuracies: By shots, then by seed.
        feature: One of `configs.FEATURES`.
        dim: Size of the feature, D.
        l2: Regularisation.
        num_train: Images that the shots were chosen from.
        num_test: Test images.
        skipped: `(path, reason)` of images that could not be read.
        poor: Training images of each class that has fewer than the largest number of shots.
        nearest: Accuracy of the vote of the `NEIGHBOURS` nearest training images, all of them
            to choose from; see `nearest.neighbour_accuracy`.
    """

    accuracies: dict[int, dict[int, float]]
    feature: str
    dim: int
    l2: float
    num_train: int
    num_test: int
    skipped: tuple[tuple[str, str], ...] = ()
    poor: Mapping[str, int] = dataclasses.field(default_factory=dict)
    nearest: float | None = None

    def __str__(self) -> str:
        lines = [
            f"feature  {self.feature}, {self.dim} numbers, l2 {self.l2:g}",
            f"images   {self.num_test} to test (each once), {self.num_train} to choose from",
            "",
            f"shots  {'mean (95% interval)':<23}  by seed",
        ]
        for shots, by_seed in self.accuracies.items():
            values = "  ".join(accuracy_text(value, self.num_test) for value in by_seed.values())
            mean = accuracy_text(statistics.fmean(by_seed.values()), self.num_test)
            lines.append(f"{shots:>5}  {mean:<23}  {values}")
        if self.nearest is not None:
            nearest = accuracy_text(self.nearest, self.num_test)
            lines.append(f"  all  {nearest:<23}  by the {NEIGHBOURS} nearest images")
        lines += [
            f"class {name} has {count} training images: all are taken for more shots"
            for name, count in self.poor.items()
        ]
        lines += describe_skipped(self.skipped)
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class FewShotFolds:
    """Few-shot accuracies on K parts of the images, each without the images of its part.

    Args:
        reports: The report of each fold.
    """

    reports: tuple[FewShotReport, ...]

    def of_folds(self, shots: int) -> list[float]:
        """Returns the accuracy of each fold, the mean over its seeds."""
        return [statistics.fmean(each.accuracies[shots].values()) for each in self.reports]

    def __str__(self) -> str:
        first = self.reports[0]
        images = sum(each.num_test for each in self.reports)
        lines = [
            f"feature  {first.feature}, {first.dim} numbers, l2 {first.l2:g}",
            f"images   {images}, each tested once, out of {len(self.reports)} folds",
            "",
            f"shots  {'mean (95% t-interval)':<23}  by fold, mean over seeds",
        ]
        for shots in first.accuracies:
            lines.append(f"{shots:>5}  {self._text(self.of_folds(shots))}")
        nearest = [each.nearest for each in self.reports if each.nearest is not None]
        if nearest:
            lines.append(f"  all  {self._text(nearest)}  by the {NEIGHBOURS} nearest images")
        least: dict[str, int] = {}
        for each in self.reports:
            least |= {name: min(count, least.get(name, count)) for name, count in each.poor.items()}
        lines += [
            f"class {name} has {count} training images in a fold: all are taken for more shots"
            for name, count in least.items()
        ]
        lines += describe_skipped(first.skipped)
        return "\n".join(lines)

    def _text(self, accuracies):
        """The mean of the folds with its interval, and each."""
        mean, (low, high) = statistics.fmean(accuracies), mean_interval(accuracies)
        text = f"{100 * mean:.1f}% ({100 * low:.1f} to {100 * high:.1f})"
        return f"{text:<23}  " + "  ".join(f"{accuracy:.1%}" for accuracy in accuracies)


def evaluate(
    model: EvaluatedModel,
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
) -> FewShotReport:
    """Evaluates a model by linear maps from its features, fitted to a few images per class.

    Args:
        model: The model, from `predictions.build_evaluated`.
        source: The data, from `keras_vit.training.data.open_source`; the shots are chosen
            from its training images.
        shots: Numbers of images per class.
        seeds: Each chooses other images.
        l2: Regularisation; see `LinearMap`.
        feature: "pre_logits", "token" or "avg"; see `models.rebuild.feature_model`.
        dtype: The linear map's dtype: "float32" as in the official code, or "float64".
        batch_size: Images in a batch.
        cache: Folder for computed features, or None.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If the model lacks the feature, the data have no test images, or a class of
            the test images has no training image.

    Example:
    >>> model = build_evaluated("ViT-B/16", weights="imagenet21k", evaluation=FEW_SHOT_RESIZE)
    >>> print(few_shot.evaluate(model, open_source("tfds:oxford_iiit_pet"), shots=[5]))
    """
    test = source.splits.get("test")
    if test is None or not len(test):
        raise ValueError("Few-shot evaluation needs test images. Received: data without any")
    train = _training_images(source, shots)
    absent = np.setdiff1d(test.labels, train.labels)
    if len(absent):  # Before features are computed.
        raise ValueError(
            "Every class of the test images must have a training image. Received: none of "
            f"{', '.join(source.class_names[k] for k in absent[:10])}"
        )
    reading = feature, batch_size, cache, progress
    arrays = *_features(model, train, *reading), *_features(model, test, *reading)
    return _report(source, feature, arrays, shots, seeds, l2, dtype)


def evaluate_folds(
    model: EvaluatedModel,
    source: Source,
    *,
    folds: int,
    split_seed: int = 0,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float = L2,
    feature: str = "pre_logits",
    dtype: str = "float32",
    batch_size: int = 32,
    cache: str | os.PathLike | None = None,
    progress: bool = False,
) -> FewShotFolds:
    """Evaluates a model as `evaluate`, K times, each without another K-th of the training images.

    The images left out are tested. The parts are stratified, and keep groups together. A test
    part of the data is in no fold and is not tested.

    Args:
        model: As for `evaluate`.
        source: As for `evaluate`; a test part is not needed.
        folds: K, at least 2.
        split_seed: Seed of the folds.
        shots: As for `evaluate`.
        seeds: As for `evaluate`.
        l2: As for `evaluate`.
        feature: As for `evaluate`.
        dtype: As for `evaluate`.
        batch_size: As for `evaluate`.
        cache: As for `evaluate`.
        progress: As for `evaluate`.

    Raises:
        ValueError: As `evaluate`, and if there are too few images or groups for the folds.

    Example:
    >>> source = DataSpec("photos", group_by="exif", holdout=0.0).open()
    >>> print(few_shot.evaluate_folds(model, source, folds=5, shots=[5]))
    """
    train = _training_images(source, shots)
    of_image = fold_numbers(train, source.class_names, folds, split_seed, source.groups)
    of_train = _features(model, train, feature, batch_size, cache, progress)
    reports = []
    for number in range(1, folds + 1):
        parts = of_image != number, of_image == number
        arrays = [array[part] for part in parts for array in of_train]
        reports.append(_report(source, feature, arrays, shots, seeds, l2, dtype))
    return FewShotFolds(tuple(reports))


def _training_images(source, shots):
    """Returns the images to choose from, after checks that need no features."""
    train = source.splits["train"]
    if not shots or min(shots) < 1:
        raise ValueError(f"shots must be numbers of at least 1. Received: {list(shots)}")
    if task_of(train.labels) == MULTILABEL:
        raise ValueError("Few-shot evaluation needs one class an image. Received: multi-label data")
    return train


def _features(model, examples, feature, batch_size, cache, progress):
    """Returns the features of images and their labels."""
    found = extract(
        model.model,
        examples,
        preprocessing=model.preprocessing,
        feature=feature,
        batch_size=batch_size,
        cache=cache,
        progress=progress,
    )
    return found.values, found.labels


def _report(source, feature, arrays, shots, seeds, l2, dtype):
    """Returns the report of training features, their labels, test features and their labels."""
    train_features, train_labels, test_features, test_labels = arrays
    given = train_features, train_labels, test_features, test_labels
    return FewShotReport(
        {
            count: {seed: _accuracy(*given, count, seed, l2, dtype) for seed in seeds}
            for count in shots
        },
        feature,
        train_features.shape[1],
        l2,
        len(train_labels),
        len(test_labels),
        tuple(source.skipped),
        {source.class_names[k]: n for k, n in _poor(train_labels, max(shots)).items()},
        neighbour_accuracy(*given, count=NEIGHBOURS),
    )


def _poor(labels, shots):
    """Returns the number of examples of each class that has fewer than `shots`, but any."""
    counts = np.unique(labels, return_counts=True)
    return {int(k): int(n) for k, n in zip(*counts, strict=True) if n < shots}


def _checked(features: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns features `(N, D)` and class indices `(N,)` as arrays.

    Raises:
        ValueError: If shapes do not fit, labels are not class indices, or a feature is not
            finite.
    """
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
