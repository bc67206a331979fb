"""Temperature scaling (Guo et al., 2017, arXiv:1706.04599)."""

from __future__ import annotations

import numpy as np

_RANGE = (0.05, 20.0)  # Bounds of 1 / T.


def scaled_probabilities(
    logits: np.ndarray, temperature: float, *, is_multilabel: bool = False
) -> np.ndarray:
    """Returns softmax(z / T) of each row, or of multi-label logits sigmoid(z / T).

    Args:
        logits: z, `(N, K)`.
        temperature: T, positive.
        is_multilabel: Whether an image may have several of the K labels.

    Returns:
        float64 `(N, K)`.
    """
    scaled = np.asarray(logits, "float64") / temperature
    if is_multilabel:
        return np.exp(-np.logaddexp(0, -scaled))
    exponentials = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the temperature with the least cross-entropy; one for all classes or labels.

    Labels count as probabilities that leave 1 / (N + 2) to the other answers (Platt, 1999), so that
    a few images, all of them right, do not give certainty.

    Args:
        logits: `(N, K)`.
        labels: Class numbers `(N,)`, or multi-label zeros and ones `(N, K)`.

    Returns:
        T, from 0.05 to 20.

    Raises:
        ValueError: If there are no images.
    """
    scores, labels = np.asarray(logits, "float64"), np.asarray(labels)
    if not len(scores):
        raise ValueError("A temperature must be fitted to images. Received: none")
    rest = 1 / (len(scores) + 2)
    is_multilabel = labels.ndim == 2
    if is_multilabel:
        targets = np.where(labels > 0, 1 - rest, rest)
    else:
        targets = np.full(scores.shape, rest / scores.shape[1])
        targets[np.arange(len(labels)), labels] += 1 - rest

    def slope(factor):  # The derivative of the cross-entropy, which is convex in 1 / T.
        probabilities = scaled_probabilities(scores, 1 / factor, is_multilabel=is_multilabel)
        return ((probabilities - targets) * scores).sum()

    low, high = _RANGE
    if slope(low) >= 0:
        return 1 / low
    if slope(high) <= 0:
        return 1 / high
    import scipy.optimize  # Not in the runtime, which fits none.

    return 1 / scipy.optimize.brentq(slope, low, high, xtol=1e-9)
