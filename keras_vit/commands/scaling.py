"""`keras-vit scaling`: accuracy by pre-training data and compute, Figures 3, 4 and 5."""

EPILOG = (
    "Writes scaling.csv, and each figure that the results allow as PNG and SVG. A result file "
    "says how its model was pre-trained (model.pretraining, pretraining_images, "
    "pretraining_epochs, pretraining_image_size, pretraining_classes); runs of this package "
    "write so themselves, and of others it can be added. What is missing is told."
)


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "results",
        nargs="+",
        metavar="RESULTS",
        help="result files, and folders with result files or classifiers' folders",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="DATA=TASK",
        help="what the paper calls a data set, where its name does not tell; may be repeated",
    )
    parser.add_argument(
        "--no-paper", action="store_true", help="leave out the paper's own points (Tables 5, 6)"
    )
    parser.add_argument(
        "--no-pictures", action="store_true", help="draw nothing, which needs matplotlib"
    )


def run(arguments):
    """Writes the figures and tells which results are not in them."""
    from keras_vit.training.evaluation.results import read_results
    from keras_vit.training.paper import scaling

    results = read_results(arguments.results, arguments.task)
    points, told = scaling.result_points(results)
    if not points:
        raise ValueError(f"No result has what a figure needs. {'; '.join(told)}")
    background = [] if arguments.no_paper else scaling.paper_points()
    written = scaling.write_figures(
        arguments.output, points, background, pictures=not arguments.no_pictures
    )
    for line in told:
        print(f"left out  {line}")
    for point in points:
        x = f"{point.x:.4g}"
        print(
            f"Figure {point.figure}  {point.model:<16}  {point.task:<20}  "
            f"{point.pretraining:<14}  {x:>10}  {point.accuracy:.2f} %"
        )
    for path in written:
        print(f"written {path}")
