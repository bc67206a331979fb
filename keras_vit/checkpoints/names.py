"""The layouts that are known, in the order in which a file is compared with them."""

from keras_vit.checkpoints.keras_names import KERAS_HUB, VIT_KERAS
from keras_vit.checkpoints.layout import Layout, Rule, keras_layout
from keras_vit.checkpoints.official_names import BIT, OFFICIAL
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TORCHVISION

__all__ = [
    "BIT",
    "HUGGING_FACE",
    "KERAS_HUB",
    "LAYOUTS",
    "OFFICIAL",
    "TIMM",
    "TORCHVISION",
    "VIT_KERAS",
    "Layout",
    "Rule",
    "keras_layout",
]

LAYOUTS = (OFFICIAL, BIT, HUGGING_FACE, TIMM, TORCHVISION, KERAS_HUB, VIT_KERAS)
