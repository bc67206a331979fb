"""The page of findings: pictures with neighbours, and a decision on each by key."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from keras_vit.images.pages import data_address, escape, thumbnail, write_page

_SIDE, _QUALITY = 96, 80  # Small pictures, as there are many.


class Finding(NamedTuple):
    """A row of the page and of the table of findings.

    Args:
        kind: The list that it is in: "wrong labels", "leaks" (copies in different parts of the
            data), "conflicts" (copies with different labels), "copies" or "shortcuts".
        image: The number of its image.
        title: A line in bold.
        detail: A line below.
        value: The probability that a label is wrong, the cosine of copies by their features, or
            the AUROC of a shortcut.
        other: The number of the other image of a copy.
        near: Captions, each with the numbers of images that are shown small.
        decide: Whether it can be kept, relabelled or dropped.
        to: The class to relabel it to; "" for none. For multi-label data a text such as "not cat".
        toggle: For multi-label data, the label that is added or taken away.
    """

    kind: str
    image: int
    title: str
    detail: str
    value: float
    other: int | None = None
    near: Sequence[tuple[str, Sequence[int]]] = ()
    decide: bool = True
    to: str = ""
    toggle: str = ""


def write_findings(
    path: str | os.PathLike,
    title: str,
    lines: Sequence[tuple[str, str]],
    images: Mapping[int, tuple[str, Sequence[str], bytes]],
    findings: Sequence[Finding],
    class_names: Sequence[str],
    *,
    multilabel: bool = False,
) -> None:
    """Writes the page, one file that needs no network.

    Args:
        path: The HTML file.
        title: Its heading.
        lines: Rows of a table above the list.
        images: All images that findings name, by number: the path relative to the data, as the
            saved files name it, the names of the classes, and the content of the file.
        findings: The rows, in the order of the page.
        class_names: The classes that an image may be relabelled to.
        multilabel: Whether relabelling adds or takes away one label.

    Raises:
        OSError: If the file cannot be written.
    """
    places = {number: place for place, number in enumerate(images)}
    identity = json.dumps([[name, list(labels)] for name, labels, _ in images.values()])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    content = {
        # Decisions are stored for these images and labels: not for others at the same place.
        "key": f"keras-vit check {digest}",
        "classes": list(class_names),
        "multilabel": multilabel,
        "images": [
            {
                "path": name,
                "labels": list(labels),
                "src": data_address(thumbnail(encoded, _SIDE, _QUALITY), "jpeg"),
            }
            for name, labels, encoded in images.values()
        ],
        "findings": [
            {
                **finding._asdict(),
                "id": f"{finding.kind} {images[finding.image][0]} {finding.toggle}",
                "image": places[finding.image],
                "near": [
                    [caption, [places[number] for number in numbers]]
                    for caption, numbers in finding.near
                ],
            }
            for finding in findings
        ],
    }
    body, script = (
        pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
        for name in ("findings.html", "findings.js")
    )
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rows = (f"<tr><th>{escape(word)}</th><td>{escape(line)}</td></tr>\n" for word, line in lines)
    # "<" could begin the end of the element.
    embedded = json.dumps(content).replace("<", "\\u003c")
    write_page(
        path,
        title,
        body.replace("SUMMARY", f"<table>\n{''.join(rows)}</table>\n"),
        f'<script type="application/json" id="data">{embedded}</script>\n',
        f"<script>{script}</script>\n",
        policy=(
            f"default-src 'none'; script-src 'sha256-{script_hash}'; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )
