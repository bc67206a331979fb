"""The page of findings: one file without a network, with a decision of a person on each card."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.reports.pages import data_address, report_section, thumbnail, write_page
from keras_vit.reports.report import Report
from keras_vit.training.data import Examples
from keras_vit.utils.intervals import exact_interval

from .check_report import (
    COPIES,
    CheckReport,
    Finding,
    groups_of_pairs,
    shortcuts_by_class,
)

DRAWN = 10  # Doubted labels that a person judges for an estimate of the others.

_MAX_SHOWN = 2000  # Cards, with up to seven pictures each; all findings are in the table.
_MAX_PICTURES = 100  # Pictures of one group; the others have their path.
_SIDES = (96, 480)  # Pixels of the longer side of a picture: the fewer pictures, the larger.
_PIXELS = 16e6  # In all pictures together, where the smallest side allows it: some 5 MB.
_QUALITY = 80


class Card(NamedTuple):
    """A card of the page.

    Args:
        kind: See `Finding`; of a group of copies the worst of its pairs.
        images: The numbers of its images: all of a group of copies, else one.
        title: A line in bold.
        detail: A line below.
        near: Captions, each with the numbers of images that are shown small.
        choices: The classes that the images may be relabelled to by a button, the first by key.
    """

    kind: str
    images: tuple[int, ...]
    title: str
    detail: str
    near: Sequence[tuple[str, Sequence[int]]] = ()
    choices: tuple[str, ...] = ()


class ShownImage(NamedTuple):
    """An image of a card.

    Args:
        path: Its path relative to the data, as the saved files name it.
        label: The name of its class.
        part: The part of the data that it is in; "" for data without parts.
        thumbnail: A JPEG; None for an image of which only the path is shown.
    """

    path: str
    label: str
    part: str = ""
    thumbnail: bytes | None = None


def cards_of(report: CheckReport) -> list[Card]:
    """Returns the cards of the page: a doubt, a group of copies, or the shortcuts of a class."""
    single = [
        Card(row.kind, (row.image,), row.title, row.detail, row.near, (row.to,) if row.to else ())
        for row in report.findings
        if row.kind not in (*COPIES, "shortcuts")
    ]
    copies = [
        _card_of_copies(images, pairs, report.labels)
        for images, pairs in groups_of_pairs(report.of_kind(*COPIES))
    ]
    copies.sort(key=lambda card: COPIES.index(card.kind))
    first_of_class: dict[str, Finding] = {}
    for row in report.of_kind("shortcuts"):
        first_of_class.setdefault(report.labels[row.image], row)
    shortcuts = [
        Card("shortcuts", (first_of_class[name].image,), name, by, first_of_class[name].near)
        for name, by in shortcuts_by_class(report).items()
    ]
    return [*single, *copies, *shortcuts][:_MAX_SHOWN]


def _card_of_copies(images, pairs, labels):
    """The card of a group, which may be relabelled to any class in it, the most frequent first."""
    kinds, how = {row.kind for row in pairs}, {row.title for row in pairs}
    counts = Counter(labels[number] for number in images)
    choices = tuple(name for name, _ in counts.most_common()) if len(counts) > 1 else ()
    described = ", ".join(f"{count} of {name}" for name, count in counts.most_common())
    kind = next(kind for kind in COPIES if kind in kinds)
    return Card(kind, tuple(images), ", ".join(sorted(how)), described, choices=choices)


def shown_images(
    cards: Sequence[Card],
    report: CheckReport,
    splits: Mapping[str, Examples],
    paths: Sequence[str],
) -> dict[int, ShownImage]:
    """Returns each image of the cards, by its number.

    Args:
        cards: The cards.
        report: The findings.
        splits: The images by part, as they were checked.
        paths: The path of each image.
    """
    pictured = {number for card in cards for number in card.images[:_MAX_PICTURES]}
    pictured.update(number for card in cards for _, near in card.near for number in near)
    side = int(np.clip(np.sqrt(_PIXELS / max(len(pictured), 1)), *_SIDES))
    images = {
        number: ShownImage(paths[number], report.labels[number], report.parts[number])
        for card in cards
        for number in {*card.images, *(near for _, numbers in card.near for near in numbers)}
    }
    start = 0
    for examples in splits.values():
        own = sorted(pictured.intersection(range(start, start + len(examples))))
        contents = examples.take([number - start for number in own]).encoded()
        for number, (content, _) in zip(own, contents, strict=True):
            small = thumbnail(content, side, _QUALITY, report.bit_depth)
            images[number] = images[number]._replace(thumbnail=small)
        start += len(examples)
    return images


def write_cards(
    path: str | os.PathLike,
    title: str,
    summary: Report,
    images: Mapping[int, ShownImage],
    cards: Sequence[Card],
    class_names: Sequence[str],
) -> None:
    """Writes the page.

    Args:
        path: The HTML file.
        title: Its heading.
        summary: The facts above the cards.
        images: All images of the cards, by number.
        cards: The cards, in the order of the page.
        class_names: The classes that an image may be relabelled to.
    """
    identity = json.dumps([[image.path, image.label] for image in images.values()])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    content = {
        # Decisions are stored for these images and labels: not for others at the same place.
        "key": f"keras-vit check {digest}",
        "classes": list(class_names),
        "drawn": DRAWN,
        # For so many wrong ones in the draw, the share of wrong ones in all, with 95% confidence.
        "intervals": [exact_interval(wrong, DRAWN) for wrong in range(DRAWN + 1)],
        "images": {
            number: {
                "path": image.path,
                "label": image.label,
                "part": image.part,
                "src": image.thumbnail and data_address(image.thumbnail, "jpeg"),
            }
            for number, image in images.items()
        },
        "cards": [
            {
                **card._asdict(),
                "id": f"{card.kind} {images[card.images[0]].path}",
                "decide": card.kind != "shortcuts",
            }
            for card in cards
        ],
    }
    body, script = (
        pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
        for name in ("findings.html", "findings.js")
    )
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # "<" could begin the end of the element.
    embedded = json.dumps(content).replace("<", "\\u003c")
    write_page(
        path,
        title,
        body.replace("SUMMARY", report_section(summary)),
        f'<script type="application/json" id="data">{embedded}</script>\n',
        f"<script>{script}</script>\n",
        policy=(
            f"default-src 'none'; script-src 'sha256-{script_hash}'; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )
