"""`keras-vit few-shot`: a linear map fitted to a few images per class, on frozen features."""

from keras_vit.preprocessing import EVALUATIONS


def add_arguments(parser):
    """Declares the command's arguments."""
    add_subject(parser)
    parser.add_argument(
        "--data",
        required=True,
        metavar="DATA",
        help="a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, or "
        "tfds:NAME",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="of tfds, or that paths in a CSV file start from"
    )
    parser.add_argument(
        "--shots",
        type=int,
        nargs="+",
        default=[1, 5, 10, 25],
        metavar="N",
        help="training images per class (default: 1 5 10 25)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        metavar="SEED",
        help="each chooses other images (default: 0 1 2)",
    )
    parser.add_argument(
        "--l2", type=float, default=1024.0, help="regularisation (default: %(default)s)"
    )
    parser.add_argument(
        "--feature",
        choices=("pre_logits", "token", "avg"),
        default="pre_logits",
        help="what the head reads, the class token, or the mean of the patches "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float64"),
        default="float32",
        help="of the linear map (default: %(default)s, the official one)",
    )
    parser.add_argument(
        "--evaluation",
        choices=EVALUATIONS,
        default="resize_central_crop",
        help="how an image gets the model's size (default: %(default)s, the official one)",
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument("--strict", action="store_true", help="stop at an unreadable image")
    parser.add_argument(
        "--cache", metavar="DIR", help="where features are kept (default: in Keras's cache)"
    )
    parser.add_argument("--no-cache", action="store_true", help="keep no features")
    parser.add_argument("--output", metavar="DIR", help="write result files for keras-vit report")


def add_subject(parser, default_image_size=224):
    """Declares the arguments that say which model."""
    parser.add_argument(
        "model", metavar="MODEL", help="a classifier's folder, or a name of keras-vit models"
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="of a model's name: imagenet21k, imagenet, a key, a file, or random",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help=f"of a model's name (default: {default_image_size})",
    )


def run(arguments):
    """Evaluates, prints the accuracies and writes result files where wanted."""
    if arguments.batch_size < 1:
        raise ValueError(
            f"--batch-size must be at least 1. Received: --batch-size {arguments.batch_size}"
        )
    from keras_vit.training.data import open_source
    from keras_vit.training.evaluation import features, few_shot, results
    from keras_vit.training.evaluation.subject import open_subject

    subject = open_subject(
        arguments.model,
        weights=arguments.weights,
        image_size=arguments.image_size,
        evaluation=arguments.evaluation,
    )
    features.feature_model(subject.model, arguments.feature)  # Before the data are read.
    source = open_source(arguments.data, data_dir=arguments.data_dir, strict=arguments.strict)
    cache = None if arguments.no_cache else arguments.cache or features.default_cache()
    report = few_shot.evaluate(
        subject,
        source,
        shots=arguments.shots,
        seeds=arguments.seeds,
        l2=arguments.l2,
        feature=arguments.feature,
        dtype=arguments.dtype,
        batch_size=arguments.batch_size,
        cache=cache,
        progress=True,
    )
    print(report)
    if not arguments.output:
        return
    model = subject.to_json()
    for shots, by_seed in report.accuracies.items():
        for seed, top_1 in by_seed.items():
            found = results.Result(
                protocol="few-shot",
                task=results.task_of(arguments.data),
                model=model,
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
            )
            found.write(f"{arguments.output}/result_{shots}_shot_seed_{seed}.json")
    print(f"written {arguments.output}")
