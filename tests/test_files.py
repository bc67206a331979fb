import csv
import errno
import os
import pathlib
import sys

import pytest

from keras_vit.hub.repositories import classifier_folder
from keras_vit.utils import files
from keras_vit.utils.files import (
    DiskError,
    atomic_folder,
    atomic_write,
    check_file,
    check_folder,
    check_own_files,
    named_disk_errors,
    write_csv,
    write_text,
)
from keras_vit.utils.json_files import MAX_DEPTH, check_fields, parse_json, read_json

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEADING_OUT = ("../x", "a/../../x", "..", "/x", "//x", "a/./../../x", "..\\x", "C:x", "a\0b", "a/")


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def test_a_file_or_folder_appears_whole_with_its_parents_or_the_old_one_stays(tmp_path):
    file, folder = tmp_path / "new" / "scores.csv", tmp_path / "runs" / "pets"

    def write(text, fails=False):
        with atomic_write(file) as partial:
            assert (partial.parent, partial.suffix) == (file.parent, ".csv")
            partial.write_text(text)
            if fails:
                raise RuntimeError("half way")

    def fill(text, fails=False):
        with atomic_folder(folder, marker="model.keras", overwrite=True) as partial:
            (partial / "model.keras").write_text(text)
            if fails:
                raise RuntimeError("half way")

    write("old")
    fill("old")
    (folder / "left over").write_text("old")
    (tmp_path / "usual").mkdir()
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode
    before = files_of(tmp_path)
    for replace in (write, fill):
        with pytest.raises(RuntimeError, match="half way"):
            replace("new", fails=True)
        assert files_of(tmp_path) == before
    write("new")
    fill("new")
    assert files_of(tmp_path) == {"new/scores.csv": "new", "runs/pets/model.keras": "new"}
    assert [os.listdir(path.parent) for path in (file, folder)] == [["scores.csv"], ["pets"]]


def test_a_folder_that_was_filled_meanwhile_is_kept(tmp_path):
    folder = tmp_path / "pets"

    def write_while_another_does():
        with atomic_folder(folder):
            folder.mkdir()
            (folder / "mine.txt").write_text("mine")

    with pytest.raises(ValueError, match="new or empty"):
        write_while_another_does()
    assert files_of(tmp_path) == {"pets/mine.txt": "mine"}
    assert os.listdir(tmp_path) == ["pets"]


def test_what_exists_is_replaced_on_request_alone_and_never_a_folder_of_another_kind(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="--overwrite"):
        check_folder(tmp_path, marker="model.keras")
    with pytest.raises(ValueError, match="by hand"):
        check_folder(tmp_path, marker="model.keras", overwrite=True)
    with pytest.raises(ValueError, match=r"new or empty\. Received"):  # Without --overwrite.
        check_folder(tmp_path, overwrite=True)
    with pytest.raises(ValueError, match="must be a folder"):
        check_folder(tmp_path / "thesis.tex", overwrite=True)
    path = tmp_path / "pets.onnx"
    check_file(path, ".onnx")
    path.touch()
    with pytest.raises(ValueError, match="--overwrite"):
        check_file(path, ".onnx")
    check_file(path, ".onnx", overwrite=True)
    with pytest.raises(ValueError, match=r"end with \.tflite"):
        check_file(path, ".tflite", overwrite=True)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("Unable to write (errno = 28, error message = 'No space left on device')"),  # HDF5.
        RuntimeError("UNKNOWN: partial/variables; Disk quota exceeded"),  # TensorFlow.
        OSError(errno.EROFS, "Read-only file system"),
    ],
    ids=["python", "hdf5", "tensorflow", "read-only"],
)
def test_a_full_disk_is_named_with_the_path_and_what_to_do(error, tmp_path):
    def write(context, path):
        with context(path):
            raise error

    for context, path in ((atomic_write, tmp_path / "a.csv"), (atomic_folder, tmp_path / "b")):
        with pytest.raises(DiskError, match=f"{path} .*Free space"):
            write(context, path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [OSError, DiskError])
def test_a_file_in_a_temporary_folder_is_named_by_the_output(kind, tmp_path):
    full = (errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write():
        with atomic_folder(tmp_path / "b") as folder:
            if kind is OSError:
                raise OSError(*full, str(folder / "a.npz"))
            with atomic_write(folder / "a.npz"):
                raise OSError(*full)

    with pytest.raises(DiskError, match=f"^{tmp_path / 'b'} .*No space left"):
        write()


def test_the_error_behind_an_error_counts():
    def write():
        with named_disk_errors("runs/a.partial", lambda: "Go on with: B"):
            try:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/a.partial/best.npz")
            except OSError:
                raise ValueError("Can't close the ZIP file")  # noqa: B904

    with pytest.raises(DiskError) as caught:
        write()
    message = "runs/a.partial cannot be written: No space left on device. Go on with: B"
    assert str(caught.value) == message
    with pytest.raises(PermissionError), named_disk_errors("runs"):  # Other errors are not changed.
        raise PermissionError(errno.EACCES, "Permission denied", "photos")


def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe_and_any_path_is_written(tmp_path):
    formulas = ["=1+1", "+a", "-a!", "@SUM(1)", "  =1"]
    plain = ["cat", "-1.5", "+1e-3", "-", "", "a=b", -2, 0.5, None, "-inf"]
    write_csv(tmp_path / "a.csv", [formulas, plain])
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == [f"'{cell}" for cell in formulas]
    assert written[1] == ["" if cell is None else str(cell) for cell in plain]
    # Bytes of paths that are no UTF-8.
    write_text(tmp_path / "a.txt", "caf\udce9")
    write_csv(tmp_path / "a.csv", [["caf\udce9"]])
    assert (tmp_path / "a.txt").read_text() == "caf\\udce9"
    assert (tmp_path / "a.csv").read_text() == "caf\\udce9\n"


LINKS = {
    "a file": ("notes.txt", "../key.pem"),
    "a file by its whole path": ("notes.txt", "{outside}/key.pem"),
    "a folder": ("notes", ".."),
    "a folder by its whole path": ("samples/more", "{outside}"),
    "a photo": ("samples/1.png", "../../key.pem"),
    "all samples": ("more", "../"),
    "a folder of a like name": ("notes", "../pets2"),
    "a link to a link": ("samples/1.png", "way"),
    "nothing": ("notes.txt", "missing.txt"),
    "itself": ("notes.txt", "notes.txt"),
}


@pytest.fixture
def pets(tmp_path):
    """A folder beside a key and a folder of a like name."""
    folder = tmp_path / "pets"
    write_text(folder / "samples" / "0.png", "photo")
    write_text(tmp_path / "key.pem", "private")
    write_text(tmp_path / "pets2" / "key.pem", "private")
    return folder


@pytest.mark.parametrize("kind", LINKS)
def test_a_link_that_leads_out_of_a_folder_or_nowhere_is_refused(kind, pets):
    name, target = LINKS[kind]
    (pets / "samples" / "way").symlink_to("../../key.pem" if "link" in kind else "0.png")
    (pets / name).symlink_to(target.format(outside=pets.parent))
    with pytest.raises(ValueError, match=", a link$"):
        check_own_files(pets)


def test_a_pipe_in_a_folder_is_refused(pets):
    os.mkfifo(pets / "pipe")
    with pytest.raises(ValueError, match="pipe, no regular file$"):
        check_own_files(pets)


def test_links_within_a_folder_that_is_a_link_itself_are_its_own(pets):
    (pets / "again").symlink_to(".")
    (pets / "first.png").symlink_to(pets / "samples" / "0.png")
    (pets.parent / "best").symlink_to("pets")
    check_own_files(pets.parent / "best")


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_name_of_a_repository_that_leads_out_of_its_folder_is_never_a_path(name, hub, tmp_path):
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    hub.add("owner/outside", {"config.json": b"{}", "model.safetensors": b"", name: b"1"})
    folder = classifier_folder("hf:owner/outside")
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(tmp_path / "hub_cache") for path in written)


def test_no_archive_is_unpacked():
    code = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in ("keras_vit", "training", "export")
        for path in (ROOT / folder).rglob("*.py")
    }
    unpack = ("extractall(", ".extract(", "unpack_archive(", "tarfile")
    assert not [path for path, text in code.items() if any(word in text for word in unpack)]


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
    with pytest.raises(ValueError, match=r"one JSON object.*\[1\]"):
        read_json(tmp_path / "a.json")
    fields = {"name": str, "epsilon": float, "heads": int, "size": (int, list), "in": {"a": str}}
    good = {"name": "x", "epsilon": 1, "heads": None, "size": [1], "in": {"a": "b"}, "more": {}}
    check_fields(good, fields, "x")
    for wrong, message in (
        ({"name": ["x"]}, r"name .*str .*\['x'\]"),
        ({"heads": True}, "heads .*int .*True"),
        ({"epsilon": "1"}, "epsilon must be float"),
        ({"size": {}}, "size .*int or list"),
        ({"in": {"a": {}}}, "a must be str"),
    ):
        with pytest.raises(ValueError, match=message):
            check_fields(wrong, fields, "x")


def leave_old_aside(folder):
    """An older folder, as a process leaves it that is killed between two renames."""
    aside = folder.with_name(f".old.{'0a' * 16}-{folder.name}")
    aside.mkdir(parents=True)
    (aside / "model.keras").write_text("old")
    return aside


def test_an_older_folder_is_there_at_every_moment_where_the_system_exchanges(tmp_path):
    folder, seen = tmp_path / "pets", []
    folder.mkdir()
    (folder / "model.keras").write_text("old")

    def look(event, arguments):
        if event == "os.rename" and str(tmp_path) in str(arguments):
            seen.append((folder / "model.keras").read_text())

    sys.addaudithook(look)
    with atomic_folder(folder, marker="model.keras", overwrite=True) as partial:
        (partial / "model.keras").write_text("new")
    assert seen == ["old"]
    assert files_of(tmp_path) == {"pets/model.keras": "new"}


def test_an_older_folder_that_was_put_aside_gets_its_name_back(tmp_path):
    leave_old_aside(tmp_path / "pets")
    with pytest.raises(ValueError, match="new or empty"):
        check_folder(tmp_path / "pets", marker="model.keras")
    assert files_of(tmp_path) == {"pets/model.keras": "old"}
    leave_old_aside(tmp_path / "pets")  # The process was killed before it had removed it.
    check_folder(tmp_path / "pets", marker="model.keras", overwrite=True)
    assert os.listdir(tmp_path) == ["pets"]


def test_a_folder_that_cannot_be_exchanged_or_renamed_keeps_its_name(tmp_path, monkeypatch):
    folder, replace = tmp_path / "pets", os.replace
    folder.mkdir()
    (folder / "model.keras").write_text("old")
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)

    def refuse(one, other):
        if other == folder and not str(one).startswith(f"{tmp_path}/.old"):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        replace(one, other)

    monkeypatch.setattr(os, "replace", refuse)

    def write():
        with atomic_folder(folder, marker="model.keras", overwrite=True) as partial:
            (partial / "model.keras").write_text("new")

    with pytest.raises(OSError, match="busy"):
        write()
    assert files_of(tmp_path) == {"pets/model.keras": "old"}
    assert os.listdir(tmp_path) == ["pets"]


def test_what_killed_processes_left_is_removed_and_what_others_write_stays(tmp_path):
    left = [tmp_path / f".{'0a' * 16}-{name}" for name in ("a.csv", "b.csv", "pets", "pets.zip")]
    left[0].touch()
    left[1].touch()  # Another output's.
    left[2].mkdir()
    (left[2] / "model.keras").touch()
    left[3].touch()
    with atomic_write(tmp_path / "a.csv") as first, atomic_folder(tmp_path / "pets") as partial:
        with atomic_write(tmp_path / "a.csv") as second:
            second.write_text("second")
        assert first.exists()
        assert partial.exists()
    assert not left[0].exists()
    assert not left[2].exists()
    assert left[1].exists() and left[3].exists()  # noqa: PT018


def test_the_place_of_a_mounted_disk_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    with pytest.raises(ValueError, match="mounted disk"):
        check_folder(tmp_path)
