"""Names from files and stores of others, which become paths."""

import json
import pathlib
import sys
import types

import pytest

from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.repositories import repository_folder
from keras_vit.utils.files import path_inside

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEADING_OUT = ("../x", "a/../../x", "..", "/x", "//x", "a/./../../x", "..\\x", "C:x", "a\0b", "a/")
URL = "evil://bucket/pets"


@pytest.fixture
def beam(monkeypatch):
    """`keras_vit.export.beam` with a store in place of Apache Beam."""
    names = ("io.fileio", "io.filesystems", "ml.inference.base")
    modules = {name: types.ModuleType(f"apache_beam.{name}") for name in names}
    modules["ml.inference.base"].ModelHandler = object
    monkeypatch.setitem(sys.modules, "apache_beam", types.ModuleType("apache_beam"))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, f"apache_beam.{name}", module)
    monkeypatch.delitem(sys.modules, "keras_vit.export.beam", raising=False)
    from keras_vit.export import beam

    yield beam
    sys.modules.pop("keras_vit.export.beam", None)


class Store:
    """The part of `apache_beam.io.filesystems.FileSystems` that is used: objects by name."""

    def __init__(self, *names):
        self.names = names

    def match(self, patterns):
        below = patterns[0].endswith("/**")
        paths = [f"{URL}/{name}" if below else URL for name in self.names if below or not name]
        return [types.SimpleNamespace(metadata_list=[types.SimpleNamespace(path=p) for p in paths])]


def copied_by_beam(name, folder, beam, monkeypatch):
    store = Store("model.keras", name)
    monkeypatch.setattr(beam.filesystems, "FileSystems", store, raising=False)
    monkeypatch.setattr(beam, "_content", lambda path: path.encode())
    (folder / "copies").mkdir()
    return beam._copied(URL, folder / "copies")


def named_by_an_index(name, folder):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    open_checkpoint(folder)


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_name_that_leads_out_of_its_folder_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="must lie in its folder"):
        path_inside(tmp_path, name)


@pytest.mark.parametrize("name", ["a", "a/b.c", "..a", "a..b/...", "12:30 – ä.png"])
def test_other_names_are_paths_in_the_folder(name, tmp_path):
    assert path_inside(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_worker_of_beam_writes_nothing_of_a_store_whose_names_lead_out(
    name, beam, tmp_path, monkeypatch
):
    with pytest.raises(ValueError, match="must lie in its folder"):
        copied_by_beam(name, tmp_path, beam, monkeypatch)
    assert [path.name for path in tmp_path.rglob("*")] == ["copies"]


def test_a_worker_of_beam_copies_the_objects_below_the_model(beam, tmp_path, monkeypatch):
    folder = copied_by_beam("samples/1.png", tmp_path, beam, monkeypatch)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert folder == tmp_path / "copies" / "pets"
    assert files == {"model.keras", "samples/1.png"}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_an_index_names_no_file_out_of_its_folder(name, tmp_path):
    with pytest.raises(ValueError, match="must (lie in its folder|name the files beside it)"):
        named_by_an_index(name, tmp_path)


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_repository_whose_names_lead_out_is_not_downloaded(name, hub, tmp_path):
    hub.add("owner/outside", {"config.json": b"{}", "model.safetensors": b"", name: b"1"})
    with pytest.raises(ValueError, match="must lie in its folder"):
        repository_folder("hf:owner/outside")
    assert not hub.fetched()


def test_every_place_that_makes_paths_of_such_names_is_tested_here():
    code = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("keras_vit", "training", "export")
        for path in (ROOT / folder).rglob("*.py")
    }
    callers = {path for path, text in code.items() if "path_inside(" in text}
    assert callers == {
        "keras_vit/utils/files.py",
        "keras_vit/checkpoints/checkpoint.py",
        "keras_vit/hub/hugging_face.py",
        "export/beam.py",
    }
    # Archives are read, and never unpacked.
    unpack = ("extractall(", ".extract(", "unpack_archive(", "tarfile")
    assert not [path for path, text in code.items() if any(word in text for word in unpack)]
