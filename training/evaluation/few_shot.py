"""Few-shot linear evaluation: least squares on frozen features, in closed form.

Paper, section 4.1; the constants are from the official evaluator, big_vision's
`fewshot_lsr`.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import scipy.linalg

from keras_vit.configs import FEATURES
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.predictor import Predictor
from keras_vit.reports.report import NamedFact, Report, Table
from keras_vit.training.data import Source
from keras_vit.training.data.examples import places_by_class, task_of
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.data.things import unit_numbers

from .measures import accuracy_text, independent_images
from .predictions import features_of
from .results import L2, SEEDS, SHOTS

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

    The smaller of the two systems is solved, by its eigenvalues as in the official code, in the
    precision of the features: float32 for a model's. There LAPACK's divide and conquer, which JAX
    calls too, nearly reproduces that code's rounding: of 45 pairs of numbers of shots and `l2`, 41
    gave its accuracy exactly, and 4 differed by 1 to 4 of 700 test examples. The rounding can
    change the class of an example whose best two scores differ by less than about 1e-3; float64 is
    free of it.

    Args:
        features: Training features `(N, D)`, float32 or float64.
        labels: Their class indices `(N,)`.
        l2: Regularisation, positive.

    Raises:
        ValueError: If shapes do not fit, labels are not class indices, or a feature is not
            finite.
    """

    def __init__(self, features: npt.ArrayLike, labels: npt.ArrayLike, *, l2: float = L2):
        values, classes = _checked(features, labels)
        if not l2 > 0:
            raise ValueError(f"l2 must be positive. Received: l2={l2}")
        values = values.astype(np.result_type(values, "float32"), copy=False)
        self._mean = values.mean(axis=0)
        self._std = values.std(axis=0) + values.dtype.type(STD_EPSILON)
        x = self._standardize(values)  # (N, D + 1)
        y = np.full((len(x), classes.max() + 1), -1, x.dtype)
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
) -> float:
    """Returns the test accuracy of a few-shot linear map, in float32 as the official code computes.

    Args:
        train_features: `(N, D)`.
        train_labels: Class indices `(N,)`.
        test_features: `(M, D)`.
        test_labels: Class indices `(M,)`.
        shots: Training examples per class, or all of a class that has fewer; None takes all.
        seed: Seed of their choice.
        l2: Regularisation, positive; see `LinearMap`.

    Returns:
        A float in [0, 1].

    Raises:
        ValueError: If a class of the test set is missing in the training set, or if shapes do
            not fit.
    """
    arrays = train_features, train_labels, test_features, test_labels
    return float(np.mean(right_answers(*arrays, shots=shots, seed=seed, l2=l2)))


def right_answers(
    train_features: npt.ArrayLike,
    train_labels: npt.ArrayLike,
    test_features: npt.ArrayLike,
    test_labels: npt.ArrayLike,
    *,
    shots: int | None = None,
    seed: int = 0,
    l2: float = L2,
) -> np.ndarray:
    """Returns whether each test image is answered rightly, bool `(M,)`; as `accuracy`."""
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
    predicted = LinearMap(train.astype("float32"), train_classes, l2=l2).predict(test)
    return predicted == test_classes


@dataclasses.dataclass(frozen=True)
class FewShotReport:
    """Few-shot accuracies of a model; `str` gives the table.

    Args:
        accuracies: By shots, then by seed.
        num_train: Images that the shots were chosen from.
        num_test: Test images.
        poor: Training images of each class that has fewer than the largest number of shots.
        feature: One of `configs.FEATURES`.
        dim: Size of the feature, D.
        l2: Regularisation.
        skipped: `(path, reason)` of images that could not be read.
        num_new: Test images of things that no image to choose from shows; None where it is not
            known.
        on_new_things: The accuracies on these images alone; {} where they are none or all.
        independent: Independent images that the test images are worth, by shots; {}: all of them.
        independent_new: The same of the images of new things.
    """

    accuracies: dict[int, dict[int, float]]
    num_train: int
    num_test: int
    poor: Mapping[str, int]
    feature: str
    dim: int
    l2: float
    skipped: tuple[tuple[str, str], ...] = ()
    num_new: int | None = None
    on_new_things: Mapping[int, Mapping[int, float]] = dataclasses.field(default_factory=dict)
    independent: Mapping[int, int] = dataclasses.field(default_factory=dict)
    independent_new: Mapping[int, int] = dataclasses.field(default_factory=dict)

    def facts_of_new_things(self, shots: int, seed: int) -> dict[str, dict[str, float | None]]:
        """Returns the accuracy on images of new things for a result file; {} if not known."""
        if self.num_new is None:
            return {}
        right = self.on_new_things.get(shots, self.accuracies[shots])[seed]
        return {"new_things": {"images": self.num_new, "right": right if self.num_new else None}}

    def _about_new_things(self):
        """A fact on the images of new things, where others are tested too."""
        if self.num_new == 0:
            text = (
                "none of the test images shows a thing that is not among the images to choose "
                "from: this says nothing about new things"
            )
            return [NamedFact("things", text)]
        means = {k: statistics.fmean(each.values()) for k, each in self.on_new_things.items()}
        if not means:
            return []
        right = [
            f"{accuracy_text(mean, self.independent_new.get(k, self.num_new or 0))} for {k}"
            for k, mean in means.items()
        ]
        text = (
            f"{self.num_new} of the test images show things that are not among the images to "
            f"choose from; right of these, by shots: {', '.join(right)}"
        )
        return [NamedFact("things", text)]

    def report(self) -> Report:
        """Returns the facts and the table by shots."""
        rows = []
        for shots, by_seed in self.accuracies.items():
            images = self.independent.get(shots, self.num_test)
            mean, *each = (
                accuracy_text(value, images)
                for value in (statistics.fmean(by_seed.values()), *by_seed.values())
            )
            rows.append((shots, mean, "  ".join(each)))
        tested = f"{self.num_test} to test (each once), {self.num_train} to choose from"
        facts = [
            NamedFact("feature", f"{self.feature}, {self.dim} numbers, l2 {self.l2:g}"),
            NamedFact("images", tested),
        ]
        if least := min([n for n in self.independent.values() if n < self.num_test], default=0):
            text = (
                f"photos of one thing count together: intervals of {least} independent images or "
                "more"
            )
            facts.append(NamedFact("things", text))
        notes = [
            f"class {name} has {count} training images: all are taken for more shots"
            for name, count in self.poor.items()
        ]
        table = Table(("shots", "mean (95% interval)", "by seed"), rows)
        notes += describe_skipped(self.skipped)
        main = self._about_new_things()
        return Report(facts, {"few_shot": table}, "few_shot", notes, main)

    def __str__(self) -> str:
        return str(self.report())


def evaluate(
    model: Predictor,
    source: Source,
    *,
    shots: Sequence[int] = SHOTS,
    seeds: Sequence[int] = SEEDS,
    l2: float = L2,
    feature: str = FEATURES[0],
    batch_size: int = 32,
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
        feature: One of `configs.FEATURES`.
        batch_size: Images in a batch.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: If the model lacks the feature, the data have no test images, or a class of
            the test images has no training image.

    Example:
    >>> model = build_evaluated("ViT-B/16", weights="imagenet21k", evaluation="resize_central_crop")
    >>> print(few_shot.evaluate(model, open_source("tfds:oxford_iiit_pet"), shots=[5]))
    """
    train, test, names = source.splits["train"], source.splits.get("test"), source.class_names
    if not shots or min(shots) < 1:
        raise ValueError(f"shots must be numbers of at least 1. Received: {list(shots)}")
    if task_of(train.labels) == MULTILABEL:
        raise ValueError("Few-shot evaluation needs one class an image. Received: multi-label data")
    if test is None or not len(test):
        raise ValueError("Few-shot evaluation needs test images. Received: data without any")
    if len(absent := np.setdiff1d(test.labels, train.labels)):  # Before features are computed.
        raise ValueError(
            "Every class of the test images must have a training image. Received: none of "
            f"{', '.join(names[k] for k in absent[:10])}"
        )
    fitted, tested = (
        features_of(model, part, feature=feature, batch_size=batch_size, progress=progress)
        for part in (train, test)
    )
    arrays = fitted.values, fitted.labels, tested.values, tested.labels
    right = {
        count: {seed: right_answers(*arrays, shots=count, seed=seed, l2=l2) for seed in seeds}
        for count in shots
    }
    is_new, num_new = np.ones(len(test), bool), None
    if source.things is not None:
        is_new = ~np.isin(source.things.of(test), source.things.of(train))
        num_new = int(is_new.sum())
    counts = zip(*np.unique(fitted.labels, return_counts=True), strict=True)
    everything, units = np.ones(len(test), bool), unit_numbers(test, source)
    has_both = bool(num_new and num_new < len(test))
    return FewShotReport(
        _shares(right, everything),
        len(train),
        len(test),
        {names[k]: int(count) for k, count in counts if count < max(shots)},
        feature,
        fitted.values.shape[1],
        l2,
        tuple(source.skipped),
        num_new,
        _shares(right, is_new) if has_both else {},
        _independent(right, everything, units),
        _independent(right, is_new, units) if has_both else {},
    )


def _shares(right, chosen):
    """The share of right answers to chosen test images, by shots and by seed."""
    return {
        shots: {seed: float(np.mean(answers[chosen])) for seed, answers in by_seed.items()}
        for shots, by_seed in right.items()
    }


def _independent(right, chosen, units):
    """Independent images that chosen test images are worth, by shots, for the mean over seeds."""
    return {
        shots: independent_images(np.mean([*by_seed.values()], axis=0)[chosen], units[chosen])
        for shots, by_seed in right.items()
    }


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
