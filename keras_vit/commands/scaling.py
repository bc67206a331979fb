"""`keras-vit scaling`: accuracy by pre-training data and compute, Figures 3, 4 and 5."""

from keras_vit.commands.shared_arguments import add_no_pictures, add_tasks

EPILOG = (
    "Writes scaling.csv, and each figure that has results as PNG and SVG. The x axes need the "
    "pre-training in the result files (model.pretraining, pretraining_images, "
    "pretraining_epochs, pretraining_image_size, pretraining_classes). Runs of this package "
    "write these fields; they can be added to other files. Missing fields are listed."
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
    add_tasks(parser)
    parser.add_argument(
        "--no-paper", action="store_true", help="leave out the paper's own points (Tables 5, 6)"
    )
    add_no_pictures(parser)


def run(arguments):
    """Writes the figures and lists the results that are not in them."""
    from keras_vit.training.evaluation.results import read_results
    from keras_vit.training.paper import scaling_figures as scaling

    results = read_results(arguments.results, arguments.task)
    points, left_out = scaling.result_points(results)
    if not points:
        raise ValueError(f"No result has what a figure needs. {'; '.join(left_out)}")
    background = [] if arguments.no_paper else scaling.paper_points()
    written = scaling.write_figures(
        arguments.output, points, background, pictures=not arguments.no_pictures
    )
    for line in left_out:
        print(f"left out  {line}")
    for point in points:
        x = f"{point.x:.4g}"
        print(
            f"Figure {point.figure}  {point.model:<16}  {point.task:<20}  "
            f"{point.pretraining:<14}  {x:>10}  {point.accuracy:.2f} %"
        )
    for path in written:
        print(f"written {path}")
