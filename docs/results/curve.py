"""Accuracy curves of runs, with the accuracies on the test images at their ends.

python docs/results/curve.py CURVE.png RUN [RUN ...]
"""

import csv
import json
import pathlib
import sys

from matplotlib import pyplot

picture, *folders = map(pathlib.Path, sys.argv[1:])
figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
for folder in folders:
    rows = list(csv.DictReader((folder / "history.csv").read_text(encoding="utf-8").splitlines()))
    recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    steps = [int(row["step"]) for row in rows]
    accuracies = [100 * float(row["accuracy"]) for row in rows]
    test = 100 * recipe["test"]["top_1"]
    name = f"{recipe['model']}, {recipe['settings']['image_size'][0]} pixels"
    (line,) = axis.plot(steps, accuracies, label=f"{name}, training, augmented")
    label = f"{name}, test: {test:.1f}%"
    axis.plot(steps[-1], test, "D", color=line.get_color(), label=label)
axis.set_xlabel("step")
axis.set_ylabel("accuracy (%)")
axis.legend()
figure.savefig(picture, dpi=100)
