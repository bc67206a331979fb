"""`keras-vit report`: the paper's tables with the results of runs."""

from keras_vit.commands.shared_arguments import add_no_pictures, add_tasks


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="DIR",
        help="folders with result files or classifiers' folders, subfolders included",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="write report.md, and a CSV file and a picture per table"
    )
    add_tasks(parser)
    add_no_pictures(parser)


def run(arguments):
    """Prints the tables, and writes them if --output is given."""
    from keras_vit.text_tables import align_columns
    from keras_vit.training.evaluation.results import read_results
    from keras_vit.training.paper import tables

    results = [found for _, found in read_results(arguments.folders, arguments.task)]
    print(align_columns(tables.list_results(results)), end="\n\n")
    try:
        made = tables.make_tables(results)
    except ValueError as error:
        print(error)
        made = []
    for table in made:
        print(table.to_markdown())
    if arguments.output:
        written = tables.write_report(
            arguments.output, made, results, pictures=not arguments.no_pictures
        )
        for path in written:
            print(f"written {path}")
