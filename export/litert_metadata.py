"""TFLite metadata: what an image classifier's file says of its input and its labels.

The schema is `metadata_schema.fbs` of the TensorFlow Lite Support library, version 1.0.0. Its
own writer cannot be installed beside today's protobuf.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from . import job

LABELS = "labels.txt"
NAME = "TFLITE_METADATA"  # Under which readers look for the buffer.
IDENTIFIER = b"M001"


class Enum(enum.IntEnum):
    """Values of the schema's enums and unions that are used here."""

    TENSOR_AXIS_LABELS = 2  # AssociatedFileType.
    RGB = 1  # ColorSpaceType.
    FEATURE_PROPERTIES = 1  # ContentProperties.
    IMAGE_PROPERTIES = 2
    NORMALIZATION_OPTIONS = 1  # ProcessUnitOptions.


class Table(NamedTuple):
    """A table of the schema: the place of each field in it, and the field's value."""

    fields: dict[int, Any]


def describe(name: str, value_range) -> bytes:
    """Returns the metadata of an image classifier.

    Args:
        name: Name of the model.
        value_range: What pixels 0 and 255 become; numbers, or one for each channel.
    """
    low, high = (np.atleast_1d(np.array(value, "float64")) for value in value_range)
    std = 255 / (high - low)
    mean = -low * std
    # A union is two fields: its type, then its table.
    image = Table({0: Enum.IMAGE_PROPERTIES, 1: Table({0: Enum.RGB})})
    normalization = Table(
        {0: Enum.NORMALIZATION_OPTIONS, 1: Table({0: mean.tolist(), 1: std.tolist()})}
    )
    labels = Table({0: LABELS, 1: "Class names, one a line.", 2: Enum.TENSOR_AXIS_LABELS})
    images = Table(
        {
            0: "images",
            1: "RGB pixels, resized as preprocessing.json says, then normalised.",
            3: image,
            4: [normalization],
            5: Table({0: high.tolist(), 1: low.tolist()}),
        }
    )
    probabilities = Table(
        {
            0: "probabilities",
            1: "Probability of each class.",
            3: Table({0: Enum.FEATURE_PROPERTIES, 1: Table({})}),
            5: Table({0: [1.0], 1: [0.0]}),
            6: [labels],
        }
    )
    model = Table(
        {
            0: name,
            1: "Image classifier.",
            3: [Table({2: [images], 3: [probabilities]})],
            7: "1.0.0",
        }
    )
    builder = flatbuffers.Builder()
    builder.Finish(_write(builder, model), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def insert(content: bytes, metadata: bytes) -> bytes:
    """Returns a TFLite file's bytes with metadata in it.

    Args:
        content: The file's bytes.
        metadata: Those of `describe`.
    """
    schema = job.needed("ai_edge_litert.schema_py_generated")
    utils = job.needed("ai_edge_litert.tools.flatbuffer_utils")
    model = utils.read_model_from_bytearray(bytearray(content))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(metadata)
    entry.name, entry.buffer = NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    return bytes(utils.convert_object_to_bytearray(model))


def _write(builder, value):
    """Writes a table, a string or a vector, what it holds first, and returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        if isinstance(value[0], float):
            builder.StartVector(4, len(value), 4)
            for number in reversed(value):
                builder.PrependFloat32(number)
        else:
            offsets = [_write(builder, item) for item in value]
            builder.StartVector(4, len(offsets), 4)
            for offset in reversed(offsets):
                builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()
    written = {
        place: field if isinstance(field, Enum) else _write(builder, field)
        for place, field in value.fields.items()
    }
    builder.StartObject(max(value.fields, default=-1) + 1)
    for place, field in written.items():
        if isinstance(field, Enum):
            builder.PrependInt8Slot(place, int(field), 0)
        else:
            builder.PrependUOffsetTRelativeSlot(place, field, 0)
    return builder.EndObject()
