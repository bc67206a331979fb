"""Operations that a phone's GPU or NPU takes of a TFLite file, and the lines of an app for it."""

from __future__ import annotations

import csv
import pathlib
import string
from collections.abc import Sequence

from keras_vit.preprocessing import Preprocessing, describe_resize

from .tflite_graph import operations

# What `delegates.csv` was read from: files of github.com/google-ai-edge/LiteRT at this version. The
# table of the GPU accelerator of `CompiledModel`, the delegate's successor, is not public.
LITERT = "2.2.0"

# The Maven package of `CompiledModel`. Google Play asks for pages of 16 KB, which LiteRT has from
# 1.4 on.
ARTEFACT = "com.google.ai.edge.litert:litert:2.1.5"


# What runs a file, by the column of `delegates.csv`, which is read from
# tflite/delegates/gpu/common/model_builder.cc,
# litert/vendors/qualcomm/compiler/Qualcomm_QNN_Compiler.md and
# litert/vendors/mediatek/compiler/MediaTek_Neuro_Compiler.md.
DELEGATES = {
    "gpu": "the GPU delegate",
    "qualcomm": "Qualcomm's NPUs",
    "mediatek": "MediaTek's NPUs",
}

# By processor: what must take a file. A CPU takes every builtin operation.
PROCESSORS: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "gpu": ("gpu",),
    "npu": ("qualcomm", "mediatek"),
}


def outside(in_file: Sequence[tuple[str, str]], processor: str) -> list[str]:
    """Returns the operations that a processor does not take: name, layer, whose.

    Args:
        in_file: The `operations` of a TFLite file.
        processor: A key of `PROCESSORS`.
    """
    with pathlib.Path(__file__).with_name("delegates.csv").open(encoding="utf-8") as file:
        tables = {row["operation"]: row for row in csv.DictReader(file)}
    return [
        f"{name} of {layer} ({DELEGATES[column]})"
        for name, layer in in_file
        for column in PROCESSORS[processor]
        if tables.get(name, {}).get(column) != "yes"
    ]


def checked(content: bytes, processor: str, tokens: int | None = None) -> tuple[str, ...]:
    """Returns remarks about a TFLite file, all of whose operations a processor takes.

    Args:
        content: The file's bytes.
        processor: "gpu" or "npu".
        tokens: Number of tokens of the model.

    Raises:
        ValueError: If it does not take one; the error names the layer that made it.
    """
    in_file = operations(content)
    wrong = outside(in_file, processor)
    if wrong:
        raise ValueError(
            f"Every operation of an export for a {processor.upper()} must be one that it takes; "
            f"export for the CPU instead. Received: {'; '.join(wrong[:5])}"
        )
    titles = " and ".join(DELEGATES[column] for column in PROCESSORS[processor])
    count, kinds = len(in_file), len({name for name, _ in in_file})
    where = f", for {tokens} tokens" if tokens else ""
    remarks = [
        f"{count} operations of {kinds} kinds, all of the table of {titles} (LiteRT {LITERT})"
        f"{where}.",
        "unzip -p FILE app.md prints the lines of Kotlin and Swift that prepare the pixels.",
    ]
    if processor == "npu" and tokens and tokens > 2 and (tokens - 1).bit_count() == 1:
        remarks.append(
            f"{tokens} tokens are one, the class token, more than a power of two, which was "
            "measured to cost an NPU 31%; a model with classifier='gap' has none."
        )
    return tuple(remarks)


def app_text(
    preprocessing: Preprocessing, num_classes: int, processor: str, *, takes_pixels: bool
) -> str:
    """Returns the lines in Kotlin and Swift that run a file, and resize where it does not.

    Args:
        preprocessing: The classifier's preprocessing.
        num_classes: Number of outputs.
        processor: A key of `PROCESSORS`.
        takes_pixels: Whether the file takes uint8 pixels.
    """
    import numpy as np

    from keras_vit.images.resizing import small_side

    size, way = preprocessing.image_size, preprocessing.evaluation
    before = preprocessing.resize_size or size
    resized = (before, before) if isinstance(before, int) else before
    if way in ("resize_small_central_crop", "resize_central_crop"):
        resized = (small_side(size[0]), small_side(size[1]))
    stretches = way in ("resize", "resize_central_crop") or isinstance(
        preprocessing.resize_size, tuple
    )
    low, high = (np.broadcast_to(value, 3).tolist() for value in preprocessing.value_range)
    template = pathlib.Path(__file__).with_name("app_pixels.md" if takes_pixels else "app.md")
    return string.Template(template.read_text(encoding="utf-8")).substitute(
        artefact=ARTEFACT,
        litert=LITERT,
        processor=processor,
        upper=processor.upper(),
        height=size[0],
        width=size[1],
        resized_height=resized[0],
        resized_width=resized[1],
        resize=describe_resize(preprocessing),
        classes=num_classes,
        kotlin_fit="" if stretches else "    x = maxOf(x, y); y = x  // The aspect ratio stays.\n",
        swift_fit="" if stretches else "    x = max(x, y); y = x  // The aspect ratio stays.\n",
        low=_numbers(low),
        high=_numbers(high),
        low_floats=_numbers(low, "f"),
        high_floats=_numbers(high, "f"),
    )


def _numbers(values, suffix=""):
    return ", ".join(f"{value:.7g}{suffix}" for value in values)
