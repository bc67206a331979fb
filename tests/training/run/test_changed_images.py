"""A stopped run notices that its images have changed."""

import dataclasses
import os
import shutil
import signal

import keras
import numpy as np
import pytest
from runs import silent

import keras_vit
from keras_vit.training import finetune
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.evaluation.results import versions
from keras_vit.training.run import job
from keras_vit.training.run.job import images_hash
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes, write_picture


@pytest.fixture
def photos(tmp_path):
    return write_classes(tmp_path / "photos", 8, {"cat": None, "dog": None}, size=(8, 8))


def _changed(photos):
    write_picture(photos / "cat" / "0.png", np.zeros((8, 8, 3), "uint8"))


def _moved(photos):
    shutil.move(photos / "cat" / "0.png", photos / "dog" / "90.png")


def _removed(photos):
    (photos / "cat" / "0.png").unlink()


def _hash(photos):
    source = DataSpec(str(photos)).open()
    return images_hash(source, read_fingerprints(source.splits))


@pytest.mark.parametrize("change", [_changed, _moved, _removed])
def test_the_hash_of_the_images_depends_on_content_and_class(change, photos):
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


SETTINGS = FineTuning(
    model=tiny_config(), weights=None, image_size=8, steps=8, batch_size=4, warmup_steps=0
)


def run(data, output, settings=None, *, stops=False, **options):
    """What `finetune` returns, or None where Ctrl-C stops it before the third step."""
    options = {"log": silent, "callbacks": [_Interrupt()] if stops else (), **options}
    if not stops:
        return finetune(data, output, settings, **options)
    with pytest.raises(Interrupted):
        finetune(data, output, settings, **options)
    return None


def test_a_run_resumes_on_changed_images_only_where_it_is_told_to(photos, tmp_path, monkeypatch):
    weights = tmp_path / "tiny.weights.h5"
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=2).save_weights(weights)
    settings = FineTuning(
        weights=str(weights), normalization="half", steps=12, batch_size=4, warmup_steps=0
    )
    output = tmp_path / "run"
    run(photos, output, settings, stops=True)
    for change, message in ((_moved, "[0-9] in another part of the data"), (_changed, "1 new .*")):
        change(photos)
        with pytest.raises(ValueError, match=f"with --changed-data .*{message}"):
            finetune(photos, output, resume=True, log=silent)
    run(photos, output, resume=True, changed_data=True, stops=True)
    run(photos, output, resume=True, stops=True)  # The changed images are the run's now.
    _removed(photos)
    with pytest.raises(ValueError, match="with --changed-data .*1 gone"):
        finetune(photos, output, resume=True, log=silent)
    monkeypatch.setattr(job, "versions", lambda: {**versions(), "numpy": "9.9"})
    lines = []
    done = run(photos, output, resume=True, changed_data=True, log=lines.append)
    assert any("have changed since the run began" in line for line in lines)
    assert any("numpy 9.9, before" in line for line in lines)
    assert done.classifier.recipe["versions_before"] == versions()
    # Nothing records what the file's weights were trained on.
    assert done.classifier.recipe["test"]["start_is_known"] is False


def test_a_run_on_redrawn_parts_counts_the_test_images_that_it_trained_on(photos, tmp_path):
    settings = dataclasses.replace(SETTINGS, steps=4)
    output, lines = tmp_path / "run", []
    run(photos, output, settings, stops=True)
    before = SplitRecord.read(tmp_path / "run.partial")
    for name, value in (("cat", 0), ("dog", 255)):
        shutil.copy(photos / "cat" / "0.png", photos / name / "00.png")
        write_picture(photos / name / "000.png", np.full((8, 8, 3), value, "uint8"))
    changed = dataclasses.replace(settings, steps=9, learning_rate=7.0)
    with pytest.raises(ValueError, match=r"--steps 9, begun with 4; --learning-rate 7.0, begun "):
        run(photos, output, changed, resume=True, changed_data=True)
    done = run(photos, output, settings, resume=True, changed_data=True, log=lines.append)
    tested = done.report.examples.fingerprints()
    seen = int(before.has_seen(tested).sum())
    note = f"{seen} of the {len(tested)} test images were trained on, or chosen by, before the run"
    assert seen
    assert any(line.startswith(note) for line in lines)
    count = done.classifier.recipe["test"]["seen"]
    assert count >= seen  # The image that was copied is in several parts now.
    use = f"On {len(tested)} test images, {count} of which were trained on, or chosen by, in this"
    assert use in (output / "README.md").read_text()

    again = dataclasses.replace(settings, model=None, weights=str(output), steps=1)
    done = run(photos, tmp_path / "more", again, split_seed=5)
    tested = done.report.examples.fingerprints()
    records = [SplitRecord.read(folder) for folder in (output, tmp_path / "more")]
    seen = np.any([record.has_seen(tested) for record in records], axis=0)
    assert 0 < done.classifier.recipe["test"]["seen"] == seen.sum()
