"""The models of the paper as functions with the signature of `keras.applications`."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from typing import Protocol

import keras

from keras_vit import configs
from keras_vit.models.build import build
from keras_vit.preprocessing import (
    Preprocessing as Preprocessing,
    decode_predictions as decode_predictions,
    preprocess_input as preprocess_input,
)
from keras_vit.utils.synonyms import answers_synonyms

_DOC = """Instantiates the {model} architecture{note}.

    Reference:
    - [An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale](
        https://arxiv.org/abs/2010.11929) (ICLR 2021)

    Each Keras application expects a specific kind of input preprocessing. For this one,
    call `keras_vit.preprocess_input` on your inputs: pixels in [0, 255] become [-1, 1].
    `weights` is {weights!r} by default, `name` {name!r}; images have {side} pixels.

    Args:
"""
# As `build` describes them, without the model and the changes of its config.
_ARGUMENTS = "        include_top:" + (build.__doc__ or "").partition("        include_top:")[2]
_ARGUMENTS = re.sub(r"        \*\*changes: .*\n|\n    Example:\n(.|\n)*", "", _ARGUMENTS)


class Application(Protocol):
    """The signature of the functions of this module, as in `keras.applications`."""

    __name__: str

    def __call__(
        self,
        include_top: bool = True,
        weights: str | os.PathLike | None = ...,
        input_tensor: keras.KerasTensor | None = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int | None = ...,
        classifier_activation: str | Callable | None = "softmax",
        name: str | None = ...,
        include_preprocessing: bool | Preprocessing = False,
    ) -> keras.Model: ...


def _application(
    model: str, weights: str | None = None, note: str = "", classes: int | None = 1000
) -> Application:
    default_weights, default_name, default_classes = weights, configs.layer_name(model), classes

    def application(
        include_top: bool = True,
        weights: str | os.PathLike | None = default_weights,
        input_tensor: keras.KerasTensor | None = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int | None = default_classes,
        classifier_activation: str | Callable | None = "softmax",
        name: str | None = default_name,
        include_preprocessing: bool | Preprocessing = False,
    ) -> keras.Model:
        return build(
            model,
            include_top=include_top,
            weights=weights,
            input_tensor=input_tensor,
            input_shape=input_shape,
            pooling=pooling,
            classes=classes,
            classifier_activation=classifier_activation,
            name=name,
            include_preprocessing=include_preprocessing,
        )

    application.__name__ = application.__qualname__ = function_name(model)
    introduction = _DOC.format(
        model=model,
        note=note and f"; {note}",
        weights=default_weights,
        name=default_name,
        side=configs.default_image_size(model),
    )
    application.__doc__ = introduction + _ARGUMENTS
    fields = dataclasses.fields(configs.MODELS[model])
    instead = {field.name: f'keras_vit.build("{model}", {field.name}=...)' for field in fields}
    return answers_synonyms(application, instead)


def function_name(model: str) -> str:
    """Returns the name of a model's function, such as "ViTB16" for "ViT-B/16"."""
    return model.replace("-", "").replace("/", "").replace("+", "")


# The default weights are "imagenet" if the catalogue has official files with ImageNet classes.
_SMALL = 'for images of 32 pixels, not the paper\'s; `weights="cifar10"` needs no network'
ViTMini4 = _application("ViT-Mini/4", classes=None, note=_SMALL)
ViTTi16 = _application("ViT-Ti/16", "imagenet")
ViTS16 = _application("ViT-S/16", "imagenet")
ViTS32 = _application("ViT-S/32", "imagenet")
ViTB8 = _application("ViT-B/8", "imagenet")
ViTB16 = _application("ViT-B/16", "imagenet")
ViTB32 = _application("ViT-B/32", "imagenet")
ViTL16 = _application("ViT-L/16", "imagenet")
ViTL32 = _application("ViT-L/32", "imagenet")
ViTH14 = _application("ViT-H/14")

_DINOV2 = "as DINOv2 (arXiv 2304.07193) has it, with LayerScale and the exact GELU"
ViTS14 = _application("ViT-S/14", note=_DINOV2)
ViTB14 = _application("ViT-B/14", note=_DINOV2)
ViTL14 = _application("ViT-L/14", note=_DINOV2)

R7ViTNano8 = _application("R7+ViT-Nano/8", classes=None, note=_SMALL)
R14ViTMicro16 = _application("R14+ViT-Micro/16", classes=None, note=_SMALL)
# Named as the official files. The effective patch is 32 pixels wide: a root convolution and pool of
# total stride 4, and patches of 8x8 cells of their output.
RViTTi16 = _application("R+ViT-Ti/16", "imagenet")
R26ViTS32 = _application("R26+ViT-S/32", "imagenet")
R26ViTB32 = _application("R26+ViT-B/32")
R50ViTB16 = _application("R50+ViT-B/16")
R50ViTB32 = _application("R50+ViT-B/32")
R50ViTL16 = _application("R50+ViT-L/16")
R50ViTL32 = _application("R50+ViT-L/32", "imagenet")

BiTR50x1 = _application("BiT-R50x1", "imagenet")
BiTR50x2 = _application("BiT-R50x2")
BiTR50x3 = _application("BiT-R50x3", "imagenet")
BiTR101x1 = _application("BiT-R101x1", "imagenet")
BiTR101x3 = _application("BiT-R101x3", "imagenet")
BiTR152x1 = _application("BiT-R152x1")
BiTR152x2 = _application("BiT-R152x2")
BiTR152x4 = _application("BiT-R152x4", "imagenet")
BiTR200x3 = _application("BiT-R200x3")

AxialViTB16 = _application("Axial-ViT-B/16")
AxialViTB32 = _application("Axial-ViT-B/32")
AxialResNet50 = _application("Axial-ResNet50")

__all__ = [
    "AxialResNet50",
    "AxialViTB16",
    "AxialViTB32",
    "BiTR101x1",
    "BiTR101x3",
    "BiTR152x1",
    "BiTR152x2",
    "BiTR152x4",
    "BiTR200x3",
    "BiTR50x1",
    "BiTR50x2",
    "BiTR50x3",
    "R14ViTMicro16",
    "R26ViTB32",
    "R26ViTS32",
    "R50ViTB16",
    "R50ViTB32",
    "R50ViTL16",
    "R50ViTL32",
    "R7ViTNano8",
    "RViTTi16",
    "ViTB14",
    "ViTB16",
    "ViTB32",
    "ViTB8",
    "ViTH14",
    "ViTL14",
    "ViTL16",
    "ViTL32",
    "ViTMini4",
    "ViTS14",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "decode_predictions",
    "preprocess_input",
]
