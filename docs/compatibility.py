"""The table of docs/compatibility.md: what was run with which versions.

python docs/compatibility.py
"""

import csv
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE / "compatibility.md"


def page():
    """Returns the page with the table of compatibility.csv."""
    with open(HERE / "compatibility.csv", encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
    table = "\n".join(lines)
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(
        r"(<!-- runs: .*? -->\n).*?(<!-- end of runs -->)",
        lambda match: f"{match[1]}\n{table}\n\n{match[2]}",
        text,
        flags=re.S,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
