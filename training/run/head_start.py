"""The start of a head: a linear probe in closed form, before all weights are fine-tuned.

Linear probing, then fine-tuning (Kumar et al. 2022, arXiv 2202.10054): from a head of zeros the
first steps change features that were good already.
"""

from __future__ import annotations

import math

import keras
import numpy as np
import scipy.optimize
import scipy.special

from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.run_record import Fact, Reference
from keras_vit.models.rebuild import head_of
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Source
from keras_vit.training.data.things import unit_numbers
from keras_vit.training.evaluation.references import (
    MAX_SIMPLE,
    beside_references,
    expected_accuracy,
    most_frequent,
    reference_of_files,
)
from keras_vit.training.evaluation.ridge import L2_SHARES, Decomposition, one_hot
from keras_vit.training.evaluation.scores import compute_scores, spaced

from .plan import Plan, Stage

CLEARLY = 2.0  # Standard errors by which the probe must be better.
# The share of the probe's logits that fine-tuning starts with. All of them fit the training images
# so well that no gradient is left for the features; measured in docs/finetune.md.
SHARE_OF_LOGITS = 0.3
MAX_IMAGES = 16_384  # Whose features the probe is solved from,
MAX_SIZED = 300  # and by which an image size is chosen.
MAX_TARGETS = 50_000_000  # Images of the probe times the number of classes: 0.4 GB.
_CHUNK = 2**20  # Scores, images times classes, whose losses are computed at once.


class SimpleReference(Stage):
    """Before training: what simple numbers of the training photos reach, of one label each."""

    @classmethod
    def prepare(cls, weights, images, settings, begun):
        is_wanted = images.source.task != MULTILABEL
        return cls() if is_wanted else None

    def before(self, plan, model, facts, *, progress):
        simple = reference_of_training(plan.source, plan.preprocessing.bit_depth)
        if simple is None:
            return {}
        count = min(len(plan.source.splits["train"]), MAX_SIMPLE)
        reason = f"{simple.name}, of {count} training images that are left out"
        return {"simple_numbers": Fact(f"{simple.accuracy:.1%} right", reason, reference=simple)}


def reference_of_training(source: Source, bit_depth: int) -> Reference | None:
    """Returns what simple numbers of the training photos reach, groups left out together.

    Args:
        source: The photos.
        bit_depth: Bits of the values of 16-bit photos.

    Returns:
        The reference; None of multi-label photos, and of photos of one group.
    """
    if source.task == MULTILABEL:
        return None
    examples, groups = _some_images(source, MAX_SIMPLE)
    if not groups.any():
        return None
    images = (encoded for encoded, _ in examples.encoded())
    return reference_of_files(images, examples.labels, groups, bit_depth)


class HeadStart(Stage):
    """Before training: a linear probe as the head.

    Not where the settings want zeros or the rows of the weights, the weights are random, or the
    head is extended: then the images of the former classes may be missing.
    """

    facts = {"head_start": Fact("linear probe", "solved before the first step")}

    @classmethod
    def prepare(cls, weights, images, settings, begun):
        is_wanted = (
            settings.head_start == "probe" and settings.head != "keep" and not settings.extends_head
        )
        has_two_heads = (
            getattr(weights.description.config, "classifier", "") == "token+distillation"
        )
        if not is_wanted or has_two_heads or weights.is_random or images.counts["train"] < 2:
            return None
        return cls()

    def before(self, plan, model, facts, *, progress):
        simple = facts.get("simple_numbers")
        return {"head_start": start_head(model, plan, simple, progress=progress)}


def start_head(
    model: keras.Model, plan: Plan, simple: Fact | None = None, *, progress: bool = False
) -> Fact:
    """Gives a model's head the weights of a linear probe, where they are better than its own.

    The probe is the ridge regression of the labels from the features of the training images, as
    the model sees them in evaluation. Its logits are the scores times a number, plus another one
    of multi-label data; both, and the regularisation, are chosen by the predictions of images
    that are left out. It takes the place of the head, which has zeros or the rows of the weights
    for classes of the same name, if its cross-entropy of the left-out images is clearly lower
    than the head's, which has not seen them either: there are ten times as many training images
    as validation images. Of images with one label it starts with `SHARE_OF_LOGITS`.

    Args:
        model: The model with its first weights, which gives logits.
        plan: Its plan, with a `HeadStart`.
        simple: The fact about simple numbers of the photos.
        progress: Whether to show a line while features are computed.

    Returns:
        The fact for the plan, with the reason as its origin.
    """
    head = "zeros" if plan.head == "new" else "the rows of the weights"
    classes, count = len(plan.source.class_names), len(plan.source.splits["train"])
    most = min(MAX_IMAGES, max(MAX_TARGETS // classes, 2))
    if most < min(2 * classes, count):
        of = f"at most {math.isqrt(MAX_TARGETS // 2):,} classes or {most:,} images of {classes:,}"
        return Fact(head, f"a linear probe is solved for {of}")
    examples, groups = _some_images(plan.source, most)
    if not groups.any():
        return Fact(head, "one group of images, which cannot be left out")
    scores = compute_scores(
        model,
        examples,
        plan.preprocessing,
        batch_size=plan.settings.micro_batch_size,
        progress=progress,
    )
    targets, ridge = _probe(scores, plan.source, groups)
    if ridge is None:
        return Fact(head, "the features of all training images are equal")
    several = plan.source.task == MULTILABEL
    losses, scale, shift = fit_logits(ridge.left_out_predictions, targets, several)
    own_losses, *_ = fit_logits(scores.logits, targets, several)
    gains = own_losses - losses
    reason = (
        f"cross-entropy of {len(examples)} training images, each left out: {losses.mean():.3g}, "
        f"with {head} {own_losses.mean():.3g}"
    )
    probed = None
    if not several:
        right = ridge.left_out_predictions.argmax(axis=1) == scores.labels
        accuracy, low, _ = expected_accuracy(right.astype("float64"), groups)
        probed = Reference("by a linear probe of left-out training images", accuracy)
    if simple is not None and simple.reference is not None:
        references = [most_frequent(scores.labels, plan.source.class_names), simple.reference]
        reason += f"; {accuracy:.1%} of them right; {beside_references(accuracy, low, references)}"
    if gains.mean() <= CLEARLY * gains.std() / math.sqrt(len(gains)):
        return Fact(head, reason.replace(": ", ", by a linear probe: ", 1), reference=probed)
    if not several:
        scale *= SHARE_OF_LOGITS
    kernel, bias = head_of(model).weights
    kernel.assign(scale * ridge.weights)
    bias.assign(scale * ridge.constant + shift)
    return Fact("linear probe", reason, reference=probed)


def _some_images(source, most):
    """Returns at most so many training images, and the number of the group or thing of each."""
    examples = spaced(source.splits["train"], most)
    return examples, unit_numbers(examples, source)


def _probe(scores, source, groups):
    """Returns targets, and the ridge regression from features; None if all features are equal."""
    targets = scores.labels.astype("float64")
    if source.task != MULTILABEL:
        targets = one_hot(scores.labels, len(source.class_names))
    if np.ptp(scores.features, axis=0).max() == 0:
        return targets, None
    decomposition = Decomposition(scores.features)
    ridge = decomposition.ridge(targets, decomposition.l2_of(L2_SHARES), groups=groups)
    return targets, ridge


def left_out_answers(
    model: keras.Model,
    source: Source,
    preprocessing: Preprocessing,
    batch_size: int,
    *,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether a linear probe is right about images that it left out, and their groups.

    Args:
        model: As for `start_head`.
        source: The photos, of one class each.
        preprocessing: How they become the model's input.
        batch_size: Images whose features are computed at once.
        progress: Whether to show a line while features are computed.
    """
    examples, groups = _some_images(source, MAX_SIZED)
    scores = compute_scores(
        model, examples, preprocessing, batch_size=batch_size, progress=progress
    )
    _, ridge = _probe(scores, source, groups)
    if ridge is None:
        return np.zeros(len(groups), bool), groups
    return ridge.left_out_predictions.argmax(axis=1) == scores.labels, groups


def fit_logits(
    scores: np.ndarray, targets: np.ndarray, several: bool
) -> tuple[np.ndarray, float, float]:
    """Returns each image's cross-entropy of logits `a scores + b`, which is least, a > 0 and b.

    Args:
        scores: `(N, K)`.
        targets: 0 or 1, `(N, K)`.
        several: Whether the data are multi-label: then each class has a sigmoid, and the
            cross-entropy is the sum over the classes. Else b is 0.

    One image more, of all classes alike, is in the targets (as in Platt 1999): else images that
    are all right would want an endless a.
    """
    count, classes = targets.shape
    more = 0.5 if several else 1 / classes  # The image more.
    rows = max(1, _CHUNK // classes)
    chunks = [slice(start, start + rows) for start in range(0, count, rows)]

    def of_chunk(values, chunk):
        """The losses of some images, and the sums of their derivatives by log a and b."""
        scaled = np.exp(values[0]) * scores[chunk].astype("float64")
        wanted = (count * targets[chunk] + more) / (count + 1)
        if several:
            logits = scaled + values[1]
            losses = (np.logaddexp(0, logits) - wanted * logits).sum(axis=1)
            errors = scipy.special.expit(logits) - wanted
        else:
            totals = scipy.special.logsumexp(scaled, axis=1, keepdims=True)
            losses = totals[:, 0] - (wanted * scaled).sum(axis=1)
            errors = np.exp(scaled - totals) - wanted
        return losses, np.array([(errors * scaled).sum(), errors.sum()])

    def mean_loss(values):
        loss, derivatives = 0.0, np.zeros(2)
        for chunk in chunks:
            of_images, of_values = of_chunk(values, chunk)
            loss, derivatives = loss + of_images.sum(), derivatives + of_values
        return loss / count, derivatives[: len(values)] / count

    start = np.zeros(2 if several else 1)
    best = scipy.optimize.minimize(mean_loss, start, jac=True)
    log_scale, *shift = best.x.tolist()
    losses = np.concatenate([of_chunk(best.x, chunk)[0] for chunk in chunks])
    return losses, float(np.exp(log_scale)), shift[0] if shift else 0.0
