"""The page of findings: pictures with neighbours, and a decision on each by key."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from keras_vit.images.pages import data_address, escape, paragraph, thumbnail, write_page

_SIDE, _QUALITY = 96, 80  # Small pictures, as there are many.

_STYLE = """
body { box-sizing: border-box; display: flex; flex-direction: column; height: 100dvh;
  margin: 0 auto; }
h1 { font-size: 1.3rem; margin: .6rem 0 .2rem; } p { margin: .2rem 0; }
#kinds, #tools { display: flex; flex-wrap: wrap; gap: .4rem; margin: .3rem 0; }
button, select { font: inherit; } button[aria-pressed=true] { font-weight: bold; }
#list { --row: 150px; border: 1px solid #8884; flex: 1; min-height: 12rem; overflow-y: auto; }
#space { position: relative; }
.row { align-items: start; border-bottom: 1px solid #8884; box-sizing: border-box;
  column-gap: .8rem; display: grid; grid-template: auto 1fr / 112px minmax(0, 1fr) auto;
  height: var(--row); overflow: hidden; padding: .5rem; position: absolute; width: 100%; }
.row[aria-current] { outline: 3px solid Highlight; outline-offset: -3px; }
.row img { border: 0; height: 64px; object-fit: contain; width: 64px; }
.row .main { grid-row: 1 / 3; height: 112px; width: 112px; }
.text { display: flex; flex-direction: column; overflow-wrap: anywhere; }
.near { display: flex; gap: .8rem; grid-column: 3; grid-row: 1 / 3; }
.near small { display: block; max-width: 9rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.buttons { align-self: end; display: flex; flex-wrap: wrap; gap: .3rem; grid-column: 2; }
output { align-self: center; font-weight: bold; }
@media (max-width: 700px) {
  #list { --row: 290px; }
  .row { grid-template: auto auto 1fr / 96px minmax(0, 1fr); }
  .row .main { grid-row: 1; height: 96px; width: 96px; }
  .near { grid-column: 1 / 3; grid-row: 2; } .near img { height: 56px; width: 56px; }
  .buttons { grid-column: 1 / 3; grid-row: 3; }
}
"""

_BODY = """
<div id="kinds"></div>
<div id="tools">
<select id="other" aria-label="another class"></select>
<button id="labels">Save labels.csv</button>
<button id="exclude">Save exclude.txt</button>
<span id="status" role="status"></span>
</div>
<div id="list" role="list" tabindex="0" aria-label="findings"><div id="space"></div></div>
"""


@dataclasses.dataclass(frozen=True)
class ShownImage:
    """An image on the page.

    Args:
        path: Relative to the data, as the saved files name it.
        labels: The names of its classes.
        encoded: The content of its file.
    """

    path: str
    labels: Sequence[str]
    encoded: bytes


@dataclasses.dataclass(frozen=True)
class ShownFinding:
    """A row of the page.

    Args:
        kind: The list that it is in.
        image: The number of its image.
        title: A line in bold.
        detail: A line below.
        near: Captions, each with the numbers of images that are shown small.
        decide: Whether it can be kept, relabelled or dropped.
        to: The class to relabel it to; "" for none. For multi-label data a text such as "not cat".
        toggle: For multi-label data, the label that is added or taken away.
    """

    kind: str
    image: int
    title: str
    detail: str
    near: Sequence[tuple[str, Sequence[int]]] = ()
    decide: bool = True
    to: str = ""
    toggle: str = ""


def write_findings(
    path: str | os.PathLike,
    title: str,
    lines: Sequence[tuple[str, str]],
    images: Mapping[int, ShownImage],
    findings: Sequence[ShownFinding],
    class_names: Sequence[str],
    *,
    multilabel: bool = False,
) -> None:
    """Writes the page, one file that needs no network.

    Args:
        path: The HTML file.
        title: Its heading.
        lines: Rows of a table above the list.
        images: All images that findings name, by number.
        findings: The rows, in the order of the page.
        class_names: The classes that an image may be relabelled to.
        multilabel: Whether relabelling adds or takes away one label.

    Raises:
        OSError: If the file cannot be written.
    """
    places = {number: place for place, number in enumerate(images)}
    shown = [
        {
            "path": image.path,
            "labels": list(image.labels),
            "src": data_address(thumbnail(image.encoded, _SIDE, _QUALITY), "jpeg"),
        }
        for image in images.values()
    ]
    content = {
        # Decisions are stored for these images and labels: not for others at the same place.
        "key": f"keras-vit check {_digest([[row['path'], row['labels']] for row in shown])}",
        "classes": list(class_names),
        "multilabel": multilabel,
        "images": shown,
        "findings": [
            {
                **dataclasses.asdict(finding),
                "id": f"{finding.kind} {images[finding.image].path} {finding.toggle}",
                "image": places[finding.image],
                "near": [
                    [caption, [places[number] for number in numbers]]
                    for caption, numbers in finding.near
                ],
            }
            for finding in findings
        ],
    }
    script = pathlib.Path(__file__).with_name("findings.js").read_text(encoding="utf-8")
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    # "<" could begin the end of the element.
    embedded = json.dumps(content).replace("<", "\\u003c")
    write_page(
        path,
        title,
        f"<style>{_STYLE}</style>\n",
        f"<details open><summary>Summary</summary>{_table(lines)}</details>\n",
        _BODY if findings else paragraph("Nothing was found."),
        f'<script type="application/json" id="data">{embedded}</script>\n' if findings else "",
        f"<script>{script}</script>\n" if findings else "",
        policy=(
            f"default-src 'none'; script-src 'sha256-{_sha256(script)}'; "
            "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
        ),
    )


def _table(lines):
    rows = (f"<tr><th>{escape(word)}</th><td>{escape(line)}</td></tr>\n" for word, line in lines)
    return f"<table>\n{''.join(rows)}</table>\n"


def _sha256(text):
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _digest(content):
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
