"""JSON of any origin: what is no finite, flat JSON is one line."""

import pytest

from keras_vit.utils.json_files import MAX_DEPTH, check_fields, parse_json, read_json


@pytest.mark.parametrize(
    "text",
    [
        '{"a": -Infinity}',
        '{"a": NaN}',
        '{"a": 1e400}',
        '{"a": 1' + "0" * 400 + "}",
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        "{",
        "",
        b"\xff\xfe\x00",
        b'{"a": "\xff"}',
    ],
    ids=range(11),
)
def test_what_is_no_finite_flat_json_is_one_short_line(text):
    with pytest.raises(ValueError, match=r"^the\.json must be JSON") as error:
        parse_json(text, "the.json")
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)


def test_whole_and_other_numbers_are_read():
    depth = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    text = f'{{"a": [-1, 18446744073709551615, 1.5e308], "b": {depth}}}'
    assert parse_json(text, "x")["a"] == [-1, 2**64 - 1, 1.5e308]


def test_a_file_holds_an_object_whose_fields_have_their_types(tmp_path):
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"must hold one JSON object. Received: \[1\]"):
        read_json(tmp_path / "a.json")
    fields = {"name": str, "epsilon": float, "heads": int, "size": (int, list), "in": {"a": str}}
    good = {"name": "x", "epsilon": 1, "heads": None, "size": [1], "in": {"a": "b"}, "more": {}}
    check_fields(good, fields, "x")
    for wrong, message in (
        ({"name": ["x"]}, r"name must be str in x. Received: \['x'\]"),
        ({"heads": True}, "heads must be int in x. Received: True"),
        ({"epsilon": "1"}, "epsilon must be float"),
        ({"size": {}}, "size must be int or list"),
        ({"in": {"a": {}}}, "a must be str"),
    ):
        with pytest.raises(ValueError, match=message):
            check_fields(wrong, fields, "x")
