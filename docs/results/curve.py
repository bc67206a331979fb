"""Accuracy curve of a run, with the accuracy on the test images at its end.

python docs/results/curve.py RUN CURVE.png
"""

import csv
import json
import pathlib
import sys

from matplotlib import pyplot

folder, picture = map(pathlib.Path, sys.argv[1:])
rows = list(csv.DictReader((folder / "history.csv").read_text(encoding="utf-8").splitlines()))
test = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))["test"]["top_1"]
curves = {
    "training, augmented": [(row["step"], row["accuracy"]) for row in rows],
    "validation": [(row["step"], row["validation_accuracy"]) for row in rows],
    "test": [(rows[-1]["step"], test)],
}
figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
for (label, points), style in zip(curves.items(), ("-", "o-", "D"), strict=True):
    points = [(int(step), 100 * float(share)) for step, share in points if share]
    if points:
        axis.plot(*zip(*points, strict=True), style, label=label)
axis.set_xlabel("step")
axis.set_ylabel("accuracy (%)")
axis.legend()
figure.savefig(picture, dpi=100)
