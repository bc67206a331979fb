"""The picture of docs/architecture.md, drawn from the imports in the code.

    python docs/architecture.py

writes docs/architecture.svg. A box is a folder with its files, or a file that lies directly in
`keras_vit/` or `training/`; such files that use no other box share one. A box uses what lies
below it. Arrows that follow from others are left out, and so are the arrows of `commands/`, which
uses every other box.
"""

import ast
import html
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = "keras_vit/commands"
PICTURE = ROOT / "docs" / "architecture.svg"
FOLDERS = {"keras_vit": "keras_vit", "training": "keras_vit.training", "export": "keras_vit.export"}
LEFT_OUT = {"__init__", "_version", "command_line"}  # Entry points.

LINE, CHARACTER, PADDING, GAP = 15, 6.7, 8, 26  # Pixels.
COLUMNS = 3  # Files in a row of a box.
COLORS = {"keras_vit": "#e8f0fe", "training": "#e6f4ea", "export": "#fef7e0"}


def modules() -> dict[str, pathlib.Path]:
    """Returns every module by its name as installed."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *parts])] = path
    return found


def box_of(path: pathlib.Path) -> str:
    """Returns the room of a file, or the file itself if it lies in a top folder."""
    inside = path.relative_to(ROOT)
    if inside.parts[0] == "export" and len(inside.parts) == 2:
        return "export"
    return "/".join(inside.parts[:2])


def imports(name: str, path: pathlib.Path) -> set[str]:
    """Returns the full names that a module imports, inside functions too."""
    package, names = name.split(".")[:-1], set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


def graph() -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Returns the files of each box, and the boxes that it uses."""
    known = modules()
    files: dict[str, list[str]] = {}
    uses: dict[str, set[str]] = {}
    for name, path in known.items():
        box = box_of(path)
        if path.stem in LEFT_OUT:
            continue
        files.setdefault(box, []).append(path.stem)
        uses.setdefault(box, set())
        for used in imports(name, path):
            target = known.get(used) or known.get(f"{used}.__init__")
            if target is not None and target.stem != "_version" and box_of(target) != box:
                uses[box].add(box_of(target))
    uses = {box: used & set(files) for box, used in uses.items()}
    for box in [box for box in files if box.endswith(".py") and not uses[box]]:
        shared = f"{box.split('/')[0]}/*.py"
        files.setdefault(shared, []).extend(files.pop(box))
        uses = {b: {shared if u == box else u for u in used} for b, used in uses.items()}
        uses[shared] = uses.pop(box)
    return files, uses


def reachable(uses: dict[str, set[str]], start: str) -> set[str]:
    """Returns the boxes that can be reached from a box."""
    seen, ahead = set(), [start]
    while ahead:
        for box in uses[ahead.pop()] - seen:
            seen.add(box)
            ahead.append(box)
    return seen


def levels(uses: dict[str, set[str]]) -> dict[str, int]:
    """Returns the height of each box: 0 uses nothing, others lie above all that they use."""
    heights: dict[str, int] = {}
    while len(heights) < len(uses):
        ready = [box for box in uses if box not in heights and uses[box] <= set(heights)]
        if not ready:
            raise SystemExit(f"Imports run in a circle among {sorted(set(uses) - set(heights))}")
        heights |= {box: 1 + max((heights[b] for b in uses[box]), default=-1) for box in ready}
    return heights


def draw() -> str:
    """Returns the picture as SVG."""
    files, uses = graph()
    heights = levels(uses)
    boxes = {}
    for box, names in files.items():
        alone = box.endswith(".py") and "*" not in box
        rows = [] if alone else [names[i : i + COLUMNS] for i in range(0, len(names), COLUMNS)]
        text = [", ".join(row) for row in rows]
        width = max(len(line) for line in [f"{box}/", *text]) * CHARACTER + 2 * PADDING
        boxes[box] = (text, width, (1 + len(text)) * LINE + PADDING)
    places, top, total = {}, GAP / 2, 0
    for level in range(max(heights.values()), -1, -1):
        row = sorted(box for box in boxes if heights[box] == level)
        left = GAP / 2
        for box in row:
            places[box] = (left, top)
            left += boxes[box][1] + GAP
        total = max(total, left)
        top += max(boxes[box][2] for box in row) + 2 * GAP
    for level in set(heights.values()):  # Centred.
        row = [box for box in boxes if heights[box] == level]
        end = max(places[box][0] + boxes[box][1] for box in row) + GAP / 2
        for box in row:
            places[box] = (places[box][0] + (total - end) / 2, places[box][1])
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {top - GAP:.0f}" '
        'font-family="monospace" font-size="11">',
        '<defs><marker id="tip" markerWidth="7" markerHeight="6" refX="7" refY="3" '
        'orient="auto"><path d="M0,0 L7,3 L0,6 z" fill="#888"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for box, used in sorted(uses.items()):
        for target in sorted(used if box != COMMANDS else ()):
            if any(target in reachable(uses, other) for other in used - {target}):
                continue
            (x1, y1), (x2, y2) = places[box], places[target]
            x1, y1 = x1 + boxes[box][1] / 2, y1 + boxes[box][2]
            out.append(
                f'<path d="M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + GAP:.0f} '
                f"{x2 + boxes[target][1] / 2:.0f},{y2 - GAP:.0f} "
                f'{x2 + boxes[target][1] / 2:.0f},{y2:.0f}" '
                'fill="none" stroke="#888" marker-end="url(#tip)"/>'
            )
    for box, (text, width, height) in boxes.items():
        x, y = places[box]
        out.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" '
            f'fill="{COLORS[box.split("/")[0]]}" fill-opacity="0.8" stroke="#666"/>'
        )
        title = box if box.endswith(".py") else f"{box}/"
        for number, line in enumerate([title, *text]):
            weight = ' font-weight="bold"' if number == 0 else ""
            out.append(
                f'<text x="{x + PADDING:.0f}" y="{y + LINE * (number + 1):.0f}"{weight}>'
                f"{html.escape(line)}</text>"
            )
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw())
