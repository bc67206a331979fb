"""Draws a run's history.

python docs/results/curve.py RUN/history.csv CURVE.png
"""

import csv
import sys

from matplotlib import pyplot

history, picture = sys.argv[1:]
with open(history, encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
for column, style in (("accuracy", "-"), ("validation_accuracy", "o-")):
    points = [(int(row["step"]), 100 * float(row[column])) for row in rows if row[column]]
    axis.plot(*zip(*points, strict=True), style, label=column.replace("_", " "))
axis.set_xlabel("step")
axis.set_ylabel("accuracy (%)")
axis.legend()
figure.savefig(picture, dpi=100)
