"""Files that were made to crash, hang, fill the memory, or be read as something they are not."""

import contextlib
import json
import shutil
import zipfile

import h5py
import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.formats import read_torch, read_values, write_npz
from keras_vit.checkpoints.hdf5 import read_model
from keras_vit.classifier_folder import load_classifier, save_classifier
from keras_vit.models.opening import open_model
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config


@pytest.fixture
def keras_3(golden, tmp_path):
    """A copy of a `.weights.h5` that may be changed."""
    shutil.copy(golden("vit_keras").folder / "keras_3.weights.h5", tmp_path / "a.weights.h5")
    return tmp_path / "a.weights.h5"


def _vit():
    config = tiny_config(width=8)
    return keras_vit.build(config, input_shape=(8, 8, 3), classes=3)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of a tiny classifier."""
    folder = tmp_path_factory.mktemp("classifier") / "tiny"
    save_classifier(folder, _vit(), ["a", "b", "c"], Preprocessing((8, 8)))
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


def test_compressed_arrays_are_read(keras_3):
    with h5py.File(keras_3, "a") as file:
        values = file["layers/dense/vars/0"][...]
        del file["layers/dense/vars/0"]
        file.create_dataset("layers/dense/vars/0", data=values, compression="gzip")
    assert len(list(read_values(open_checkpoint(keras_3).arrays.values())))


@pytest.mark.parametrize("place", ["layers/dense", "beside"])
@pytest.mark.parametrize("kind", ["external", "soft"])
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


def _head(config):
    return next(x for x in config["config"]["layers"] if x["name"] == "predictions")["config"]


def test_a_config_that_asks_for_more_than_the_archive_holds_is_refused(edited):
    def many_classes(config):
        _head(config)["units"] = 30_000_000_000  # 1 TB.
        return config

    with pytest.raises(ValueError, match="a model of 240,000,00[01],.* numbers or more, which"):
        load_classifier(edited(many_classes))


def test_a_config_with_far_more_layers_than_arrays_is_refused(edited):
    def many_layers(config):
        config["config"]["layers"] += [{"class_name": "Identity"}] * 2000
        return config

    with pytest.raises(ValueError, match=r"it has 2,\d\d\d objects and \d+ arrays"):
        load_classifier(edited(many_layers))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("Infinity", "config.json must be JSON"),
        ("1" + "0" * 400, "config.json must be JSON"),
        ("[" * 5000 + "]" * 5000, "config.json must be JSON"),
        ("-1e-06", "cannot be read as a Keras model"),
    ],
)
def test_a_config_with_a_wrong_number_is_refused(value, message, edited):
    def change(config):
        return json.dumps(config).replace('"epsilon": 1e-06', f'"epsilon": {value}')

    with pytest.raises(ValueError, match=message):
        load_classifier(edited(change))


def test_a_model_with_dropout_is_read(tmp_path):
    """Its seeds are variables, and in no file."""
    config = tiny_config(patch_size=8, mlp_dim=32, dropout_rate=0.1, attention_dropout_rate=0.1)
    model = keras_vit.build(config, input_shape=(16, 16, 3), classes=2)
    assert len(model.variables) > len(model.weights)
    model.save(tmp_path / "model.keras")
    assert len(read_model(tmp_path / "model.keras").weights) == len(model.weights)


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


# Files beside a model


def test_many_equal_class_names_are_a_short_error(classifier, tmp_path):
    shutil.copytree(classifier, tmp_path / "many")
    path = tmp_path / "many" / "description.json"
    names = [f"name {index // 2}" for index in range(80_000)]
    path.write_text(json.dumps({**json.loads(path.read_text()), "labels": {"names": names}}))
    (tmp_path / "many" / "classes.txt").write_text("\n".join(names) + "\n")
    with pytest.raises(ValueError, match="differ from each other") as error:
        load_classifier(tmp_path / "many")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("value_range", [[-1.0] * 5, [1.0] * 5], "5 channels .*a model of 3 channels"),
        ("value_range", [-1.0, float("inf")], "must be JSON with finite"),
        ("image_size", [10**9, 10**9], "from 1 to"),
        ("evaluation", ["resize"], "evaluation must be one of"),
    ],
)
def test_a_preprocessing_that_cannot_be_is_refused(field, value, message, classifier, tmp_path):
    shutil.copytree(classifier, tmp_path / "wrong")
    path = tmp_path / "wrong" / "description.json"
    described = json.loads(path.read_text())
    described["preprocessing"][field] = value
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=message):
        load_classifier(tmp_path / "wrong")


# Numbers


@pytest.mark.parametrize(
    "note",
    [
        '"config": {"type": "ViTConfig", "norm_epsilon": NaN}',
        '"position_grid": [-4, -4]',
        '"position_grid": [Infinity, 4]',
    ],
)
def test_a_note_with_a_number_out_of_range_is_refused(note, golden, checkpoint_of):
    path = checkpoint_of("vit_token")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = f'{{"keras_vit": {{{note}}}}}'.encode()
    with pytest.raises(ValueError, match=r"note of keras-vit|must be (between|positive)") as error:
        open_checkpoint(path)
    assert "\n" not in str(error.value)


def test_a_number_that_is_infinite_in_the_model_is_refused(model_of, checkpoint_of, tmp_path):
    with np.load(checkpoint_of("vit_token")) as file:
        arrays = dict(file)
    name = next(name for name in arrays if name.endswith("head/kernel"))
    arrays[name] = arrays[name].astype("float64")
    arrays[name][0, 0] = 1e300
    write_npz(tmp_path / "large.npz", arrays)
    with pytest.raises(ValueError, match="NaN or infinity, or a number beyond float32"):
        keras_vit.load_checkpoint(model_of("vit_token"), tmp_path / "large.npz")


# Files beside weights of other code bases


@pytest.mark.parametrize(
    ("folder", "file", "change", "message"),
    [
        ("hf_vit", "config.json", {"hidden_act": ["gelu"]}, "must be as Hugging Face writes them"),
        ("hf_vit", "config.json", {"image_size": {}}, "must have height and width"),
        ("hf_vit", "config.json", {"layer_norm_eps": -1.0}, "norm_epsilon must be between"),
        ("hf_vit", "config.json", {"num_attention_heads": 10**400}, "must be JSON with finite"),
        (
            "timm_vit",
            "config.json",
            {"architecture": "vit_x", "model_args": ["x"]},
            "be as timm",
        ),
        ("hf_vit", "preprocessor_config.json", {"image_mean": "x"}, "must be as|could not convert"),
    ],
)
def test_fields_of_another_type_are_one_line(folder, file, change, message, golden, tmp_path):
    safetensors_numpy = pytest.importorskip("safetensors.numpy")
    safetensors_numpy.save_file(golden(folder).checkpoint(), tmp_path / "model.safetensors")
    shutil.copy(golden(folder).folder / "config.json", tmp_path)
    path = tmp_path / file
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**known, **change}))
    with pytest.raises(ValueError, match=message) as error:
        open_model(tmp_path)
    assert "\n" not in str(error.value)


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
    refused = 0
    for name, content in files.items():
        for other, unchanged in files.items():
            (tmp_path / other).write_text(json.dumps(unchanged))
        for wrong in _with_each_field_wrong(content):
            (tmp_path / name).write_text(json.dumps(wrong))
            with contextlib.suppress(ValueError):
                refused += 1
                open_model(tmp_path)
                refused -= 1
    assert refused > 20


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
    }
    for message, state in states.items():
        torch.save(state, tmp_path / "a.bin")
        with pytest.raises(ValueError, match=message) as error:
            read_torch(tmp_path / "a.bin")
        assert "\n" not in str(error.value)


@pytest.mark.slow  # As above.
def test_checksums_of_pytorch_files_are_compared(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.arange(6.0)}, tmp_path / "a.bin")
    content = bytearray((tmp_path / "a.bin").read_bytes())
    content[content.index(np.float32(5).tobytes())] ^= 1
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(ValueError, match="truncated or damaged.*another checksum"):
        read_torch(tmp_path / "a.bin")


@pytest.mark.slow  # As above.
def test_pytorch_files_with_compressed_entries_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.arange(6.0)}, tmp_path / "a.bin")
    with (
        zipfile.ZipFile(tmp_path / "a.bin") as old,
        zipfile.ZipFile(tmp_path / "b.bin", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name) + b"\0" * 2**20 * name.endswith(".pkl"))
    with pytest.raises(ValueError, match="its entries are compressed"):
        read_torch(tmp_path / "b.bin")
