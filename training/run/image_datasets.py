"""Photos in their parts as data sets for Keras's `fit`, drawn as `finetune` draws them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_vit.description.class_labels import Labels
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.preprocessing import Preprocessing, as_size
from keras_vit.training.data import Source, evaluation_batches, open_source
from keras_vit.training.data.spec import Data, data_spec
from keras_vit.training.data.things import shown_in_training, unit_numbers
from keras_vit.training.evaluation.classification import evaluate
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import FineTuning
from keras_vit.utils.synonyms import answers_synonyms

from .head_start import reference_of_training

PIXELS = (0.0, 255.0)  # The range of the images, as `image_dataset_from_directory` has it.


class _Parts(NamedTuple):
    train: tf.data.Dataset
    validation: tf.data.Dataset | None
    test: tf.data.Dataset | None


class ImageDatasets(_Parts):
    """The parts of labelled photos: `train, validation, test = image_datasets(...)`.

    Each is a finite `tf.data.Dataset` of (float32 images `(B, height, width, 3)` from 0 to 255,
    int32 labels `(B,)`, or uint8 `(B, K)` of multi-label photos); None without images.
    """

    source: Source
    image_size: tuple[int, int]

    @property
    def class_names(self) -> list[str]:
        """The classes in the order of their numbers."""
        return list(self.source.class_names)

    def evaluate(
        self,
        model: keras.Model,
        preprocessing: Preprocessing | None = None,
        *,
        batch_size: int = 32,
        from_logits: bool = False,
    ) -> EvaluationReport:
        """Returns the report on the test photos: interval, references, and what shows new things.

        Args:
            model: A model from images to probabilities, or a classifier's `model`.
            preprocessing: How a photo becomes the model's input; by default it is resized to the
                size of these data sets, with values from 0 to 255.
            batch_size: Photos in a batch; does not change the results.
            from_logits: Whether the model's outputs are logits.

        Raises:
            ValueError: If there are no test photos.
        """
        if (test := self.source.splits.get("test")) is None:
            raise ValueError("An evaluation needs test photos (holdout=0.2). Received: none")
        labels = Labels(self.source.class_names, self.source.task)
        preprocessing = preprocessing or _pixels(self.source, self.image_size)
        report = evaluate(
            model,
            test,
            labels,
            preprocessing=preprocessing,
            batch_size=batch_size,
            from_logits=from_logits,
        )
        things, splits = self.source.things, self.source.splits
        return dataclasses.replace(
            report,
            skipped=tuple(self.source.skipped),
            simple=reference_of_training(self.source, preprocessing.bit_depth),
            is_shown_before=None if things is None else shown_in_training(splits, things, "test"),
            ignores_copies=things is None,
            units=unit_numbers(test, self.source),
        )


@answers_synonyms
def image_datasets(
    photos: Data,
    *,
    image_size: int | tuple[int, int],
    batch_size: int = 32,
    validation: float | None = None,
    seed: int = 0,
) -> ImageDatasets:
    """Returns the train, validation and test photos of a folder or table for `fit`.

    Pixels are from 0 to 255: a model scales them itself, as `keras_vit.build(...,
    include_preprocessing=True)` does, or a `keras_vit.Preprocessing` maps them. The parts are those
    that `finetune` draws with the same seed. Photos that show one thing (copies and bursts) are in
    one part, so that the accuracy on test photos describes new things.

    Args:
        photos: A folder, a table and so on; see `open_source`. Or a `DataSpec`, which has the
            options of the data too, such as `holdout`, `group_by` and `copies`.
        image_size: Pixels (height, width), or a number for squares; photos are resized without
            regard to their aspect.
        batch_size: Photos in a batch; the last one may have fewer.
        validation: Share of the training photos for validation; by default as `finetune`.
        seed: Seed of the parts and of the order of the training photos.

    Returns:
        An `ImageDatasets`: three data sets with the classes and an evaluation.

    Raises:
        ValueError: As `open_source`.

    Example:
    >>> train, validation, test = datasets = image_datasets("photos", image_size=(32, 32))
    >>> model = keras_vit.build(
    ...     "ViT-Mini/4",
    ...     weights="vit_mini4_cifar10",
    ...     classes=len(datasets.class_names),
    ...     include_preprocessing=True,
    ... )
    >>> model.compile("sgd", "sparse_categorical_crossentropy")
    >>> history = model.fit(train, validation_data=validation, epochs=3)
    >>> print(datasets.evaluate(model))
    """
    spec = data_spec(photos)
    if spec.split_seed is None:
        spec = dataclasses.replace(spec, split_seed=seed)
    share = FineTuning(validation=validation).validation_share
    source = open_source(spec, share, trained=True)
    preprocessing = _pixels(source, as_size(image_size))
    parts: list[tf.data.Dataset | None] = []
    for name in ("train", "validation", "test"):
        examples = source.splits.get(name)
        if examples is None or not len(examples):
            parts.append(None)
            continue
        shuffled = seed if name == "train" else None
        dataset = evaluation_batches(
            examples, preprocessing=preprocessing, batch_size=batch_size, shuffled=shuffled
        )
        dataset.class_names = list(source.class_names)
        parts.append(dataset)
    datasets = ImageDatasets(*parts)
    datasets.source, datasets.image_size = source, preprocessing.image_size
    return datasets


def _pixels(source: Source, image_size: tuple[int, int]) -> Preprocessing:
    """The preprocessing to pixels from 0 to 255, of 16-bit photos by the bits of their values."""
    depth = source.bit_depth or FULL_DEPTH
    return Preprocessing(image_size, value_range=PIXELS, bit_depth=depth)
