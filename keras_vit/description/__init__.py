"""Descriptions of models: config, preprocessing, classes, and the origin of each fact."""

from keras_vit.description.class_labels import (
    UNKNOWN as UNKNOWN,
    Labels as Labels,
    check_class_names as check_class_names,
)
from keras_vit.description.description import (
    FACTS as FACTS,
    IN_FRONT as IN_FRONT,
    INCLUDED as INCLUDED,
    LAYER as LAYER,
    Description as Description,
    abstains as abstains,
    check_one_output as check_one_output,
    completed as completed,
    describe_built as describe_built,
    describe_config as describe_config,
    description_layer as description_layer,
    description_text as description_text,
    fitted_to as fitted_to,
    has_layers_in_front as has_layers_in_front,
    held_description as held_description,
    included_preprocessing as included_preprocessing,
    input_dtype as input_dtype,
    set_description as set_description,
)
