"""A run that cannot go on as it began: without a photo."""

import dataclasses
import json
import types

import keras
import numpy as np
import pytest
from runs import SignalAt, begin, silent, tiny_settings

from keras_vit.opening import open_predictor
from keras_vit.training import finetune
from keras_vit.training.data import batches
from keras_vit.training.data.content import file_fingerprints
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.run.folder import Checkpoints
from keras_vit.training.run.loop import Interrupted
from keras_vit.utils.files import STATES
from makers import write_classes

SETTINGS = tiny_settings(
    image_size=8, batch_size=6, steps=8, evaluate_every=2, ema_momentum=0.5, augmentation="none"
)


class Vanishing(keras.callbacks.Callback):
    """Removes or changes a photo during a run, and keeps its trainer."""

    def __init__(self, change=None, step=3):
        super().__init__()
        self.change, self.step = change, step

    def on_train_batch_begin(self, batch, logs=None):
        if batch + 1 == self.step and self.change:
            self.change()


@pytest.fixture
def photos(tmp_path):
    return write_classes(tmp_path / "photos", 8, size=(8, 8))


def trained_photo(output):
    """A photo that the run of an output trains on."""
    record = SplitRecord.read(output.with_name(f"{output.name}.partial"))
    paths = sorted((output.parent / "photos").rglob("*.png"))
    numbers = file_fingerprints(list(map(str, paths)))
    return next(
        path for path, is_in in zip(paths, record.has("train", numbers), strict=True) if is_in
    )


@pytest.fixture(scope="module", params=["removed", pytest.param("cut", marks=pytest.mark.slow)])
def vanished(request, tmp_path_factory):
    """A run of whose photos one was removed or cut, and which went on without it."""
    folder, change = tmp_path_factory.mktemp("vanished"), request.param
    photos = write_classes(folder / "photos", 8, size=(8, 8))
    settings = dataclasses.replace(SETTINGS, steps=16, evaluate_every=4)
    output, gone = folder / "run", []

    def spoil():
        gone.append(trained_photo(output))
        content = gone[0].read_bytes()
        gone[0].unlink() if change == "removed" else gone[0].write_bytes(content[:60])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "_parallel_calls", lambda: 2)  # So many images are read ahead.
        with pytest.raises(ValueError, match="must be whole") as stopped:
            finetune(photos, output, settings, log=silent, callbacks=[Vanishing(spoil, step=5)])
    with pytest.raises(ValueError, match="1 gone"):
        finetune(None, output, resume=True, log=silent)
    name = gone[0].relative_to(photos).as_posix()
    before = SplitRecord.read(f"{output}.partial").parts
    # The newest state: how far ahead photos are read depends on the machine.
    newest = Checkpoints(f"{output}.partial/{STATES}").paths()[0]
    step = int(newest.stem.removeprefix("state-"))
    done = finetune(None, output, resume=True, exclude=[name], log=silent)
    return types.SimpleNamespace(
        photos=photos, photo=gone[0], error=stopped.value, name=name, before=before, done=done,
        output=output, step=step,
    )  # fmt: skip


def test_a_photo_that_vanished_is_named(vanished):
    assert f"Received: {vanished.photo}: " in str(vanished.error)


def test_a_run_that_goes_on_without_a_photo_says_so_in_its_recipe(vanished):
    recipe = json.loads((vanished.output / "recipe.json").read_text())
    assert recipe["data"]["exclude"] == [vanished.name]
    fact = recipe["facts"]["excluded"]
    assert fact["value"] == vanished.name
    assert fact["from"] == f"--exclude and --resume after step {vanished.step}"


def test_a_run_goes_on_without_a_photo_that_vanished(vanished):
    assert vanished.done.history[-1]["step"] == "16"
    before, after = vanished.before, SplitRecord.read(vanished.output).parts
    assert all(np.array_equal(before[part], after[part]) for part in before)


def test_a_run_that_went_on_without_a_photo_is_evaluated_on_what_it_held_out(vanished):
    report, done = (
        evaluate_classifier(open_predictor(vanished.output), vanished.photos),
        vanished.done,
    )
    assert report.to_json()["top_1"] == done.report.to_json()["top_1"]
    assert report.count == done.report.count


def test_a_run_that_goes_on_without_a_photo_has_all_others(photos, tmp_path):
    output = tmp_path / "run"
    begin(photos, output, SETTINGS)
    first = trained_photo(output)
    first.unlink()
    second = trained_photo(output)
    (photos / "red" / first.name).rename(photos / "blue" / f"9{first.name}")
    exclude = [first.relative_to(photos).as_posix()]
    with pytest.raises(ValueError, match="it began with"):
        finetune(None, output, resume=True, exclude=exclude, log=silent)
    (photos / "blue" / f"9{first.name}").rename(photos / "red" / first.name)
    second.unlink()
    with pytest.raises(ValueError, match="it began with"):
        finetune(None, output, resume=True, exclude=exclude, log=silent)
    exclude.append(str(second))  # A whole path.
    with pytest.raises(Interrupted):
        finetune(None, output, resume=True, exclude=exclude, log=silent, callbacks=[SignalAt(2)])
    done = finetune(None, output, resume=True, log=silent)  # It remembers them.
    assert done.classifier.recipe["images"]["train"] == 15 - 2
