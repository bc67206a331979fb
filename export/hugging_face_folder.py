"""Writing a folder of Hugging Face."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from keras_vit.checkpoints.code_bases import hugging_face
from keras_vit.checkpoints.code_bases.hugging_face import PREPROCESSOR
from keras_vit.checkpoints.formats import write_safetensors
from keras_vit.checkpoints.save import note_of, stored_arrays
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import config_of
from keras_vit.description import Labels
from keras_vit.description.description_texts import card_header
from keras_vit.model_weights import Weights
from keras_vit.models.graph import check_described
from keras_vit.models.saving import check_written
from keras_vit.utils.files import CARD, CONFIG, SAFETENSORS, atomic_folder
from keras_vit.utils.safe_text import for_markdown


def write_hugging_face(opened: Weights, destination: pathlib.Path, overwrite: bool) -> list[str]:
    """Writes the folder of a model for Hugging Face, with `config.json` and `model.safetensors`.

    Args:
        opened: The weights, whose model is built.
        destination: The folder to write.
        overwrite: Whether to replace an existing one.

    Returns:
        A sentence for each part that was not converted.

    Raises:
        ValueError: If the format has no such model, or the range of pixels is unknown.
    """
    model, description = opened.model(), opened.description
    check_described(model, "Hugging Face's format holds unchanged models of keras_vit.build")
    config = config_of(model)
    if type(config) is not ViTConfig or config.resnet:
        raise ValueError(
            "A model for Hugging Face must be a plain Vision Transformer, not a hybrid (with a "
            "ResNet in front), BiT or an axial model: use --to official for the weights, or "
            f"keras-vit export. Received: {description.name}"
        )
    labels = Labels(description.labels.names, description.labels.task)
    described = dataclasses.replace(description, input_shape=model.input_shape[1:], labels=labels)
    written = hugging_face.written_model(config, described)
    # Raises if the range of pixels is unknown.
    preprocessing = opened.preprocessing_for(model.input_shape[1:3])
    processor, notes = hugging_face.preprocessor_json(preprocessing, model.input_shape[-1])
    files = {CONFIG: hugging_face.config_json(config, described), PREPROCESSOR: processor}
    arrays = {
        name if "classifier." in name else f"{written.prefix}{name}": array
        for name, array in stored_arrays(model, written.layout).items()
    }
    license = description.license
    card = f"{card_header(license)}\nLicense of the weights: {for_markdown(license)}.\n"
    with atomic_folder(destination, marker=SAFETENSORS, overwrite=overwrite) as folder:
        (folder / CARD).write_text(card, encoding="utf-8")
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        write_safetensors(folder / SAFETENSORS, arrays, note_of(model))
        check_written(model, folder)
    return notes
