"""Evaluation of a classifier, each image counted once."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.description.class_labels import DEFAULT_THRESHOLD, Labels
from keras_vit.description.run_record import Reference, RunRecord
from keras_vit.opening import open_predictor
from keras_vit.prediction import split_answers
from keras_vit.predictor import AnyClassifier, Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples
from keras_vit.training.data.sources import with_things_among
from keras_vit.training.data.spec import IGNORED, Data, data_spec
from keras_vit.training.data.things import unit_numbers
from keras_vit.utils.progress import to_stderr

from .held_out import choose_images
from .measures import average_precision, best_threshold
from .predictions import predictions_of, without
from .reports import EvaluationReport
from .reports_by_task import ClassificationReport, MultilabelReport

if TYPE_CHECKING:
    import keras

LEAST_PROBABILITY = 1e-7  # In the logarithm of a loss; the epsilon of Keras's configuration.


def evaluate(
    model: keras.Model,
    examples: Examples,
    labels: Labels,
    *,
    preprocessing: Preprocessing,
    batch_size: int = 32,
    skip_unreadable: bool = False,
    from_logits: bool = False,
    progress: bool = False,
) -> EvaluationReport:
    """Evaluates a model on every example exactly once.

    The probabilities of multi-label images are all in memory, 4 bytes each.

    Args:
        model: From images to probabilities `(B, K)`, or to logits. If it abstains, `(B, K + 1)`.
        examples: The examples, labelled with the numbers of the model's outputs.
        labels: What the outputs are: the names, the task, thresholds, whether the last one is
            "unknown".
        preprocessing: How an image becomes the model's input; see `evaluation_batches`.
        batch_size: Images in a batch; does not change the results.
        skip_unreadable: Whether image files that cannot be read are left out and reported as
            skipped; else they are an error.
        from_logits: Whether the model's outputs are logits.
        progress: Whether to show a line with the rate and the time left.

    Returns:
        The report.

    Raises:
        ValueError: If there are no examples, or not every example was counted once.
        NonFiniteScores: If an output is NaN or infinite; a ValueError.
    """
    unreadable: list[tuple[int, str]] = []
    began = time.monotonic()
    outputs = predictions_of(
        model,
        examples,
        preprocessing=preprocessing,
        batch_size=batch_size,
        progress="evaluate" if progress else None,
        unreadable=unreadable if skip_unreadable else None,
    )
    report_of = _multilabel_report if labels.is_multilabel else _classification_report
    report = report_of(outputs, labels, from_logits)
    examples, skipped = without(examples, unreadable)
    return dataclasses.replace(
        report,
        examples=examples,
        preprocessing=preprocessing,
        skipped=tuple(skipped),
        images_per_second=len(examples) / max(time.monotonic() - began, 1e-9),
    )


def _classification_report(outputs, labels: Labels, from_logits):
    """Returns the report of images with one class; the outputs of a batch are not kept."""
    in_top_5, loss = 0, 0.0
    answers = []
    for scores, true in outputs:
        scores = scores.astype(np.float64)
        is_answered = np.ones(len(true), bool)
        if labels.abstains:
            scores, is_unknown = split_answers(scores)
            is_answered = ~is_unknown
        rows, given = np.arange(len(true)), scores.argmax(axis=1)
        in_top_5 += int(_is_in_top(5, scores, true).sum())
        if from_logits:
            shifted = scores - scores.max(axis=1, keepdims=True)
            logarithms = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            loss -= float(logarithms[rows, true].sum())
            scores = np.exp(logarithms)
        else:
            # Clipped for the loss alone: 1e-7 in each of many classes adds up.
            loss -= float(np.log(np.maximum(scores[rows, true], LEAST_PROBABILITY)).sum())
        answers.append((true, given, scores[rows, given], is_answered))
    true, given, probability, is_answered = map(np.concatenate, zip(*answers, strict=True))
    return ClassificationReport(
        class_names=labels.names or (),
        true=true,
        given=given,
        probability=probability,
        loss=loss / len(true),
        in_top_5=in_top_5,
        is_answered=is_answered if labels.abstains else None,
    )


def _multilabel_report(outputs, labels: Labels, from_logits):
    """Returns the report of multi-label images."""
    scores, true = map(np.concatenate, zip(*outputs, strict=True))
    scores = scores.astype("float64")
    if from_logits:
        losses = np.logaddexp(0, scores) - true * scores
        scores = np.exp(-np.logaddexp(0, -scores))  # The sigmoid, without overflow.
    else:
        right = np.where(true > 0, scores, 1 - scores)
        losses = -np.log(np.maximum(right, LEAST_PROBABILITY))
    loss = float(losses.sum(axis=1).mean())
    return multilabel_report(true, scores, labels.names or (), labels.thresholds, loss=loss)


def multilabel_report(
    labels: np.ndarray,
    probabilities: np.ndarray,
    class_names: Sequence[str],
    thresholds: Sequence[float] | None = None,
    *,
    loss: float = math.nan,
) -> MultilabelReport:
    """Returns the report of probabilities that were computed already.

    Args:
        labels: Zeros and ones `(N, K)`.
        probabilities: `(N, K)`.
        class_names: The K names.
        thresholds: The probability above which an image has a label, `(K,)`; 0.5 by default.
        loss: See `MultilabelReport`.
    """
    limits = np.asarray(thresholds or [DEFAULT_THRESHOLD for _ in class_names], "float64")
    given, has = probabilities > limits, labels > 0
    of_class = list(zip(has.T, probabilities.T, strict=True))
    confidence, wrong = np.where(given, probabilities, 1 - probabilities), given != has
    highest = np.where(wrong, confidence, -1.0).max(axis=1)
    return MultilabelReport(
        class_names=tuple(class_names),
        true=has,
        given=given,
        probability=np.where(wrong.any(axis=1), highest, confidence.min(axis=1)),
        loss=loss,
        average_precisions=np.array([average_precision(*pair) for pair in of_class]),
        micro_average_precision=average_precision(has.ravel(), probabilities.ravel()),
        thresholds=limits,
        best_thresholds=tuple(best_threshold(*pair, DEFAULT_THRESHOLD) for pair in of_class),
    )


def evaluate_examples(
    classifier: Predictor,
    examples: Examples,
    class_names: Sequence[str],
    *,
    batch_size: int = 32,
    progress: bool = False,
) -> EvaluationReport:
    """Evaluates a classifier on examples; classes are matched by their names.

    Image files that cannot be read are left out and reported as skipped.

    Args:
        classifier: The classifier.
        examples: The examples.
        class_names: The classes of the examples, in the order of their numbers.
        batch_size: Images in a batch; does not change the results.
        progress: Whether to show a line with the rate and the time left.

    Raises:
        ValueError: As `evaluate`.
    """
    labels = classifier.description.labels
    numbers = np.array([classifier.class_names.index(name) for name in class_names], "int32")
    num_classes = len(classifier.class_names) if labels.is_multilabel else None
    return evaluate(
        classifier.model,
        examples.relabelled(numbers, num_classes),
        labels,
        preprocessing=classifier.preprocessing,
        batch_size=batch_size,
        skip_unreadable=True,
        progress=progress,
    )


def evaluate_classifier(
    classifier: AnyClassifier,
    data: Data,
    *,
    split: str | None = None,
    batch_size: int = 32,
    progress: bool = False,
    data_dir: str | os.PathLike | None = None,
    strict: bool = False,
    follow_symlinks: bool = False,
) -> EvaluationReport:
    """Evaluates a classifier on a data set; classes are matched by their names.

    An image that the classifier's run trained on, chose its weights by or held out is known by its
    content: the report is about the images that were held out, and images that are new to the run
    have a separate report, `report.new`. `report.split_lines` say what was evaluated and what
    was left out. Record files and exports have no such record: there the data are split anew.
    Images of one thing (copies and bursts) are looked for and counted together by the intervals;
    `DataSpec(data, copies="ignore")` counts each image.

    Args:
        classifier: A `Classifier`, or anything that `keras_vit.load_classifier` takes.
        data: A folder, a CSV file, "tfds:NAME", arrays and so on; see `open_source`. Class
            numbers in arrays follow the classifier. Or a `DataSpec`.
        split: "train", "validation", "calibration" or "test", in the run where it recorded its
            split; by default "test" if the run or the data have it, else all images.
        batch_size: Images in a batch; does not change the results.
        progress: Whether to show a line with the rate and the time left.
        data_dir: The folder of TensorFlow Datasets, or of the relative paths in a CSV file.
        strict: Whether an image that cannot be read is an error.
        follow_symlinks: Whether links in folders are followed.

    Returns:
        The report of the classifier's task.

    Raises:
        ValueError: If the data cannot be opened, lack the split, have a class that the
            classifier does not know, or are multi-label where it gives one class.
    """
    classifier = open_predictor(classifier)
    options = {"data_dir": data_dir, "strict": strict, "follow_symlinks": follow_symlinks}
    spec = data_spec(data, options)
    log = to_stderr if progress else None
    images = choose_images(classifier, spec, split, log=log)
    parts = [images.examples] if images.new is None else [images.examples, images.new]
    spec = dataclasses.replace(spec, copies=images.copies)
    source, things = with_things_among(parts, images.source, spec, log)
    images = dataclasses.replace(images, source=source, lines=(*images.lines, *things))

    class_names, new = images.source.class_names, None
    evaluated = functools.partial(
        evaluate_examples,
        classifier,
        class_names=class_names,
        batch_size=batch_size,
        progress=progress,
    )
    if images.new is not None:
        new = evaluated(images.new)
        new = dataclasses.replace(new, units=unit_numbers(new.examples, images.source))
    report = evaluated(images.examples)
    skipped = (*images.source.skipped, *report.skipped)
    recipe = RunRecord.from_json(classifier.recipe)
    tested = recipe.test or {}
    run_test = None
    if images.is_new and "top_1" in tested:
        counted = tested.get("independent_images", tested["images"])
        run_test = Reference("the test images of the run", tested["top_1"], counted)
    return dataclasses.replace(
        report,
        skipped=skipped,
        split_lines=images.lines,
        new=new,
        simple=images.simple,
        # The split line says it where all images were trained on.
        is_shown_before=None if images.is_used or report.skipped else images.seen,
        ignores_copies=images.copies == IGNORED,
        run_test=run_test,
        units=unit_numbers(report.examples, images.source),
    )


def _is_in_top(count, scores, labels):
    """Whether the score of each label is among the highest of its row, bool `(B,)`.

    Ties are ordered by class, as in argmax: a head of zeros is no better than chance.
    """
    own, labels = scores[np.arange(len(labels)), labels][:, np.newaxis], labels[:, np.newaxis]
    before = (scores > own) | ((scores == own) & (np.arange(scores.shape[1]) < labels))
    return before.sum(axis=1) < count
