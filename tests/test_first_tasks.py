"""The ten first tasks of docs/migrate.md, with official files from a server of this machine."""

import dataclasses
import http.server
import json
import pathlib
import re
import threading
import warnings

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints import catalogue
from makers import smooth_picture, tiny_config, write_classes, write_picture

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "migrate.md"
# A run of a moment; the page has the defaults.
SMALL = ", steps=2, batch_size=4, accumulate=1, image_size=32, samples=2, log=None)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of official files of a tiny ViT-B/16, which stands in for the real one."""
    folder = tmp_path_factory.mktemp("official")
    with pytest.MonkeyPatch.context() as patch:
        config = dataclasses.replace(tiny_config(depth=12), patch_size=16)
        patch.setitem(keras_vit.configs.MODELS, "ViT-B/16", config)
        keras.utils.set_random_seed(0)
        urls = {}
        serve = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), lambda *given: _Files(*given, directory=str(folder))
        )
        for row in (catalogue.find("ViT-B/16", name) for name in ("imagenet", "imagenet21k")):
            side = row.resolution
            model = keras_vit.build("ViT-B/16", input_shape=(side, side, 3), classes=row.classes)
            keras_vit.save_checkpoint(model, folder / f"{row.key}.npz")
            urls[row.key] = f"http://127.0.0.1:{serve.server_port}/{row.key}.npz"
        rows = tuple(
            dataclasses.replace(row, url=urls[row.key], sha256="") if row.key in urls else row
            for row in catalogue.rows()
        )
        patch.setattr(catalogue, "rows", lambda: rows)
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        threading.Thread(target=serve.serve_forever, daemon=True).start()
        yield folder
        serve.shutdown()
        serve.server_close()


class _Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def tasks(server, tmp_path_factory):
    """The names that the programs of the page define, all but the last program run in order."""
    text = PAGE.read_text(encoding="utf-8").partition("## Ten first tasks")[2]
    programs = re.findall(r"^```python\n(.*?)^```", text.partition("\n## ")[0], re.S | re.M)
    assert len(programs) == 4
    folder, rng, defined = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0), {}
    write_classes(folder / "photos", 10, size=(40, 50))
    write_picture(folder / "cat.jpg", np.asarray(smooth_picture(rng, (300, 400), (6, 8))))
    programs = [re.sub(r'(finetune\("photos", .*)\)$', rf"\1{SMALL}", each, flags=re.M)
                for each in programs]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        for program in programs[:3]:
            exec(program, defined)
    return folder, defined, programs[3]


def test_a_pretrained_model_comes_from_the_server(tasks, server):
    model = tasks[1]["model"]
    arrays = np.load(server / f"{catalogue.find('ViT-B/16', 'imagenet').key}.npz")
    np.testing.assert_array_equal(arrays["head/kernel"], model.get_layer("predictions").kernel)


def test_the_models_are_listed_and_the_preprocessing_is_the_weights(tasks):
    assert tasks[1]["names"] == ["ViT-B/8", "ViT-B/16", "ViT-B/32"]
    model, preprocessing = tasks[1]["model"], tasks[1]["preprocessing"]
    assert preprocessing == keras_vit.Preprocessing(model.input_shape[1:3])


def test_a_photo_has_a_probability_for_each_imagenet_class(tasks):
    assert tasks[1]["scores"].shape == (1, 1000)
    assert tasks[1]["scores"].sum() == pytest.approx(1, abs=1e-4)


def test_a_model_of_37_classes_has_a_head_of_zeros_on_the_same_body(tasks):
    pets = tasks[1]["pets"]
    assert pets.output_shape == (None, 37)
    assert not np.any(pets.get_layer("predictions").kernel)


def test_features_and_maps_of_three_depths_are_of_the_model(tasks):
    defined, folder = tasks[1], tasks[0]
    photo = defined["preprocessing"]([keras.utils.load_img(folder / "cat.jpg")])
    vector, depths = (defined[name].predict(photo, verbose=0) for name in ("features", "depths"))
    assert vector.shape == (1, 16)
    scores = defined["model"].get_layer("predictions")(vector)
    np.testing.assert_allclose(scores, defined["scores"], atol=1e-5)
    assert len({each.shape for each in depths}) == 1
    assert len(depths) == 3


def test_a_folder_of_photos_becomes_a_classifier(tasks):
    assert tasks[1]["done"].classifier.class_names == ("blue", "green", "red")
    assert tasks[1]["done"].report.count == 6


def test_lora_trains_the_head_and_a_few_additions(tasks):
    recipe = json.loads((tasks[0] / "runs/lora/recipe.json").read_text())
    assert recipe["settings"]["train"] == "lora"


def test_an_export_is_written_and_the_classifier_is_shared(tasks, hub, monkeypatch):
    folder, defined, program = tasks
    monkeypatch.chdir(folder)
    exec(program, defined)
    assert keras_vit.verify("photos.onnx", log=None).agreement == 1
    assert "model.weights.h5" in hub.repositories["model", "owner/photos"].files
