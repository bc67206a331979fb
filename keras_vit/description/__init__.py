"""Descriptions of models: config, preprocessing, classes, and the origin of each fact."""

from keras_vit.description.class_labels import (
    UNKNOWN,
    Labels,
    check_class_names,
)
from keras_vit.description.description import (
    Description,
    description_text,
    read_description,
)
from keras_vit.description.of_models import (
    LAYER,
    abstains,
    completed,
    describe,
    described,
    description_layer,
    held_description,
    set_description,
)

__all__ = [
    "Description",
    "LAYER",
    "Labels",
    "UNKNOWN",
    "abstains",
    "check_class_names",
    "completed",
    "describe",
    "described",
    "description_layer",
    "description_text",
    "held_description",
    "read_description",
    "set_description",
]
