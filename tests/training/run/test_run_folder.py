"""The end of a run's folder: what is renamed, what stays where that fails, and damaged files."""

import errno
import os

import keras
import numpy as np
import pytest

from keras_vit.description.run_record import RunRecord
from keras_vit.training.run.folder import BEST, open_folder
from keras_vit.training.run.loop import read_history
from keras_vit.utils import files
from keras_vit.utils.files import STATES


def unfinished(output, **options):
    """A run with a state, best weights and the first file of its finished folder."""
    run = open_folder(output, **options)
    run.start(RunRecord(job="finetune", command="x"))
    for name in (f"{STATES}/state-000000500.npz", BEST, "model.keras"):
        (run.path / name).write_bytes(b"new")
    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refuse(*arguments, **options):
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


@pytest.fixture(params=["exchanged", "put aside"])
def exchange(request, monkeypatch):
    """The two ways of replacing a folder."""
    if request.param == "put aside":
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    return request.param


def test_a_finished_run_replaces_an_older_classifier_and_leaves_nothing(tmp_path, exchange):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.keras").write_bytes(b"old")
    unfinished(tmp_path / "run", overwrite=True).publish()
    assert (tmp_path / "run" / "model.keras").read_bytes() == b"new"
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["model.keras"]


def test_states_stay_where_the_folder_cannot_be_renamed(tmp_path, monkeypatch):
    run = unfinished(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="busy"):
            run.publish()
    run.lock.release(force=True)
    again = open_folder(tmp_path / "run", resume=True)
    assert len(again.checkpoints.paths()) == 1
    assert (again.path / BEST).exists()
    with again.locked():
        again.publish()
    assert names(tmp_path / "run") == ["model.keras"]


def test_states_and_both_folders_stay_where_another_file_came_meanwhile(tmp_path):
    run = unfinished(tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "note.txt").write_text("mine")
    with pytest.raises(ValueError, match="new or empty"):
        run.publish()
    assert (tmp_path / "run" / "note.txt").read_text() == "mine"
    assert names(run.path / STATES) == ["best.npz", "recipe.json", "state-000000500.npz"]


def test_all_files_are_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    run, done, fsync, replace = unfinished(tmp_path / "run"), [], os.fsync, os.replace

    def noted_fsync(descriptor):
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("rename"), replace(*paths)))
    run.publish()
    before = done[: done.index("rename")]
    assert f"{run.path}/model.keras" in before
    assert str(run.path) in before
    assert str(tmp_path) in done[len(before) :]


def test_an_output_that_is_a_link_is_written_where_it_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk/run")
    unfinished(tmp_path / "run").publish()
    assert names(tmp_path / "disk" / "run") == ["model.keras"]
    assert (tmp_path / "run").is_symlink()


def test_what_a_run_that_was_killed_after_its_rename_left_is_removed_by_the_next(tmp_path):
    run = unfinished(tmp_path / "run")
    run.lock.release(force=True)
    os.replace(run.path, run.output)
    run.path.mkdir()  # The older classifier, after the exchange.
    (run.path / "model.keras").write_bytes(b"old")
    with pytest.raises(ValueError, match="new or empty"):
        open_folder(tmp_path / "run")
    assert names(tmp_path) == ["run"]
    assert names(tmp_path / "run") == ["model.keras"]


def model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])


ROWS = "step,loss,accuracy\n5,1,0.5\n10,0.9,0.5\n15,0.8,0.6\n"


@pytest.mark.parametrize("length", range(ROWS.index("\n15") + 1, len(ROWS)))
@pytest.mark.parametrize("end", ["", "\0" * 20])
def test_a_history_whose_last_row_is_cut_off_has_the_rows_before(tmp_path, length, end):
    (tmp_path / "history.csv").write_text(ROWS[:length] + end)
    rows = read_history(tmp_path / "history.csv", 15)
    assert [row["step"] for row in rows] == ["5", "10"]


@pytest.mark.parametrize("content", [b"", b"\0" * 40, b"step,lo", b"\xff\xfe\n1,2\n"])
def test_a_history_without_a_whole_row_is_empty(tmp_path, content):
    (tmp_path / "history.csv").write_bytes(content)
    assert read_history(tmp_path / "history.csv", 15) == []


def test_arrays_of_best_weights_are_whole(tmp_path):
    run, first, second = unfinished(tmp_path / "run"), model(), model()
    run.save_best(first, 5, 0.9, 0.1)
    run.load_best(second)
    np.testing.assert_array_equal(first.get_weights()[0], second.get_weights()[0])
