"""Completion of commands, flags and values in a shell (extra `completion`)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

from keras_vit.checkpoints.catalogue import NAMES as WEIGHTS, RELEASED_NAMES, list_weights
from keras_vit.configs import list_models
from keras_vit.training.recipes import RECIPES
from keras_vit.utils.fields import field_info, flat_fields
from keras_vit.utils.optional_packages import import_optional

# Names that the package knows, by the kinds in `FieldInfo.completion`.
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "models": list_models,
    "weights": lambda: [*WEIGHTS, *list_weights()],
    "classifiers": lambda: RELEASED_NAMES,
    "recipes": lambda: RECIPES,
}


def complete(parser: argparse.ArgumentParser, command_type: Any) -> None:
    """Prints the candidates for the word at the cursor, and ends the process.

    Args:
        parser: The parser, with the arguments of the command.
        command_type: The command's dataclass, or None before its name is typed.
    """
    argcomplete = import_optional("argcomplete", "Completion", "completion")
    files = argcomplete.completers.FilesCompleter()
    kinds = {
        field.name: field_info(field).completion
        for field in (flat_fields(command_type) if command_type else ())
    }

    def names_or_files(prefix, action, **others):
        known = [name for kind in kinds.get(action.dest, ()) for name in NAMES[kind]()]
        return [*known, *files(prefix, action=action, **others)]

    argcomplete.autocomplete(parser, default_completer=names_or_files)
