"""The words of code, tests and pages: plain technical English."""

import pathlib
import re

import pytest

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
