"""`keras-vit export`: a classifier as SavedModel, LiteRT, ONNX, OpenVINO or for browsers."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.commands import Command
from keras_vit.export.formats.export_format import ExportFormat, any_of
from keras_vit.export.formats.table import ALIASES, FORMATS
from keras_vit.utils.fields import REQUIRED, field_info, flag_of, part, setting


def options() -> dict[str, tuple[dataclasses.Field, tuple[str, ...]]]:
    """Returns the options that not every format has: by name, the field and the formats."""
    found: dict[str, tuple[dataclasses.Field, tuple[str, ...]]] = {}
    for name, format_type in FORMATS.items():
        for field in dataclasses.fields(format_type):
            if field.name not in ExportFormat.__dataclass_fields__:
                field, others = found.get(field.name, (field, ()))
                found[field.name] = (field, (*others, name))
    return found


def _format_options() -> type:
    """Returns a dataclass of the options that not every format has, grouped by the formats."""
    fields: list[tuple[str, Any, Any]] = []
    for field, formats in options().values():
        info = dataclasses.replace(field_info(field), group=f"with --to {any_of(formats)}")
        if field.name == "precision":
            of_formats = (f"{', '.join(FORMATS[name].precisions)} for {name}" for name in formats)
            info = dataclasses.replace(info, help=f"{info.help}; {'; '.join(of_formats)}")
        same = dataclasses.field(default=field.default, metadata={"info": info})
        fields.append((field.name, field.type, same))
    return dataclasses.make_dataclass("FormatOptions", fields, frozen=True, kw_only=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Export a classifier to SavedModel, LiteRT, ONNX, OpenVINO or a web page."""

    folder: str = setting(
        REQUIRED,
        "the classifier's folder",
        unit="FOLDER",
        positional=True,
    )
    to: str = setting(
        REQUIRED,
        "the format to write; " + ", ".join(f"{new} is {old}" for new, old in ALIASES.items()),
        choices=(*FORMATS, *ALIASES),
    )
    output: str = setting(
        REQUIRED,
        "folder, or file ending in "
        + any_of(known.suffix for known in FORMATS.values() if known.suffix),
        unit="PATH",
    )
    common: dict[str, Any] = part(ExportFormat, make=dict)
    options: dict[str, Any] = part(_format_options(), make=dict)

    backends = ("tensorflow",)  # It traces TensorFlow graphs.

    def run(self) -> None:
        """Exports and prints the report of the check."""
        format_type = FORMATS[ALIASES.get(self.to, self.to)]
        for name, (field, formats) in options().items():
            if name in self.options and format_type.name not in formats:
                raise ValueError(
                    f"{flag_of(field)} is for --to {any_of(formats)}. Received: --to {self.to}"
                )
        export = format_type(**self.common, **self.options)

        from keras_vit.export.publish import write_export

        print(write_export(export, self.folder, self.output))
