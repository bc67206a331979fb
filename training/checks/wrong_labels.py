"""Images whose label is probably wrong, by predictions that did not use the image.

The images are in the order of self-confidence and margin relative to the thresholds of confident
learning (Northcutt et al., arXiv 1911.00068): the mean score of each class among its own images.
The scores are left-out predictions of a ridge regression. The probability that a label is wrong is
from a mixture that is fitted to all labels by maximum likelihood: a label follows the softmax of
the scores, or with the probability `noise` it is any other class.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize
from scipy.special import expit

_MIN_OF_LABEL = 5  # Images with and without a label; with less nothing is known of it.
_MAX_FITTED = 2**22  # Scores that the mixture is fitted to.
_START = (2.3, -4.0)  # Logarithm of the inverse temperature, and logit of the noise.


@dataclasses.dataclass(frozen=True)
class LabelDoubts:
    """How far the label of each image can be doubted.

    Args:
        proposed: The class that each image most likely has, other than its label, int `(N,)`.
        confidence: How far the score of the label is above its class's threshold, minus half of the
            same of the proposed class, `(N,)`: the mean of self-confidence and margin, which finds
            more than either. The lower, the more doubtful.
        listed: Whether the label is below its threshold and further so than the proposed class,
            `(N,)`.
        probability: Probability that the label is wrong, `(N,)`.
        noise: Share of wrong labels, by the mixture. It counts only labels that stand out.
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
    """Returns the doubts of labels with one class for each image.

    Args:
        scores: Left-out scores `(N, K)`, about 1 for the right class and 0 for the others.
        labels: Class numbers `(N,)`.
    """
    rows = np.arange(len(labels))
    counts = np.bincount(labels, minlength=scores.shape[1])
    own = scores[rows, labels]
    sums = np.bincount(labels, own, minlength=scores.shape[1])
    above = scores - sums / np.maximum(counts, 1)
    others = above.copy()
    others[rows, labels] = -np.inf
    proposed = others.argmax(axis=1)
    given, best = above[rows, labels], others[rows, proposed]
    listed = given < np.minimum(best, 0)
    probability, noise = _probabilities(scores, labels)
    return LabelDoubts(proposed, given - best / 2, listed, probability, noise)


def doubts_of_labels(scores: np.ndarray, targets: np.ndarray) -> list[LabelDoubts]:
    """Returns the doubts of multi-label data, label by label.

    Classes are 0 and 1: whether an image has the label. Nothing is doubted of a label that fewer
    than five images have, or lack.

    Args:
        scores: Left-out scores `(N, K)`.
        targets: Whether each image has each label, `(N, K)`.
    """
    found = []
    for k in range(targets.shape[1]):
        labels = targets[:, k].astype("int64")
        doubts = doubts_of_classes(np.stack([1 - scores[:, k], scores[:, k]], axis=1), labels)
        if min(labels.sum(), (1 - labels).sum()) < _MIN_OF_LABEL:
            none = np.zeros(len(labels))
            doubts = dataclasses.replace(doubts, listed=none > 0, probability=none, noise=0.0)
        found.append(doubts)
    return found


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
