"""The paper's training recipes as tables; imports neither Keras nor TensorFlow.

`FineTuning.from_recipe("CIFAR-10")` in `settings/` gives the settings of a recipe.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from keras_vit.utils.synonyms import nearest_names

# Training images, for the steps of an epoch.
EXAMPLES = {
    "JFT-300M": 303_000_000,  # Paper, section 4.1.
    "ImageNet-21k": 14_197_122,
    "ImageNet": 1_281_167,
}

# What `sweep` tries without a recipe, as for CIFAR, Pets and Flowers, and the seeds of its final
# runs.
SWEEP_RATES = (0.001, 0.003, 0.01, 0.03)
SWEEP_SEEDS = (0, 1, 2)


@dataclasses.dataclass(frozen=True)
class PaperRecipe:
    """A row of one of the paper's tables.

    Args:
        name: The name that `find_recipe` takes.
        source: Where the numbers are from.
        command: The command that takes the recipe, `keras-vit ...`.
        settings: Settings, by their names in `settings/`; the command's defaults complete
            them.
        data: A data set's name; in fine-tuning its name in TensorFlow Datasets.
        epochs: Passes over the data; None in fine-tuning.
        learning_rates: The rates that `keras-vit sweep` tries on the development split.
    """

    name: str
    source: str
    command: str
    settings: dict[str, Any]
    data: str | None = None
    epochs: float | None = None
    learning_rates: tuple[float, ...] = ()


# Models, data, epochs, base learning rate, decay, weight decay, dropout; paper, Table 3.
# A model with two numbers of epochs has a recipe for each.
TABLE_3 = (
    (("ViT-B/16", "ViT-B/32"), "JFT-300M", (7,), 8e-4, "linear", 0.1, 0.0),
    (("ViT-L/32",), "JFT-300M", (7,), 6e-4, "linear", 0.1, 0.0),
    (("ViT-L/16",), "JFT-300M", (7, 14), 4e-4, "linear", 0.1, 0.0),
    (("ViT-H/14",), "JFT-300M", (14,), 3e-4, "linear", 0.1, 0.0),
    (("BiT-R50x1", "BiT-R50x2"), "JFT-300M", (7,), 1e-3, "linear", 0.1, 0.0),
    (("BiT-R101x1",), "JFT-300M", (7,), 8e-4, "linear", 0.1, 0.0),
    (("BiT-R152x1", "BiT-R152x2"), "JFT-300M", (7,), 6e-4, "linear", 0.1, 0.0),
    (("R50+ViT-B/16", "R50+ViT-B/32"), "JFT-300M", (7,), 8e-4, "linear", 0.1, 0.0),
    (("R50+ViT-L/32",), "JFT-300M", (7,), 2e-4, "linear", 0.1, 0.0),
    (("R50+ViT-L/16",), "JFT-300M", (7, 14), 4e-4, "linear", 0.1, 0.0),
    (("ViT-B/16", "ViT-B/32"), "ImageNet-21k", (90,), 1e-3, "linear", 0.03, 0.1),
    (("ViT-L/16", "ViT-L/32"), "ImageNet-21k", (30, 90), 1e-3, "linear", 0.03, 0.1),
    (
        ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32"),  # The paper writes ViT-*.
        "ImageNet",
        (300,),
        3e-3,
        "cosine",
        0.3,
        0.1,
    ),
)

# Loss and head bias by data; big_vision's configurations and the official repository's issues.
# JFT and ImageNet-21k are multi-label.
LOSS_OF_DATA = {
    "JFT-300M": ("sigmoid", -10.0),
    "ImageNet-21k": ("sigmoid", -10.0),
    "ImageNet": ("softmax", 0.0),
}

# Name, data, steps, learning rates, share of the development split; paper, Table 4.
TABLE_4 = (
    ("ImageNet", "imagenet2012", 20_000, (0.003, 0.01, 0.03, 0.06), 0.01),
    ("CIFAR-100", "cifar100", 10_000, (0.001, 0.003, 0.01, 0.03), 0.02),
    ("CIFAR-10", "cifar10", 10_000, (0.001, 0.003, 0.01, 0.03), 0.02),
    ("Oxford-IIIT Pets", "oxford_iiit_pet", 500, (0.001, 0.003, 0.01, 0.03), 0.1),
    ("Oxford Flowers-102", "oxford_flowers102", 500, (0.001, 0.003, 0.01, 0.03), 0.1),
    ("VTAB", None, 2500, (0.01,), 0.0),
)


def finetuning_warmup(steps: int) -> int:
    """Returns the warm-up steps of the official fine-tuning: 500, or a fifth of a short run."""
    return min(500, steps // 5)


def _pretraining_steps(data, epochs, batch_size=4096):
    return math.ceil(EXAMPLES[data] * epochs / batch_size)


def _pretraining():
    for models, data, epochs, learning_rate, decay, weight_decay, dropout_rate in TABLE_3:
        loss, head_bias = LOSS_OF_DATA[data]
        for model in models:
            for number in epochs:
                name = f"{model} {data}"
                yield PaperRecipe(
                    # The longest run has the plain name: it gave the reported results.
                    name=name if number == epochs[-1] else f"{name} {number} epochs",
                    source="paper, Table 3",
                    command="pretrain",
                    settings={
                        "model": model,
                        "steps": _pretraining_steps(data, number),
                        "batch_size": 4096,
                        "learning_rate": learning_rate,
                        "warmup_steps": 10_000,
                        "decay": decay,
                        "weight_decay": weight_decay,
                        "global_clipnorm": 1.0 if data == "ImageNet" else None,
                        "dropout_rate": dropout_rate,
                        "loss": loss,
                        "head_bias": head_bias,
                    },
                    data=data,
                    epochs=number,
                )


def _pretraining_with_sgd():
    """Table 7 compares Adam, as in Table 3, with SGD, whose numbers are BiT's."""
    loss, head_bias = LOSS_OF_DATA["JFT-300M"]
    for model in ("BiT-R50x1", "BiT-R152x2"):
        yield PaperRecipe(
            name=f"{model} JFT-300M SGD",
            source="paper, Table 7; learning rate and weight decay of big_vision's BiT",
            command="pretrain",
            settings={
                "model": model,
                "steps": _pretraining_steps("JFT-300M", 7),
                "batch_size": 4096,
                "optimizer": "sgd",
                "learning_rate": 0.03 * 4096 / 256,
                "warmup_steps": 5000,
                "decay": "linear",
                "weight_decay": 3e-5 * 4096 / 256,
                "weight_decay_times": "schedule",
                "global_clipnorm": None,
                "dropout_rate": 0.0,
                "loss": loss,
                "head_bias": head_bias,
            },
            data="JFT-300M",
            epochs=7,
        )


# What the default of fine-tuning does otherwise, see docs/finetune.md.
AS_IN_THE_PAPER = {"head_start": "zero", "augmentation": "inception_crop", "keep": "last"}


def _finetuning():
    for name, data, steps, learning_rates, development_share in TABLE_4:
        yield PaperRecipe(
            name=name,
            source="paper, Table 4; warm-up of the official code",
            command="finetune",
            settings={
                "image_size": (384, 384),
                "steps": steps,
                "batch_size": 512,
                "learning_rate": 0.01,  # In the middle of the sweep.
                "warmup_steps": finetuning_warmup(steps),
                "validation": development_share,
                **AS_IN_THE_PAPER,
            },
            data=data,
            learning_rates=learning_rates,
        )


def _finetuning_at_high_resolution():
    row = FINETUNING["ImageNet"]
    for model, image_size in (("ViT-L/16", 512), ("ViT-H/14", 518)):
        changes = {"model": model, "image_size": (image_size, image_size), "ema_momentum": 0.9999}
        yield dataclasses.replace(
            row,
            name=f"ImageNet {model}",
            source="paper, Tables 2 and 4",
            settings=row.settings | changes,
        )


FINETUNING: dict[str, PaperRecipe] = {recipe.name: recipe for recipe in _finetuning()}
FINETUNING |= {recipe.name: recipe for recipe in _finetuning_at_high_resolution()}
PRETRAINING: dict[str, PaperRecipe] = {
    recipe.name: recipe for recipe in (*_pretraining(), *_pretraining_with_sgd())
}
MASKED_PATCHES = {
    "ViT-B/16 JFT-300M masked patches": PaperRecipe(
        name="ViT-B/16 JFT-300M masked patches",
        source="paper, B.1.2; weight decay of section 4.1",
        command="pretrain --objective masked-patches",
        settings={
            "model": "ViT-B/16",
            "steps": 1_000_000,
            "batch_size": 4096,
            "learning_rate": 2e-4,
            "warmup_steps": 10_000,
            "weight_decay": 0.1,
        },
        data="JFT-300M",
    )
}

RECIPES: dict[str, PaperRecipe] = {**PRETRAINING, **MASKED_PATCHES, **FINETUNING}

# The rows of Table 4 for other data, by the least number of training images; BiT's limits.
FEW_IMAGES = 20_000
BY_DATA_SIZE = ((0, "Oxford-IIIT Pets"), (FEW_IMAGES, "CIFAR-10"), (500_000, "ImageNet"))


def augmentation_of_size(num_images: int) -> str:
    """Returns the default augmentation of fine-tuning on a number of training images.

    The paper's crops of down to 5% of an image's area take more from few photos than they teach;
    measured in docs/finetune.md.
    """
    return "none" if num_images < FEW_IMAGES else "inception_crop"


def finetuning_of_size(num_images: int) -> PaperRecipe:
    """Returns the row of Table 4 for data with a number of training images."""
    name = next(name for least, name in reversed(BY_DATA_SIZE) if num_images >= least)
    return FINETUNING[name]


def find_recipe(name: str) -> PaperRecipe:
    """Returns the recipe of a name, such as "ViT-B/16 ImageNet-21k" or "CIFAR-10".

    Raises:
        ValueError: If there is none; the error lists the nearest names.
    """
    folded = {recipe.name.lower(): recipe for recipe in RECIPES.values()}
    if name.lower() in folded:
        return folded[name.lower()]
    longer = sorted(recipe for recipe in RECIPES if name and name.lower() in recipe.lower())
    answer = f"With it: {', '.join(longer)}" if longer else nearest_names(name, RECIPES)
    raise ValueError(
        "The recipe must be one of those that keras-vit recipes lists. "
        f"{answer}. Received: {name!r}"
    )


def rates_of_sweep(name: str | None) -> tuple[float, ...]:
    """Returns the learning rates that a sweep tries; `SWEEP_RATES` without a recipe.

    Args:
        name: The name of a recipe, or None.

    Raises:
        ValueError: If there is no such recipe.
    """
    return find_recipe(name).learning_rates if name else SWEEP_RATES
