"""The arguments that the commands which train share."""

import argparse
import dataclasses
import os
import shlex
import sys

from keras_vit.preprocessing import EVALUATIONS
from keras_vit.training.settings import LOSSES, OPTIMIZERS, PRECISIONS, STRATEGIES

DECAYS = ("cosine", "linear", "rsqrt", "staircase", "constant")


def add(parser, settings_type):
    """Declares those of `keras-vit finetune` and `keras-vit pretrain`."""
    add_data(parser)
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
    output.add_argument(
        "--dry-run",
        action="store_true",
        help="print the resolved recipe, the memory needed, steps, images seen and epochs; train "
        "nothing, write nothing",
    )
    add_recipe(parser, settings_type)


def add_data(parser):
    """Declares those that say what to train on."""
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


def add_recipe(parser, settings_type, without=()):
    """Declares the fields of a class of settings; only those that are given are set.

    Args:
        parser: A parser.
        settings_type: The class, whose defaults the help tells.
        without: Names of fields to leave out.
    """
    default = settings_type()
    group = parser.add_argument_group("recipe, the paper's by default")

    def setting(flag, **options):
        options = {"dest": flag.removeprefix("--").replace("-", "_"), **options}
        if options["dest"] not in without:
            group.add_argument(flag, default=argparse.SUPPRESS, **options)

    setting(
        "--recipe",
        metavar="NAME",
        help="a recipe of the paper; what is given besides wins over it (see keras-vit recipes)",
    )
    setting(
        "--scale",
        type=float,
        metavar="SHARE",
        help="of the recipe's images, in (0, 1]: fewer steps of smaller batches, with a lower "
        "learning rate",
    )
    setting("--model", metavar="NAME", help="see keras-vit models")
    setting(
        "--image-size",
        type=image_size,
        metavar="PIXELS",
        help=f"384, or 384x512 for height x width (default: {default.image_size[0]})",
    )
    setting(
        "--steps", type=int, metavar="N", help="optimizer steps (default: 500 with fewer than "
        "20,000 images, 10,000 with fewer than 500,000, else 20,000)",
    )  # fmt: skip
    setting(
        "--batch-size",
        type=int,
        metavar="N",
        help=f"images of a step (default: {default.batch_size})",
    )
    setting(
        "--accumulate",
        type=int,
        metavar="N",
        help="micro-batches of a step, which change no result (default: as few as the memory "
        "allows)",
    )
    setting("--optimizer", choices=OPTIMIZERS, help=f"(default: {default.optimizer})")
    setting(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help=f"the highest (default: {default.learning_rate})",
    )
    setting(
        "--warmup-steps",
        type=int,
        metavar="N",
        help="steps of linear warm-up (default: 500, or a fifth of a short run)",
    )
    setting("--decay", choices=DECAYS, help=f"of the learning rate (default: {default.decay})")
    setting(
        "--boundaries",
        type=int,
        nargs="+",
        metavar="STEP",
        help="after which --decay staircase falls to a tenth",
    )
    setting(
        "--timescale",
        type=float,
        metavar="N",
        help=f"steps after which --decay rsqrt has fallen to 0.71 (default: {default.timescale})",
    )
    setting(
        "--cooldown-steps",
        type=int,
        metavar="N",
        help="steps at the end over which --decay rsqrt falls to 0 (default: 0)",
    )
    setting("--momentum", type=float, help=f"of --optimizer sgd (default: {default.momentum})")
    setting(
        "--weight-decay",
        type=float,
        help=f"decoupled, of kernels alone (default: {default.weight_decay})",
    )
    setting(
        "--weight-decay-times",
        choices=("learning_rate", "schedule"),
        help="what it is multiplied by: the learning rate, as in the paper and Keras, or its "
        f"schedule alone, as in big_vision (default: {default.weight_decay_times})",
    )
    setting(
        "--clip-norm",
        type=float,
        help="largest norm of all gradients together; 0 does not clip "
        f"(default: {default.clip_norm})",
    )
    setting(
        "--layer-decay",
        type=float,
        metavar="SHARE",
        help="what a layer's learning rate is of the next one's, such as 0.75 (default: all the "
        "same)",
    )
    setting(
        "--averaging",
        type=float,
        metavar="FACTOR",
        help="of Polyak averaging, 0.9999 in the paper; the averages are kept in place of the "
        "weights, those of the last step in last.keras (default: none)",
    )
    setting(
        "--skip-nonfinite-steps",
        type=int,
        metavar="N",
        help="steps with NaN or infinity that are left out before the run stops (default: 0)",
    )
    setting(
        "--loss",
        choices=LOSSES,
        help=f"cross-entropy; sigmoid sums over the classes (default: {default.loss})",
    )
    setting(
        "--head-bias",
        type=float,
        metavar="LOGIT",
        help="of every class at the start: with --loss sigmoid about -10 for 21,000 classes, -6.9 "
        f"for 1000 (default: {default.head_bias})",
    )
    setting(
        "--label-smoothing",
        type=float,
        metavar="SHARE",
        help="of a label, spread over all classes (default: 0)",
    )
    setting(
        "--dropout",
        dest="dropout_rate",
        type=float,
        metavar="RATE",
        help=f"(default: {default.dropout_rate})",
    )
    setting(
        "--stochastic-depth",
        dest="stochastic_depth_rate",
        type=float,
        metavar="RATE",
        help="share of examples that skip a part of the last block, fewer the blocks before it; "
        f"0.1 in AugReg (default: {default.stochastic_depth_rate})",
    )
    setting(
        "--augmentation",
        metavar="NAME",
        help=f"of training images (default: {default.augmentation})",
    )
    setting(
        "--mixup",
        type=float,
        metavar="P",
        help="parameter of the beta distribution, 0 for none (default: the augmentation's own)",
    )
    setting(
        "--resize",
        type=image_size,
        metavar="PIXELS",
        help="before the crop of --augmentation resize_random_crop (default: a fifteenth more)",
    )
    setting(
        "--evaluation",
        choices=EVALUATIONS,
        help=f"how an image gets its size in evaluation (default: {default.evaluation})",
    )
    setting(
        "--validation",
        type=float,
        metavar="SHARE",
        help="share of the training images that chooses the best weights; 0 keeps the last "
        "(default: 0.1, 0.02 or 0.01 by the number of images)",
    )
    setting("--evaluate-every", type=int, metavar="N", help="steps (default: a tenth of the run)")
    setting(
        "--patience",
        type=int,
        metavar="N",
        help="stop after so many validations that were none better than the best (default: never)",
    )
    setting("--seed", type=int, help=f"(default: {default.seed})")
    setting("--precision", choices=PRECISIONS, help=f"(default: {default.precision})")
    setting("--remat", action="store_true", help="less memory, about a third more time")
    setting(
        "--strategy",
        choices=STRATEGIES,
        help="where to run: one device, all GPUs, several machines, a TPU, or what there is "
        "(default: the first GPU, or the CPU)",
    )
    setting(
        "--jit-compile",
        action=argparse.BooleanOptionalAction,
        help="compile with XLA, or not (default: where Keras would)",
    )
    setting(
        "--steps-per-execution",
        type=int,
        metavar="N",
        help="steps that are run at once, which saves time on TPUs (default: 1)",
    )
    setting(
        "--data-service",
        metavar="ADDRESS",
        help="grpc://HOST:PORT of a tf.data service that reads, decodes and augments "
        "(default: this machine)",
    )


def settings(arguments, settings_type, more=None):
    """Returns the settings that the arguments stand for.

    Args:
        arguments: What was parsed.
        settings_type: The class of the settings.
        more: Fields that are given in another way.
    """
    fields = [field.name for field in dataclasses.fields(settings_type)]
    given = {name: getattr(arguments, name) for name in fields if hasattr(arguments, name)}
    given |= more or {}
    for name in ("clip_norm", "averaging"):  # 0 is none.
        if name in given:
            given[name] = given[name] or None
    recipe, scale = given.pop("recipe", None), given.pop("scale", None)
    if recipe is not None:
        return settings_type.from_recipe(recipe, 1.0 if scale is None else scale, **given)
    if scale is not None:
        raise ValueError(f"--scale needs a recipe (--recipe). Received: --scale {scale:g} alone")
    return settings_type(**given)


def where(arguments):
    """Returns what the arguments say of the data, as options of a job."""
    return {
        "data_dir": arguments.data_dir,
        "holdout": arguments.holdout,
        "strict": arguments.strict,
        "exclude": read_list(arguments.exclude),
        "command": arguments.called_as,
    }


def start(job, settings, arguments):
    """Runs a job; returns 130 or 143 if a signal stopped it, and says how to go on.

    Args:
        job: A `keras_vit.training.run.job.Job`.
        settings: Its settings.
        arguments: What was parsed.
    """
    from keras_vit.training.run.job import dry_run, run_job
    from keras_vit.training.run.loop import Interrupted

    options = {
        **where(arguments),
        "overwrite": arguments.overwrite,
        "resume": arguments.resume,
    }
    if arguments.dry_run:
        print(dry_run(job, arguments.data, arguments.output, settings, **options))
        return 0
    try:
        run_job(job, arguments.data, arguments.output, settings, **options)
    except Interrupted as stop:
        output = os.fspath(arguments.output)
        again = shlex.join(["keras-vit", *job.name.split(), "--output", output, "--resume"])
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
