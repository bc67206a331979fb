"""The configuration files of Hugging Face beside converted weights."""

from __future__ import annotations

import numpy as np

from keras_vit.checkpoints.metadata import BILINEAR
from keras_vit.configs import ViTConfig
from keras_vit.preprocessing import Preprocessing

WEIGHTS = "model.safetensors"
CONFIG = "config.json"

_ACTIVATIONS = {"exact": "gelu", "tanh": "gelu_pytorch_tanh"}


def config_json(config: ViTConfig, image_size, channels: int, class_names) -> dict:
    """Returns the content of `config.json`.

    Args:
        config: A plain Vision Transformer.
        image_size: Pixels (height, width).
        channels: Channels of the images.
        class_names: Names of the classes, or None without a head.
    """

    def sides(size):
        return size[0] if size[0] == size[1] else list(size)

    is_distilled = config.classifier == "token+distillation"
    body = "DeiT" if is_distilled else "ViT"
    suffix = "ForImageClassificationWithTeacher" if is_distilled else "ForImageClassification"
    labels = {} if class_names is None else {
        "id2label": {str(index): name for index, name in enumerate(class_names)},
        "label2id": {name: index for index, name in enumerate(class_names)},
    }  # fmt: skip
    return {
        "architectures": [f"{body}{'Model' if class_names is None else suffix}"],
        "model_type": body.lower(),
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.mlp_dim,
        "hidden_act": _ACTIVATIONS[config.gelu],
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "layer_norm_eps": config.norm_epsilon,
        "image_size": sides(image_size),
        "patch_size": sides(config.patch_sizes),
        "num_channels": channels,
        "qkv_bias": True,
        **labels,
    }


def preprocessor_json(preprocessing: Preprocessing, channels: int) -> dict:
    """Returns the content of `preprocessor_config.json` for `ViTImageProcessor`.

    Raises:
        ValueError: If that processor cannot do the same.
    """
    if preprocessing.evaluation != "resize":
        raise ValueError(
            'Hugging Face\'s ViTImageProcessor has no crop; the preprocessing must be "resize". '
            f"Received: {preprocessing.evaluation!r}"
        )
    least, most = (np.broadcast_to(value, channels).tolist() for value in preprocessing.value_range)
    height, width = preprocessing.image_size
    # (pixel / 255 - mean) / std runs from the least value to the most.
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [-low / (high - low) for low, high in zip(least, most, strict=True)],
        "image_std": [1 / (high - low) for low, high in zip(least, most, strict=True)],
    }
