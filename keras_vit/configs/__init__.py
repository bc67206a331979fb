"""Configs of all models of the paper; without Keras or TensorFlow."""

from keras_vit.configs.blocks import Gelu as Gelu
from keras_vit.configs.model_table import (
    CLASSIFIER_LAYERS as CLASSIFIER_LAYERS,
    DEFAULT_IMAGE_SIZE as DEFAULT_IMAGE_SIZE,
    FEATURES as FEATURES,
    HEAD_LAYERS as HEAD_LAYERS,
    IMAGE_SIZES as IMAGE_SIZES,
    MODELS as MODELS,
    SIZES as SIZES,
    UNSEEN_FIELDS as UNSEEN_FIELDS,
    ModelConfig as ModelConfig,
    checked_fields as checked_fields,
    classifier_layer as classifier_layer,
    default_image_size as default_image_size,
    for_inference as for_inference,
    layer_name as layer_name,
    resolve as resolve,
)
from keras_vit.configs.resnet_configs import (
    AxialResNetConfig as AxialResNetConfig,
    BiTConfig as BiTConfig,
    PoolingStem as PoolingStem,
    ResNetStem as ResNetStem,
)
from keras_vit.configs.vit_configs import AxialConfig as AxialConfig, ViTConfig as ViTConfig
