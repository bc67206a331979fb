"""Pre-training data and compute of models, and the compute of the paper's Table 6.

python paper/pretraining.py     # Our count of Table 6 next to the paper's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tables import paper_table

from keras_vit import configs
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.recognition import config_of_json
from keras_vit.describing import describe
from keras_vit.reports.report import align_columns
from keras_vit.training.evaluation.results import Result

BACKWARD = 2  # The backward pass costs about two forward passes.

# Images and classes by name; paper, section 4.1. The paper says 18k classes for JFT-300M; the
# exact number is from Sun et al., 2017 (arXiv 1707.02968).
DATA_SETS = {
    "ImageNet": (1_281_167, 1000),
    "ImageNet-21k": (14e6, 21_843),
    "JFT-300M": (303e6, 18_291),
}

# The fields that the count of compute needs in addition to the config.
COMPUTE_FIELDS = ("images", "epochs", "image_size", "classes")


@dataclasses.dataclass(frozen=True)
class PreTrainingRun:
    """The pre-training of a model; unknown fields are None.

    Args:
        data: The data set's name in tables.
        images: Images in the data set.
        epochs: Passes over the data set.
        image_size: Pixels (height, width).
        classes: Classes of the head.
        exaflops: Compute, 10^18 operations.
    """

    data: str | None = None
    images: float | None = None
    epochs: float | None = None
    image_size: tuple[int, int] | None = None
    classes: int | None = None
    exaflops: float | None = None

    def missing(self, *names: str) -> list[str]:
        """Returns the names of unknown fields among the given ones."""
        return [name for name in names if getattr(self, name) is None]


def pretraining_of(result: Result) -> PreTrainingRun:
    """Returns the pre-training of a result's model.

    Reads the fields `pretraining`, `pretraining_images`, `pretraining_epochs`,
    `pretraining_image_size`, `pretraining_classes` and `pretraining_exaflops` of
    `result.model`, as `results.pretraining_fields` writes them. Images and classes of the
    paper's data sets are known by name. Compute that is not stated is counted if the config
    and all fields of `COMPUTE_FIELDS` are known. Nothing else is assumed.
    """
    model = result.model
    stated: dict[str, Any] = {
        name: model.get(f"pretraining_{name}")
        for name in ("images", "epochs", "image_size", "classes", "exaflops")
    }
    images, classes = DATA_SETS.get(str(model.get("pretraining")), (None, None))
    stated["images"] = stated["images"] or images
    stated["classes"] = stated["classes"] or classes
    if stated["image_size"] is not None:
        size = stated["image_size"]
        stated["image_size"] = (size, size) if isinstance(size, int) else tuple(size)
    run = PreTrainingRun(data=model.get("pretraining"), **stated)
    config = config_of_result(model)
    if (
        run.exaflops is not None
        or config is None
        or run.images is None
        or run.epochs is None
        or run.image_size is None
        or run.classes is None
    ):
        return run
    flops = pretraining_flops(
        config,
        images=run.images,
        epochs=run.epochs,
        input_shape=(*run.image_size, 3),
        classes=run.classes,
    )
    return dataclasses.replace(run, exaflops=flops / 1e18)


def config_of_result(model: dict[str, Any]) -> ViTConfig | BiTConfig | None:
    """Returns the config in a result file's `model`, or None."""
    fields, name = model.get("config"), model.get("name")
    named = configs.MODELS.get(name) if isinstance(name, str) else None
    if not fields:
        return named
    kind = fields.get("type", type(named).__name__)
    try:
        return config_of_json({k: v for k, v in fields.items() if k != "type"}, kind)
    except (TypeError, ValueError):
        return None  # A config of another version.


def pretraining_flops(
    name_or_config: str | ViTConfig | BiTConfig, *, images: float, epochs: float, **arguments: Any
) -> float:
    """Returns the FLOPs of pre-training: images x epochs x 3 x FLOPs of a forward pass.

    Args:
        name_or_config: The model.
        images: Images in the data set.
        epochs: Passes over the data set.
        **arguments: Passed to `keras_vit.describe`, such as `input_shape`.
    """
    return images * epochs * (1 + BACKWARD) * describe(name_or_config, **arguments).flops


@dataclasses.dataclass(frozen=True)
class PreTrainingCompute:
    """A row of Table 6.

    Args:
        name: The model.
        epochs: Passes over JFT-300M.
        counted: exaFLOPs, counted from the model's config.
        published: exaFLOPs of the paper.
    """

    name: str
    epochs: int
    counted: float
    published: int

    @property
    def ratio(self) -> float:
        """The counted compute divided by the paper's."""
        return self.counted / self.published


def table_6() -> list[PreTrainingCompute]:
    """Returns the compute of Table 6, at 224 pixels."""
    images, classes = DATA_SETS["JFT-300M"]
    rows = []
    for name, epochs, *_, exaflops in paper_table("6")[1:]:
        flops = pretraining_flops(name, images=images, epochs=int(epochs), classes=classes)
        rows.append(PreTrainingCompute(name, int(epochs), flops / 1e18, int(exaflops)))
    return rows


def main() -> None:
    """Prints the compute of Table 6 and our count."""
    rows = [("model", "epochs", "exaFLOPs", "paper", "ratio")]
    rows += [
        (row.name, str(row.epochs), f"{row.counted:.1f}", str(row.published), f"{row.ratio:.3f}")
        for row in table_6()
    ]
    print(align_columns(rows, left=(0,)))


if __name__ == "__main__":
    main()
