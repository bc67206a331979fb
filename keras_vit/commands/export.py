"""`keras-vit export`: a classifier as SavedModel, TFLite, ONNX, OpenVINO or for browsers."""

import dataclasses

from keras_vit.export.export_format import ExportFormat
from keras_vit.export.formats import FORMATS, any_of
from keras_vit.fields import add_argument, add_arguments as add_fields, flag_of, from_arguments


def add_arguments(parser):
    """Declares the command's arguments: the fields of all formats."""
    suffixes = any_of(known.suffix for known in FORMATS.values() if known.suffix)
    parser.add_argument("folder", metavar="FOLDER", help="the classifier's folder")
    parser.add_argument("--to", choices=tuple(FORMATS), required=True, help="the format to write")
    parser.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        help=f"folder, or file ending in {suffixes}",
    )
    add_fields(parser, ExportFormat)
    groups = {}
    for field, formats in options().values():
        if formats not in groups:
            groups[formats] = parser.add_argument_group(f"with --to {any_of(formats)}")
        add_argument(groups[formats], field)
    precisions = {name: ", ".join(known.precisions) for name, known in FORMATS.items()}
    parser.epilog = "Precisions: " + "; ".join(
        f"{precisions[name]} for {name}" for name in options()["precision"][1]
    )


def options():
    """Returns the options that not every format has: by name, the field and the formats."""
    found: dict[str, tuple[dataclasses.Field, tuple[str, ...]]] = {}
    for name, format_type in FORMATS.items():
        for field in dataclasses.fields(format_type):
            if field.name not in ExportFormat.__dataclass_fields__:
                field, others = found.get(field.name, (field, ()))
                found[field.name] = (field, (*others, name))
    return found


def run(arguments):
    """Exports and prints the report of the check."""
    for name, (field, formats) in options().items():
        if hasattr(arguments, name) and arguments.to not in formats:
            raise ValueError(
                f"{flag_of(field)} is for --to {any_of(formats)}. Received: --to {arguments.to}"
            )
    export = from_arguments(FORMATS[arguments.to], arguments)

    from keras_vit.export.publish import write_export

    print(write_export(export, arguments.folder, arguments.output))
