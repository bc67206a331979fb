"""`keras-vit recipes`: the paper's recipes by name."""

import math

from keras_vit.training.recipes import (
    FINETUNING,
    HYPER_RULE,
    HYPER_RULE_NAME,
    MASKED_PATCHES,
    PRETRAINING,
    find_recipe,
)


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help='such as "CIFAR-10"; a table of all by default'
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="of the recipe's images, in (0, 1], as keras-vit pretrain and finetune take it",
    )


def run(arguments):
    """Prints the tables, or all values of the recipes named."""
    if arguments.names:
        print("\n\n".join(recipe_details(name, arguments.scale) for name in arguments.names))
        return
    print(f'keras-vit pretrain --recipe "{next(iter(PRETRAINING))}"\n')
    print(recipe_table(PRETRAINING.values(), arguments.scale))
    print("\nkeras-vit pretrain --objective masked-patches, which needs no labels\n")
    print(recipe_table(MASKED_PATCHES.values(), arguments.scale))
    print('\nkeras-vit finetune --recipe "CIFAR-10"; keras-vit sweep tries the learning rates\n')
    print(recipe_table(FINETUNING.values(), arguments.scale))
    print(f"\n{HYPER_RULE_NAME}, for keras-vit finetune of a ResNet: {_rule()}")


def recipe_table(recipes, scale=1.0):
    """Returns a line for each recipe."""
    rows = [("recipe", "steps", "batch", "learning rate", "warm-up", "decay", "optimizer",
             "weight decay", "pixels")]  # fmt: skip
    for recipe in recipes:
        name, recipe = recipe.name, recipe.scaled(scale)
        rates = getattr(recipe, "learning_rates", ())
        rows.append(
            (
                name,
                f"{recipe.steps:,}",
                str(recipe.batch_size),
                ", ".join(f"{rate:g}" for rate in (rates if scale == 1 and rates else ()))
                or f"{recipe.base_lr:.3g}",
                f"{recipe.warmup_steps:,}",
                recipe.decay,
                recipe.optimizer,
                f"{recipe.weight_decay:g}",
                str(recipe.image_size),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if column in (0, 3, 5, 6) else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def recipe_details(name, scale=1.0):
    """Returns every value of a recipe."""
    if name.lower() == HYPER_RULE_NAME.lower():
        return f"{HYPER_RULE_NAME}\n  {_rule()}"
    recipe = find_recipe(name).scaled(scale)
    fields = (f"  {field} = {value}" for field, value in vars(recipe).items() if field != "name")
    return "\n".join([f"{recipe.name}, for keras-vit {recipe.command}", *fields])


def _rule():
    parts = []
    for most, steps, boundaries, warmup_steps, mixup in HYPER_RULE:
        images = "more" if most == math.inf else f"fewer than {most:,}"
        parts.append(
            f"{steps:,} steps with {images} (warm-up {warmup_steps}, a tenth after each of "
            f"{boundaries}, mixup {mixup})"
        )
    return "; ".join(parts)
