"""Images whose label is probably wrong, by predictions that did not use the image.

The predictions are left-out scores of a ridge regression. Linear discriminant analysis of the
scores, with equal classes, makes probabilities of them: it knows which classes are confused, where
a softmax of the scores does not. The order is self-confidence, the probability of the label, and
the thresholds come from confident learning (Northcutt et al., arXiv 1911.00068): the mean
probability of each class among its own images.

The probability that a label is wrong is from a mixture that is fitted to the labels by maximum
likelihood: a label follows the softmax of the discriminants at some temperature, or with the
probability `noise` it is any other class. Both are fitted by turns: an image counts as much for the
means and the covariance of the analysis as its label is probably right.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize
from scipy.special import expit, log_softmax

from keras_vit.training.evaluation.ridge import one_hot

_MAX_FITTED = 2**18  # Scores that the mixture is fitted to.
_START = (-0.5, -4.0)  # Logarithm of the inverse temperature, and logit of the noise.
_FITS = 3  # Turns of the analysis and the mixture.
_PRIOR_IMAGES = 20  # In each class: few images have the means and the covariance of all classes.


@dataclasses.dataclass(frozen=True)
class LabelDoubts:
    """How far the label of each image can be doubted.

    Args:
        proposed: The class that each image most likely has, other than its label, int `(N,)`.
        confidence: The logarithm of the label's probability, `(N,)`. The lower, the more doubtful.
        listed: Whether the label is below its threshold, and another class is above its own and
            more probable, `(N,)`.
        probability: Probability that the label is wrong, `(N,)`.
        noise: Share of wrong labels, by the mixture. It counts only labels that stand out: 0
            where none is listed, as the estimate for N right labels is 1 / (N + 1).
    """

    proposed: np.ndarray
    confidence: np.ndarray
    listed: np.ndarray
    probability: np.ndarray
    noise: float

    def ranked(self) -> np.ndarray:
        """Returns the numbers of the images that are listed, the most doubtful first, `(M,)`."""
        numbers = np.flatnonzero(self.listed)
        return numbers[np.argsort(self.confidence[numbers], kind="stable")]


def doubts_of_classes(scores: np.ndarray, labels: np.ndarray) -> LabelDoubts:
    """Returns the doubts of labels.

    Args:
        scores: Left-out scores `(N, K)`, about 1 for the right class and 0 for the others.
        labels: Class numbers `(N,)`.
    """
    rows = np.arange(len(labels))
    probability = np.zeros(len(labels))
    for _ in range(_FITS):
        logits = _discriminants(scores, labels, 1 - probability)
        probability, noise = _probabilities(logits, labels)
    confidences = log_softmax(logits, axis=1)
    own = confidences[rows, labels]
    counts = np.bincount(labels, minlength=scores.shape[1])
    thresholds = np.bincount(labels, np.exp(own), scores.shape[1]) / np.maximum(counts, 1)
    others = confidences.copy()
    others[rows, labels] = -np.inf
    proposed = others.argmax(axis=1)
    best = others[rows, proposed]
    below = (own < best) & (np.exp(own) < thresholds[labels])
    listed = below & (np.exp(best) >= thresholds[proposed] * (1 - 1e-9))  # Rounding of a sum.
    return LabelDoubts(proposed, own, listed, probability, noise if listed.any() else 0.0)


def _discriminants(scores, labels, shares):
    """Returns logits of linear discriminant analysis with equal classes, `(N, K)`.

    An image counts as its share, `(N,)`.
    """
    classes, total = scores.shape[1], shares.sum()
    own = one_hot(labels, classes) * shares[:, np.newaxis]
    mean_own = (own * scores).sum() / total
    mean_other = ((shares @ scores).sum() / total - mean_own) / (classes - 1)
    prior = np.where(np.eye(classes, dtype=bool), mean_own, mean_other)
    images = own.sum(axis=0)[:, np.newaxis]
    means = (own.T @ scores + _PRIOR_IMAGES * prior) / (images + _PRIOR_IMAGES)
    deviations = scores - means[labels]
    squares = (deviations * shares[:, np.newaxis]).T @ deviations
    images = classes * _PRIOR_IMAGES
    variance = max(np.trace(squares) / (total * classes), 1e-12)
    squares += images * variance * np.eye(classes)
    directions = np.linalg.solve(squares / (total + images), means.T)
    return scores @ directions - (means.T * directions).sum(axis=0) / 2


def _probabilities(scores, labels):
    """Returns the probability that each label is wrong, and the share of wrong labels."""
    others = scores.shape[1] - 1
    relative = scores - scores[np.arange(len(labels)), labels][:, np.newaxis]

    def likelihoods(relative, sharpness):
        with np.errstate(over="ignore"):  # Infinity is the reciprocal of a likelihood of 0.
            own = 1 / np.exp(relative * np.exp(sharpness)).sum(axis=1)  # The label's softmax.
        return own, (1 - own) / others  # Every other class gives this label alike.

    step = max(1, scores.size // _MAX_FITTED)
    some = relative[::step]

    def loss(parameters):
        right, wrong = likelihoods(some, parameters[0])
        noise = expit(parameters[1])
        # As if one wrong label more had been seen: a few images cannot show that there is none.
        first = np.log(noise) / len(some)
        return -np.log((1 - noise) * right + noise * wrong + 1e-12).mean() - first

    best = optimize.minimize(
        loss, _START, method="Nelder-Mead", options={"xatol": 0.01, "fatol": 1e-6, "maxiter": 100}
    )
    right, wrong = likelihoods(relative, best.x[0])
    noise = float(expit(best.x[1]))
    probability = noise * wrong / np.maximum((1 - noise) * right + noise * wrong, 1e-300)
    return probability, noise
