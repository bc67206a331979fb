"""`keras-vit few-shot`: a linear map fitted to a few images per class, on frozen features."""

import argparse

from keras_vit.commands.shared_arguments import (
    add_batch_size,
    add_model,
    add_unknown_facts,
    check_batch_size,
    unknown_facts,
)
from keras_vit.commands.training_arguments import add_data
from keras_vit.configs import FEATURES
from keras_vit.preprocessing import EVALUATIONS
from keras_vit.training.evaluation.protocols import (
    DTYPES,
    FEW_SHOT_RESIZE,
    L2,
    SEEDS,
    SHOTS,
)
from keras_vit.training.evaluation.results import Result, task_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_model(parser)
    add_unknown_facts(parser)
    add_data(parser, required=["data"])
    add_batch_size(parser)
    parser.add_argument(
        "--shots",
        type=int,
        nargs="+",
        default=list(SHOTS),
        metavar="N",
        help=f"training images per class (default: {' '.join(map(str, SHOTS))})",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=list(SEEDS),
        metavar="SEED",
        help=f"each chooses other images (default: {' '.join(map(str, SEEDS))})",
    )
    parser.add_argument(
        "--l2", type=float, default=L2, help="regularisation (default: %(default)s)"
    )
    parser.add_argument(
        "--feature",
        choices=FEATURES,
        default=FEATURES[0],
        help="input of the head, class token, or mean of the patch tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=DTYPES[0],
        help="of the linear map (default: %(default)s, as in the official code)",
    )
    parser.add_argument(
        "--evaluation",
        choices=EVALUATIONS,
        default=FEW_SHOT_RESIZE,
        help="how images are resized (default: %(default)s, as in the official code)",
    )
    parser.add_argument(
        "--cache", metavar="DIR", help="folder for computed features (default: in Keras's cache)"
    )
    parser.add_argument("--no-cache", action="store_true", help="do not store features")
    parser.add_argument("--output", metavar="DIR", help="write result files for keras-vit report")


def run(arguments: argparse.Namespace) -> None:
    """Evaluates and prints the accuracies; writes result files with --output."""
    check_batch_size(arguments)
    from keras_vit.models.rebuild import feature_model
    from keras_vit.training.data import open_source
    from keras_vit.training.evaluation import few_shot
    from keras_vit.training.evaluation.features import default_cache
    from keras_vit.training.evaluation.predictions import build_evaluated

    model = build_evaluated(
        arguments.model,
        weights=arguments.weights,
        image_size=arguments.image_size,
        evaluation=arguments.evaluation,
        **unknown_facts(arguments),
    )
    print(model.description.facts)
    feature_model(model.model, arguments.feature)  # An error here comes before the data are read.
    source = open_source(
        arguments.data,
        data_dir=arguments.data_dir,
        strict=arguments.strict,
        follow_symlinks=arguments.follow_symlinks,
    )
    report = few_shot.evaluate(
        model,
        source,
        shots=arguments.shots,
        seeds=arguments.seeds,
        l2=arguments.l2,
        feature=arguments.feature,
        dtype=arguments.dtype,
        batch_size=arguments.batch_size,
        cache=None if arguments.no_cache else arguments.cache or default_cache(),
        progress=True,
    )
    print(report)
    if not arguments.output:
        return
    described = model.to_json()
    for shots, by_seed in report.accuracies.items():
        for seed, top_1 in by_seed.items():
            Result(
                protocol="few-shot",
                task=task_of(arguments.data),
                model=described,
                data={
                    "data": arguments.data,
                    "images": {"train": report.num_train, "test": report.num_test},
                    "skipped": len(report.skipped),
                },
                metrics={"top_1": top_1},
                images=report.num_test,
                recipe={
                    "shots": shots,
                    "l2": report.l2,
                    "feature": report.feature,
                    "dtype": arguments.dtype,
                },
                seed=seed,
                command=arguments.called_as,
            ).write(f"{arguments.output}/result_{shots}_shot_seed_{seed}.json")
    print(f"written {arguments.output}")
