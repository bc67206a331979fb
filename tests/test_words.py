"""The words of code, tests and pages: plain technical English."""

import argparse
import ast
import pathlib
import re

import pytest

import keras_vit.command_line
from keras_vit.utils.fields import add_arguments

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACES = (
    "*.md",
    "*.cfg",
    "keras_vit/**/*.py",
    "training/**/*.py",
    "export/**/*.py",
    "benchmarks/**/*.py",
    "paper/**/*.py",
    "docs/**/*.md",
    "docs/**/*.py",
    "examples/*.*",
    "skills/**/*.md",
    "tests/**/*.py",
)

# Odd words, as regular expressions, and the better ones. Upper and lower case are the same, and a
# space also matches a line break within a comment or paragraph.
BETTER = {
    r"\bseveral labels\b|\blabels an image\b": "multi-label",
    r"\bfor people\b": "human-readable",
    r"\bbut for\b": "except for",
    r"\bbesides\b": "in addition to",
    r"\bbeside (that|those|the labels|the loss|the paper)\b": "in addition to, next to",
    r"\bdata of a program\b|\bheld_data\b": "in-memory data",
    r"\bsurest\b": "most confident, most probable",
    r"\boutside of memory\b": "on disk",
    r"\bcolours of print\b": "CMYK",
    r"\bas ever\b": "unchanged, as before",
    r"\bas they are\b": "unchanged",
    r"\btold\b|\btells of\b": "reported, printed; distinguished",
    r"\bsaid\b": "reported, printed; as a name: message, lines",
    r"\b(those|that) of\b": "the noun itself, or a possessive",
    r"\bwhat is there\b": "the noun itself",
    r"\bof (its|their) own\b": "its own, their own; separate",
    r"\bof equal ones\b": "ties go to",
    r'(# |"""|^ +\w+: )(?-i:Of)\b': 'a noun first, as in "Errors of a full disk."',
}

# Odd words for users: on pages, in help texts, printed lines and errors. Comments may have them.
FOR_USERS = {
    r"\bbeside\b": "compared with, next to, in addition to",
    r"\bbehind\b": "after",
    r"\bstrangers?\b": "photos of none of the classes; unknown sources",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"(?<!\bmodel\s)\bcards?\b": "the model card, README.md; what the page shows",
    r"\bplan\b": "what a run prints at its start",
    r"\bthe last lines?\b": "what the line says",
}

# Pages for readers of the code, whose words are the code's.
OF_THE_CODE = ("docs/architecture.md",)

# Starts of paths, with or without tests/ in front, whose words may stay, and why.
ALLOWED = {
    "test_words.py": "names the odd words",
}


def sources():
    """Returns the text of each file by its path in the checkout."""
    paths = sorted({path for place in PLACES for path in ROOT.glob(place) if path.is_file()})
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in names.items()
        if not name.removeprefix("tests/").startswith(tuple(ALLOWED))
    }


@pytest.mark.parametrize("words", BETTER)
def test_no_file_has_odd_words(words):
    pattern = re.compile(re.sub(r"(?<=\w) ", r"(?:\\s+#)?\\s+", words), re.I | re.M)
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()!r}"
        for name, text in sources().items()
        for match in pattern.finditer(text)
    ]
    assert not found, f"Better: {BETTER[words]}\n" + "\n".join(found)


def prose(text):
    """Returns a page without its code and outputs; the lines stay where they are."""
    code = r"^ *```.*?^ *```|`[^`]*`"
    return re.sub(code, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S | re.M)


def printed(text):
    """Returns (line, string) of the strings in a program that are not docstrings."""
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.lineno, node.value


PRODUCT = ("keras_vit/", "training/", "export/")


@pytest.fixture(scope="module")
def texts():
    """Returns (place, text) of what users read: pages, and the words of programs and their help."""
    found = [
        (name, prose(text))
        for name, text in sources().items()
        if name.endswith(".md") and name not in OF_THE_CODE
    ]
    for name, text in sources().items():
        if name.startswith(PRODUCT):
            found += [(f"{name}:{line}", value) for line, value in printed(text) if " " in value]
    for name in keras_vit.command_line.COMMANDS:
        command = keras_vit.command_line.command_type(name)
        parser = argparse.ArgumentParser()
        add_arguments(parser, command)
        help_text = parser.format_help() + keras_vit.command_line.details_of(name)
        found.append((f"keras-vit {name} --help", help_text))
    return found


@pytest.mark.parametrize("words", FOR_USERS)
def test_users_read_no_odd_words(words, texts):
    wrong = [
        f"{place}: {' '.join(text[max(0, match.start() - 30) : match.end() + 30].split())}"
        for place, text in texts
        for match in re.finditer(words, text, re.I)
    ]
    assert not wrong, f"Better: {FOR_USERS[words]}\n" + "\n".join(wrong)
