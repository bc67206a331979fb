"""More classes for a classifier without forgetting those that it knows."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
from runs import silent, tiny_settings

from keras_vit.training import FineTuning, finetune
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.run.images import extend
from makers import write_classes

COLORS = {"blue": (20, 20, 230), "green": (20, 230, 20), "red": (230, 20, 20), "white": (250,) * 3}
OLD, NEW = ("blue", "green"), ("red", "white")

SETTINGS = tiny_settings(
    image_size=(8, 8), steps=30, batch_size=8, learning_rate=0.3, evaluate_every=10, validation=0.25
)


def write(folder, names, rng):
    colors = {name: COLORS[name] for name in names}
    return write_classes(folder, 10, colors, size=(8, 8), rng=rng)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Pictures of two old and two new colours, and a classifier of the old ones."""
    folder, rng = tmp_path_factory.mktemp("replay"), np.random.default_rng(0)
    old, new = write(folder / "old", OLD, rng), write(folder / "new", NEW, rng)
    finetune(old, folder / "classifier", SETTINGS, log=silent)
    return folder, old, new


@pytest.fixture(scope="module")
def continued(folders):
    """Returns a function from changes of the settings to a run from the old classifier."""
    folder, _, new = folders

    def run(name, **changes):
        settings = dataclasses.replace(
            SETTINGS, model=None, weights=str(folder / "classifier"), **changes
        )
        return finetune(new, folder / name, settings, log=silent)

    return run


def old_accuracy(finished, old):
    classifier = finished.classifier
    answers = [(p.top[0][0], p.path) for p in classifier.predict(old)]
    return np.mean([f"/{name}/" in path for name, path in answers])


@pytest.mark.slow
def test_replayed_classes_are_not_forgotten(folders, continued):
    _, old, _ = folders
    done = continued("replay", replay=str(old), replay_share=0.25)
    assert done.classifier.class_names == (*OLD, *NEW)
    assert old_accuracy(done, old) == 1.0
    recipe = done.classifier.recipe
    # Eight of each colour without the test images, six of them to train with.
    counts = {"train": 24, "validation": 8, "calibration": 0, "test": 8}
    assert recipe["images"] == {**counts, "skipped": 0}
    assert done.report.counts.images.tolist() == [2, 2, 2, 2]
    assert done.report.top_1 == 1.0
    assert recipe["facts"]["head"]["value"] == "keep"


@pytest.mark.parametrize("replays", [False, True])
def test_one_class_is_added_to_a_classifier(folders, tmp_path, replays):
    folder, old, _ = folders
    one = write(tmp_path / "one", NEW[:1], np.random.default_rng(1))
    settings = FineTuning(
        weights=str(folder / "classifier"),
        head="extend",
        replay=str(old) if replays else None,
        image_size=(8, 8),
        steps=2,
        batch_size=4,
        accumulate=1,
        evaluate_every=2,
    )
    done = finetune(one, tmp_path / "run", settings, log=silent)
    assert done.classifier.class_names == (*OLD, NEW[0])
    with pytest.raises(ValueError, match=r"two classes.*1 \(red\).*--weights"):
        finetune(one, tmp_path / "new", dataclasses.replace(SETTINGS, head="new"), log=silent)


@pytest.mark.parametrize("recorded", [True, False])
def test_replayed_images_are_held_out_as_in_the_run_of_the_weights(tmp_path, recorded):
    rng = np.random.default_rng(0)
    old, new = write(tmp_path / "old", OLD, rng), write(tmp_path / "new", NEW, rng)
    spec = DataSpec(old, holdout=0.4, calibration=0.2, split_seed=7)
    of_run = open_source(spec, 0.25)
    if recorded:
        SplitRecord.of(read_fingerprints(of_run.splits)).write(tmp_path)
        write(tmp_path / "more", OLD, rng)
        for path in (tmp_path / "more").glob("*/*"):  # New to that run, and first in their folder.
            shutil.copy(path, old / path.parent.name / f"-{path.name}")
    weights = types.SimpleNamespace(
        class_names=OLD, folder=tmp_path, recipe={"data": spec.to_json()}
    )
    settings = FineTuning(weights="run", replay=str(old))
    new_source = open_source(DataSpec(new, calibration=0.2), 0.25)
    source = extend(new_source, weights, settings, lambda count: 0.25)
    for split in ("validation", "calibration", "test"):
        replayed = {name for name in source.splits[split].names if str(old) in name}
        assert replayed == set(of_run.splits[split].names)
    replayed = {name for name in source.splits["train"].names if str(old) in name}
    assert len(replayed) == len(of_run.splits["train"]) + (20 if recorded else 0)


def test_wrong_replay_is_refused(tmp_path):
    new = write(tmp_path / "new", NEW, np.random.default_rng(1))
    with pytest.raises(ValueError, match="classes.*weights=None"):
        finetune(new, tmp_path / "none", dataclasses.replace(SETTINGS, head="extend"), log=silent)


@pytest.mark.slow
def test_replayed_images_of_an_unknown_class_are_refused(folders, continued, monkeypatch):
    monkeypatch.setitem(COLORS, "grey", (90, 90, 90))
    other = write(folders[0] / "other", ("grey", "blue"), np.random.default_rng(1))
    with pytest.raises(ValueError, match="Replayed images .*with grey"):
        continued("wrong", replay=str(other))
