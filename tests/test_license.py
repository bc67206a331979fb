"""The license of weights, from its source to a classifier and its exports."""

import json

import keras
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.checkpoints.save import stored_arrays
from keras_vit.description.description_texts import (
    card_header,
    describe_license,
    license_in_card,
    license_of_family,
)
from keras_vit.export import convert
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.opening import open_model, open_predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.run.finetune import finetune
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return keras_vit.build(tiny_config(), classes=2, input_shape=(8, 8, 3))


def folder_of(model, tmp_path, to):
    """Writes a model as a folder of another code base."""
    source = tmp_path / "source"
    names, preprocessing = ("cat", "dog"), Preprocessing((8, 8))
    keras_vit.save_classifier(source, model, names, preprocessing)
    convert(source, tmp_path / to, to=to)
    return tmp_path / to


def test_a_folder_of_hugging_face_has_the_license_of_its_card(model, tmp_path):
    folder = folder_of(model, tmp_path, "huggingface")
    assert open_model(folder).description.license == "unknown"
    (folder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    assert open_model(folder).description.license == "cc-by-nc-4.0"
    built = keras_vit.build(weights=folder)
    assert keras_vit.describe(built).license == "cc-by-nc-4.0"


def test_a_folder_of_timm_has_the_license_of_its_config(model, tmp_path):
    (tmp_path / "timm").mkdir()
    weights = tmp_path / "timm" / "model.safetensors"
    save_file(stored_arrays(model, TIMM), weights)
    config = {"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"license": "mit"}}
    (tmp_path / "timm" / "config.json").write_text(json.dumps(config))
    assert open_model(tmp_path / "timm", num_heads=2, gelu="exact").description.license == "mit"


@pytest.mark.parametrize(
    ("name", "license"),
    [
        ("timm/vit_base_patch16_dinov3_qkvb.eupe_lvd1689m", "fair-noncommercial-research-license"),
        ("facebook/dinov3-vits16-pretrain-lvd1689m", "dinov3-license"),
        ("DINOV3Backbone", "dinov3-license"),
        ("google/medsiglip-448", "health-ai-developer-foundations"),
        ("SigLIPBackbone", "apache-2.0"),
        ("models--google--vit-base-patch16-224", "apache-2.0"),
        ("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", "mit"),
        ("facebook/ijepa_vith14_1k", "cc-by-nc-4.0"),
        ("vit_base_patch16_224", None),
    ],
)
def test_a_family_of_weights_has_its_license(name, license):
    assert license_of_family([None, name]) == license


@pytest.mark.parametrize(
    ("license", "is_limited"),
    [
        ("fair-noncommercial-research-license", True),
        ("cc-by-nc-4.0", True),
        ("apple-amlr", True),
        ("apache-2.0", False),
        ("dinov3-license", False),
    ],
)
def test_a_license_that_forbids_commercial_use_says_it(license, is_limited):
    assert ("forbids commercial use" in describe_license(license)) == is_limited


def test_the_license_of_a_family_is_printed_once_and_kept(model, tmp_path, capsys):
    folder = folder_of(model, tmp_path, "huggingface")
    (folder / "README.md").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["_name_or_path"] = "facebook/eupe-vit-small"
    (folder / "config.json").write_text(json.dumps(config))
    save_file(stored_arrays(model, HUGGING_FACE), folder / "model.safetensors")  # Without our note.
    for _ in range(2):
        opened = open_model(folder)
        assert opened.description.license == "fair-noncommercial-research-license"
    line = "License of the weights: fair-noncommercial-research-license, which forbids commercial"
    assert capsys.readouterr().err.count(line) == 1


@pytest.mark.parametrize("to", ["huggingface", "classifier"])
@pytest.mark.parametrize("license", ["cc-by-nc-4.0", "dinov3-license", "unknown"])
def test_a_converted_folder_has_the_license_of_its_source(to, license, model, tmp_path):
    source = folder_of(model, tmp_path, "huggingface")
    (source / "README.md").write_text(card_header(license))
    convert(source, tmp_path / "again", to=to)
    assert open_model(tmp_path / "again").description.license == license


def test_classifiers_of_the_package_and_official_weights_are_under_apache():
    assert open_predictor("cifar10").description.license == "apache-2.0"
    opened = open_model("imagenet21k", model="ViT-B/16")
    assert opened.description.license == "apache-2.0"


def test_a_fine_tuned_classifier_and_its_exports_carry_the_license(model, tmp_path):
    weights = folder_of(model, tmp_path, "huggingface")
    (weights / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    data = write_classes(tmp_path / "data", {"train": 3, "test": 1})
    settings = FineTuning(
        weights=str(weights), image_size=(8, 8), steps=1, batch_size=3, validation=0.0
    )
    done = finetune(data, tmp_path / "pets", settings, log=lambda line: None)
    assert done.classifier.description.license == "cc-by-nc-4.0"
    card = (tmp_path / "pets" / "README.md").read_text()
    assert "License of the starting weights: cc-by-nc-4.0." in card
    keras_vit.export.onnx(tmp_path / "pets", tmp_path / "pets.onnx", minimum_agreement=0)
    assert load_artefact(tmp_path / "pets.onnx").description.license == "cc-by-nc-4.0"
    assert "cc-by-nc-4.0" in str(keras_vit.export.verify(tmp_path / "pets.onnx"))


@pytest.mark.parametrize(
    "text", ["a" + " " * 60_000 + "b", "a" + " \t" * 30_000 + "b", " " * 60_000]
)
def test_the_time_of_a_license_in_a_card_grows_with_its_length_alone(text, tmp_path):
    (tmp_path / "README.md").write_text(f"---\nlicense: {text}\n---\n")
    assert license_in_card(tmp_path) is None


@pytest.mark.parametrize("line", ["license: 'mit' ", "license:\tmit\t", 'license: "mit"\r'])
def test_quotes_and_white_space_around_a_license_are_left_out(line, tmp_path):
    (tmp_path / "README.md").write_bytes(f"---\n{line}\n---\n".encode())
    assert license_in_card(tmp_path) == "mit"
