"""Cost against work: how time and memory grow, with fitted exponents.

    python benchmarks/growth.py [--parts resolution tokens batch depth files classes]
                                [--picture growth.png]

Each row is measured in a separate process, which gives its peak memory. An exponent is the slope
of log(cost) over log(size) through the upper half of a table's rows: 1 is linear, 2 quadratic. The
exponents of memory are of what a row adds to the smallest one.

- resolution, tokens, batch, depth: a ViT-Ti/16 in float32; for tokens, the image has 256 pixels and
  the patches 32 to 4. Steps are defined as in `keras-vit benchmark`: inference is a forward pass to
  probabilities, training a step of fine-tuning with SGD, momentum and clipping.
- files: a folder of 100 classes, whose files are hard links to a JPEG of 64 pixels in each.
- classes: the head of a ViT-Ti/32 at 32 pixels; reports of random answers of 10 images a class.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile

from own_process import run_program

from keras_vit.training.machine import describe, peak_memory, seconds_of
from keras_vit.utils.text_tables import markdown_table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FOLDERS = 100  # Classes of the files.
LINKS = 20_000  # To one file: a file system may allow no more than 65,000.
MOST_TRAINING_TOKENS = 1700  # A training step with more does not fit in 8 GiB.
RUNS, SECONDS = 3, 0.25  # Timed runs, of which the median counts.

# For each part: the first column, its sizes, and the columns of costs.
MODEL_COSTS = ("inference s/image", "inference MiB", "training s/image", "training MiB")
PARTS = {
    "resolution": ("pixels", (224, 320, 448, 640, 832, 1024), MODEL_COSTS),
    "tokens": ("tokens", (64, 256, 1024, 4096), MODEL_COSTS),
    "batch": ("batch", (1, 2, 4, 8, 16, 32, 64), MODEL_COSTS),
    "depth": ("blocks", (3, 6, 12, 24, 48), MODEL_COSTS),
    "files": (
        "files",
        (1_000, 10_000, 100_000, 1_000_000),
        ("list s", "split s", "first shuffled batch s", "first evaluated batch s", "MiB"),
    ),
    "classes": (
        "classes",
        (10, 100, 1_000, 10_000, 100_000),
        ("build s", "step s", "evaluate 256 s", "split s", "report s", "files s", "MiB"),
    ),
}


def main():
    """Prints a table for each part, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--picture", metavar="FILE", help="draw the tables, with matplotlib")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        part, size = arguments.case
        print(json.dumps(MEASURES[part](int(size))))
        return
    print(describe("tensorflow", "keras"))
    tables = {}
    for part in arguments.parts:
        tables[part] = measured(part)
        print_table(part, tables[part])
    if arguments.picture:
        draw(tables, arguments.picture)


def measured(part):
    """Returns the costs of each size of a part, None where there is none."""
    return {size: run_program(__file__, "--case", part, size) for size in PARTS[part][1]}


def print_table(part, rows):
    """Prints the costs of a part, and below them their exponents."""
    name, _, columns = PARTS[part]
    table = [[name, *columns]]
    table += [[f"{size:,}", *map(_number, costs)] for size, costs in rows.items()]
    slopes = [exponent(rows, column, "MiB" in name) for column, name in enumerate(columns)]
    table.append(["exponent", *("" if slope is None else f"{slope:.2f}" for slope in slopes)])
    print(f"\n{part}\n\n{markdown_table(table)}", flush=True)


def exponent(rows, column, is_memory):
    """Returns the slope of log(cost) over log(size) in the upper half of the rows."""
    import numpy as np

    pairs = [(size, costs[column]) for size, costs in rows.items() if costs[column] is not None]
    if is_memory:
        pairs = [(size, cost - pairs[0][1]) for size, cost in pairs[1:]]
    pairs = [pair for pair in pairs[len(pairs) // 2 :] if pair[1] > 0]
    if len(pairs) < 2:
        return None
    return float(np.polyfit(*np.log(np.array(pairs, float)).T, 1)[0])


def _number(value):
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw(tables, path):
    """Draws seconds against size, a line for each column and a panel for each part."""
    from keras_vit.utils.plots import new_figure

    across = min(len(tables), 3)
    down = -(-len(tables) // across)
    figure = new_figure((4 * across, 3.6 * down), dpi=90)
    panels = figure.subplots(down, across, squeeze=False)
    for panel, (part, rows) in zip(panels.flat, tables.items(), strict=False):
        name, _, columns = PARTS[part]
        for column, label in enumerate(columns):
            points = [(size, costs[column]) for size, costs in rows.items()]
            points = [(size, cost) for size, cost in points if cost]
            if "MiB" in label or not points:
                continue
            slope = exponent(rows, column, False)
            text = label.removesuffix("/image").removesuffix(" s")
            panel.loglog(*zip(*points, strict=True), "o-", label=f"{text}: {slope:.1f}")
        panel.set(xlabel=name, title=part)
        panel.set_xticks(list(rows), [_short(size) for size in rows], minor=False)
        panel.set_xticks([], minor=True)
        panel.legend(fontsize=8, title="exponent", title_fontsize=8)
    for panel in panels[:, 0]:
        panel.set_ylabel("seconds")
    figure.savefig(path)


def _short(size):
    return f"{size // 1000}k" if size >= 10_000 else str(size)


def step_costs(config, pixels, mode, batch_size, **options):
    """Returns the seconds of an image and the peak MiB of this process."""
    from keras_vit.training.paper.cost_steps import CostSteps

    rates, memory = CostSteps(config, pixels, mode, **options).time(batch_size, RUNS, SECONDS)
    return [1 / statistics.median(rates), memory / 2**20]


def measure_model(config, pixels, batch_size, tokens):
    """Returns the `MODEL_COSTS` of a model."""
    inference = step_costs(config, pixels, "inference", batch_size)
    if tokens * batch_size > MOST_TRAINING_TOKENS * 8 or tokens > MOST_TRAINING_TOKENS:
        return [*inference, None, None]
    return [*inference, *step_costs(config, pixels, "training", batch_size)]


def measure_resolution(pixels):
    return measure_model("ViT-Ti/16", pixels, 1, (pixels // 16) ** 2)


def measure_tokens(tokens):
    from keras_vit import configs

    patch = round(256 / tokens**0.5)
    return measure_model(configs.resolve("ViT-Ti/16", patch_size=patch), 256, 1, tokens)


def measure_batch(batch_size):
    return measure_model("ViT-Ti/16", 224, batch_size, 196)


def measure_depth(depth):
    from keras_vit import configs

    return measure_model(configs.resolve("ViT-Ti/16", depth=depth), 224, 8, 196)


def measure_files(count):
    """Returns the costs of opening a folder of so many files."""
    from keras_vit.preprocessing import Preprocessing
    from keras_vit.training.data import evaluation_batches, open_source, training_batches

    with tempfile.TemporaryDirectory() as folder:
        make_links(pathlib.Path(folder), count, FOLDERS)
        sources = []
        listing = seconds_of(
            lambda: sources.append(open_source(folder, holdout=0, verify=False).splits["train"])
        )
        (examples,) = sources
        splitting = seconds_of(lambda: examples.split(0.2, 0))
        options = {"image_size": (64, 64), "batch_size": 32}
        # TensorFlow's first data set takes longer.
        next(iter(training_batches(examples.take(range(32)), seed=0, **options)))
        shuffling = seconds_of(lambda: next(iter(training_batches(examples, seed=0, **options))))
        evaluating = seconds_of(
            lambda: next(
                iter(
                    evaluation_batches(
                        examples, preprocessing=Preprocessing((64, 64)), batch_size=32
                    )
                )
            )
        )
        return [listing, splitting, shuffling, evaluating, peak_memory()]


def make_links(folder, count, classes):
    """Makes a folder of classes whose files are hard links to a few JPEGs."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for number in range(classes):
        inside = folder / f"class {number:06d}"
        inside.mkdir()
        for place in range(count // classes):
            if place % LINKS == 0:
                first = inside / f"{place:07d}.jpg"
                Image.fromarray(pixels).save(first)
            else:
                os.link(first, inside / f"{place:07d}.jpg")


def measure_classes(count):
    """Returns the costs of so many classes."""
    import numpy as np

    import keras_vit
    from keras_vit import configs
    from keras_vit.training.data import open_source
    from keras_vit.training.data.labels import held_out
    from keras_vit.training.evaluation import classification, per_class

    config = configs.resolve("ViT-Ti/16", patch_size=16)
    options = {"input_shape": (32, 32, 3), "classes": count}
    models = []
    building = seconds_of(lambda: models.append(keras_vit.build(config, **options)))
    (model,) = models
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (256, 32, 32, 3), np.uint8)
    stepping = 8 * step_costs(config, 32, "training", 8, classes=count)[0]
    names = tuple(f"class {number}" for number in range(count))
    labels = rng.integers(0, count, 256)
    source = open_source((images, labels), class_names=names, holdout=0)
    evaluating = seconds_of(
        lambda: classification.evaluate(
            model,
            source.splits["train"],
            names,
            preprocessing=keras_vit.preprocessing.Preprocessing((32, 32)),
        )
    )
    true = np.repeat(np.arange(count, dtype="int32"), 10)
    predicted = np.where(rng.random(len(true)) < 0.7, true, rng.integers(0, count, len(true)))
    splitting = seconds_of(lambda: held_out(true, 0.2, np.random.default_rng(0)))
    reports = []

    def report():
        pairs = per_class.ConfusionPairs.of(true, predicted, count)
        found = classification.ClassificationReport(
            class_names=names, pairs=pairs, in_top_5=len(true), loss=0.5
        )
        reports.append((str(found), found.to_json(), found))

    reporting = seconds_of(report)
    with tempfile.TemporaryDirectory() as folder:
        writing = seconds_of(lambda: reports[0][-1].write(folder))
    return [building, stepping, evaluating, splitting, reporting, writing, peak_memory()]


MEASURES = {
    "resolution": measure_resolution,
    "tokens": measure_tokens,
    "batch": measure_batch,
    "depth": measure_depth,
    "files": measure_files,
    "classes": measure_classes,
}


if __name__ == "__main__":
    main()
