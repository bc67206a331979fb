"""The arguments that `keras-vit finetune` and `keras-vit pretrain` share."""

import os
import shlex
import sys

from keras_vit.preprocessing import EVALUATIONS
from keras_vit.training.settings import PRECISIONS


def add(parser, settings_type):
    """Declares them, with the defaults of a class of settings."""
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        metavar="DATA",
        help="a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, or "
        "tfds:NAME",
    )
    data.add_argument(
        "--data-dir", metavar="DIR", help="of tfds, or that paths in a CSV file start from"
    )
    data.add_argument(
        "--holdout",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share kept for testing where the data have no test part (default: %(default)s)",
    )
    data.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")
    data.add_argument(
        "--exclude",
        metavar="LIST",
        help="a file with the images to leave out, one a line, as keras-vit deduplicate writes",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", required=True, metavar="DIR", help="the classifier's folder to write"
    )
    output.add_argument("--overwrite", action="store_true", help="replace what is there")
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on with a run that was stopped; only --output is needed then",
    )
    default = settings_type()
    recipe = parser.add_argument_group("recipe, the paper's by default")
    recipe.add_argument("--model", metavar="NAME", help="see keras-vit models")
    recipe.add_argument(
        "--image-size",
        type=image_size,
        default=default.image_size,
        metavar="PIXELS",
        help=f"384, or 384x512 for height x width (default: {default.image_size[0]})",
    )
    recipe.add_argument(
        "--steps", type=int, metavar="N", help="optimizer steps (default: 500 with fewer than "
        "20,000 images, 10,000 with fewer than 500,000, else 20,000)",
    )  # fmt: skip
    recipe.add_argument("--batch-size", type=int, default=default.batch_size, metavar="N",
                        help="images of a step (default: %(default)s)")  # fmt: skip
    recipe.add_argument(
        "--accumulate",
        type=int,
        metavar="N",
        help="micro-batches of a step, which change no result (default: as few as the memory "
        "allows)",
    )
    recipe.add_argument("--learning-rate", type=float, default=default.learning_rate,
                        metavar="RATE", help="the highest (default: %(default)s)")  # fmt: skip
    recipe.add_argument(
        "--warmup-steps",
        type=int,
        metavar="N",
        help="steps of linear warm-up (default: 500, or a fifth of a short run)",
    )
    recipe.add_argument(
        "--decay",
        choices=("cosine", "linear", "rsqrt", "constant"),
        default=default.decay,
        help="of the learning rate (default: %(default)s)",
    )
    recipe.add_argument(
        "--clip-norm",
        type=float,
        default=default.clip_norm,
        help="largest norm of all gradients together; 0 does not clip (default: %(default)s)",
    )
    recipe.add_argument("--dropout", type=float, default=default.dropout_rate, metavar="RATE",
                        help="(default: %(default)s)")  # fmt: skip
    recipe.add_argument(
        "--augmentation",
        default=default.augmentation,
        metavar="NAME",
        help="of training images (default: %(default)s)",
    )
    recipe.add_argument(
        "--evaluation",
        choices=EVALUATIONS,
        default=default.evaluation,
        help="how an image gets its size in evaluation (default: %(default)s)",
    )
    recipe.add_argument(
        "--validation",
        type=float,
        metavar="SHARE",
        help="share of the training images that chooses the best weights; 0 keeps the last "
        "(default: 0.1, 0.02 or 0.01 by the number of images)",
    )
    recipe.add_argument(
        "--evaluate-every", type=int, metavar="N", help="steps (default: a tenth of the run)"
    )
    recipe.add_argument("--seed", type=int, default=default.seed, help="(default: %(default)s)")
    recipe.add_argument(
        "--precision", choices=PRECISIONS, default=default.precision, help="(default: %(default)s)"
    )
    recipe.add_argument("--remat", action="store_true", help="less memory, about a third more time")


def settings(arguments, settings_type, more):
    """Returns the settings that the arguments stand for."""
    same = (
        "model image_size steps batch_size accumulate learning_rate warmup_steps decay "
        "augmentation evaluation validation evaluate_every seed precision remat"
    )
    return settings_type(
        **{name: getattr(arguments, name) for name in same.split()},
        clip_norm=arguments.clip_norm or None,
        dropout_rate=arguments.dropout,
        **more,
    )


def start(name, job, settings, arguments):
    """Runs a job; returns 130 or 143 if a signal stopped it, and says how to go on."""
    from keras_vit.training.loop import Interrupted

    try:
        job(
            arguments.data,
            arguments.output,
            settings,
            data_dir=arguments.data_dir,
            holdout=arguments.holdout,
            strict=arguments.strict,
            exclude=read_list(arguments.exclude),
            overwrite=arguments.overwrite,
            resume=arguments.resume,
            command=arguments.called_as,
        )
    except Interrupted as stop:
        again = shlex.join(["keras-vit", name, "--output", os.fspath(arguments.output), "--resume"])
        print(f"{stop} Go on with: {again}", file=sys.stderr)
        return 128 + stop.signal_number
    return 0


def read_list(path):
    """Returns the lines of a file, none of None."""
    if path is None:
        return ()
    with open(path, encoding="utf-8") as file:
        return tuple(line for line in file.read().splitlines() if line)


def image_size(text):
    """Returns (height, width) of "384" or "384x512"."""
    height, _, width = text.lower().partition("x")
    return (int(height), int(width or height))
