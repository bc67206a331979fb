"""A stopped run notices that its images have changed."""

import dataclasses
import os
import shutil
import signal

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import finetune
from keras_vit.training.data import image_files
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.evaluation.results import versions
from keras_vit.training.run import job
from keras_vit.training.run.job import images_hash
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_picture


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(8):
            pixels = rng.integers(0, 256, (8, 8, 3)).astype("uint8")
            write_picture(tmp_path / "photos" / name / f"{number}.png", pixels)
    return tmp_path / "photos"


def _changed(photos):
    write_picture(photos / "cat" / "0.png", np.zeros((8, 8, 3), "uint8"))


def _moved(photos):
    shutil.move(photos / "cat" / "0.png", photos / "dog" / "90.png")


def _renamed(photos):
    (photos / "cat" / "0.png").rename(photos / "cat" / "00.png")


def _removed(photos):
    (photos / "cat" / "0.png").unlink()


def _one_pixel(photos):
    pixels = np.zeros((400, 400, 3), "uint8")
    pixels[100, 100] = 1
    write_picture(photos / "cat" / "large.bmp", pixels)


def _hash(photos):
    source = DataSpec(str(photos)).open()
    return images_hash(source, read_fingerprints(source.splits))


@pytest.mark.parametrize("change", [_changed, _moved, _removed, _one_pixel])
def test_the_hash_of_the_images_depends_on_content_and_class(change, photos):
    write_picture(photos / "cat" / "large.bmp", np.zeros((400, 400, 3), "uint8"))
    before = _hash(photos)
    change(photos)
    assert _hash(photos) != before


def test_unchanged_images_have_the_same_hash_also_in_another_place(photos, tmp_path):
    before = _hash(photos)
    assert _hash(shutil.move(photos, tmp_path / "elsewhere")) == before


def test_differences_name_new_images_and_count_those_that_are_gone(photos):
    source = DataSpec(str(photos)).open()
    record = SplitRecord.of(read_fingerprints(source.splits))
    _changed(photos)
    assert record.differences(source.splits) == [f"1 new ({photos}/cat/0.png)", "1 gone"]


class _Interrupt(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_run_resumes_on_changed_images_only_where_it_is_told_to(photos, tmp_path):
    weights = tmp_path / "tiny.weights.h5"
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=2).save_weights(weights)
    settings = FineTuning(
        weights=str(weights), normalization="half", steps=8, batch_size=4, warmup_steps=0
    )
    output, quiet = tmp_path / "run", {"log": lambda line: None}
    with pytest.raises(Interrupted):
        finetune(photos, output, settings=settings, callbacks=[_Interrupt()], **quiet)
    _moved(photos)
    with pytest.raises(ValueError, match="with --changed-data .*[0-9] in another part of the data"):
        finetune(photos, output, resume=True, **quiet)
    _changed(photos)
    with pytest.raises(ValueError, match="with --changed-data .*1 new .*cat/0.png"):
        finetune(photos, output, resume=True, **quiet)
    with pytest.raises(Interrupted):
        finetune(photos, output, resume=True, changed_data=True, callbacks=[_Interrupt()], **quiet)
    _removed(photos)
    with pytest.raises(ValueError, match="with --changed-data .*1 gone"):
        finetune(photos, output, resume=True, **quiet)
    lines = []
    finetune(photos, output, resume=True, changed_data=True, log=lines.append)
    assert any("have changed since the run began" in line for line in lines)


def test_a_stopped_run_on_changed_images_resumes_on_them_without_a_word(photos, tmp_path):
    settings = FineTuning(
        model=tiny_config(), weights=None, image_size=8, steps=8, batch_size=4, warmup_steps=0
    )
    output, quiet = tmp_path / "run", {"log": lambda line: None, "callbacks": [_Interrupt()]}
    with pytest.raises(Interrupted):
        finetune(photos, output, settings, **quiet)
    _changed(photos)
    with pytest.raises(Interrupted):
        finetune(photos, output, resume=True, changed_data=True, **quiet)
    finetune(photos, output, resume=True, **quiet)


def test_a_run_on_redrawn_parts_counts_the_test_images_that_it_trained_on(photos, tmp_path):
    settings = FineTuning(
        model=tiny_config(), weights=None, image_size=8, steps=4, batch_size=4, warmup_steps=0
    )
    output, lines = tmp_path / "run", []
    with pytest.raises(Interrupted):
        finetune(photos, output, settings, callbacks=[_Interrupt()], log=lambda line: None)
    before = SplitRecord.read(tmp_path / "run.partial")
    for name, value in (("cat", 0), ("dog", 255)):
        shutil.copy(photos / "cat" / "0.png", photos / name / "00.png")
        write_picture(photos / name / "000.png", np.full((8, 8, 3), value, "uint8"))
    changed = dataclasses.replace(settings, steps=9, learning_rate=7.0)
    with pytest.raises(ValueError, match=r"--steps 9, begun with 4; --learning-rate 7.0, begun "):
        finetune(photos, output, changed, resume=True, changed_data=True, log=lines.append)
    done = finetune(photos, output, settings, resume=True, changed_data=True, log=lines.append)
    tested = done.report.answers.examples.fingerprints()
    seen = int(before.has_seen(tested).sum())
    note = f"{seen} of the {len(tested)} test images were trained on, or chosen by, before the run"
    assert seen
    assert any(line.startswith(note) for line in lines)
    count = done.classifier.recipe["test"]["seen"]
    assert count >= seen  # The image that was copied is in several parts now.
    use = f"On {len(tested)} test images, {count} of which were trained on, or chosen by, in this"
    assert use in (output / "README.md").read_text()

    again = dataclasses.replace(settings, model=None, weights=str(output), steps=1)
    done = finetune(photos, tmp_path / "more", again, split_seed=5, log=lines.append)
    tested = done.report.answers.examples.fingerprints()
    seen = SplitRecord.read(output).has_seen(tested) | SplitRecord.read(tmp_path / "more").has_seen(
        tested
    )
    assert 0 < done.classifier.recipe["test"]["seen"] == seen.sum()


def test_a_run_that_goes_on_with_other_packages_prints_their_versions(
    photos, tmp_path, monkeypatch
):
    weights = tmp_path / "tiny.weights.h5"
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=2).save_weights(weights)
    settings = FineTuning(
        weights=str(weights), normalization="half", steps=4, batch_size=4, warmup_steps=0
    )
    output = tmp_path / "run"
    with pytest.raises(Interrupted):
        finetune(photos, output, settings=settings, callbacks=[_Interrupt()], log=lambda line: None)
    monkeypatch.setattr(job, "versions", lambda: {**versions(), "numpy": "9.9"})
    lines = []
    finished = finetune(photos, output, resume=True, log=lines.append)
    assert any("numpy 9.9, before" in line for line in lines)
    assert finished.classifier.recipe["versions_before"] == versions()
    # Nothing records what the file's weights were trained on.
    assert (
        "whether the run of its starting weights saw them is not recorded"
        in (output / "README.md").read_text()
    )


def test_a_run_reads_the_fingerprint_of_an_image_once_and_again_where_it_resumes(
    photos, tmp_path, monkeypatch
):
    weights, read = tmp_path / "tiny.weights.h5", []
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=2).save_weights(weights)
    settings = FineTuning(
        weights=str(weights), normalization="half", steps=4, batch_size=4, warmup_steps=0
    )
    file_fingerprints = image_files.file_fingerprints
    monkeypatch.setattr(
        image_files,
        "file_fingerprints",
        lambda paths: read.extend(paths) or file_fingerprints(paths),
    )
    output, quiet = tmp_path / "run", {"log": lambda line: None}
    with pytest.raises(Interrupted):
        finetune(photos, output, settings=settings, callbacks=[_Interrupt()], **quiet)
    assert sorted(read) == sorted(map(str, photos.rglob("*.png")))
    finetune(photos, output, resume=True, **quiet)
    assert len(read) == 2 * 16 + 4  # The test images again, for the report.
