"""A stopped run notices that its images have changed."""

import dataclasses
import shutil

import numpy as np
import pytest
from runs import begin, silent, tiny_settings

import keras_vit
from keras_vit.training import finetune
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.run import plan
from keras_vit.training.run.images import image_numbers
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


def run(data, output, settings=None, **options):
    """What `finetune` returns."""
    return finetune(data, output, settings, **{"log": silent, **options})


def test_a_run_resumes_on_its_own_images_alone(photos, tmp_path, monkeypatch):
    settings = tiny_settings(image_size=8, batch_size=4, warmup_steps=0)
    output, lines = tmp_path / "run", []
    begin(photos, output, settings)
    changed = dataclasses.replace(settings, steps=9, learning_rate=7.0)
    with pytest.raises(ValueError, match="--steps 9, .*12; --learning-rate 7.0"):
        run(photos, output, changed, resume=True)
    kept = shutil.copytree(photos, tmp_path / "kept")
    for change, message in (
        (_changed, r"1 new \(.*/cat/0.png\).*1 gone"),
        (_moved, "(another part|order)"),
        (_removed, "1 gone"),
    ):
        change(photos)
        with pytest.raises(ValueError, match=f"began with.*{message}"):
            run(photos, output, resume=True)
        shutil.rmtree(photos)
        shutil.copytree(kept, photos)
    before = plan.versions_of_run()
    other = {"on": "off", "off": "on"}[before["oneDNN"]]
    changed = {**before, "numpy": "9.9", "oneDNN": other}
    monkeypatch.setattr(plan, "versions_of_run", lambda: changed)
    done = run(photos, output, resume=True, log=lines.append)
    assert any("other packages than it began with" in line for line in lines)
    assert any(f"began with oneDNN {before['oneDNN']}" in line for line in lines)
    assert done.classifier.recipe["versions_before"] == before


def test_test_images_that_the_run_or_its_weights_trained_on_are_counted(photos, tmp_path):
    settings = tiny_settings(image_size=8, batch_size=4, steps=2, warmup_steps=0)
    for name in ("a", "b", "c", "d"):  # Copies, which may be in several parts.
        shutil.copy(photos / "cat" / "0.png", photos / "cat" / f"{name}.png")
    output = tmp_path / "run"
    done = run(photos, output, settings)
    record = SplitRecord.read(output)
    seen = int(record.has_seen(done.report.examples.fingerprints()).sum())
    assert done.classifier.recipe["test"]["seen"] == seen
    again = dataclasses.replace(settings, model=None, weights=str(output), steps=1)
    done = run(photos, tmp_path / "more", again, split_seed=5)
    tested = done.report.examples.fingerprints()
    records = [SplitRecord.read(folder) for folder in (output, tmp_path / "more")]
    seen = int(np.any([record.has_seen(tested) for record in records], axis=0).sum())
    assert 0 < done.classifier.recipe["test"]["seen"] == seen
    use = f"On {len(tested)} test images, {seen} of which show things that were trained on, or"
    assert use in (tmp_path / "more" / "README.md").read_text()

    weights = tmp_path / "tiny.weights.h5"
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=2).save_weights(weights)
    given = dataclasses.replace(again, weights=str(weights), normalization="half")
    done = run(photos, tmp_path / "file", given)
    # Nothing records what the file's weights were trained on.
    assert done.classifier.recipe["test"]["start_is_known"] is False


def test_a_run_s_hash_knows_content_class_part_and_order(photos):
    spec = DataSpec(str(photos), holdout=0.25)
    source = open_source(spec)

    def numbers(source):
        return image_numbers(source, read_fingerprints(source.splits)).tolist()

    train, test = (source.splits[part] for part in ("train", "test"))
    first = numbers(source)
    assert first == numbers(open_source(spec))
    assert len(set(first)) == 16
    relabelled = train.relabelled(np.array([1, 0], "int32"))
    changed = numbers(dataclasses.replace(source, splits={"train": relabelled, "test": test}))
    assert not set(first[: len(train)]) & set(changed)
    swapped = numbers(dataclasses.replace(source, splits={"train": test, "test": train}))
    assert not set(first) & set(swapped)


def test_labels_of_a_stopped_run_that_change_are_noticed(photos, tmp_path):
    table = tmp_path / "photos.csv"
    rows = [f"{path},{path.parent.name},train" for path in sorted(photos.rglob("*.png"))]
    table.write_text("\n".join(["path,label,split", *rows]) + "\n")
    settings = tiny_settings(image_size=8, batch_size=4, steps=4, warmup_steps=0, validation=0.0)
    begin(DataSpec(str(table), holdout=0.0), tmp_path / "run", settings)
    rows[0] = rows[0].replace(",cat,", ",dog,")
    table.write_text("\n".join(["path,label,split", *rows]) + "\n")
    with pytest.raises(ValueError, match="other bytes"):
        run(table, tmp_path / "run", resume=True)
