"""`keras-vit benchmark`: images per second and the largest batch, the paper's Figure 12."""

import re

EPILOG = (
    "Writes benchmark.json, .csv and .md after each model and size, and the figure's two plots. "
    "The same command with the same --output goes on where it was stopped. Each model and size "
    "runs in a process of its own, which is ended when it holds more than --memory."
)

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "MB": 10**6, "GB": 10**9}


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help='models, such as "ViT-B/16"; by default those of the paper',
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="the folder to write")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[64, 128, 224, 384, 512],
        metavar="PIXELS",
        help="sides of the images (default: 64 128 224 384 512)",
    )
    parser.add_argument(
        "--mode",
        nargs="+",
        choices=("inference", "training"),
        default=["inference"],
        help="what is timed; training is a step of fine-tuning (default: inference)",
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        default="float32",
        help="(default: float32)",
    )
    parser.add_argument(
        "--memory",
        default="4GiB",
        metavar="SIZE",
        help="what the process may hold, or the GPU, such as 4GiB or 900MiB; none looks for "
        "no largest batch (default: 4GiB)",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="cores to use (default: all that there are)"
    )
    parser.add_argument(
        "--runs", type=int, default=5, metavar="N", help="timed runs of a median (default: 5)"
    )
    parser.add_argument(
        "--no-pictures", action="store_true", help="draw nothing, which needs matplotlib"
    )


def run(arguments):
    """Measures, prints the tables and draws."""
    memory = _bytes(arguments.memory)
    from keras_vit.drawing import new_figure
    from keras_vit.training.paper.cost import Plan, benchmark
    from keras_vit.training.paper.cost.drawing import write_figures

    names = {"models": tuple(arguments.names)} if arguments.names else {}
    plan = Plan(
        **names,
        sizes=tuple(arguments.sizes),
        modes=tuple(arguments.mode),
        precision=arguments.precision,
        memory=memory,
        threads=arguments.threads,
        runs=arguments.runs,
    )
    if not arguments.no_pictures:
        new_figure((1, 1))  # Without matplotlib it is told now, not after hours.
    results = benchmark(arguments.output, plan, log=lambda line: print(line, flush=True))
    print(f"\n{results.to_markdown()}")
    if not arguments.no_pictures:
        for path in write_figures(results):
            print(f"written {path}")


def _bytes(text):
    """Bytes of "4GiB"; None of "none"."""
    if text.lower() == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None or match[2].upper() not in UNITS:
        raise ValueError(f"--memory must be a size such as 4GiB or 900MiB. Received: {text}")
    return int(float(match[1]) * UNITS[match[2].upper()])
