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
        'such as "ViT-B/16", "ViT-B/*", or weights such as "cifar10"; all models by default',
        unit="NAME",
        positional=True,
    )
    image_size: tuple[int, int] | None = setting(
        None,
        "side of the image, or HEIGHTxWIDTH",
        unit="PIXELS",
        absent="the model's, in general 224",
    )

    @property
    def _of_weights(self):
        others = [name for name in self.names if name not in configs.MODELS]
        return [name for name in others if "*" not in name]

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is needed: for weights, whose files it reads, and not for models."""
        return bool(self._of_weights)

    def check_input(self) -> None:
        """Raises ValueError for a name of no model and no weights, which is no path either."""
        from keras_vit.checkpoints.catalogue import check_exists, list_models

        for name in self.names:
            if "*" in name and not list_models(name):
                raise ValueError(
                    f"A pattern must match a model; keras-vit models lists all. Received: {name!r}"
                )
        for name in self._of_weights:
            try:
                check_exists(name)
            except ValueError:
                configs.resolve(name)  # An error, with the nearest model.
                raise

    def run(self) -> None:
        """Prints a table of models, or the details of the named ones."""
        shape = (*self.image_size, 3) if self.image_size else None
        texts = [
            model_table(name, shape) if "*" in name else model_details(name, shape)
            for name in self.names or ["*"]
        ]
        print("\n\n".join(texts))


def model_table(pattern, input_shape=None):
    """Returns a line for each model of a pattern, by default at its own image size."""
    from keras_vit.checkpoints import catalogue
    from keras_vit.describing import describe

    rows = [("model", "parameters", "GFLOPs", "activations", "tokens", "weights")]
    for name in catalogue.list_models(pattern):
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
    """Returns a model's costs and its config; of a name of `MODELS` also its weights."""
    from keras_vit.describing import describe

    described = describe(name, input_shape=input_shape)
    lines = [str(described)]
    if described.config is not None:
        lines.append("  config")
        fields = changed_fields(described.config)
        lines += [f"    {field} = {getattr(described.config, field)}" for field in fields]
    if name in configs.MODELS:
        lines += ["  weights", *(f"    {line}" for line in _weights_of(name) or ["none"])]
    return "\n".join(lines)


def _weights_of(name):
    """A line for each file of a model's weights."""
    from keras_vit.checkpoints import catalogue

    lines = []
    for row in [row for row in catalogue.rows() if row.model == name]:
        top1 = f", {row.imagenet_top1_percent}% on ImageNet" if row.imagenet_top1_percent else ""
        lines.append(f"{row.key}: {row.resolution} pixels, {row.classes} classes{top1}")
    side = configs.default_image_size(name)
    for released in catalogue.RELEASED:
        if released.model == name:
            names = " or ".join(released.names)
            lines.append(f"{names}: {side} pixels, {released.classes} classes, in the package")
    return lines
