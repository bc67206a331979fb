"""Code bases whose weights are read: a file each, with names of weights and their JSON."""

import pathlib
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.code_bases import hugging_face, keras_hub, official, timm, torchvision
from keras_vit.checkpoints.code_bases.layouts import Layout

# In the order in which a file is compared with them.
LAYOUTS = (
    official.OFFICIAL,
    official.BIT,
    hugging_face.HUGGING_FACE,
    hugging_face.HUGGING_FACE_CLIP_CLASSIFIER,
    hugging_face.HUGGING_FACE_SIGLIP_CLASSIFIER,
    hugging_face.HUGGING_FACE_CLIP,
    hugging_face.HUGGING_FACE_DINOV3,
    timm.TIMM_EVA,
    timm.TIMM,
    torchvision.TORCHVISION,
    keras_hub.KERAS_HUB,
    official.VIT_KERAS,
)

# The same for HDF5 files of Keras, by its version; in Keras 2 only vit-keras has any.
_OF_KERAS = {
    2: (official.VIT_KERAS,),
    3: (
        keras_hub.KERAS_HUB,
        keras_hub.KERAS_HUB_DINOV2,
        keras_hub.KERAS_HUB_DINOV3,
        keras_hub.KERAS_HUB_TOWERS,
        official.VIT_KERAS,
        official.KERAS,
    ),
}


def layouts_of(keras_version: int) -> tuple[Layout, ...]:
    """Returns the layouts that a file may have, in HDF5 by the version of Keras that wrote it."""
    return _OF_KERAS.get(keras_version, LAYOUTS)


def check_config(config: Mapping[str, Any], folder: pathlib.Path) -> None:
    """Raises ValueError for the `config.json` of a model that no model here equals.

    Args:
        config: Its content; {} without one.
        folder: Its folder, for the message.
    """
    hugging_face.check_model_type(config, folder)
    keras_hub.check_family(config, folder)
