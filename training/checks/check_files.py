"""The output of `keras-vit check`: the summary, the page, the JSON file, the split."""

from __future__ import annotations

import json
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_vit.training.data import Examples
from keras_vit.training.data.groups import assign
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.tables import table_lines
from keras_vit.training.evaluation.nearest import nearest
from keras_vit.utils.files import write_text
from keras_vit.utils.safe_text import for_line

from .calibration_bounds_page import ShownFinding, ShownImage, write_findings
from .odd_images import UNREADABLE
from .photo_check import PhotoCheck
from .shortcuts import MAX_P_VALUE, MIN_AUROC

CHECK_HTML, CHECK_JSON, SPLIT_CSV = "check.html", "check.json", "split.csv"

PARTS = {"train": 0.7, "validation": 0.1, "test": 0.2}  # Shares of the written split.

MAX_NOISE = 0.01  # Share of wrong labels.
FIRST = 50  # Labels, of which as many are expected to be wrong as the page says.
MAX_SHOWN = 5000  # Findings on the page; all are in the JSON file.

_MAX_DOUBTS = 1000  # Rows of the page: each has seven pictures.
_NEIGHBOURS = 3  # Nearest images, in the given and in the proposed class.
_TYPICAL = 6  # Images of a shortcut.


def exceeded(check: PhotoCheck) -> list[str]:
    """Returns a line for each finding above its level, as `--strict` counts them."""
    levels = {
        "files that cannot be read": (len(check.unreadable), 0),
        "copies in different parts of the data": (len(check.leaks()), 0),
        "copies with different labels": (len(check.conflicts()), 0),
        "shortcuts": (sum(shortcut.found for shortcut in check.shortcuts), 0),
        "photos that were turned twice": (sum(odd.kind == "turned twice" for odd in check.odd), 0),
        "estimated share of wrong labels": (round(_noise(check), 4), MAX_NOISE),
    }
    return [
        f"{name}: {value:g}, above {level:g}"
        for name, (value, level) in levels.items()
        if value > level
    ]


def summary(check: PhotoCheck) -> list[tuple[str, str]]:
    """Returns what the command prints: a word and a line for each topic."""
    parts = Counter(check.parts)
    split = "".join(f", {name} {count:,}" for name, count in parts.items() if name)
    expected = check.expected
    groups = len(np.unique(check.groups))
    left_out = "image" if groups == len(check.names) else f"of {groups:,} groups"
    answers = "right decisions on labels" if check.multilabel else "accuracy"
    lines = [
        ("images", f"{len(check.names):,} of {len(check.class_names):,} classes{split}"),
        (
            "expect",
            f"what to expect from these photos: leave-one-out {answers} {expected.accuracy:.1%} "
            f"({expected.low:.1%} to {expected.high:.1%}), each {left_out} left out",
        ),
        ("labels", _labels_line(check)),
        (
            "copies",
            f"{len(check.copies):,} pairs, {len(check.leaks()):,} in different parts of the data, "
            f"{len(check.conflicts()):,} with different labels",
        ),
    ]
    found = [shortcut for shortcut in check.shortcuts if shortcut.found]
    lines += [
        (
            "shortcut",
            f"{shortcut.name} gives away {check.class_names[shortcut.class_number]} "
            f"(AUROC {shortcut.auroc:.3f}, p {shortcut.adjusted:.3g})",
        )
        for shortcut in found
    ] or [("shortcuts", f"none of {len(check.shortcuts)} that were tried")]
    kinds = Counter(odd.kind for odd in check.odd)
    kinds[UNREADABLE] += len(check.unreadable)
    odd = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    lines.append(("odd", odd or "none"))
    if check.curve is not None:
        low, high = check.curve.interval
        before, after = check.curve.accuracies[-1], check.curve.doubled
        lines.append(
            ("more", f"twice the photos: {before:.1%} to {after:.1%} ({low:.1%} to {high:.1%})")
        )
    lines += [("", line) for line in describe_skipped(check.unreadable)]
    return [(word, for_line(line)) for word, line in lines]


def _labels_line(check):
    ranked = _ranked_doubts(check)
    first = ranked[:FIRST]
    expected = sum(check.doubts[place].probability[number] for place, number in first)
    if not first:
        return "none is in doubt"
    return (
        f"of the first {len(first)} in doubt about {expected:.0f} are expected to be wrong; "
        f"an estimated {_noise(check):.1%} of all stand out"
    )


def _noise(check):
    """The largest estimated share of wrong labels.

    It counts only where a label is listed: the estimate for N right labels is 1 / (N + 1), never 0.
    """
    return max((doubts.noise for doubts in check.doubts if doubts.listed.any()), default=0.0)


def _ranked_doubts(check):
    """Returns the number of the doubts and of the image, the most doubtful first."""
    found = [
        (doubts.confidence[number], place, int(number))
        for place, doubts in enumerate(check.doubts)
        for number in doubts.ranked()
    ]
    return [(place, number) for _, place, number in sorted(found)]


def to_json(
    check: PhotoCheck, relative: Callable[[str], str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns all findings as types of JSON.

    Args:
        check: The findings.
        relative: Function from an image's name to its path in the data.
        facts: What was checked and with which model.
    """
    paths = [relative(name) for name in check.names]
    expected, curve = check.expected, check.curve
    labels = []
    for place, number in _ranked_doubts(check):
        doubts = check.doubts[place]
        labels.append(
            {
                "image": paths[number],
                "label": check.label_text(number),
                "proposed": _proposal(check, place, number)[0],
                "confidence": round(float(doubts.confidence[number]), 4),
                "probability": round(float(doubts.probability[number]), 4),
            }
        )
    return {
        **facts,
        "images": len(paths),
        "classes": list(check.class_names),
        "expected": {
            "accuracy": expected.accuracy,
            "interval": [expected.low, expected.high],
            "groups": len(np.unique(check.groups)),
        },
        "wrong_labels": {
            "estimated_share": [doubts.noise for doubts in check.doubts],
            "images": labels,
        },
        "copies": [
            {
                "images": [paths[pair.first], paths[pair.second]],
                "kind": pair.kind,
                "cosine": round(pair.cosine, 4),
                "parts": [check.parts[pair.first], check.parts[pair.second]],
                "labels": [check.label_text(pair.first), check.label_text(pair.second)],
            }
            for pair in check.copies
        ],
        "shortcuts": [
            {
                "name": shortcut.name,
                "found": shortcut.found,
                "p_value": shortcut.p_value,
                "adjusted_p_value": shortcut.adjusted,
                "auroc": shortcut.auroc,
                "class": check.class_names[shortcut.class_number],
            }
            for shortcut in check.shortcuts
        ],
        "odd_images": [
            {"image": paths[odd.number], "kind": odd.kind, "value": odd.value} for odd in check.odd
        ],
        "unreadable": [
            {"image": relative(path), "reason": reason} for path, reason in check.unreadable
        ],
        "learning_curve": curve
        and {
            "images": list(curve.sizes),
            "accuracies": list(curve.accuracies),
            "twice": curve.doubled,
            "interval": list(curve.interval),
        },
        "levels": {
            "wrong_labels": MAX_NOISE,
            "shortcut_p_value": MAX_P_VALUE,
            "shortcut_auroc": MIN_AUROC,
        },
        "above_levels": exceeded(check),
    }


def write_check(
    check: PhotoCheck,
    splits: Mapping[str, Examples],
    folder: str | os.PathLike,
    *,
    title: str,
    relative: Callable[[str], str],
    facts: Mapping[str, Any],
    seed: int = 0,
) -> list[pathlib.Path]:
    """Writes `check.html`, `check.json` and `split.csv`.

    Args:
        check: The findings.
        splits: The images by part, as they were checked.
        folder: The folder; made if it does not exist.
        title: The heading of the page.
        relative: Function from an image's name to its path in the data.
        facts: What was checked and with which model, for the JSON file.
        seed: Seed of the split.

    Returns:
        The files written.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    page, record, split = (folder / name for name in (CHECK_HTML, CHECK_JSON, SPLIT_CSV))
    findings = _shown_findings(check)[:MAX_SHOWN]
    numbers = {number for finding in findings for number in _numbers(finding)}
    images = {
        number: ShownImage(relative(check.names[number]), _label_names(check, number), encoded)
        for number, encoded in _encoded(splits, sorted(numbers))
    }
    write_findings(
        page,
        title,
        summary(check),
        images,
        findings,
        check.class_names,
        multilabel=check.multilabel,
    )
    content = to_json(check, relative, facts)
    write_text(record, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    numbers = assign(check.targets, check.groups, list(PARTS.values()), seed)
    parts = [list(PARTS)[number] for number in numbers]
    # Unreadable files need a row too, and have no part.
    rows = dict.fromkeys((relative(path) for path, _ in check.unreadable), "train")
    rows |= dict(zip(map(relative, check.names), parts, strict=True))
    write_text(split, "".join(f"{line}\n" for line in table_lines(rows, "split")))
    return [page, record, split]


def _shown_findings(check):
    """Returns the rows of the page: labels, copies, shortcuts, odd images."""
    rows = _shown_labels(check)
    for pair in sorted(
        check.copies, key=lambda pair: check.parts[pair.first] == check.parts[pair.second]
    ):
        texts = []
        for number in (pair.first, pair.second):
            part = f" in {check.parts[number]}" if check.parts[number] else ""
            texts.append(f"{check.label_text(number) or 'no label'}{part}")
        detail = f"{' and '.join(texts)}, cosine {pair.cosine:.3f}"
        rows.append(
            ShownFinding(
                "copies", pair.second, pair.kind, detail, [("the other image", [pair.first])]
            )
        )
    for shortcut in check.shortcuts:
        if shortcut.found:
            typical = [int(number) for number in shortcut.images[:_TYPICAL]]
            detail = f"AUROC {shortcut.auroc:.3f}, p-value {shortcut.adjusted:.3g}"
            name = check.class_names[shortcut.class_number]
            title = f"{shortcut.name} gives away {name}"
            near = [("most typical", typical[1:])]
            rows.append(ShownFinding("shortcuts", typical[0], title, detail, near, decide=False))
    rows += [
        ShownFinding("odd images", odd.number, odd.kind, f"{odd.value:.3g}") for odd in check.odd
    ]
    return rows


def _shown_labels(check):
    """Returns the doubted labels with the nearest images of the given and the proposed class."""
    ranked = _ranked_doubts(check)[:_MAX_DOUBTS]
    wanted: dict[tuple[int, int], list[int]] = {}  # Images by the label, and whether they have it.
    for place, number in ranked:
        for side in _proposal(check, place, number)[1]:
            wanted.setdefault(side, []).append(number)
    centred = check.features - check.features.mean(axis=0, keepdims=True)
    near: dict[tuple[int, int, int], list[int]] = {}
    for (label, value), numbers in wanted.items():
        members = np.flatnonzero(check.targets[:, label] == value)
        if not len(members):
            continue
        count = min(_NEIGHBOURS + 1, len(members))
        found, _ = nearest(centred[members], centred[numbers], count)
        for number, row in zip(numbers, members[found].tolist(), strict=True):
            others = [other for other in row if other != number]
            near[label, value, number] = others[:_NEIGHBOURS]
    rows = []
    for place, number in ranked:
        proposal, sides = _proposal(check, place, number)
        captions = []
        for label, value in sides:
            name = check.class_names[label]
            caption = name if value else f"not {name}"
            captions.append((caption, near.get((label, value, number), [])))
        probability = check.doubts[place].probability[number]
        rows.append(
            ShownFinding(
                "wrong labels",
                number,
                f"{captions[0][0]}, or {proposal}?",
                f"wrong with probability {probability:.0%}",
                captions,
                to=proposal,
                toggle=check.class_names[place] if check.multilabel else "",
            )
        )
    return rows


def _proposal(check, place, number):
    """Returns the proposed label, and the given and the proposed side: (class, 1 or 0)."""
    if check.multilabel:
        has = int(check.targets[number, place])
        name = check.class_names[place]
        return (f"not {name}" if has else name), [(place, has), (place, 1 - has)]
    proposed = int(check.doubts[0].proposed[number])
    given = int(check.targets[number].argmax())
    return check.class_names[proposed], [(given, 1), (proposed, 1)]


def _label_names(check, number):
    return [check.class_names[k] for k in np.flatnonzero(check.targets[number])]


def _numbers(finding):
    return [finding.image, *(number for _, numbers in finding.near for number in numbers)]


def _encoded(splits, numbers):
    """Yields the numbers of images, ascending, with the content of their files."""
    start = 0
    for examples in splits.values():
        own = [number - start for number in numbers if start <= number < start + len(examples)]
        for number, (encoded, _) in zip(own, examples.take(own).encoded(), strict=True):
            yield start + number, encoded
        start += len(examples)
