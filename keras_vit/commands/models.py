"""`keras-vit models`: all models with their costs and weights."""

from __future__ import annotations

import dataclasses

from keras_vit import configs
from keras_vit.commands import Command
from keras_vit.reports.report import align_columns
from keras_vit.utils.fields import setting
from keras_vit.utils.json_files import changed_fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class Models(Command):
    """List the models and their costs."""

    names: tuple[str, ...] = setting(
        (),
        'such as "ViT-B/16"; all models by default',
        unit="NAME",
        positional=True,
    )
    image_size: tuple[int, int] | None = setting(
        None,
        "side of the image, or HEIGHTxWIDTH",
        unit="PIXELS",
        absent="the model's, in general 224",
    )

    without_tensorflow = True

    def run(self) -> None:
        """Prints a table of models, or the details of the named ones."""
        shape = (*self.image_size, 3) if self.image_size else None
        if self.names:
            print("\n\n".join(model_details(name, shape) for name in self.names))
        else:
            print(model_table(shape))


def model_table(input_shape=None):
    """Returns a line for each model, by default at its own image size."""
    from keras_vit.checkpoints import catalogue
    from keras_vit.describing import describe

    rows = [("model", "parameters", "GFLOPs", "activations", "tokens", "weights")]
    for name in configs.MODELS:
        known = ", ".join(catalogue.names_of(name)) or "-"
        smallest = configs.MODELS[name].min_image_size
        if input_shape and (input_shape[0] < smallest[0] or input_shape[1] < smallest[1]):
            rows.append((name, "image too small", "-", "-", "-", known))
            continue
        cost = describe(name, input_shape=input_shape)
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


def model_details(name, input_shape=None):
    """Returns a model's costs, its config and its official weights."""
    from keras_vit.checkpoints import catalogue
    from keras_vit.describing import describe

    lines = [str(describe(name, input_shape=input_shape)), "  config"]
    config = configs.MODELS[name]
    lines += [f"    {field} = {getattr(config, field)}" for field in changed_fields(config)]
    lines.append("  weights")
    for row in [row for row in catalogue.rows() if row.model == name]:
        top1 = f", {row.imagenet_top1_percent}% on ImageNet" if row.imagenet_top1_percent else ""
        lines.append(f"    {row.key}: {row.resolution} pixels, {row.classes} classes{top1}")
    for released in catalogue.RELEASED:
        if released.model == name:
            names, side = " or ".join(released.names), configs.default_image_size(name)
            lines.append(f"    {names}: {side} pixels, {released.classes} classes, in the package")
    return "\n".join(lines if lines[-1] != "  weights" else [*lines, "    none"])
