"""A run that is trained again is equal to the bit, or what differs is named."""

import json
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.training import finetune
from keras_vit.training.run.repeated_run import reproduce
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes, write_picture


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("data") / "photos", {"train": 8, "test": 4})


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "tiny.weights.h5"
    keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=3).save_weights(path)
    return path


@pytest.fixture(scope="module")
def run(colors, weights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "pets"
    settings = FineTuning(
        weights=str(weights),
        normalization="half",
        steps=6,
        batch_size=4,
        warmup_steps=0,
        evaluate_every=2,
        dropout_rate=0.1,
        validation=0.25,
    )
    finetune(colors, folder, settings, log=lambda line: None)
    return folder


def quiet(run, data, weights, **options):
    return reproduce(run, data, paths={"weights": str(weights)}, log=lambda line: None, **options)


def command(*arguments):
    code = "import sys; from keras_vit.command_line import main; sys.exit(main())"
    found = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
    )
    return found.returncode, found.stdout + found.stderr


@pytest.mark.slow
def test_a_run_in_a_new_process_is_equal_to_the_bit(colors, weights, tmp_path):
    start = ("--data", colors, "--weights", weights)
    options = "--normalization half --steps 6 --batch-size 4 --warmup-steps 0 --validation 0.25"
    words = ("finetune", *start, "--output", tmp_path / "run", *options.split())
    code, out = command(*words, "--dropout", "0.1")
    assert code == 0, out
    code, out = command("reproduce", tmp_path / "run", *start, "--level", "bits")
    assert code == 0, out
    assert "The weights are equal to the bit." in out


def test_first_steps_are_compared_by_the_hash_of_the_weights(run, colors, weights):
    found = quiet(run, str(colors), weights, first_steps=3)
    assert (found.level, found.notes) == (
        "bits",
        ("Compared by the hash of the weights after step 2.",),
    )


@pytest.fixture
def other_graphs():
    """Graphs are optimised where they were not, and the other way round."""
    options = tf.config.optimizer.get_experimental_options()
    turned = {"disable_meta_optimizer": not options.get("disable_meta_optimizer")}
    tf.config.optimizer.set_experimental_options(turned)
    yield
    tf.config.optimizer.set_experimental_options(options)


def test_graphs_that_are_optimised_otherwise_differ_by_rounding(run, colors, weights, other_graphs):
    found = quiet(run, str(colors), weights)
    assert found.level == "rounding", str(found)
    assert any("graph_options" in line for line in found.differences), found.differences


def test_first_steps_before_the_first_row_are_refused(run, colors, weights):
    with pytest.raises(ValueError, match="the first is of step 2"):
        quiet(run, str(colors), weights, first_steps=1)


def _pixel(photos, number):
    path = sorted(photos.rglob("*.png"))[7 * number]
    import PIL.Image

    pixels = np.array(PIL.Image.open(path))
    pixels[0, 0, 0] ^= 1
    write_picture(path, pixels)
    return path


def _label(photos, number):
    path = sorted((photos / "train").rglob("*.png"))[6 * number]
    other = next(folder for folder in sorted(path.parent.parent.iterdir()) if folder != path.parent)
    return shutil.move(path, other / f"moved{number}.png")


def _name(photos, number):
    path = sorted(photos.rglob("*.png"))[7 * number + 1]
    return path.rename(path.with_name(f"renamed{number}.png"))


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]
)
@pytest.mark.parametrize("change", [_pixel, _label, _name])
def test_a_changed_image_is_named(change, number, run, colors, weights, tmp_path):
    photos = shutil.copytree(colors, tmp_path / "photos")
    path = change(photos, number)
    found = quiet(run, str(photos), weights)
    assert found.level == "different"
    assert os.path.relpath(path, photos) in " ".join(found.differences)


def changed_copy(run, tmp_path, part, name, value):
    copy = shutil.copytree(run, tmp_path / "copy")
    recipe = json.loads((copy / "recipe.json").read_text())
    recipe[part][name] = value
    (copy / "recipe.json").write_text(json.dumps(recipe))
    return copy


@pytest.mark.parametrize("name", ["tensorflow", "keras", "numpy", "keras_vit"])
def test_a_changed_version_is_named(name, run, tmp_path):
    copy = changed_copy(run, tmp_path, "versions", name, "0.0")
    found = reproduce(run, None, repeated=copy)
    assert any(line.startswith(f"version: {name} 0.0, before") for line in found.differences)
    assert found.level == "bits"


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", 0.5), ("seed", 7), ("batch_size", 2), ("dropout_rate", 0.3)],
)
def test_a_changed_setting_is_named(name, value, run, tmp_path):
    copy = changed_copy(run, tmp_path, "settings", name, value)
    found = reproduce(run, None, repeated=copy)
    assert any(line.startswith(f"setting: {name} {value}, before") for line in found.differences)
    assert found.level == "different"


def test_other_starting_weights_are_named(run, colors, tmp_path):
    other = tmp_path / "other.weights.h5"
    model = keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=3)
    model.save_weights(other)
    assert quiet(run, str(colors), other).differences == ("starting weights: their SHA-256",)


def test_missing_images_are_named_up_to_three(run, colors, weights, tmp_path):
    photos = shutil.copytree(colors, tmp_path / "photos")
    gone = [
        path for name in ("red", "blue") for path in sorted((photos / "test" / name).iterdir())[:2]
    ]
    for path in gone:
        path.unlink()
    found = quiet(run, str(photos), weights)
    assert "4 images gone" in found.differences[0]
    assert "and 1 more" in found.differences[0]


def test_a_run_without_fingerprints_is_compared_by_its_weights(run, colors, weights, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "data.npz").unlink()
    recipe = json.loads((copy / "recipe.json").read_text())
    del recipe["fingerprints"]
    (copy / "recipe.json").write_text(json.dumps(recipe))
    found = quiet(copy, str(colors), weights)
    assert found.level == "bits"
    assert "no fingerprints" in found.notes[0]


def test_a_folder_that_is_no_run_is_refused(tmp_path, colors):
    with pytest.raises(ValueError, match="folder of a finished run"):
        reproduce(tmp_path, colors)


@pytest.mark.parametrize(("change", "level"), [(1e-7, "rounding"), (0.01, "accuracy")])
def test_the_answer_follows_the_largest_difference_of_a_weight(run, change, level, tmp_path):
    again = shutil.copytree(run, tmp_path / "again")
    model = keras.saving.load_model(again / "model.keras", compile=False)
    model.set_weights([value + np.float32(change) for value in model.get_weights()])
    model.save(again / "model.keras")
    assert reproduce(run, None, repeated=again).level == level
