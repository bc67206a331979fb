"""The paper's training recipes as tables; imports neither Keras nor TensorFlow.

recipe = find_recipe("ViT-B/16 ImageNet-21k").scaled(0.01)
trainer.compile(recipe.make_optimizer(), ...)

`Settings.from_recipe` makes them the settings of a job.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from typing import Any, ClassVar

# Training images, for the steps of an epoch.
EXAMPLES = {
    "JFT-300M": 303_000_000,  # Paper, section 4.1.
    "ImageNet-21k": 14_197_122,
    "ImageNet": 1_281_167,
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What pre-training and fine-tuning recipes share.

    Args:
        name: As `find_recipe` takes it.
        source: Where the numbers are from.
        steps: Optimizer steps.
        batch_size: Examples of a step.
        base_lr: Learning rate after warm-up, at `batch_size`.
        warmup_steps: Steps of linear warm-up.
        decay: Of the learning rate after it; see `WarmupSchedule`.
        boundaries: Steps at which a "staircase" falls to a tenth.
        optimizer: "adam" or "sgd".
        weight_decay: Decoupled, of kernels alone.
        weight_decay_times: What it is multiplied with; see `DecoupledOptimizer`.
        global_clipnorm: Largest norm of all gradients together, or None.
        averaging: Factor of Polyak averaging, or None.
        image_size: Pixels per side.
        augmentation: Of training images; see `keras_vit.training.data`.
    """

    name: str
    source: str
    steps: int
    batch_size: int
    base_lr: float
    warmup_steps: int
    decay: str
    boundaries: tuple[int, ...] = ()
    optimizer: str = "adam"
    weight_decay: float = 0.0
    weight_decay_times: str = "learning_rate"
    global_clipnorm: float | None = None
    averaging: float | None = None
    image_size: int = 224
    augmentation: str = "inception_crop"

    command: ClassVar[str]  # That takes it.

    def scaled(self, scale: float):
        """Returns the recipe for a smaller machine, to see `scale` times as many images.

        Steps and batch shrink alike, each by about sqrt(scale): the batch to a power of two,
        8 at least, the steps to what is left to shrink. The warm-up keeps its share of the
        steps. The learning rate follows the batch, in proportion for SGD, by its square root
        for Adam.

        Args:
            scale: In (0, 1].

        Raises:
            ValueError: If `scale` is out of range.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale must be in (0, 1]. Received: scale={scale}")
        if scale == 1:
            return self
        wanted = self.batch_size * math.sqrt(scale)
        batch_size = min(self.batch_size, max(8, 2 ** round(math.log2(wanted))))
        share = batch_size / self.batch_size
        steps = max(1, round(self.steps * scale / share))
        kept = steps / self.steps
        return dataclasses.replace(
            self,
            name=f"{self.name}, scaled by {scale:g}",
            steps=steps,
            batch_size=batch_size,
            base_lr=self.base_lr * (share if self.optimizer == "sgd" else math.sqrt(share)),
            warmup_steps=min(round(self.warmup_steps * kept), steps - 1),
            boundaries=tuple(round(boundary * kept) for boundary in self.boundaries),
        )

    def make_optimizer(self, **changes: Any):
        """Returns the optimizer with its schedule.

        Args:
            **changes: Fields of the recipe and their new values, such as `base_lr`.
        """
        from keras_vit.training.run.from_settings import make_optimizer

        from .settings import Settings

        return make_optimizer(Settings.of(dataclasses.replace(self, **changes)))


@dataclasses.dataclass(frozen=True)
class PretrainingRecipe(Recipe):
    """A row of Table 3, for one of its models. Adam has b1 = 0.9 and b2 = 0.999.

    Args:
        model: A name of `keras_vit.list_models()`.
        data: A data set's name.
        epochs: Times that each image is seen.
        dropout_rate: Share of units dropped.
        loss: "softmax" or "sigmoid"; the paper does not say, big_vision does.
        head_bias: Logit of every class at the start.
    """

    model: str = ""
    data: str = ""
    epochs: float = 0
    dropout_rate: float = 0.0
    loss: str = "softmax"
    head_bias: float = 0.0

    command = "pretrain"


@dataclasses.dataclass(frozen=True)
class MaskedPatchRecipe(Recipe):
    """Masked patch prediction, Appendix B.1.2, with Adam.

    Args:
        model: A name of `keras_vit.list_models()`.
        data: A data set's name.
        target: What is predicted of a patch.
        corruption: Share of the patches that is corrupted.
    """

    model: str = ""
    data: str = ""
    target: str = "mean-colour"
    corruption: float = 0.5

    command = "pretrain --objective masked-patches"


@dataclasses.dataclass(frozen=True)
class FinetuningRecipe(Recipe):
    """A row of Table 4: SGD with momentum 0.9. `base_lr` is the middle of the sweep.

    Args:
        data: Where `tfds` has the data set.
        learning_rates: Those that the sweep tries on the development split.
        development_share: Share of the training set that the sweep is scored on; the final
            run trains on all of it. None: by the number of images.
        model: The model that the row is for, or None for any.
        mixup: Parameter of the beta distribution, 0 for none; None: the augmentation's own.
        resize: Pixels per side before a random crop to `image_size`, or None.
    """

    data: str | None = None
    learning_rates: tuple[float, ...] = ()
    development_share: float | None = None
    model: str | None = None
    mixup: float | None = None
    resize: int | None = None

    command = "finetune"


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
# An image of JFT or ImageNet-21k may have several labels.
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


def _steps(data, epochs, batch_size=4096):
    return math.ceil(EXAMPLES[data] * epochs / batch_size)


def _pretraining():
    for models, data, epochs, base_lr, decay, weight_decay, dropout_rate in TABLE_3:
        loss, head_bias = LOSS_OF_DATA[data]
        for model in models:
            for number in epochs:
                name = f"{model} {data}"
                yield PretrainingRecipe(
                    # The longest run has the plain name: it gave the reported results.
                    name=name if number == epochs[-1] else f"{name} {number} epochs",
                    source="paper, Table 3",
                    steps=_steps(data, number),
                    batch_size=4096,
                    base_lr=base_lr,
                    warmup_steps=10_000,
                    decay=decay,
                    weight_decay=weight_decay,
                    global_clipnorm=1.0 if data == "ImageNet" else None,
                    model=model,
                    data=data,
                    epochs=number,
                    dropout_rate=dropout_rate,
                    loss=loss,
                    head_bias=head_bias,
                )


def _pretraining_with_sgd():
    """Table 7 compares Adam, as in Table 3, with SGD, whose numbers are BiT's."""
    for model in ("BiT-R50x1", "BiT-R152x2"):
        yield PretrainingRecipe(
            name=f"{model} JFT-300M SGD",
            source="paper, Table 7; learning rate and weight decay of big_vision's BiT",
            steps=_steps("JFT-300M", 7),
            batch_size=4096,
            base_lr=0.03 * 4096 / 256,
            warmup_steps=5000,
            decay="linear",
            optimizer="sgd",
            weight_decay=3e-5 * 4096 / 256,
            weight_decay_times="schedule",
            model=model,
            data="JFT-300M",
            epochs=7,
            loss="sigmoid",
            head_bias=-10.0,
        )


def _finetuning():
    for name, data, steps, learning_rates, development_share in TABLE_4:
        yield FinetuningRecipe(
            name=name,
            source="paper, Table 4; warm-up of the official code",
            steps=steps,
            batch_size=512,
            base_lr=0.01,
            warmup_steps=min(500, steps // 5),
            decay="cosine",
            optimizer="sgd",
            global_clipnorm=1.0,
            image_size=384,
            data=data,
            learning_rates=learning_rates,
            development_share=development_share,
        )


def _finetuning_at_high_resolution():
    for model, image_size in (("ViT-L/16", 512), ("ViT-H/14", 518)):
        yield dataclasses.replace(
            FINETUNING["ImageNet"],
            name=f"ImageNet {model}",
            source="paper, Tables 2 and 4",
            averaging=0.9999,
            image_size=image_size,
            model=model,
        )


FINETUNING: dict[str, FinetuningRecipe] = {recipe.name: recipe for recipe in _finetuning()}
FINETUNING |= {recipe.name: recipe for recipe in _finetuning_at_high_resolution()}
PRETRAINING: dict[str, PretrainingRecipe] = {
    recipe.name: recipe for recipe in (*_pretraining(), *_pretraining_with_sgd())
}
MASKED_PATCHES = {
    "ViT-B/16 JFT-300M masked patches": MaskedPatchRecipe(
        name="ViT-B/16 JFT-300M masked patches",
        source="paper, B.1.2; weight decay of section 4.1",
        steps=1_000_000,
        batch_size=4096,
        base_lr=2e-4,
        warmup_steps=10_000,
        decay="cosine",
        weight_decay=0.1,
        model="ViT-B/16",
        data="JFT-300M",
    )
}
RECIPES: dict[str, Recipe] = {**PRETRAINING, **MASKED_PATCHES, **FINETUNING}


def find_recipe(name: str) -> Any:
    """Returns the recipe of a name, such as "ViT-B/16 ImageNet-21k" or "CIFAR-10".

    Raises:
        ValueError: If there is none; the nearest names are given.
    """
    folded = {known.lower(): known for known in (*RECIPES, HYPER_RULE_NAME)}
    found = folded.get(name.lower())
    if found in RECIPES:
        return RECIPES[found]
    if found:
        raise ValueError(
            "BiT's HyperRule follows from the data: take bit_hyper_rule, or "
            f"FineTuning.from_recipe. Received: {name!r}"
        )
    close = difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.3)
    raise ValueError(
        "The recipe must be one of those that keras-vit recipes lists. Nearest: "
        f"{', '.join(folded[match] for match in close) or ', '.join(RECIPES)}. Received: {name!r}"
    )


HYPER_RULE_NAME = "BiT HyperRule"

# Fewer examples than: steps, boundaries, warm-up, mixup; BiT's bit_hyperrule.
HYPER_RULE = (
    (20_000, 500, (200, 300, 400), 100, 0.0),
    (500_000, 10_000, (3000, 6000, 9000), 500, 0.1),
    (math.inf, 20_000, (6000, 12_000, 18_000), 500, 0.1),
)


def bit_hyper_rule(num_examples: int, image_size: tuple[int, int]) -> FinetuningRecipe:
    """Returns BiT's recipe for a ResNet, which follows from the data alone.

    Args:
        num_examples: Training images.
        image_size: Pixels (height, width) of the data's images.

    Raises:
        ValueError: If there are no images.
    """
    if num_examples < 1 or min(image_size) < 1:
        raise ValueError(
            f"There must be images. Received: num_examples={num_examples}, image_size={image_size}"
        )
    _, steps, boundaries, warmup_steps, mixup = next(
        row for row in HYPER_RULE if num_examples < row[0]
    )
    small = image_size[0] * image_size[1] < 96 * 96
    return FinetuningRecipe(
        name=HYPER_RULE_NAME,
        source="BiT, bit_hyperrule",
        steps=steps,
        batch_size=512,
        base_lr=0.003,
        warmup_steps=warmup_steps,
        decay="staircase",
        boundaries=boundaries,
        optimizer="sgd",
        image_size=128 if small else 480,
        augmentation="resize_random_crop",
        resize=160 if small else 512,
        learning_rates=(0.003,),
        mixup=mixup,
    )
