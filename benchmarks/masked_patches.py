"""Fine-tuning after masked patch prediction compared with fine-tuning from scratch.

    python benchmarks/masked_patches.py DATA OUTPUT [--seeds 0 1 2]

DATA is what `keras-vit finetune --data` takes, with images of 32 pixels and a test part, such as
CIFAR-10. For each seed a small Vision Transformer (width 64, depth 4, patch 4) is pre-trained on
the training images without their labels, then fine-tuned with them; and the same model is
fine-tuned from random weights by the same recipe, with the same seed and as many steps. Accuracy
is measured on all test images. OUTPUT gets the folders and `accuracy.csv`; the same command
continues a stopped run. Prints a Markdown table at the end.
"""

import argparse
import csv
import os
import pathlib
import shutil
import statistics
import time

from keras_vit.text_tables import markdown_table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STARTS = ("masked patches", "scratch")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--pretraining-steps", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=500, help="of fine-tuning")
    arguments = parser.parse_args()

    arguments.output.mkdir(parents=True, exist_ok=True)
    table = arguments.output / "accuracy.csv"
    rows = _read(table)
    for seed in arguments.seeds:
        for start in STARTS:
            if (start, seed) in rows:
                continue
            began = time.monotonic()
            folder = arguments.output / f"{start.replace(' ', '-')}-{seed}"
            top_1 = _finetuned(arguments, start, seed, folder)
            rows[start, seed] = top_1
            with open(table, "a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow([start, seed, top_1])
            print(f"{start}, seed {seed}: {top_1:.2%}, {time.monotonic() - began:.0f} s")
    print(_markdown(rows, arguments.seeds))


def _finetuned(arguments, start, seed, folder):
    from keras_vit import ViTConfig
    from keras_vit.training.paper.masked_patches import pretrain_masked_patches
    from keras_vit.training.run.job import finetune
    from keras_vit.training.settings import FineTuning, MaskedPatches

    shutil.rmtree(f"{folder}.partial", ignore_errors=True)
    small = ViTConfig(4, width=64, depth=4, mlp_dim=256, num_heads=4)
    origin = {"model": small, "weights": None}
    if start == "masked patches":
        body = folder.with_name(f"body-{seed}")
        pretrain_masked_patches(
            arguments.data,
            body,
            MaskedPatches(
                model=small,
                image_size=(32, 32),
                steps=arguments.pretraining_steps,
                batch_size=128,
                learning_rate=1e-3,
                augmentation="padded_crop",
                seed=seed,
            ),
            overwrite=True,
        )
        origin = {"weights": str(body)}
    done = finetune(
        arguments.data,
        folder,
        FineTuning(
            **origin,
            image_size=(32, 32),
            steps=arguments.steps,
            batch_size=128,
            optimizer="adam",
            learning_rate=1e-3,
            warmup_steps=arguments.steps // 10,
            weight_decay=0.1,
            augmentation="padded_crop",
            validation=0.0,
            seed=seed,
        ),
        overwrite=True,
    )
    return done.report.top_1


def _read(table):
    if not table.exists():
        return {}
    with open(table, newline="", encoding="utf-8") as file:
        return {(start, int(seed)): float(top_1) for start, seed, top_1 in csv.reader(file)}


def _markdown(rows, seeds):
    lines = [["start", *(f"seed {seed}" for seed in seeds), "mean"]]
    for start in STARTS:
        found = [rows[start, seed] for seed in seeds]
        lines.append([start, *(f"{top_1:.2%}" for top_1 in (*found, statistics.mean(found)))])
    return markdown_table(lines)


if __name__ == "__main__":
    main()
