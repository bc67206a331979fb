"""`keras-vit models`: all models with their costs and weights."""

from __future__ import annotations

import dataclasses

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import RELEASED
from keras_vit.commands.shared_arguments import image_size
from keras_vit.description import describe
from keras_vit.text_tables import align_columns
from keras_vit.training.paper.pretraining_compute import table_6


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help='such as "ViT-B/16"; all models by default'
    )
    parser.add_argument(
        "--image-size",
        type=image_size,
        metavar="PIXELS",
        help="side of the image, or HEIGHTxWIDTH (default: the model's, in general 224)",
    )
    parser.add_argument(
        "--classes", type=int, default=1000, metavar="N", help="classes of the head (default 1000)"
    )
    parser.add_argument(
        "--compute",
        action="store_true",
        help="print the pre-training compute of the paper's Table 6 instead",
    )


def run(arguments):
    """Prints a table of models, or the details of the named ones."""
    if arguments.compute:
        print(compute_table())
        return
    shape = (*arguments.image_size, 3) if arguments.image_size else None
    if arguments.classes < 1:
        raise ValueError(f"--classes must be positive. Received: {arguments.classes}")
    if arguments.names:
        print(
            "\n\n".join(model_details(name, shape, arguments.classes) for name in arguments.names)
        )
    else:
        print(model_table(shape, arguments.classes))


def model_table(input_shape=None, classes=1000):
    """Returns a line for each model, by default at its own image size."""
    rows = [("model", "parameters", "GFLOPs", "activations", "tokens", "weights")]
    for name in configs.list_models():
        known = ", ".join(catalogue.names_of(name)) or "-"
        smallest = configs.MODELS[name].min_image_size
        if input_shape and (input_shape[0] < smallest[0] or input_shape[1] < smallest[1]):
            rows.append((name, "image too small", "-", "-", "-", known))
            continue
        cost = describe(name, input_shape=input_shape, classes=classes)
        rows.append(
            (
                name,
                f"{cost.parameters:,}",
                f"{cost.flops / 1e9:.2f}",
                f"{cost.activations / 1e6:.1f} M",
                str(cost.sequence_length or "-"),
                known,
            )
        )
    return align_columns(rows, left=(0, 5))


def model_details(name, input_shape=None, classes=1000):
    """Returns a model's costs, its config and its official weights."""
    lines = [str(describe(name, input_shape=input_shape, classes=classes)), "  config"]
    for field in dataclasses.fields(configs.MODELS[name]):
        value = getattr(configs.MODELS[name], field.name)
        if value != field.default:
            lines.append(f"    {field.name} = {value}")
    lines.append("  weights")
    weights = [row for row in catalogue.rows() if row.model == name]
    for row in weights:
        top1 = f", {row.imagenet_top1_percent}% on ImageNet" if row.imagenet_top1_percent else ""
        lines.append(f"    {row.key}: {row.resolution} pixels, {row.classes} classes{top1}")
    for released in RELEASED:
        if released.model == name:
            names, side = " or ".join(released.names), configs.default_image_size(name)
            lines.append(f"    {names}: {side} pixels, {released.classes} classes, in the package")
    return "\n".join(lines if lines[-1] != "  weights" else [*lines, "    none"])


def compute_table():
    """Returns the compute of the paper's Table 6 beside our count."""
    rows = [("model", "epochs", "exaFLOPs", "paper", "ratio")]
    rows += [
        (row.name, str(row.epochs), f"{row.counted:.1f}", str(row.published), f"{row.ratio:.3f}")
        for row in table_6()
    ]
    return align_columns(rows, left=(0,))
