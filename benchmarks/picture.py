"""Draws the tables of docs/benchmarks.md: images per second of each library.

python benchmarks/picture.py
"""

import pathlib

from keras_vit.utils.files import atomic_write
from keras_vit.utils.plots import new_figure

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
RATE = ", images/s"
COLORS = {"ours": "#1f6f8b", "KerasHub": "#e0a458", "official": "#8a8a8a"}


def tables(text):
    """Yields the rows, as dictionaries, of each table with rates."""
    for block in text.split("\n\n"):
        lines = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in block.splitlines()
            if line.startswith("|")
        ]
        if lines and any(name.endswith(RATE) for name in lines[0]):
            yield [dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]]


def main():
    """Writes docs/results/benchmarks.png."""
    found = list(tables((DOCS / "benchmarks.md").read_text(encoding="utf-8")))
    figure = new_figure((9, 4.2), dpi=120)
    panels = figure.subplots(
        1, len(found), gridspec_kw={"width_ratios": [len(rows) for rows in found]}
    )
    for axes, rows, backend in zip(panels, found, ("TensorFlow", "JAX"), strict=True):
        sides = [name.removesuffix(RATE) for name in rows[0] if name.endswith(RATE)]
        width = 0.8 / len(sides)
        for place, side in enumerate(sides):
            heights = [float(row[side + RATE]) / float(row["KerasHub" + RATE]) for row in rows]
            positions = [
                index + (place - (len(sides) - 1) / 2) * width for index in range(len(rows))
            ]
            bars = axes.bar(positions, heights, 0.95 * width, label=side, color=COLORS[side])
            axes.bar_label(bars, fmt="%.2f", fontsize=7)
        names = [
            f"{row['job'].replace(', ', chr(10))}\n{row['precision'].removeprefix('mixed_')}"
            for row in rows
        ]
        axes.set_xticks(range(len(rows)), names, fontsize=7)
        axes.set_title(backend, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False, loc="upper left")
        axes.set_ylim(0, 1.25 * max(bar.get_height() for bar in axes.patches))
    panels[0].set_ylabel("images per second, KerasHub = 1")
    with atomic_write(DOCS / "results" / "benchmarks.png") as partial:
        figure.savefig(partial)


if __name__ == "__main__":
    main()
