"""Files that were made to crash, hang, fill the memory, or be read as something they are not."""

import json
import shutil
import zipfile

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.formats import read_torch, write_npz
from keras_vit.classifier import save_classifier
from keras_vit.classifier_folder import read_model
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config


@pytest.fixture
def keras_3(golden, tmp_path):
    """A copy of a `.weights.h5` that may be changed."""
    shutil.copy(golden("vit_keras").folder / "keras_3.weights.h5", tmp_path / "a.weights.h5")
    return tmp_path / "a.weights.h5"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of a tiny classifier."""
    model = keras_vit.build(tiny_config(width=8), input_shape=(8, 8, 3), classes=3)
    folder = tmp_path_factory.mktemp("classifier") / "tiny"
    save_classifier(folder, model, ["a", "b", "c"], Preprocessing((8, 8)))
    return folder


@pytest.fixture
def edited(classifier, tmp_path):
    """Returns a function that copies the classifier with another config; gives the folder."""

    def edit(change):
        folder = tmp_path / "edited"
        shutil.copytree(classifier, folder)
        with (
            zipfile.ZipFile(classifier / "model.keras") as old,
            zipfile.ZipFile(folder / "model.keras", "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for name in old.namelist():
                content = old.read(name)
                if name == "config.json":
                    content = change(json.loads(content))
                    content = content if isinstance(content, str) else json.dumps(content)
                new.writestr(name, content)
        return folder

    return edit


# HDF5


def test_groups_that_are_linked_twice_are_read_at_once(keras_3):
    with h5py.File(keras_3, "a") as file:  # 2**30 ways to the last group.
        group = file["layers"]
        for _ in range(30):
            group["left"] = group["right"] = inner = file.create_group(None)
            group = inner
    open_checkpoint(keras_3)


@pytest.mark.parametrize(
    ("kind", "place"), [("external", "layers/dense"), ("external", "beside"), ("soft", "beside")]
)
def test_a_link_anywhere_is_refused(place, kind, keras_3, tmp_path):
    shutil.copy(keras_3, tmp_path / "other.h5")
    with h5py.File(keras_3, "a") as file:
        file["moved"] = file["layers"]
        if place in file:
            del file[place]
        del file["moved"]
        link = h5py.ExternalLink(str(tmp_path / "other.h5"), "layers")
        file[place] = link if kind == "external" else h5py.SoftLink("/layers")
    with pytest.raises(ValueError, match=f"H5 file with {kind.title()}Link"):
        open_checkpoint(keras_3)


@pytest.mark.parametrize("kind", ["virtual", "external"])
def test_an_array_of_another_file_is_refused(kind, keras_3, tmp_path):
    (tmp_path / "secret").write_bytes(b"\x00" * 40)
    layout = h5py.VirtualLayout((10,), "float32")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (10,))
    with h5py.File(keras_3, "a") as file:
        del file["layers/dense/vars/1"]
        if kind == "virtual":
            file.create_virtual_dataset("layers/dense/vars/1", layout)
        else:
            place = [(str(tmp_path / "secret"), 0, 40)]
            file["layers/dense/vars"].create_dataset("1", (10,), "float32", external=place)
    with pytest.raises(ValueError, match=f"H5 file with {kind} Dataset"):
        open_checkpoint(keras_3)


# Configs in `.keras` files


def test_a_config_that_asks_for_more_than_the_archive_holds_is_refused(edited):
    def many_classes(config):
        head = next(x for x in config["config"]["layers"] if x["name"] == "predictions")
        head["config"]["units"] = 30_000_000_000  # 1 TB.
        return config

    with pytest.raises(ValueError, match="240,000,00[01],"):
        read_model(edited(many_classes) / "model.keras")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Infinity", "config.json must be JSON"),
        ("1" + "0" * 400, "config.json must be JSON"),
        ("[" * 5000 + "]" * 5000, "config.json must be JSON"),
        ("-1e-06", "as a Keras model"),
    ],
)
def test_a_config_with_a_wrong_number_is_refused(value, message, edited):
    def change(config):
        return json.dumps(config).replace('"epsilon": 1e-06', f'"epsilon": {value}')

    with pytest.raises(ValueError, match=message):
        open_predictor(edited(change))


def test_a_classifier_with_weights_that_are_no_numbers_is_refused(tmp_path, model_of):
    model = model_of("vit_gap")
    gamma = model.get_layer("encoder_norm").gamma
    gamma.assign(np.full(gamma.shape, np.nan, "float32"))
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="finite numbers.*encoder_norm/gamma"):
        read_model(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="finite numbers.*encoder_norm/gamma"):
        keras_vit.load_checkpoint(model_of("vit_gap"), tmp_path / "model.weights.h5")


# Numbers


def test_a_number_that_is_infinite_in_the_model_is_refused(model_of, checkpoint_of, tmp_path):
    with np.load(checkpoint_of("vit_token")) as file:
        arrays = dict(file)
    name = next(name for name in arrays if name.endswith("head/kernel"))
    arrays[name] = arrays[name].astype("float64")
    arrays[name][0, 0] = 1e300
    write_npz(tmp_path / "large.npz", arrays)
    with pytest.raises(ValueError, match="beyond float32"):
        keras_vit.load_checkpoint(model_of("vit_token"), tmp_path / "large.npz")


# Files beside weights of other code bases


_WRONG = ([], {"a": 1}, "x", -1, True)


def _with_each_field_wrong(content):
    """Yields the objects that differ from one in a field, also one of an object in it."""
    for name, value in content.items():
        for wrong in _WRONG:
            yield {**content, name: wrong}
        if isinstance(value, dict):
            yield from ({**content, name: inner} for inner in _with_each_field_wrong(value))


_PARTS = {"mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9, "crop_mode": "center"}
_SIDES = {"height": 32, "width": 32}
_CONFIGS = {
    "hf_vit": {"id2label": {"0": "a"}, "hidden_act": "gelu", "image_size": 32},
    "timm_vit": {
        "architecture": "vit_tiny_patch16_224",
        "model_args": {"act_layer": "gelu", "num_heads": 3, "img_size": 32, "class_token": True},
        "pretrained_cfg": {"input_size": [3, 32, 32], "interpolation": "bicubic", **_PARTS},
        "label_names": ["a"],
        "global_pool": "token",
    },
}
_PROCESSOR = {
    "image_processor_type": "ViTImageProcessor", "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
    "rescale_factor": 1 / 255, "resample": 2, "size": _SIDES, "crop_size": _SIDES,
    "do_center_crop": True,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("folder", _CONFIGS)
def test_no_field_of_another_type_is_more_than_a_value_error(folder, golden, tmp_path):
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    safetensors_numpy.save_file(golden(folder).checkpoint(), tmp_path / "model.safetensors")
    files = {"config.json": {**golden(folder).config, **_CONFIGS[folder]}}
    if folder == "hf_vit":
        files["preprocessor_config.json"] = _PROCESSOR
    refused = []
    for name, content in files.items():
        for other, unchanged in files.items():
            (tmp_path / other).write_text(json.dumps(unchanged))
        for wrong in _with_each_field_wrong(content):
            (tmp_path / name).write_text(json.dumps(wrong))
            try:
                open_model(tmp_path)
            except ValueError as error:
                refused.append(str(error))
    assert len(refused) > 20
    assert not any("\n" in message for message in refused)


# PyTorch files


@pytest.mark.slow  # torch is no requirement; where it is installed, its import takes seconds.
def test_tensors_that_are_no_named_arrays_are_one_line(tmp_path):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0).reshape(2, 3)
    states = {
        "1 of": {1: tensor},
        "sparse_coo": {"a": tensor.to_sparse()},
        "meta": {"a": tensor.to("meta")},
        "must hold the bytes": {"a": torch.zeros(1).expand(2**20, 2**20)},
        "entries are compressed": {"a": tensor},
    }
    for message, state in states.items():
        torch.save(state, tmp_path / "a.bin")
        if "compressed" in message:
            with zipfile.ZipFile(tmp_path / "a.bin") as old:
                entries = {name: old.read(name) for name in old.namelist()}
            with zipfile.ZipFile(tmp_path / "a.bin", "w", zipfile.ZIP_DEFLATED) as new:
                for name, content in entries.items():
                    new.writestr(name, content + b"\0" * 2**20 * name.endswith(".pkl"))
        with pytest.raises(ValueError, match=message) as error:
            read_torch(tmp_path / "a.bin")
        assert "\n" not in str(error.value)
