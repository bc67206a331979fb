"""Images per second and largest batch by model and image size, the paper's Figure 12 (D.5).

    python paper/cost.py ViT-B/32 BiT-R50x1 --sizes 64 128 224 --output cost
    python paper/cost.py --mode training --memory 4 --output cost     # GiB a process may hold.

Each batch size runs in its own process, so that none leaves memory behind. Batches of 1, 2, 4 ...
images run until the rate stops growing; the best one is then timed --runs times. With --memory the
largest batch that fits is searched to a sixteenth: a process that holds more is killed (Linux). On
a GPU its own memory is the limit. Every finished row is in OUTPUT/cost.csv at once, and is not
measured again by the same command; the two pictures are drawn at the end.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from keras_vit.utils.plots import new_figure

MODELS = (
    *("ViT-B/32", "ViT-B/16", "ViT-L/32", "ViT-L/16", "ViT-H/14"),
    *("BiT-R50x1", "BiT-R50x2", "BiT-R152x2"),
    *("R50+ViT-B/32", "R50+ViT-B/16", "R50+ViT-L/32", "R50+ViT-L/16"),
    *("Axial-ViT-B/32", "Axial-ViT-B/16"),
)
SIZES = (64, 128, 224, 384, 512)
COLUMNS = ("model", "size", "mode", "batch", "images_per_second", "lowest", "highest", "largest")
GROWTH = 1.02  # Factor below which a rate no longer grows.
SECONDS = 0.5  # Least duration of a timed run.
OUT_OF_MEMORY = 3  # Exit code of a process whose batch does not fit.


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures what is missing, and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--mode", choices=("inference", "training"), default="inference")
    parser.add_argument("--memory", type=float, help="GiB that a process may hold")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    table = given.output / "cost.csv"
    rows = list(csv.DictReader(table.open(encoding="utf-8"))) if table.exists() else []
    known = {(row["model"], row["size"], row["mode"]) for row in rows}
    for model in given.models:
        for size in given.sizes:
            if (model, str(size), given.mode) in known:
                continue
            found = measure(model, size, given.mode, given.runs, given.memory)
            rows.append({"model": model, "size": str(size), "mode": given.mode, **found})
            with table.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS)
                writer.writeheader()
                writer.writerows(rows)
            print(*(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    for column in ("images_per_second", "largest"):
        draw([row for row in rows if row["mode"] == given.mode], column, given.output)


def measure(model: str, size: int, mode: str, runs: int, memory: float | None) -> dict[str, str]:
    """Returns the columns of a model at an image size, empty where no image fits."""

    def rates(batch, count):
        return run_batch(model, size, mode, batch, count, memory)

    tried: dict[int, float] = {}
    batch = 1
    while (found := rates(batch, 1)) is not None:
        grown = found[0] > GROWTH * max(tried.values(), default=0)
        tried[batch] = found[0]
        if not grown:
            break
        batch *= 2
    if not tried:
        return {}
    best = max(tried, key=tried.__getitem__)
    timed = sorted(rates(best, runs) or [tried[best]])
    columns = {"batch": best, "images_per_second": timed[len(timed) // 2]}
    columns |= {"lowest": timed[0], "highest": timed[-1]}
    if memory is not None:
        columns["largest"] = largest_batch(lambda batch: rates(batch, 0) is not None, max(tried))
    return {name: f"{value:.4g}" for name, value in columns.items()}


def largest_batch(fits, known: int) -> int:
    """Returns the largest batch that fits, to a sixteenth.

    Args:
        fits: Returns whether a batch fits.
        known: A batch that does.
    """
    too_large = 2 * known
    while fits(too_large):
        known, too_large = too_large, 2 * too_large
    while too_large - known > max(1, known // 16):
        middle = (known + too_large) // 2
        known, too_large = (middle, too_large) if fits(middle) else (known, middle)
    return known


def run_batch(
    model: str, size: int, mode: str, batch: int, runs: int, memory: float | None
) -> list[float] | None:
    """Returns the images per second of each run in a process; None if the batch does not fit."""
    job = json.dumps([model, size, mode, batch, runs])
    process = subprocess.Popen(
        [sys.executable, __file__, "--job", job],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        pages = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        if memory is not None and pages * resource.getpagesize() > memory * 2**30:
            process.kill()
            process.communicate()
            return None
        time.sleep(0.02)
    answer, messages = process.communicate()
    if process.returncode == OUT_OF_MEMORY or process.returncode == -9:
        return None
    if process.returncode:
        raise SystemExit(f"{model}, {size} pixels, {mode}, batch {batch}: {messages[-2000:]}")
    return json.loads(answer.splitlines()[-1])


def job(model: str, size: int, mode: str, batch: int, runs: int) -> list[float]:
    """Returns the images per second of each run; the first, untimed step compiles."""
    import keras
    import tensorflow as tf

    import keras_vit
    from keras_vit.training import SGD, SoftmaxCrossentropy, Trainer

    shape = (size, size, 3)
    built = keras_vit.build(
        model,
        input_shape=shape,
        weights=None,
        classifier_activation="softmax" if mode == "inference" else None,
    )
    images = tf.random.uniform((batch, *shape))
    if mode == "inference":
        call = tf.function(lambda: built(images, training=False), autograph=False)

        def steps(count):
            for _ in range(count):
                keras.ops.convert_to_numpy(call())
    else:
        trainer = Trainer(built)
        trainer.compile(SGD(1e-6), SoftmaxCrossentropy())  # Training on noise must not diverge.
        examples = tf.data.Dataset.from_tensors((images, tf.zeros(batch, "int64"))).repeat()

        def steps(count):
            trainer.fit(examples, steps_per_epoch=count, verbose=0)

    def seconds(count):
        began = time.perf_counter()
        steps(count)
        return time.perf_counter() - began

    steps(1)
    count = max(1, round(SECONDS / seconds(1))) if runs else 0
    return [batch * count / seconds(count) for _ in range(runs)]


def draw(rows: Sequence[dict[str, str]], column: str, folder: pathlib.Path) -> None:
    """Draws a column by image size on logarithmic axes; nothing where it is empty."""
    rows = [row for row in rows if row.get(column)]
    if not rows:
        return
    figure = new_figure((7.5, 5))
    axes = figure.add_subplot()
    for model in dict.fromkeys(row["model"] for row in rows):
        points = sorted(
            (int(row["size"]), float(row[column])) for row in rows if row["model"] == model
        )
        axes.plot(*zip(*points, strict=True), "-o", markersize=4, label=model)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="image size (pixels)", ylabel=column.replace("_", " "))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    figure.savefig(folder / f"{column}_{rows[0]['mode']}.png", dpi=150)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        import tensorflow

        try:
            print(json.dumps(job(*json.loads(sys.argv[2]))))
        except (MemoryError, tensorflow.errors.ResourceExhaustedError):
            sys.exit(OUT_OF_MEMORY)
    else:
        main()
