"""The files of a comparison: the page of flips, JSON, Markdown for a pull request, JUnit."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import numpy as np

from keras_vit.images.pages import (
    GridPicture,
    facts_table,
    heading,
    paragraph,
    picture_grid,
    write_page,
)
from keras_vit.training.data import Examples
from keras_vit.training.evaluation.mistakes import MAX_SHOWN, encoded_images
from keras_vit.utils.files import atomic_write, write_text
from keras_vit.utils.safe_text import for_json, for_line, for_markdown
from keras_vit.utils.text_tables import markdown_table

from .gates import FAILS, UNCLEAR, Verdict
from .measures import METRICS, Measure, Outcomes

COMPARE_HTML, COMPARE_JSON = "compare.html", "compare.json"
COMPARE_MD, JUNIT_XML = "compare.md", "junit.xml"

_HEADER = ("metric", "NEW against OLD (95%)", "McNemar p", "images")
_MAX_CLASSES = 20  # In the summary: the least certain to be as good.


@dataclasses.dataclass(frozen=True)
class Flips:
    """The images, with the answers of both classifiers.

    Args:
        examples: The N images.
        true: The names of their classes.
        old: The answers of OLD.
        new: The answers of NEW.
    """

    examples: Examples
    true: Sequence[str]
    old: Outcomes
    new: Outcomes

    def places(self, *, negative: bool) -> np.ndarray:
        """Returns the images of one direction, the most confident wrong answer first, int `(M,)`.

        Args:
            negative: Whether OLD is right and NEW wrong; else the other way round.
        """
        right, wrong = (self.old, self.new) if negative else (self.new, self.old)
        found = np.flatnonzero(right.right & ~wrong.right)
        return found[np.argsort(-wrong.probability[found], kind="stable")]

    def shown(self, places: np.ndarray) -> str:
        """Returns the pictures of a page with both answers."""
        images = encoded_images(self.examples, places)
        return picture_grid(
            GridPicture(
                self.examples.names[place],
                encoded,
                {
                    f"{word} ({of.probability[place]:.1%})": of.given[place]
                    for word, of in (("OLD", self.old), ("NEW", self.new))
                }
                | {"true": self.true[place]},
            )
            for place, encoded in zip(places, images, strict=True)
        )


def table_rows(measures: Sequence[Measure]) -> list[tuple[str, ...]]:
    """Returns the table of a summary; of many classes the lowest bounds."""
    by_class = [measure for measure in measures if measure.class_name is not None]
    by_class.sort(key=lambda measure: measure.interval[0])
    kept = set(map(id, by_class[:_MAX_CLASSES]))
    rows: list[tuple[str, ...]] = [_HEADER]
    for measure in measures:
        if measure.class_name is None or id(measure) in kept:
            p_value = p_value_text(measure.p_value)
            rows.append((for_line(measure.name), str(measure), p_value, f"{measure.count:,}"))
    return rows


def write_files(
    folder: pathlib.Path,
    titles: Sequence[str],
    measures: Sequence[Measure],
    verdicts: Sequence[Verdict],
    lines: Sequence[str],
    flips: Flips,
) -> list[str]:
    """Writes all files and returns their names; JUnit only where there are gates.

    Args:
        folder: An existing folder.
        titles: The names of OLD and NEW.
        measures: The numbers.
        verdicts: The answers to the gates.
        lines: What was compared.
        flips: The images.
    """
    old, new = titles
    rows = table_rows(measures)
    gates = [str(verdict) for verdict in verdicts]
    page = [
        paragraph(f"OLD is {old}, NEW is {new}."),
        *map(paragraph, [*gates, *lines]),
        facts_table({f"{row[0]}: {METRICS[row[0].split()[0]][1]}": row[1] for row in rows[1:]}),
    ]
    directions = ((True, "Right in OLD, wrong in NEW"), (False, "Wrong in OLD, right in NEW"))
    for negative, title in directions:
        places = flips.places(negative=negative)
        first = places[:MAX_SHOWN]
        count = f"{len(places):,} images"
        count += f"; the {len(first)} most confident are below." if len(first) else "."
        page += [heading(title), paragraph(count), flips.shown(first) if len(first) else ""]
    write_page(folder / COMPARE_HTML, "Comparison", *page)
    content = {
        "old": old,
        "new": new,
        "lines": list(lines),
        "measures": [measure.to_json() for measure in measures],
        "gates": [verdict.to_json() for verdict in verdicts],
        "flips": {
            name: [
                {
                    "image": flips.examples.names[place],
                    "true": flips.true[place],
                    "old": flips.old.given[place],
                    "new": flips.new.given[place],
                }
                for place in flips.places(negative=name == "negative")
            ]
            for name in ("negative", "positive")
        },
    }
    write_text(folder / COMPARE_JSON, for_json(json.dumps(content, indent=2)) + "\n")
    text = [f"### {for_markdown(new)} against {for_markdown(old)}", ""]
    text += [f"- {for_markdown(line)}" for line in [*gates, *lines]]
    write_text(folder / COMPARE_MD, "\n".join([*text, "", markdown_table(rows), ""]))
    if not verdicts:
        return [COMPARE_HTML, COMPARE_JSON, COMPARE_MD]
    _write_junit(folder / JUNIT_XML, verdicts)
    return [COMPARE_HTML, COMPARE_JSON, COMPARE_MD, JUNIT_XML]


def _write_junit(path, verdicts):
    """A test for each gate: an undecided one is an error, which no CI takes for a pass."""
    kinds = {FAILS: "failure", UNCLEAR: "error"}
    outcomes = [verdict.outcome for verdict in verdicts]
    counts = {f"{kind}s": str(outcomes.count(outcome)) for outcome, kind in kinds.items()}
    counts |= {"name": "keras-vit compare", "tests": str(len(verdicts))}
    suite = ElementTree.Element("testsuite", counts)
    for verdict in verdicts:
        test = ElementTree.SubElement(
            suite, "testcase", classname="compare", name=str(verdict.gate)
        )
        if verdict.outcome in kinds:
            message = for_line(str(verdict))
            ElementTree.SubElement(test, kinds[verdict.outcome], message=message)
    with atomic_write(path) as partial:
        ElementTree.ElementTree(suite).write(partial, encoding="utf-8", xml_declaration=True)


def p_value_text(p_value: float | None) -> str:
    """Returns a p-value with four digits, as "<0.0001" where they would be zeros; "" for None."""
    if p_value is None:
        return ""
    return f"{p_value:.4f}" if p_value >= 0.00005 else "<0.0001"
