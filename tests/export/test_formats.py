"""What all formats share: options as flags and arguments, and texts."""

import dataclasses
import inspect

import pytest

import keras_vit.export
from keras_vit.commands import export as command
from keras_vit.export import publish, texts
from keras_vit.export.formats import FORMATS, ExportFormat, any_of, format_of
from keras_vit.utils.files import EXPORT_MARKERS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_public_function_with_its_options(name):
    function = getattr(keras_vit.export, name)
    assert bool(FORMATS[name].suffix) != bool(FORMATS[name].marker)  # A file or a folder.
    first, path, options = inspect.signature(function).parameters.values()
    assert (first.name, path.name, options.kind) == ("classifier", "path", options.VAR_KEYWORD)
    assert f"**options: The fields of `{FORMATS[name].__name__}`." in function.__doc__
    for field in dataclasses.fields(FORMATS[name]):
        assert f"        {field.name}: " in FORMATS[name].__doc__
    with pytest.raises(TypeError, match="no_such_option"):
        function("unused", "unused", no_such_option=1)


def test_options_of_one_name_are_one_flag():
    for name, (field, formats) in command.options().items():
        assert name not in ExportFormat.__dataclass_fields__
        for format_name in formats:
            other = FORMATS[format_name].__dataclass_fields__[name]
            assert (other.metadata, other.default) == (field.metadata, field.default)


def test_a_format_is_found_by_its_marker_or_suffix(tmp_path):
    for format_type in FORMATS.values():
        path = tmp_path / f"export{format_type.suffix or format_type.name}"
        if format_type.marker:
            path.mkdir()
            (path / format_type.marker).touch()
        else:
            path.touch()
        assert format_of(path) is format_type
    markers = {format_type.marker for format_type in FORMATS.values()}
    assert markers - {""} == set(EXPORT_MARKERS)  # They are known without the modules.


def test_texts_say_what_was_written(classifier):
    written = publish.texts_of(classifier)
    later = {"task.json", texts.GOLDEN, texts.CHECK, texts.CHECKSUMS}
    assert set(written) == set(texts.NAMES) - later
    description, recipe = texts.read_facts(written)
    assert description.labels == classifier.description.labels
    assert description.preprocessing == classifier.preprocessing
    assert recipe == classifier.recipe


@pytest.mark.parametrize(
    ("names", "text"), [(["a"], "a"), (["a", "b"], "a or b"), (["a", "b", "c"], "a, b or c")]
)
def test_names_are_listed_in_words(names, text):
    assert any_of(names) == text
