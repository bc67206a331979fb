"""The contents of an export apart from its model, human-readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_vit.description.without_paths import without_paths
from keras_vit.utils.json_files import parse_json
from keras_vit.utils.safe_text import for_line

from .golden import GoldenSample, parse_golden
from .texts import GOLDEN, ORIGIN, read_facts

_LONGEST = 300  # Characters of a line, whose text is from the file.


def describe_contents(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Returns lines about samples, data, command, versions and licence in the texts of an export.

    Raises:
        ValueError: If a text is wrong.
    """
    description, recipe = read_facts(texts)
    origin = parse_json(texts.get(ORIGIN, "{}"), ORIGIN)
    samples = parse_golden(texts[GOLDEN]) if GOLDEN in texts else []
    lines = [
        f"Samples: {_samples(samples)}.",
        f"Classes: {len(description.labels.names or ())} names.",
        f"Licence of the starting weights: {description.licence}.",
    ]
    if name := _field(recipe.get("data"), "data"):
        lines.append(f"Data: {name}.")
    if command := recipe.get("command"):
        lines.append(f"Command: {command}")
    made_by = [_field(origin, "made_by")]
    made_by += [f"{name} {_field(origin, name)}" for name in ("keras", "tensorflow")]
    if made_by[0]:
        lines.append(f"Made with {', '.join(map(str, made_by))} on {_field(origin, 'date')}.")
    if recipe and without_paths(recipe) != recipe:
        lines.append("Its origin has whole paths; keras-vit export writes their last parts.")
    return tuple(for_line(line)[:_LONGEST] for line in lines)


def _samples(samples: list[GoldenSample]) -> str:
    """The number of the images by which an export is verified, and their kind."""
    if not samples:
        return "none"
    kind = "synthetic images" if samples[0].is_synthetic else "photos"
    return f"{len(samples)} {kind}, which keras-vit verify runs"


def _field(values: Any, name: str) -> Any:
    return values.get(name) if isinstance(values, Mapping) else None
