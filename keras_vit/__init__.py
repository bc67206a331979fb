"""The Vision Transformer (arXiv 2010.11929) as a Keras applications module.

Importing this package is cheap: a name loads its module, and with it Keras, at first use.
"""

import importlib
from typing import Any

from keras_vit import _registration
from keras_vit._version import __version__ as __version__
from keras_vit.configs import (
    AxialConfig,
    AxialResNetConfig,
    BiTConfig,
    ResNetStem,
    ViTConfig,
    list_models,
    shape_study,
)

_APPLICATIONS = (
    "ViTMini4",
    "ViTTi16",
    "ViTS16",
    "ViTS32",
    "ViTb16",
    "ViTb32",
    "ViTB8",
    "ViTB16",
    "ViTB32",
    "ViTL16",
    "ViTL32",
    "ViTH14",
    "RViTTi16",
    "R26ViTS32",
    "R26ViTB32",
    "R50ViTB16",
    "R50ViTB32",
    "R50ViTL16",
    "R50ViTL32",
    "BiTR50x1",
    "BiTR50x2",
    "BiTR50x3",
    "BiTR101x1",
    "BiTR101x3",
    "BiTR152x1",
    "BiTR152x2",
    "BiTR152x4",
    "BiTR200x3",
    "AxialViTB16",
    "AxialViTB32",
    "AxialResNet50",
)

# Public name: the module that holds it.
_LAZY = {
    "build": "keras_vit.models.application",
    "describe": "keras_vit.counting",
    **dict.fromkeys(_APPLICATIONS, "keras_vit.applications"),
    "list_weights": "keras_vit.checkpoints.catalogue",
    "load_checkpoint": "keras_vit.checkpoints.load",
    "save_checkpoint": "keras_vit.checkpoints.save",
    "preprocess_input": "keras_vit.preprocessing",
    "decode_predictions": "keras_vit.preprocessing",
    "load_classifier": "keras_vit.classifier",
    "save_classifier": "keras_vit.classifier",
}

_MODULES = ("applications", "checkpoints", "export", "inspection", "layers", "training")

__all__ = [
    "AxialConfig",
    "AxialResNetConfig",
    "BiTConfig",
    "ResNetStem",
    "ViTConfig",
    "list_models",
    "shape_study",
    *_LAZY,
    *_MODULES,
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"keras_vit.{name}")
    else:
        raise AttributeError(f"module 'keras_vit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_registration.when_keras_is_imported("keras_vit.layers")
