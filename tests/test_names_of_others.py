"""Names from files and stores of others, which become paths."""

import pathlib

import pytest

from keras_vit.checkpoints.repositories import classifier_folder
from keras_vit.utils.files import path_inside

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEADING_OUT = ("../x", "a/../../x", "..", "/x", "//x", "a/./../../x", "..\\x", "C:x", "a\0b", "a/")


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_name_that_leads_out_of_its_folder_is_refused(name, hub, tmp_path):
    with pytest.raises(ValueError, match="must lie in its folder"):
        path_inside(tmp_path, name)
    hub.add("owner/outside", {"config.json": b"{}", "model.safetensors": b"", name: b"1"})
    with pytest.raises(ValueError, match="must lie in its folder"):
        classifier_folder("hf:owner/outside")
    assert not hub.fetched()


@pytest.mark.parametrize("name", ["a", "a/b.c", "..a", "a..b/...", "12:30 – ä.png"])
def test_other_names_are_paths_in_the_folder(name, tmp_path):
    assert path_inside(tmp_path, name) == tmp_path / name


def test_every_place_that_makes_paths_of_such_names_is_tested_here():
    code = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("keras_vit", "training", "export")
        for path in (ROOT / folder).rglob("*.py")
    }
    callers = {path for path, text in code.items() if "path_inside(" in text}
    assert callers == {"keras_vit/utils/files.py", "keras_vit/hub/downloads.py"}
    # Archives are read, and never unpacked.
    unpack = ("extractall(", ".extract(", "unpack_archive(", "tarfile")
    assert not [path for path, text in code.items() if any(word in text for word in unpack)]
