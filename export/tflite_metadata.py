"""Metadata of a TFLite file: the normalisation of images and the file of the class names.

They follow `metadata_schema.fbs` of the TensorFlow Lite Support library, version 1.0.0, whose own
writer cannot be installed with today's protobuf.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from .formats import import_export_package
from .texts import TFLITE_LABELS

METADATA_NAME = "TFLITE_METADATA"  # Name of the buffer.
METADATA_IDENTIFIER = b"M001"


class MetadataEnum(enum.IntEnum):
    """Values of the metadata schema's enums and unions."""

    TENSOR_AXIS_LABELS = 2  # AssociatedFileType.
    RGB = 1  # ColorSpaceType.
    FEATURE_PROPERTIES = 1  # ContentProperties.
    IMAGE_PROPERTIES = 2
    NORMALIZATION_OPTIONS = 1  # ProcessUnitOptions.


class MetadataTable(NamedTuple):
    """A table of the metadata schema: values of its fields by their number in the schema."""

    fields: dict[int, Any]


def image_classifier_metadata(name: str, value_range=None) -> bytes:
    """Returns TFLite metadata: the normalisation of the images and the file of the labels.

    Args:
        name: Name of the model.
        value_range: Values of pixels 0 and 255, numbers or one for each channel; None for a
            model that takes uint8.
    """
    # A union is two fields: its type, then its table.
    image = MetadataTable(
        {0: MetadataEnum.IMAGE_PROPERTIES, 1: MetadataTable({0: MetadataEnum.RGB})}
    )
    units = []
    values = (0.0, 255.0) if value_range is None else value_range
    low, high = (np.atleast_1d(np.array(value, "float64")) for value in values)
    if value_range is not None:
        std = 255 / (high - low)
        mean = -low * std
        normalization = MetadataTable({0: mean.tolist(), 1: std.tolist()})
        units = [MetadataTable({0: MetadataEnum.NORMALIZATION_OPTIONS, 1: normalization})]
    labels = MetadataTable(
        {0: TFLITE_LABELS, 1: "Class names, one a line.", 2: MetadataEnum.TENSOR_AXIS_LABELS}
    )
    images = MetadataTable(
        {
            0: "images",
            1: "RGB pixels, resized as preprocessing.json says, then normalised."
            if units
            else "RGB pixels.",
            3: image,
            **({4: units} if units else {}),
            5: MetadataTable({0: high.tolist(), 1: low.tolist()}),
        }
    )
    probabilities = MetadataTable(
        {
            0: "probabilities",
            1: "Probability of each class.",
            3: MetadataTable({0: MetadataEnum.FEATURE_PROPERTIES, 1: MetadataTable({})}),
            5: MetadataTable({0: [1.0], 1: [0.0]}),
            6: [labels],
        }
    )
    model = MetadataTable(
        {
            0: name,
            1: "Image classifier.",
            3: [MetadataTable({2: [images], 3: [probabilities]})],
            7: "1.0.0",
        }
    )
    builder = flatbuffers.Builder()
    builder.Finish(_write_metadata(builder, model), file_identifier=METADATA_IDENTIFIER)
    return bytes(builder.Output())


def add_metadata(content: bytes, metadata: bytes) -> bytes:
    """Returns a TFLite file's bytes with metadata in it.

    Args:
        content: The file's bytes.
        metadata: See `image_classifier_metadata`.
    """
    schema = import_export_package("ai_edge_litert.schema_py_generated")
    utils = import_export_package("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(metadata)
    entry.name, entry.buffer = METADATA_NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return bytes(utils.convert_object_to_bytearray(model))


def _write_metadata(builder, value):
    """Writes a table, a string or a vector after its contents, and returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        if isinstance(value[0], float):
            builder.StartVector(4, len(value), 4)
            for number in reversed(value):
                builder.PrependFloat32(number)
        else:
            offsets = [_write_metadata(builder, item) for item in value]
            builder.StartVector(4, len(offsets), 4)
            for offset in reversed(offsets):
                builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    written = {
        place: field if isinstance(field, MetadataEnum) else _write_metadata(builder, field)
        for place, field in value.fields.items()
    }
    builder.StartObject(max(value.fields, default=-1) + 1)
    for place, field in written.items():
        if isinstance(field, MetadataEnum):
            builder.PrependInt8Slot(place, int(field), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(place, field, 0)
    return builder.EndObject()
