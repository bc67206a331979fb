"""`keras-vit vtab`: one model on the 19 tasks of VTAB-1k."""

import dataclasses

from keras_vit.commands.shared_arguments import add_model, add_unknown_facts, unknown_facts
from keras_vit.commands.training_arguments import SETTINGS_GROUP, add_fields, report_stop
from keras_vit.training.evaluation.protocols import VTAB_SEEDS
from keras_vit.training.recipes import FINETUNING
from keras_vit.training.settings import FineTuning

_RECIPE = FINETUNING["VTAB"].settings

# Settings that have flags, with their defaults.
_DEFAULTS = {
    "steps": _RECIPE["steps"],
    "batch_size": _RECIPE["batch_size"],
    "accumulate": None,
    "learning_rate": _RECIPE["learning_rate"],
    "precision": "float32",
}


def add_arguments(parser):
    """Declares the command's arguments."""
    add_model(parser, default_image_size=_RECIPE["image_size"][0])
    add_unknown_facts(parser)
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="folder of the results; the same command continues a stopped run",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=[],
        metavar="TASK",
        help="names such as dtd or clevr_count, or groups: natural, specialized, structured "
        "(default: all 19)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=list(VTAB_SEEDS),
        metavar="SEED",
        help="one run of each task per seed; the median counts (default: 0 1 2)",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="factor on steps and batch size, for a small trial (default: %(default)s)",
    )
    parser.add_argument(
        "--linear-probe",
        dest="linear",
        action="store_true",
        help="fit a linear map from features of the frozen model",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="train on 800 images and evaluate on 200 of the training data, to choose settings",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="the folder of TensorFlow Datasets")
    parser.add_argument(
        "--skip-missing", action="store_true", help="leave out tasks whose data are missing"
    )
    parser.add_argument(
        "--keep-models", action="store_true", help="keep the folders of the fine-tuned classifiers"
    )
    recipe = parser.add_argument_group(SETTINGS_GROUP)
    add_fields(recipe, FineTuning, only=_DEFAULTS)


def run(arguments):
    """Runs the tasks and prints the results beside the paper's."""
    from keras_vit.training.paper import vtab_benchmark
    from keras_vit.training.run.loop import Interrupted

    given = {name: getattr(arguments, name) for name in _DEFAULTS if hasattr(arguments, name)}
    if arguments.image_size:
        given["image_size"] = arguments.image_size
    settings = dataclasses.replace(vtab_benchmark.SETTINGS, **given, **unknown_facts(arguments))
    try:
        results = vtab_benchmark.run_vtab(
            arguments.model,
            arguments.output,
            weights=arguments.weights,
            tasks=arguments.tasks,
            seeds=arguments.seeds,
            settings=settings,
            scale=arguments.scale,
            linear=arguments.linear,
            tune=arguments.tune,
            data_dir=arguments.data_dir,
            skip_missing=arguments.skip_missing,
            keep_models=arguments.keep_models,
            command=arguments.called_as,
        )
    except Interrupted as stop:
        return report_stop(stop, arguments.called_as)
    print(vtab_benchmark.summarize(results))
    protocol = results[0].protocol
    if protocol != "vtab":
        print(f"\nThe results are of the protocol {protocol}, unlike the paper's columns.")
    return 0
