"""Images whose label is probably wrong, by predictions that did not use the image.

The predictions are left-out scores of a ridge regression. Linear discriminant analysis of the
scores, with equal classes, makes logits of them. It is fitted to the images whose label agrees with
the scores: wrong labels move and widen the classes, and the mixture below could not tell them from
a blunt classifier.

The mixture is fitted to all labels by maximum likelihood: a label is the image's class, which
follows the softmax of the logits at some temperature, or with the probability `noise` it is another
class. Some wrong labels fall on the pairs of classes that are seen most often, the others on all
alike: with the pairs alone, the confusions of weak features would be taken for wrong labels.

Features that hardly tell classes apart look like wrong labels too. So the same is done with drawn
scores, normal with the mean of each class and one covariance, whose labels are right: where they
would have many wrong labels, the real ones are not judged (a parametric bootstrap).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize
from scipy.special import expit, softmax

from keras_vit.training.evaluation.ridge import one_hot

LISTED = 0.25  # Probability of a wrong label from which an image is listed.
MIN_IMAGES = 20  # In a class, on average, for an estimated share of wrong labels.

# For each class of a pair, the mean share of images that are nearer to their label: below it,
# the two are called confused. Chance is 0.5; labels of which a fifth is swapped have at most 0.8.
LEAST_APART = 0.8
# Drawn right labels may seem wrong as often as this, as this share of the estimate,
# or as this number of images.
_FALSE, _FALSE_SHARE, _FALSE_IMAGES = 0.002, 0.25, 1.5
_DRAWS, _MAX_DRAWN = 3, 5000

_BY_PAIRS = 0.15  # Share of the wrong labels that follows the counted pairs.
_MAX_FITTED = 2**18  # Scores that the mixture is fitted to.
_START = (-0.5, -4.0)  # Logarithm of the inverse temperature, and logit of the noise.
_PRIOR_IMAGES = 20  # In each class: few images have the means and the covariance of all classes.


@dataclasses.dataclass(frozen=True)
class LabelDoubts:
    """How far the label of each image can be doubted.

    Args:
        proposed: The class that each image most likely has, other than its label, int `(N,)`.
        probability: Probability that the label is wrong, `(N,)`.
        noise: Share of wrong labels, a lower bound: as many as are expected among the listed
            images. None for fewer than `MIN_IMAGES` a class.
        is_judged: Whether the features tell wrong labels from right ones.
        confused: Pairs of classes that the features confuse, and how far they differ, the
            worst first. Wrong labels between them are not seen.
    """

    proposed: np.ndarray
    probability: np.ndarray
    noise: float | None
    is_judged: bool
    confused: list[tuple[int, int, float]]

    def ranked(self) -> np.ndarray:
        """Returns the numbers of the images that are listed, the most doubtful first, `(M,)`."""
        order = np.argsort(-self.probability, kind="stable")
        return order[self.probability[order] >= LISTED]


def doubts_of_classes(scores: np.ndarray, labels: np.ndarray) -> LabelDoubts:
    """Returns the doubts of labels.

    Args:
        scores: Left-out scores `(N, K)`, about 1 for the right class and 0 for the others.
        labels: Class numbers `(N,)`.
    """
    images, classes = scores.shape
    logits, probability, centred = _doubts(scores, labels)
    expected = _expected(probability)
    wins = centred[np.arange(images), labels][:, np.newaxis] > centred
    counts = np.bincount(labels, minlength=classes)[:, np.newaxis]
    rates = np.where(counts > 0, one_hot(labels, classes).T @ wins / np.maximum(counts, 1), 1)
    apart = (rates + rates.T) / 2
    pairs = np.argwhere(np.triu(apart < LEAST_APART, 1)).tolist()
    return LabelDoubts(
        logits.argmax(axis=1),
        probability,
        expected if images >= MIN_IMAGES * classes else None,
        _false_share(scores, labels)
        <= max(_FALSE, _FALSE_SHARE * expected, _FALSE_IMAGES / images),
        sorted(((i, j, float(apart[i, j])) for i, j in pairs), key=lambda pair: pair[2]),
    )


def _doubts(scores, labels):
    """Returns logits without each label's own, probabilities of wrong labels, centred scores."""
    own = one_hot(labels, scores.shape[1])
    # Scores of a class of few images are low.
    centred = scores - (own * scores).sum(axis=0) / np.maximum(own.sum(axis=0), 1)
    best = centred.argmax(axis=1)
    agrees = best == labels
    logits = _discriminants(scores, scores[agrees], own[agrees])
    probability = _probabilities(logits, labels, _wrong_labels(one_hot(best, own.shape[1]), own))
    logits[np.arange(len(labels)), labels] = -np.inf
    return logits, probability, centred


def _expected(probability):
    """Returns how many images of the listed are expected to be wrong, as a share of all."""
    return float(probability[probability >= LISTED].sum()) / len(probability)


def _false_share(scores, labels):
    """Returns the estimated share of wrong labels of drawn images, whose labels are right."""
    own = one_hot(labels, scores.shape[1])
    means = own.T @ scores / np.maximum(own.sum(axis=0), 1)[:, np.newaxis]
    covariance = np.cov((scores - means[labels]).T, bias=True)
    shares, rng = [], np.random.default_rng(0)
    for _ in range(_DRAWS):
        some = labels[rng.permutation(len(labels))[:_MAX_DRAWN]]
        noise = rng.multivariate_normal(np.zeros(len(means)), covariance, len(some), method="eigh")
        shares.append(_expected(_doubts(means[some] + noise, some)[1]))
    return float(np.mean(shares))


def _discriminants(scores, typical, own):
    """Returns logits of linear discriminant analysis with equal classes, `(N, K)`.

    It is fitted to the scores `typical` `(M, K)` of images of the classes `own`, one-hot `(M, K)`.
    """
    classes, total = scores.shape[1], max(len(typical), 1)
    mean_own = (own * typical).sum() / total
    mean_other = (typical.sum() / total - mean_own) / (classes - 1)
    prior = np.where(np.eye(classes, dtype=bool), mean_own, mean_other)
    images = own.sum(axis=0)[:, np.newaxis]
    means = (own.T @ typical + _PRIOR_IMAGES * prior) / (images + _PRIOR_IMAGES)
    deviations = typical - own @ means
    squares = deviations.T @ deviations
    images = classes * _PRIOR_IMAGES
    variance = max(np.trace(squares) / (total * classes), 1e-12)
    squares += images * variance * np.eye(classes)
    directions = np.linalg.solve(squares / (total + images), means.T)
    return scores @ directions - (means.T * directions).sum(axis=0) / 2


def _wrong_labels(best, own):
    """Returns how likely each label is, if it is wrong, for each class of the image, `(K, K)`."""
    others = 1 - np.eye(own.shape[1])
    alike = others / others.sum(axis=1)
    counts = best.T @ own * others
    pairs = (counts + alike) / (counts.sum(axis=1, keepdims=True) + 1)
    return _BY_PAIRS * pairs + (1 - _BY_PAIRS) * alike


def _probabilities(logits, labels, wrong_labels):
    """Returns the probability that each label is wrong."""
    to_label = wrong_labels.T[labels]

    def likelihoods(sharpness, step=1):
        classes = softmax(logits[::step] * np.exp(sharpness), axis=1)
        right = classes[np.arange(len(classes)), labels[::step]]
        return right, (classes * to_label[::step]).sum(axis=1)

    step = max(1, logits.size // _MAX_FITTED)

    def loss(parameters):
        right, wrong = likelihoods(parameters[0], step)
        noise = expit(parameters[1])
        # As if one wrong label more had been seen: a few images cannot show that there is none.
        first = np.log(noise) / len(right)
        return -np.log((1 - noise) * right + noise * wrong + 1e-12).mean() - first

    sharpness, logit = optimize.minimize(
        loss, _START, method="Nelder-Mead", options={"xatol": 0.01, "fatol": 1e-6, "maxiter": 100}
    ).x
    right, wrong = likelihoods(sharpness)
    right, wrong = expit(-logit) * right, expit(logit) * wrong
    return wrong / np.maximum(right + wrong, 1e-300)
