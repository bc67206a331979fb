"""Files that earlier versions wrote: models, weights, classifiers, runs, exports, results."""

import csv
import dataclasses
import json
import pathlib
import shutil
import zipfile

import keras
import numpy as np
import pytest

import keras_vit
import keras_vit.export
from keras_vit.command_line import main
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import config_of, config_of_json
from keras_vit.models.opened_classifier import open_classifier
from keras_vit.training.data import open_source
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.evaluation.embeddings import read_embeddings
from keras_vit.training.evaluation.results import find_results, read_result
from keras_vit.training.run.classifier_jobs import finetune
from keras_vit.training.run.masked_patches import pretrain_masked_patches
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning

ARCHIVE = pathlib.Path(__file__).parent / "golden" / "saved_files.zip"
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
MODELS = [
    "axial_resnet",
    "axial_vit",
    "bit",
    "free_size",
    "hybrid_map_2d",
    "registers_and_distillation",
    "relative",
]

# One file of each kind that was written before models held their config; see golden/README.md.
ONE_OF_EACH = "one_of_each"
with zipfile.ZipFile(ARCHIVE) as archive:
    KINDS = sorted(
        pathlib.Path(name).stem
        for name in archive.namelist()
        if name.startswith(f"{ONE_OF_EACH}/models/") and name.endswith(".keras")
    )
EXPORTS = {
    "_saved_model": "tensorflow",
    ".tflite": "ai_edge_litert",
    ".onnx": "onnxruntime",
    "_ir": "openvino",
}

# Their layers run on JAX in tests/models/test_golden.py too.
PLAIN = ("bit", "free_size", "hybrid_map_2d", "registers_and_distillation")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def each(saved):
    """The folder with one file of each kind."""
    return saved / ONE_OF_EACH


@pytest.fixture
def inside(each, tmp_path, monkeypatch):
    """A copy as the working directory, to which paths in the files are relative."""
    shutil.copytree(each, tmp_path / "inside")
    monkeypatch.chdir(tmp_path / "inside")


@pytest.fixture(scope="module")
def expected(each):
    """What the version that wrote the files computed with them, by their names."""
    with np.load(each / "expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def resumed(saved):
    """The stopped run, trained to its end; its paths are relative."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(saved)
        finetune(None, "runs/stopped", resume=True, log=lambda line: None)
    return saved / "runs" / "stopped"


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.any_backend_slow] * (name in PLAIN)) for name in MODELS],
)
def test_a_model_computes_what_it_computed_when_it_was_saved(saved, name):
    model = keras.saving.load_model(saved / "saved_models" / f"{name}.keras")
    expected = np.load(saved / "saved_models" / "expected.npz")[name]
    outputs = model(IMAGES, training=False)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)  # Float32, other processors.


def test_every_saved_model_is_tried(saved):
    assert sorted(path.stem for path in (saved / "saved_models").glob("*.keras")) == MODELS


def test_a_classifier_folder_is_read(saved):
    classifier = keras_vit.load_classifier(saved / "runs" / "whole")
    assert classifier.class_names == ("blue", "red")
    images = sorted((saved / "photos" / "test").rglob("*.png"))
    answers = [prediction.top[0][0] for prediction in classifier.predict(images)]
    assert answers == ["blue"] * 4 + ["red"] * 4


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_end(saved, resumed):
    """Both runs are without dropout, whose masks depend on the version."""
    old, new = history(saved / "runs" / "whole"), history(resumed)
    assert [row["step"] for row in new] == ["3", "6", "9", "12"]
    for whole, stopped in zip(old, new, strict=True):
        del whole["images_per_second"], stopped["images_per_second"]
        for name, value in whole.items():  # Float32, other processors.
            assert float(stopped[name]) == pytest.approx(float(value), rel=1e-3), name
    ends = [keras.saving.load_model(run / "model.keras") for run in (saved / "runs/whole", resumed)]
    for whole, stopped in zip(*(end.get_weights() for end in ends), strict=True):
        np.testing.assert_allclose(stopped, whole, atol=1e-4)


def test_the_recipe_of_a_resumed_run_keeps_its_keys(saved, resumed):
    old = json.loads((saved / "runs" / "whole" / "recipe.json").read_text())
    new = json.loads((resumed / "recipe.json").read_text())
    assert set(old) <= set(new)
    assert set(old["settings"]) <= set(new["settings"])
    assert set(old["data"]) <= set(new["data"])


def history(folder):
    with open(folder / "history.csv") as file:
        return list(csv.DictReader(file))


def images(size):
    """Returns the two preprocessed images of the expected outputs, of (height, width) pixels."""
    return np.random.default_rng(0).uniform(-1, 1, (2, *size, 3)).astype("float32")


def probabilities(classifier, each):
    """Returns the probabilities of the test pictures, in the order of the class names."""
    paths = sorted((each / "photos" / "test").rglob("*.png"))
    found = classifier.predict(paths, top=len(classifier.class_names))
    return [[dict(answer.top)[name] for name in classifier.class_names] for answer in found]


@pytest.mark.parametrize("name", KINDS)
def test_a_model_of_every_kind_computes_what_it_computed(each, expected, name):
    model = keras.saving.load_model(each / "models" / f"{name}.keras")
    outputs = model(images(model.input_shape[1:3]), training=False)
    # Float32, other processors.
    np.testing.assert_allclose(outputs, expected[f"models/{name}"], atol=2e-5)


@pytest.mark.parametrize("name", KINDS)
def test_the_config_of_a_saved_model_is_known(each, name):
    written = json.loads((each / "models" / "descriptions.json").read_text())[name]
    model = keras.saving.load_model(each / "models" / f"{name}.keras")
    described = keras_vit.describe(model)
    assert described.input_shape == (*written["image_size"], 3)
    for fact in ("parameters", "flops", "sequence_length"):
        assert getattr(described, fact) == written[fact]
    kind = written["config"].pop("type")
    assert config_of(model) == config_of_json(written["config"], kind)


@pytest.mark.parametrize("name", ["qk_norm", "rotary", "learned_2d"])
def test_weights_in_a_file_of_keras_give_what_they_gave(each, expected, name):
    written = json.loads((each / "models" / "descriptions.json").read_text())[name]
    config = config_of_json(written["config"], written["config"].pop("type"))
    shape = (*written["image_size"], 3)
    path = each / "weights" / f"{name}.weights.h5"
    model = keras_vit.build(config, weights=path, classes=3, input_shape=shape)
    outputs = model(images(shape[:2]), training=False)
    # Float32, other processors.
    np.testing.assert_allclose(outputs, expected[f"models/{name}"], atol=2e-5)


def test_weights_in_the_official_layout_give_what_they_gave(each, expected):
    model = keras_vit.build(
        ViTConfig(4, 16, 2, 16, 2),
        weights=each / "weights" / "plain.npz",
        classes=3,
        input_shape=(16, 16, 3),
    )
    outputs = model(images((16, 16)), training=False)
    # Float32, other processors.
    np.testing.assert_allclose(outputs, expected["weights/plain"], atol=2e-5)


@pytest.mark.parametrize("name", ["multiclass", "multilabel", "pretrained", "whole"])
def test_the_classifier_of_a_run_predicts_what_it_predicted(each, expected, name):
    classifier = keras_vit.load_classifier(each / "runs" / name)
    found = probabilities(classifier, each)
    # Float32, other processors.
    np.testing.assert_allclose(found, expected[f"runs/{name}"], atol=1e-5)


def test_the_facts_of_a_multilabel_classifier_are_read(each):
    classifier = keras_vit.load_classifier(each / "runs" / "multilabel")
    written = json.loads((each / "runs" / "multilabel" / "task.json").read_text())
    assert classifier.task == "multilabel"
    assert (
        dict(zip(classifier.class_names, classifier.thresholds, strict=True))
        == (written["thresholds"])
    )
    assert classifier.preprocessing.image_size == (8, 8)


@pytest.mark.parametrize("name", ["multiclass", "multilabel", "whole"])
def test_the_settings_of_a_recipe_are_read(each, name):
    recipe = json.loads((each / "runs" / name / "recipe.json").read_text())
    settings = FineTuning.from_json(recipe["settings"])
    assert settings.model == ViTConfig(4, 8, 1, 8, 2)
    written = settings.to_json()
    assert json.loads(json.dumps(written)).items() >= recipe["settings"].items()


@pytest.mark.parametrize(
    ("name", "feature"), [("pretrained", "pre_logits"), ("masked_patches", "avg")]
)
def test_features_of_pretrained_weights_are_what_they_were(inside, tmp_path, name, feature):
    output = tmp_path / "features.npz"
    options = ["--feature", feature, "--output", str(output)]
    assert main(["embed", f"runs/{name}", "photos/test", *options]) == 0
    found, written = (read_embeddings(path) for path in (output, f"results/{name}.npz"))
    assert found.names == written.names
    assert found.facts == written.facts
    np.testing.assert_allclose(found.values, written.values, atol=1e-5)  # Float32.


def test_pretrained_weights_without_classes_can_be_fine_tuned(inside, tmp_path):
    settings = dataclasses.replace(
        TUNED, model=None, weights="runs/masked_patches", steps=1, evaluate_every=1, warmup_steps=0
    )
    done = finetune("photos", tmp_path / "tuned", settings, log=lambda line: None)
    tuned, masked = (
        model.get_layer("encoder_block_0").get_weights()
        for model in (
            done.classifier.model,
            keras.saving.load_model("runs/masked_patches/model.keras"),
        )
    )
    for new, old in zip(tuned, masked, strict=True):  # One step of Adam moves by its rate.
        np.testing.assert_allclose(new, old, atol=1.01 * settings.learning_rate)


def test_a_stopped_multilabel_run_ends_with_the_same_weights(inside):
    finetune(None, "runs/stopped", resume=True, log=lambda line: None)
    # Mixup blended the images of each micro-batch when it began; now it blends a whole step.
    check_same_end("runs/stopped", "runs/whole", atol=5e-4)


@pytest.mark.slow
def test_a_stopped_run_without_classes_ends_with_the_same_weights(inside):
    name = "runs/stopped_masked_patches"
    pretrain_masked_patches(None, name, resume=True, log=lambda line: None)
    check_same_end(name, "runs/masked_patches")


def check_same_end(resumed, whole, atol=1e-4):
    models = [keras.saving.load_model(f"{run}/model.keras") for run in (resumed, whole)]
    for new, old in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(new, old, atol=atol)  # Adam, float32, other processors.


# Settings of the runs "multiclass" and "multilabel" and of the sweep.
TUNED = FineTuning(
    model=ViTConfig(4, 8, 1, 8, 2),
    weights=None,
    augmentation="none",
    image_size=(8, 8),
    batch_size=8,
    accumulate=1,
    optimizer="adam",
    steps=2,
    evaluate_every=1,
    validation=0.25,
    learning_rate=0.1,
)


def test_a_finished_sweep_is_read_and_trains_nothing(inside):
    before = {path: path.stat().st_mtime_ns for path in pathlib.Path("runs/sweep").rglob("*.keras")}
    written = read_result("runs/sweep/result.json")
    result = sweep(
        "photos",
        "runs/sweep",
        TUNED,
        learning_rates=(0.03, 0.1),
        seeds=(0,),
        log=lambda line: None,
    )
    assert result.mean == written.metrics["top_1"]
    assert result.learning_rate == written.metrics["learning_rate"]
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_result_files_are_read(each):
    found = dict(find_results([each / "results", each / "runs"]))
    names = {path.relative_to(each).as_posix() for path in found}
    assert names == {
        "results/few_shot/result_2_shot_seed_0.json",
        "results/few_shot/result_2_shot_seed_1.json",
        "results/multiclass/result.json",
        "results/multilabel/result.json",
        "runs/multiclass/recipe.json",
        "runs/multilabel/recipe.json",
        "runs/pretrained/recipe.json",
        "runs/sweep/result.json",
        "runs/sweep/seeds/0/recipe.json",
        "runs/whole/recipe.json",
    }
    for path, result in found.items():
        content = json.loads(path.read_text())
        written = content["metrics"] if "metrics" in content else content["test"]
        assert result.metrics.items() <= written.items()
        assert result.metrics


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("multiclass", "photos"),
        ("multiclass", "tfrecords:records"),
        ("multilabel", "mixed/labels.csv"),
    ],
)
def test_an_evaluation_gives_the_numbers_that_it_gave(inside, name, data):
    report = evaluate_classifier(keras_vit.load_classifier(f"runs/{name}"), data)
    written = read_result(f"results/{name}/result.json")
    assert report.count == written.images
    found, stored = (dict(numbers(metrics)) for metrics in (report.to_json(), written.metrics))
    del found[("images_per_second",)], stored[("images_per_second",)]
    assert found == pytest.approx(stored, rel=1e-4)  # Float32, other processors.


def numbers(metrics, place=()):
    """Yields the numbers of a report with their places in it."""
    if isinstance(metrics, dict | list | tuple):
        items = metrics.items() if isinstance(metrics, dict) else enumerate(metrics)
        for name, value in items:
            yield from numbers(value, (*place, name))
    elif isinstance(metrics, int | float):
        yield place, metrics


def test_records_are_read(each):
    splits = open_source(f"tfrecords:{each / 'records'}").splits
    assert {name: len(examples.labels) for name, examples in splits.items()} == {
        "train": 24,
        "test": 12,
    }


def test_a_converted_classifier_predicts_what_it_predicted(each, expected):
    found = probabilities(keras_vit.load_classifier(each / "converted" / "classifier"), each)
    # Float32, other processors.
    np.testing.assert_allclose(found, expected["converted/classifier"], atol=1e-5)


@pytest.mark.parametrize(
    ("source", "original"),
    [
        ("huggingface", "multiclass"),
        ("timm", "multiclass"),
        ("multilabel_timm", "multilabel"),
        ("official.npz", "multiclass"),
        ("keras.weights.h5", "multiclass"),
    ],
)
def test_weights_as_other_code_bases_have_them_become_the_classifier(
    each, expected, tmp_path, source, original
):
    known = {}
    if pathlib.Path(source).suffix:  # Arrays alone.
        known = {"num_heads": 2, "gelu": "tanh", "normalization": "half", "image_size": (8, 8)}
    keras_vit.export.convert(each / "converted" / source, tmp_path / "classifier", **known)
    classifier = keras_vit.load_classifier(tmp_path / "classifier")
    found = classifier.model(images((8, 8)), training=False)
    whole = keras_vit.load_classifier(each / "runs" / original)
    # Float32, another order of sums.
    np.testing.assert_allclose(found, whole.model(images((8, 8)), training=False), atol=1e-5)


@pytest.mark.parametrize("suffix", EXPORTS)
@pytest.mark.parametrize("name", ["multiclass", "multilabel"])
def test_an_export_predicts_what_it_predicted(each, expected, name, suffix):
    pytest.importorskip(EXPORTS[suffix])
    classifier = open_classifier(each / "exports" / f"{name}{suffix}")
    written = keras_vit.load_classifier(each / "runs" / name)
    assert classifier.class_names == written.class_names
    assert classifier.thresholds == written.thresholds
    found = probabilities(classifier, each)
    # Float32; other processors and versions of the runtimes sum in other orders.
    np.testing.assert_allclose(found, expected[f"exports/{name}{suffix}"], atol=2e-5)
