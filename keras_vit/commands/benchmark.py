"""`keras-vit benchmark`: images per second and the largest batch, the paper's Figure 12."""

import re

from keras_vit.commands.shared_arguments import add_no_pictures
from keras_vit.training.machine import usable_cores
from keras_vit.training.paper import cost, cost_results
from keras_vit.training.settings import PRECISIONS

EPILOG = (
    "Writes benchmark.json, .csv and .md after each model and size, and the two plots of the "
    "figure at the end. The same command with the same --output continues a stopped run. Each "
    "model and size runs in its own process, which is killed beyond --memory."
)

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "MB": 10**6, "GB": 10**9}


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "names",
        nargs="*",
        default=cost.MODELS,
        metavar="NAME",
        help='models, such as "ViT-B/16" (default: the models of the paper)',
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(cost.IMAGE_SIZES),
        metavar="PIXELS",
        help=f"sides of the images (default: {' '.join(map(str, cost.IMAGE_SIZES))})",
    )
    parser.add_argument(
        "--mode",
        nargs="+",
        choices=cost.MODES,
        default=["inference"],
        help="what is timed; training is a step of fine-tuning (default: inference)",
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--memory",
        default="4GiB",
        metavar="SIZE",
        help="memory limit of the process, or of the GPU, such as 4GiB or 900MiB; none skips "
        "the largest batch (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=usable_cores(),
        metavar="N",
        help="cores to use (default: all available)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=5,
        metavar="N",
        help="timed runs, of which the median counts (default: %(default)s)",
    )
    add_no_pictures(parser)


def run(arguments):
    """Measures, prints the tables and draws the figures."""
    plan = cost.BenchmarkPlan(
        models=tuple(arguments.names),
        sizes=tuple(arguments.sizes),
        modes=tuple(arguments.mode),
        precision=arguments.precision,
        memory=_bytes(arguments.memory),
        runs=arguments.runs,
        threads=arguments.threads,
    )
    if not arguments.no_pictures:
        from keras_vit.plots import new_figure

        new_figure((1, 1))  # Without matplotlib the error comes now, not after hours.
    results = cost.benchmark(arguments.output, plan, log=lambda line: print(line, flush=True))
    print(f"\n{results.to_markdown()}")
    if not arguments.no_pictures:
        for path in cost_results.write_cost_figures(results):
            print(f"written {path}")


def _bytes(text):
    """Bytes of "4GiB"; None of "none"."""
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"--memory must be a size such as 4GiB or 900MiB. Received: {text}")
    return int(float(match[1]) * UNITS[match[2].upper()])
