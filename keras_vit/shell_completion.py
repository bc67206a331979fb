"""Completion of commands, flags and values in a shell (extra `completion`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable

from keras_vit.checkpoints.catalogue import NAMES, RELEASED_NAMES, list_weights
from keras_vit.configs import list_models
from keras_vit.optional_packages import import_optional
from keras_vit.training.recipes import RECIPES

# The command's words so far are in an environment variable, as argcomplete asks for candidates.
ASKED_FOR = "_ARGCOMPLETE"

# In these MODEL is a classifier.
_OF_CLASSIFIERS = ("predict", "serve")


def words_so_far() -> list[str]:
    """Returns the words before the cursor."""
    return os.environ["COMP_LINE"].split()[1:]


def complete(parser: argparse.ArgumentParser, command: str | None) -> None:
    """Prints the candidates for the word at the cursor, and ends the process.

    Args:
        parser: The parser, with the arguments of the command.
        command: The command's name, or None before it is typed.
    """
    argcomplete = import_optional("argcomplete", "Completion", "completion")
    files = argcomplete.completers.FilesCompleter()

    def names_or_files(prefix, action, **others):
        return [*names_of(command, action.dest), *files(prefix, action=action, **others)]

    argcomplete.autocomplete(parser, default_completer=names_or_files)


def names_of(command: str | None, argument: str) -> Iterable[str]:
    """Returns the names that the package knows for an argument: models, weights or recipes."""
    if argument == "recipe" or (command, argument) == ("recipes", "names"):
        return RECIPES
    if argument == "weights":
        return [*NAMES, *list_weights()]
    if argument in ("model", "names", "folder"):
        of_classifiers = argument == "folder" or command in _OF_CLASSIFIERS
        return RELEASED_NAMES if of_classifiers else list_models()
    return ()
