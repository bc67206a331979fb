"""Arguments of a command that are made from the fields of a dataclass."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import Any, Literal

import pytest

from keras_vit.utils.fields import (
    AT_LEAST_1,
    REQUIRED,
    add_arguments,
    check_fields,
    from_arguments,
    part,
    setting,
)
from keras_vit.utils.json_files import fits_json, of_json


@dataclasses.dataclass(frozen=True)
class Filter:
    radius: float = setting(2.0, "of the filter", unit="PIXELS")
    colours: tuple[str, ...] = setting(("red", "blue"), "channels", choices=("red", "blue"))
    sizes: tuple[tuple[int, int], ...] = setting((), "of the results", unit="HxW")
    seed: int = setting(0, "of the noise", flag="")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blur:
    images: tuple[str, ...] = setting(REQUIRED, "files", unit="IMAGE", positional=True)
    output: str = setting(REQUIRED, "the folder", unit="DIR", group="results")
    count: int = setting(1, "", unit="N", limits=AT_LEAST_1)
    names: tuple[str, ...] = setting((), "of results", unit="NAME", flag="name")
    limit: int | None = setting(None, "of bytes", unit="N", parse=len, absent="none")
    filter: Filter = part(Filter, group="the filter")

    def __post_init__(self):
        check_fields(self)


def blur(*words, settings_type=Blur):
    parser = argparse.ArgumentParser()
    add_arguments(parser, settings_type)
    return from_arguments(settings_type, parser.parse_args(words))


def test_what_is_not_given_has_its_default():
    assert blur("a.png", "--output", "out") == Blur(
        images=("a.png",), output="out", filter=Filter()
    )


def test_arguments_have_the_types_of_their_fields():
    given = blur(
        *("a.png", "b.png", "--output", "out", "--count", "3", "--name", "x", "y"),
        *("--limit", "four", "--radius", "3", "--colours", "blue", "--sizes", "8", "8x16"),
    )
    assert given == Blur(
        images=("a.png", "b.png"),
        output="out",
        count=3,
        names=("x", "y"),
        limit=4,
        filter=Filter(3.0, ("blue",), ((8, 8), (8, 16))),
    )


@pytest.mark.parametrize("words", [["--output", "out"], ["a.png"], ["a.png", "--seed", "1"]])
def test_required_fields_must_be_given_and_fields_without_a_flag_cannot(words, capsys):
    with pytest.raises(SystemExit):
        blur(*words)


def test_a_value_beyond_the_limits_is_an_error():
    with pytest.raises(ValueError, match="count=0$"):
        blur("a.png", "--output", "out", "--count", "0")


def test_help_has_defaults_units_and_groups():
    parser = argparse.ArgumentParser()
    add_arguments(parser, Blur)
    text = " ".join(parser.format_help().split())
    assert "--count N (default: 1)" in text
    assert "results: --output DIR the folder" in text
    assert "the filter: --radius PIXELS of the filter (default: 2.0)" in text
    assert "--limit N of bytes (default: none)" in text
    assert "channels (default: red blue)" in text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths:
    """What the shell leaves a tilde in."""

    images: tuple[str, ...] = setting((), "files", unit="IMAGE", positional=True)
    output: str | os.PathLike | None = setting(None, "the folder", unit="DIR")
    samples: str | int | None = setting(None, "photos", unit="N|FOLDER|none")
    text: str | None = setting(None, "what separates", unit="TEXT")


@pytest.mark.parametrize(
    ("word", "field", "value"),
    [
        ("--output=~/out", "output", "/home/me/out"),
        ("--output=~", "output", "/home/me"),
        ("--output=tfrecords:~/records", "output", "tfrecords:/home/me/records"),
        ("--output=a/~/b", "output", "a/~/b"),
        ("--output=~nobody-of-this-name/out", "output", "~nobody-of-this-name/out"),
        ("--samples=~/photos", "samples", "/home/me/photos"),
        ("~/cat.jpg", "images", ("/home/me/cat.jpg",)),
        ("--text=~", "text", "~"),
    ],
)
def test_a_tilde_in_a_path_is_the_folder_of_the_user(word, field, value, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert getattr(blur(word, settings_type=Paths), field) == value


FITS = [
    (int, 1, True),
    (int, True, False),
    (int, 1.0, False),
    (float, 1, True),
    (float, True, False),
    (bool, True, True),
    (bool, 1, False),
    (str, "int", True),
    (str | None, None, True),
    (str, None, False),
    (str | os.PathLike, "photos", True),
    (Any, [{"a": None}], True),
    (Literal["tanh", "exact"], "exact", True),
    (Literal["tanh", "exact"], "erf", False),
    (tuple[int, int], [8, 8], True),
    (tuple[int, int], [8], False),
    (tuple[int, int], [8, "8"], False),
    (tuple[str, ...], [], True),
    (tuple[str, ...], ["a", "b"], True),
    (tuple[str, ...], "ab", False),
    (tuple[tuple[int, int], ...], [[1, 2], [3, 4]], True),
    (tuple[tuple[int, int], ...], [[1, 2], 3], False),
    (list[list] | int | None, [["a.jpg", "empty"]], True),
    (list[list] | int | None, ["a.jpg"], False),
    (list[list] | int | None, 3, True),
    (dict[str, int], {"train": 3}, True),
    (dict[str, int], {"train": "3"}, False),
    (dict[str, int], [3], False),
    (dict[str, Any] | None, {"train": "3"}, True),
    (dict[str, Filter], {"blur": {"radius": 1.0}}, True),
    (dict[str, Filter], {"blur": 1.0}, False),
]


@pytest.mark.parametrize(("kind", "value", "fits"), FITS)
def test_a_value_of_json_fits_a_type_or_not(kind, value, fits):
    assert fits_json(kind, value) == fits


def test_a_dataclass_in_json_is_made_with_its_tuples():
    read = of_json(dict[str, Filter], {"blur": {"radius": 1, "sizes": [[2, 3]], "more": 4}})
    assert read == {"blur": Filter(radius=1, sizes=((2, 3),))}


def test_a_field_of_another_type_keeps_its_default():
    assert of_json(Filter, {"seed": "none"}) == Filter()
