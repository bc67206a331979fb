"""The paper's claims: the trainings that each needs, and the paper's text on their results.

Nothing is trained here, and neither Keras nor TensorFlow is imported.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.configs.counting import cost_of

SEEDS = (0, 1, 2)

# A side is trained at its rate and at the two next to it, with the first seed. While the best by
# validation images is the lowest or the highest, the next rate is tried, too.
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)

# A training where its side has no changes: fields of `ViTConfig` or `BiTConfig` and of
# `PreTraining` or `MaskedPatches`; below the line what `training_run.py` knows.
BASE: dict[str, Any] = {
    "patch_size": 4,
    "width": 64,
    "depth": 4,
    "mlp_dim": 128,
    "num_heads": 4,
    "steps": 600,
    "batch_size": 64,
    "image_size": 24,
    "optimizer": "adam",
    "weight_decay": 0.1,
    "global_clipnorm": 1.0,
    "dropout_rate": 0.0,
    "augmentation": "padded_crop",
    "jit_compile": False,  # On CPUs compiling takes longer than it saves.
    # ---
    "images": None,  # Training images, as many of each class; None for all.
    "classes": None,  # Numbers of the classes; None for all.
    "start": None,  # The side of the same claim whose weights are the start.
    "few_shot": None,  # Classes whose few-shot accuracy is measured, too.
}


@dataclasses.dataclass(frozen=True)
class Side:
    """A training that a claim compares with others.

    Args:
        changes: Fields of `BASE` and their values.
        rate: The middle one of the learning rates that are tried first.
        every_seed: Whether every rate is trained with every seed, for a curve.
        fixed_rate: Whether only `rate` is used.
    """

    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    rate: float = 1e-3
    every_seed: bool = False
    fixed_rate: bool = False


@dataclasses.dataclass(frozen=True)
class Contrast:
    """A weighted sum of sides' means that is positive where the paper is right.

    Args:
        text: What the paper says.
        weights: By side; 1 and -1 compare two.
        of: The compared result.
    """

    text: str
    weights: dict[str, float]
    of: str = "test"


@dataclasses.dataclass(frozen=True)
class Alike:
    """Sides whose means differ by less than a margin where the paper is right.

    Args:
        text: What the paper says.
        sides: The sides.
        margin: A difference; or the weights of a contrast, a third of which is the margin.
    """

    text: str
    sides: tuple[str, ...]
    margin: float | dict[str, float]


@dataclasses.dataclass(frozen=True)
class OtherRates:
    """Sides whose best learning rates differ where the paper is right.

    Args:
        text: What the paper says.
        sides: Two sides of which every rate has every seed.
    """

    text: str
    sides: tuple[str, str]


@dataclasses.dataclass(frozen=True)
class SameRanks:
    """Two results of models that rank the models alike where the paper is right.

    Args:
        text: What the paper says.
        pairs: Pairs of sides, each with the compared result.
    """

    text: str
    pairs: tuple[tuple[tuple[str, str], tuple[str, str]], ...]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper.

    Args:
        place: Where the paper makes it.
        trained: What is trained, in human-readable form.
        sides: The trainings, by name.
        statements: What the paper says of them.
        curves: Sides that are drawn as a curve, by the curve's name.
        axis: What the curves are drawn over: "images" or "flops".
    """

    place: str
    trained: str
    sides: dict[str, Side]
    statements: tuple[Contrast | Alike | OtherRates | SameRanks, ...]
    curves: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    axis: str = "flops"


def difference(better: str, worse: str) -> dict[str, float]:
    """Returns the weights of a contrast of two sides."""
    return {better: 1, worse: -1}


def minus(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """Returns the weights of the difference of two contrasts."""
    return {
        side: first.get(side, 0) - second.get(side, 0) for side in dict.fromkeys([*first, *second])
    }


def config_of(changes: dict[str, Any]) -> ViTConfig | BiTConfig:
    """Returns the config of a side's model, a ResNet where it has units."""
    fields = BASE | changes
    kind = BiTConfig if "num_blocks" in fields else ViTConfig
    return kind(**{f.name: fields[f.name] for f in dataclasses.fields(kind) if f.name in fields})


def flops_of(changes: dict[str, Any]) -> int:
    """Returns the FLOPs of a side's training: three forward passes for each image of a step."""
    fields = BASE | changes
    size = fields["image_size"]
    forward = cost_of(config_of(changes), (size, size, 3), classes=10).flops
    return 3 * fields["steps"] * fields["batch_size"] * forward


def interpolated(sides: dict[str, dict[str, Any]], flops: float) -> dict[str, float]:
    """Returns the weights of the sides nearest to a compute, linear in its logarithm.

    Args:
        sides: Changes by name.
        flops: The compute, between the smallest and the largest compute of the sides.
    """
    known = sorted((flops_of(changes), name) for name, changes in sides.items())
    for (low, first), (high, second) in itertools.pairwise(known):
        if low <= flops <= high:
            share = math.log(flops / low) / math.log(high / low)
            return {first: 1 - share, second: share}
    raise ValueError(f"The compute must be between {known[0]} and {known[-1]}. Received: {flops}")


def common_flops(*families: dict[str, dict[str, Any]]) -> tuple[int, int]:
    """Returns the lowest and the highest compute that every family of sides reaches."""
    reached = [[flops_of(changes) for changes in family.values()] for family in families]
    return max(map(min, reached)), min(map(max, reached))


# The plain models of several claims.
RESNET = {"num_blocks": [1, 1], "width_factor": 0.5}
HYBRID = {"resnet": {"num_blocks": [1], "width_factor": 0.5}, "patch_size": 2}  # 3x3 patches.
GAP = {"classifier": "gap"}


def positions() -> Claim:
    """Position embeddings."""
    kinds = {"1-D": {}, "2-D": {"position_embedding": "learned_2d"}}
    places = {"in every block": "every_block", "shared by all blocks": "every_block_shared"}
    sides = {"none": {"position_embedding": "none"}, **kinds}
    sides["relative"] = {"position_embedding": "relative"}
    for kind, changes in kinds.items():
        for place, value in places.items():
            sides[f"{kind} {place}"] = changes | {"position_embedding_at": value}
    known = tuple(name for name in sides if name != "none")
    gain = {name: 1 / len(known) for name in known} | {"none": -1}
    return Claim(
        "Table 8, D.4",
        "`ViT-64/4` with eight kinds and places of positions",
        {name: Side(changes) for name, changes in sides.items()},
        (
            Contrast("Models with position embeddings are far better.", gain),
            Alike("The kind and the place of position embeddings hardly matter.", known, gain),
        ),
    )


def pooling() -> Claim:
    """Class token or mean of the patches in front of the head."""
    sides = ("class token", "mean of patches")
    return Claim(
        "D.3, Figure 9",
        "`ViT-64/4`, all rates with all seeds",
        {name: Side(c, every_seed=True) for name, c in zip(sides, ({}, GAP), strict=True)},
        (
            Alike("Class token and mean of the patches are equally good.", sides, 0.01),
            OtherRates("Class token and mean need different learning rates.", sides),
        ),
    )


def compute() -> Claim:
    """Vision Transformers, hybrids and ResNets by compute."""
    small = {"width": 32, "mlp_dim": 64, "num_heads": 2}
    wide = {"width": 96, "mlp_dim": 192, "num_heads": 6}
    coarse = {"patch_size": 6}
    vits = {"ViT-32/6": coarse | small, "ViT-64/6": coarse, "ViT-64/4": {}, "ViT-96/4": wide}
    fine = HYBRID | {"patch_size": 1}
    hybrids = {
        "R+ViT-32/8": HYBRID | small,
        "R+ViT-64/8": HYBRID,
        "R+ViT-64/4": fine,
        "R+ViT-96/4": fine | wide,
    }
    units = ([1], [1, 1], [2, 2], [2, 2, 2])
    resnets = {f"ResNet-{'-'.join(map(str, n))}": RESNET | {"num_blocks": n} for n in units}
    low, high = common_flops(vits, hybrids)
    at_low, at_high = (
        minus(interpolated(hybrids, flops), interpolated(vits, flops)) for flops in (low, high)
    )
    highest = common_flops(vits, resnets)[1]
    return Claim(
        "section 4.4, Figure 5",
        "four sizes each, equal steps, by FLOPs",
        {name: Side(changes) for name, changes in (vits | hybrids | resnets).items()},
        (
            Contrast("Hybrids are ahead of ViTs at small compute.", at_low),
            Contrast("The lead of hybrids over ViTs shrinks with compute.", minus(at_low, at_high)),
            Contrast(
                "ViTs are ahead of ResNets at the same compute.",
                minus(interpolated(vits, highest), interpolated(resnets, highest)),
            ),
        ),
        {"ViT": tuple(vits), "hybrid": tuple(hybrids), "ResNet": tuple(resnets)},
    )


IMAGES = 45_000  # Without the validation part.
DATA_SIZES = (450, 1_350, 4_500, 13_500, IMAGES)  # 1%, 3%, 10%, 30%, 100%.


def data_size() -> Claim:
    """Vision Transformer and ResNet by training images."""
    sides = {}
    for images in DATA_SIZES:
        part = {"images": images} if images < IMAGES else {}
        sides[f"ViT, {images:,}"] = part
        sides[f"ResNet, {images:,}"] = RESNET | part
    few, many = (difference(f"ResNet, {n:,}", f"ViT, {n:,}") for n in (450, 45_000))
    return Claim(
        "section 4.3, Figures 3 and 4",
        "`ViT-64/4` and `ResNet-1-1` with 1% to 100% of the images, equal steps",
        {name: Side(changes) for name, changes in sides.items()},
        (
            Contrast("The ResNet is ahead with few images.", few),
            Contrast("The lead of the ResNet shrinks with more images.", minus(few, many)),
        ),
        {
            kind: tuple(name for name in sides if name.startswith(kind))
            for kind in ("ViT", "ResNet")
        },
        axis="images",
    )


# A split of CIFAR-10 by classes, with animals and vehicles in both parts.
PRE_TRAINING = [0, 2, 3, 6, 8]  # Airplane, bird, cat, frog, ship.
TRANSFER = [1, 4, 5, 7, 9]  # Automobile, deer, dog, horse, truck.


def transfer() -> Claim:
    """Fine-tuning at a higher resolution, and few-shot compared with fine-tuned accuracy."""
    models = {
        "ViT-64/4": {},
        "ViT-64/6": {"patch_size": 6},
        "ViT-64/4 with mean": GAP,
        "ViT-128/6": {"patch_size": 6, "width": 128, "mlp_dim": 256, "num_heads": 8},
        "ViT-64/4 of half the steps": {"steps": 300},
        "ViT-64/4 of a tenth of the images": {"images": 2_250},
        "R+ViT-64/8": HYBRID,
        "ResNet-1-1": RESNET,
    }
    sides = {
        name: Side(changes | {"classes": PRE_TRAINING, "few_shot": TRANSFER})
        for name, changes in models.items()
    }
    tuning = {"classes": TRANSFER, "steps": 200, "optimizer": "sgd", "weight_decay": 0.0}
    for name, changes in models.items():
        sides[f"{name}, fine-tuned"] = Side(
            changes | {"images": None} | tuning | {"start": name}, rate=0.03
        )
    higher = "ViT-64/4, fine-tuned at 32 pixels"
    sides[higher] = Side(tuning | {"image_size": 32, "start": "ViT-64/4"}, rate=0.03)
    return Claim(
        "sections 3.2 and 4.1",
        "eight models of five classes, fine-tuned to the other five",
        sides,
        (
            Contrast(
                "Fine-tuning at a higher resolution is better.",
                difference(higher, "ViT-64/4, fine-tuned"),
            ),
            SameRanks(
                "Few-shot accuracy ranks models as fine-tuned accuracy does.",
                tuple(((name, "few_shot"), (f"{name}, fine-tuned", "test")) for name in models),
            ),
        ),
    )


def shape() -> Claim:
    """Depth, width, MLP and patch size, each scaled from one base."""
    lines = {
        "depth": [{"depth": depth} for depth in (2, 8)],
        "width": [{"width": width, "num_heads": width // 16} for width in (32, 128)],
        "MLP": [{"mlp_dim": units} for units in (32, 512)],
        "patch": [{"patch_size": side} for side in (12, 6, 3)],
    }
    named = {
        line: {"base": {}} | {f"{line} {next(iter(c.values()))}": c for c in scaled}
        for line, scaled in lines.items()
    }
    sides = {name: changes for line in named.values() for name, changes in line.items()}

    def above_width(line):
        flops = common_flops(named[line], named["width"])[1]
        return minus(interpolated(named[line], flops), interpolated(named["width"], flops))

    return Claim(
        "D.2, Figure 8",
        "`ViT-64/4` with one size changed",
        {name: Side(changes) for name, changes in sides.items()},
        (
            Contrast("Depth gains more than width at the same compute.", above_width("depth")),
            Contrast("Smaller patches gain without parameters.", difference("patch 3", "base")),
            Contrast(
                "Smaller patches gain more than width at the same compute.", above_width("patch")
            ),
        ),
        {
            line: tuple(sorted(sides, key=lambda n: flops_of(sides[n])))
            for line, sides in named.items()
        },
    )


def optimizers() -> Claim:
    """Optimizers of the ResNet; averaging and clipping of the Vision Transformer."""
    sgd = {"optimizer": "sgd", "weight_decay": 1e-3}  # About as much decay a step as Adam's.
    deeper = RESNET | {"num_blocks": [2, 2]}
    sides = {
        "ResNet-1-1, Adam": Side(RESNET),
        "ResNet-1-1, SGD": Side(RESNET | sgd, rate=0.1),
        "ResNet-2-2, Adam": Side(deeper),
        "ResNet-2-2, SGD": Side(deeper | sgd, rate=0.1),
        "ViT-64/4": Side(),
        "ViT-64/4, averaged": Side({"ema_momentum": 0.99}),
        "ViT-64/4, not clipped": Side({"global_clipnorm": None}),
    }
    adam = {name: 0.5 if "Adam" in name else -0.5 for name in sides if name.startswith("ResNet")}
    return Claim(
        "D.1, Table 7; section 4.1; Table 3",
        "two ResNets; `ViT-64/4`",
        sides,
        (
            Contrast("Adam trains ResNets better than SGD.", adam),
            Contrast(
                "Polyak averaging makes the ViT better.",
                difference("ViT-64/4, averaged", "ViT-64/4"),
            ),
            Contrast(
                "Clipping gradients makes the ViT better.",
                difference("ViT-64/4", "ViT-64/4, not clipped"),
            ),
        ),
    )


def masked_patches() -> Claim:
    """Masked patch prediction: its targets, and the labelled images at which it pays."""
    targets = ("mean-color", "downsized", "patch")
    sides = {
        target: Side({"target": target, "steps": 1_200, "global_clipnorm": None}, fixed_rate=True)
        for target in targets
    }
    tuned = {**dict.fromkeys(DATA_SIZES, ("mean-color", "scratch")), 4_500: (*targets, "scratch")}
    for images, starts in tuned.items():
        for start in starts:
            from_body = {} if start == "scratch" else {"start": start}
            sides[f"{start}, {images:,}"] = Side(
                {"images": images if images < IMAGES else None, "steps": 300} | from_body
            )
    colour, downsized, patch = (f"{target}, 4,500" for target in targets)
    return Claim(
        "section 4.6, B.1.2",
        "`ViT-64/4`, 1,200 steps without labels, 300 with",
        sides,
        (
            Contrast(
                "Pre-training by masked patches gains over training from scratch.",
                difference("mean-color, 45,000", "scratch, 45,000"),
            ),
            Alike(
                "Mean colours and 4x4 colours are equally good targets.", (colour, downsized), 0.01
            ),
            Contrast(
                "Whole patches are a worse target than colours.",
                {colour: 0.5, downsized: 0.5, patch: -1},
            ),
        ),
        {
            start: tuple(name for name in sides if name.startswith(f"{start},"))
            for start in (*targets, "scratch")
        },
        axis="images",
    )


def attention_distance() -> Claim:
    """Attention distance by depth, with all and with a tenth of the images."""
    side = f"ViT, {DATA_SIZES[-1]:,}"
    return Claim(
        "section 4.5, Figure 7",
        "`ViT-64/4`, 128 test images",
        {name: data_size().sides[name] for name in (side, "ViT, 4,500")},
        (
            Contrast("Heads attend farther in deeper layers.", {side: 1}, of="distance_growth"),
            Contrast(
                "In the first layer heads differ more than in the last.",
                {side: 1},
                of="distance_narrowing",
            ),
        ),
    )


CLAIMS: dict[str, Claim] = {
    make.__name__: make()
    for make in (
        positions,
        pooling,
        data_size,
        compute,
        transfer,
        shape,
        optimizers,
        masked_patches,
        attention_distance,
    )
}
