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
    description_layer as description_layer,
    description_text as description_text,
    has_layers_in_front as has_layers_in_front,
    included_preprocessing as included_preprocessing,
    input_dtype as input_dtype,
    set_description as set_description,
)
