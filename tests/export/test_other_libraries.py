"""Live comparisons with the libraries whose weights are converted, in both directions.

They are installed in a separate environment: the newest transformers, timm and KerasHub of
the package index, with a PyTorch for the processor.
"""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

import keras_vit
from keras_vit.checkpoints.code_bases import hugging_face
from keras_vit.checkpoints.code_bases.hugging_face import HUGGING_FACE
from keras_vit.checkpoints.code_bases.layouts import Checkpoint
from keras_vit.checkpoints.code_bases.timm import TIMM
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.preprocessing import Preprocessing

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "export" / "programs" / "other_libraries.py"
LIBRARIES = ["transformers", "timm", "keras-hub"]
THEIR_NEEDS = ["torch==2.13.0", "safetensors", "h5py", "lazy_loader"]
# torchvision asks for a torch of the same build, which is larger; it is used without its kernels.
WITHOUT_DEPENDENCIES = ["torchvision==0.28.0"]

# float32, depth 2; both sides in their own order of operations.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def python(python_with):
    return python_with("OTHER_LIBRARIES_PYTHON", [*LIBRARIES, *THEIR_NEEDS], WITHOUT_DEPENDENCIES)


def _run(python, *arguments):
    paths = (PROGRAM.parent, ROOT / "tests" / "helpers", ROOT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [python, "-P", *map(str, arguments)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(python, tmp_path_factory):
    """Returns the folder with the other libraries' models."""
    folder = tmp_path_factory.mktemp("models")
    _run(python, PROGRAM, "make", folder)
    return folder


def _centered(logits):
    """Logits without their mean, which softmax forgets."""
    return logits - logits.mean(axis=1, keepdims=True)


def _logits(converted, images):
    return _centered(np.log(np.asarray(converted.model()(images), "float64")))


def test_their_models_give_their_answers_here(folder):
    paths = [path.parent for path in sorted(folder.glob("*/answers.npz"))]
    paths += [folder / "KerasHub" / f"classifier.{end}" for end in ("keras", "weights.h5")]
    assert len(paths) > 30
    wrong = {}
    for path in paths:
        with np.load((path if path.is_dir() else path.parent) / "answers.npz") as arrays:
            images, wanted = arrays.values()
        converted, _ = read(path, num_heads=3 if path.name == "torchvision" else None)
        ours = np.asarray(converted.model()(images))
        if converted.description.labels.names is not None:
            ours, wanted = _centered(np.log(ours.astype("float64"))), _centered(wanted)
        difference = np.abs(ours - wanted).max()
        if not difference < TOLERANCE * max(1, np.abs(wanted).max()):
            wrong[str(path.relative_to(folder))] = difference
    assert not wrong


def test_our_model_gives_its_logits_there(python, folder):
    config = keras_vit.ViTConfig(8, 48, 2, 96, 3, gelu="exact")
    model = keras_vit.build(config, input_shape=(32, 32, 3), classes=5)
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape) / 6 for weight in model.weights])
    names = [f"class {index}" for index in range(5)]
    classifier = keras_vit.save_classifier(folder / "ours", model, names, Preprocessing((32, 32)))
    ours = _logits(classifier, np.load(folder / "images.npy"))
    convert(folder / "ours", folder / "to_transformers", to="huggingface")
    _run(python, PROGRAM, "load", folder)
    with np.load(folder / "loaded.npz") as arrays:
        assert set(arrays) == {"to_transformers", "to_keras_hub"}
        for name, theirs in arrays.items():
            np.testing.assert_allclose(ours, _centered(theirs), atol=TOLERANCE, err_msg=name)


def test_images_are_prepared_as_there(python, tmp_path):
    photographs = pytest.importorskip("sklearn.datasets").load_sample_images().images
    noise = np.random.RandomState(0).randint(0, 256, (175, 301, 3)).astype("uint8")
    pictures = [
        photographs[0],
        photographs[1].transpose(1, 0, 2),
        noise,
        noise[:1, :9],
    ]
    np.savez(tmp_path / "pictures.npz", *pictures)
    prepared = {}
    for number, resize_size in enumerate((None, 43, (40, 40))):
        path = tmp_path / f"ours_huggingface_{number}"
        values = ((-2, -1, 0), (2, 3, 1))
        known = Preprocessing((32, 32), "huggingface", values, "bicubic", resize_size)
        content, notes = hugging_face.preprocessor_json(known, 3)
        assert notes == []
        path.mkdir()
        (path / "preprocessor_config.json").write_text(json.dumps(content))
        prepared[path] = known
    _run(python, PROGRAM, "prepare", tmp_path)
    for path in filter(pathlib.Path.is_dir, tmp_path.glob("theirs_*")):
        layout, size, config = HUGGING_FACE, (224, 224), {}
        if "timm" in path.name:
            layout, config = TIMM, json.loads((path / "config.json").read_text())
            size = tuple(config["pretrained_cfg"]["input_size"][1:])
        found = layout.images(Checkpoint(path, layout, {}, config=config), size, None)
        assert found.notes == ()
        prepared[path] = found.preprocessing
    assert len(prepared) > 15
    for path, known in prepared.items():
        with np.load(f"{path}.npz") as arrays:
            for picture, theirs in zip(pictures, arrays.values(), strict=True):
                ours = np.asarray(apply_preprocessing(picture, known))
                # float32: equal bytes, and mean and deviation by other operations.
                np.testing.assert_allclose(
                    ours, theirs.transpose(1, 2, 0), atol=1e-5, err_msg=path.name
                )


def test_every_model_that_timm_lists_gives_its_answers_or_is_refused_by_name(python, tmp_path):
    results = tmp_path / "results.json"
    program = ROOT / "docs" / "timm_models.py"
    lines = (
        "import runpy, sys, any_torchvision",
        f"sys.argv[1:] = ['--json', {str(results)!r}]",
        f"runpy.run_path({str(program)!r}, run_name='__main__')",
    )
    _run(python, "-c", "; ".join(lines))
    found = json.loads(results.read_text())
    assert not [row for row in found if row["difference"] > TOLERANCE]
    refused = [row["name"] for row in found if row["refusal"]]
    page = (ROOT / "docs" / "compatible_models.md").read_text(encoding="utf-8")
    assert f"| all | {len(found)} | {len(found) - len(refused)} (" in page
