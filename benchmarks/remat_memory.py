"""Peak memory and time of a ViT-B/16 training step with and without recomputing activations.

Each case runs in a separate process. Prints one table.

    python benchmarks/remat_memory.py [--batch-size 32]
"""

import argparse
import json
import os

from machine import describe, peak_memory, seconds_of
from own_process import run_program

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def run_case(remat, batch_size):
    """Prints, as JSON, the MiB before the steps, at their peak, and the seconds of a step."""
    import keras
    import numpy as np

    import keras_vit

    model = keras_vit.build("ViT-B/16", classifier_activation=None, remat=remat)
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    images = np.zeros((batch_size, 224, 224, 3), "float32")
    labels = np.zeros(batch_size, "int64")
    before = peak_memory()
    model.train_on_batch(images, labels)
    elapsed = seconds_of(lambda: model.train_on_batch(images, labels))
    peak = peak_memory()
    print(json.dumps([before, peak, elapsed]))


def main():
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case == "remat", arguments.batch_size)
        return
    print(describe("tensorflow", "keras"), "\n")
    print("| activations | before the step, MiB | peak, MiB | seconds a step |")
    print("| --- | --- | --- | --- |")
    for case, name in (("keep", "kept"), ("remat", "recomputed")):
        options = ["--case", case, "--batch-size", arguments.batch_size]
        before, peak, elapsed = run_program(__file__, *options)
        print(f"| {name} | {before} | {peak} | {elapsed:.1f} |", flush=True)


if __name__ == "__main__":
    main()
