"""Distillation: a student learns from the labels and from a teacher's classifier."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.description.class_labels import MULTICLASS
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.keras_private import penalty
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_model
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.evaluation.predictions import weights_hash
from keras_vit.training.settings.jobs import DISTILLATIONS
from keras_vit.training.trainer.trainer import Trainer

from .machine import dtype_policy
from .plan import Stage


class Distillation(keras.losses.Loss):
    """The loss of a student's logits z against a teacher's logits t.

        soft: T^2 * KL(softmax(t / T) || softmax(z / T))    Hinton et al., arXiv 1503.02531
        hard: -log softmax(z)_k,  k = argmax t              DeiT, arXiv 2012.12877, equation 3

    averaged over the examples. T^2 keeps the size of the gradients at any temperature.

    Args:
        kind: "soft" or "hard".
        temperature: T, used by "soft".
        **kwargs: Passed to `keras.losses.Loss`.
    """

    def __init__(self, kind: str = "soft", temperature: float = 3.0, **kwargs: object):
        super().__init__(**{"name": "distillation", **kwargs})
        self.kind = kind
        self.temperature = temperature

    def call(self, y_true, y_pred):
        if self.kind == "hard":
            classes = ops.argmax(y_true, axis=-1)
            labels = ops.one_hot(classes, y_pred.shape[-1], dtype=y_pred.dtype)
            return -ops.sum(labels * ops.log_softmax(y_pred), axis=-1)
        teacher, student = (ops.log_softmax(z / self.temperature) for z in (y_true, y_pred))
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)


class DistillationTrainer(Trainer):
    """Trains a model, the student, to give the labels and the answers of a teacher.

        loss = (1 - w) * (the compiled loss against the labels) + w * distillation + penalties

    The teacher sees the same augmented and mixed images as the student. A student with a
    distillation token learns the labels with the head of its class token and the teacher with the
    head of its distillation token; it predicts with their mean. Evaluation and metrics are
    against the labels alone.

    The teacher is frozen. It is no part of the training state, the averages or the optimizer.

    Args:
        model: The student, a functional model that gives logits `(B, K)`.
        teacher: A model from the student's images to logits `(B, K)` of the same classes.
        distillation: "soft" or "hard", see `Distillation`.
        distillation_weight: w, in [0, 1].
        temperature: T of "soft".
        **kwargs: See `Trainer`.

    Raises:
        ValueError: If a value is out of range, or the classes of the two differ in number.

    Example:
    >>> student = keras_vit.build("ViT-S/16", classes=10, classifier_activation=None)
    >>> teacher = keras_vit.build("ViT-B/16", classes=10, classifier_activation=None)
    >>> trainer = DistillationTrainer(student, teacher=teacher, distillation_weight=0.5)
    >>> trainer.compile(SGD(0.03), SoftmaxCrossentropy(), metrics=["accuracy"])
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        teacher: keras.Model,
        distillation: str = "soft",
        distillation_weight: float = 0.5,
        temperature: float = 3.0,
        **kwargs: object,
    ):
        super().__init__(model, **kwargs)
        is_known = distillation in DISTILLATIONS and temperature > 0
        if not is_known or not 0 <= distillation_weight <= 1:
            raise ValueError(
                f"distillation must be one of {DISTILLATIONS}, temperature positive and "
                f"distillation_weight in [0, 1]. Received: {distillation!r}, {temperature} and "
                f"{distillation_weight}"
            )
        if teacher.output_shape[1:] != model.output_shape[1:]:
            raise ValueError(
                "Teacher and student must give logits of the same classes. "
                f"Received: outputs of shape {teacher.output_shape} and {model.output_shape}"
            )
        teacher.trainable = False
        self.teacher = teacher
        self.distillation = distillation
        self.distillation_weight = distillation_weight
        self.temperature = temperature
        layers = {layer.name: layer for layer in model.layers}
        heads = [layers.get(f"{token}_head") for token in ("class_token", "distillation_token")]
        (predictions,) = model.outputs
        of_labels, of_teacher = (head.output if head else predictions for head in heads)
        self.with_heads = keras.Model(
            model.inputs[0],
            {"predictions": predictions, "labels": of_labels, "teacher": of_teacher},
        )

    def call(self, inputs, training=False):
        return (self.with_heads if training else self.model)(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        penalties = penalty(self)
        loss = super().compute_loss(x, y, y_pred["labels"], sample_weight, training) - penalties
        first = keras.tree.flatten(self.loss)[0]
        distillation = Distillation(
            self.distillation,
            self.temperature,
            reduction=getattr(first, "reduction", "sum_over_batch_size"),
        )
        answers = ops.stop_gradient(self.teacher(x, training=False))
        taught = distillation(answers, y_pred["teacher"], sample_weight)
        own, taught = (1 - self.distillation_weight) * loss, self.distillation_weight * taught
        return own + taught + penalties

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        y_pred = y_pred["predictions"] if isinstance(y_pred, dict) else y_pred
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def state_variables(self):
        frozen = {id(weight) for weight in self.teacher.weights}
        return [v for v in super().state_variables() if id(v) not in frozen]


class Teacher(Stage):
    """During training: a teacher's classifier, fitted to the classes of a student.

    Args:
        folder: The classifier's folder, or "cifar10".
        fact: Its name and the hash of its weights, for `recipe.json`.
        rows: For each class of the student its number in the teacher.
        preprocessing: How an image becomes the teacher's input.
    """

    def __init__(
        self, folder: str, fact: Fact, rows: tuple[int, ...], preprocessing: Preprocessing
    ):
        self.folder = folder
        self.facts = {"teacher": fact}
        self.rows = rows
        self.preprocessing = preprocessing
        self.options: dict[str, Any] = {}  # Arguments of `DistillationTrainer`.

    @classmethod
    def prepare(cls, weights, images, settings, begun):
        if settings.teacher is None:
            return None
        names, fact = images.source.class_names, begun.facts.get("teacher")
        teacher = open_teacher(settings.teacher, names, fact)
        teacher.options = {
            "distillation": settings.distillation,
            "distillation_weight": settings.distillation_weight,
            "temperature": settings.temperature,
        }
        return teacher

    def trainer(self, plan):
        teacher = self.build(plan.preprocessing)
        return functools.partial(DistillationTrainer, teacher=teacher, **self.options)

    def build(self, of_student: Preprocessing) -> keras.Model:
        """Returns the model from the student's images to logits of the student's classes.

        It computes in the precision that it was saved in, whatever the student's.

        Args:
            of_student: How an image becomes the student's input.
        """
        with dtype_policy("float32"):
            images = keras.Input((*of_student.image_size, 3))
            # By channel, from the student's range of pixels to the teacher's.
            low, high, new_low, new_high = (
                np.broadcast_to(np.asarray(side, "float64"), 3)
                for side in (*of_student.value_range, *self.preprocessing.value_range)
            )
            scale = (new_high - new_low) / (high - low)
            x = images * scale.astype("float32") + (new_low - scale * low).astype("float32")
            x = _resize(x, self.preprocessing.image_size)
            taught = without_unknown(open_model(self.folder).classifier().model)
            probabilities = taught(x, training=False)
            probabilities = ops.cast(ops.take(probabilities, self.rows, axis=-1), "float32")
            # The logits up to a constant, which no softmax sees.
            logits = ops.log(ops.maximum(probabilities, np.finfo("float32").tiny))
        return keras.Model(images, logits, name="teacher")


def open_teacher(
    folder: str,
    class_names: Sequence[str],
    begun: Fact | None = None,
) -> Teacher:
    """Returns a teacher for a student, its classes matched by name.

    Args:
        folder: A classifier's folder, or "cifar10".
        class_names: Names of the student's classes.
        begun: The fact about the teacher of a run to resume, or None.

    Raises:
        ValueError: If there is no such classifier, it lacks a class of the student, it is a
            multi-label classifier, or it is not the teacher of the run.
    """
    opened = open_model(folder)
    classifier = opened.without_unknown().classifier()
    rows = {name: row for row, name in enumerate(opened.class_names or ())}
    missing = [name for name in class_names if name not in rows]
    digest, taught = weights_hash(classifier.model), classifier.preprocessing
    for wrong, what in (
        (classifier.task != MULTICLASS, "must give one class an image"),
        (missing, f"must name every class of the data, and is without {', '.join(missing[:5])}"),
        (begun and begun.sha256 != digest, "must be the one that the run was started with"),
    ):
        if wrong:
            raise ValueError(f"The teacher {what}. Received: teacher={folder}")
    name = RunRecord.from_json(classifier.recipe).model or classifier.model.name
    fact = Fact(folder, name, sha256=digest)
    return Teacher(folder, fact, tuple(rows[name] for name in class_names), taught)


def _resize(images, size):
    """Resizes images `(B, H, W, C)`, bilinear with antialiasing as Pillow.

    As matrix products, which every backend and XLA compile; TensorFlow's antialiased resize
    has no XLA.
    """
    for side, sum_over in ((0, "ih,bhwc->biwc"), (1, "jw,bhwc->bhjc")):
        old, new = images.shape[1 + side], size[side]
        if old == new:
            continue
        # A triangle around each new pixel's centre, widened to shrink.
        centres = (np.arange(new) + 0.5) * (old / new) - 0.5
        distances = np.abs(centres[:, None] - np.arange(old)) / max(old / new, 1)
        weights = np.maximum(1 - distances, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
        images = ops.einsum(sum_over, weights.astype("float32"), images)
    return images
