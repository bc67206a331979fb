"""Live comparisons with the libraries whose weights are converted, in both directions.

They are installed in an environment of their own: the newest transformers, timm and KerasHub of
the package index, with a PyTorch for the processor.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import keras_vit
from keras_vit.export import convert
from keras_vit.export.conversion import read
from keras_vit.preprocessing import Preprocessing

pytestmark = pytest.mark.slow

PROGRAM = pathlib.Path(__file__).parent / "programs" / "other_libraries.py"
MUTATIONS = PROGRAM.parents[2] / "checkpoints" / "programs" / "mutations.py"
PACKAGES = (
    "torch==2.13.0",
    "transformers",
    "timm",
    "safetensors",
    "keras-hub",
    "h5py",
    "lazy_loader",
)
# torchvision asks for a torch of its own build, which is larger; it is used without its kernels.
WITHOUT_DEPENDENCIES = ("torchvision==0.28.0",)

# Names the Python of an environment that has them already.
PYTHON = "OTHER_LIBRARIES_PYTHON"

# float32, depth 2; both sides in their own order of operations.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Returns the Python of an environment with the other libraries."""
    if PYTHON in os.environ:
        return os.environ[PYTHON]
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, *PACKAGES], check=True)
    subprocess.run([*install, "--no-deps", *WITHOUT_DEPENDENCIES], check=True)
    return str(python)


def _run(python, *arguments):
    done = subprocess.run([python, "-P", *map(str, arguments)], capture_output=True, text=True)
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
    return _centered(np.log(np.asarray(converted.model(images), "float64")))


@pytest.mark.parametrize(
    "name",
    [
        "transformers",
        "transformers_bfloat16",
        "transformers_deit",
        "transformers_msn",
        "transformers_ijepa",
        "transformers_no_qkv_bias",
        "transformers_mae",
        "timm/model.safetensors",
        "timm_deit/model.safetensors",
        "timm_registers/model.safetensors",
        "timm_registers_without_rows/model.safetensors",
        "timm_no_qkv_bias/model.safetensors",
        "torchvision/model.safetensors",
        "keras_hub",
        "keras_hub/classifier.keras",
        "keras_hub/classifier.weights.h5",
    ],
)
def test_their_models_give_their_answers_here(name, folder):
    with np.load(folder / f"{name.partition('/')[0]}.npz") as arrays:
        images, wanted = arrays["images"], arrays["answers"]
    converted = read(folder / name, num_heads=3)
    if converted.class_names is None:
        np.testing.assert_allclose(converted.model(images), wanted, atol=TOLERANCE)
    else:
        ours = _logits(converted, images)
        np.testing.assert_allclose(ours, _centered(wanted), atol=TOLERANCE)
    if name in ("transformers", "transformers_bfloat16", "transformers_deit"):
        assert converted.class_names == tuple(f"class {index}" for index in range(5))
        assert converted.model.get_layer("encoder_block_0").gelu == "tanh"
        assert converted.model.get_layer("encoder_block_0").norm_epsilon == 1e-5


def _ours(folder, **changes):
    """A classifier with random weights."""
    config = keras_vit.ViTConfig(8, 48, 2, 96, 3, gelu="exact", **changes)
    model = keras_vit.build(config, input_shape=(32, 32, 3), classes=5)
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape) / 6 for weight in model.weights])
    names = [f"class {index}" for index in range(5)]
    return keras_vit.save_classifier(folder, model, names, Preprocessing((32, 32)))


def test_our_models_give_their_logits_there(python, folder):
    ours = {
        name: _ours(folder / f"ours{name}", **changes)
        for name, changes in (
            ("", {}),
            ("_registers", {"num_registers": 3}),
            ("_none", {"position_embedding": "none"}),
        )
    }
    for name in ("", "_none"):
        convert(folder / f"ours{name}", folder / f"to_transformers{name}", to="huggingface")
    for name in ours:
        convert(folder / f"ours{name}", folder / f"to_timm{name}.safetensors")
    _run(python, PROGRAM, "load", folder)
    images = np.load(folder / "images.npy")
    answers = {name: _logits(classifier, images) for name, classifier in ours.items()}
    for name, ending in (
        ("to_transformers", ""),
        ("to_transformers_none", "_none"),
        ("to_timm", ""),
        ("to_timm_registers", "_registers"),
        ("to_timm_none", "_none"),
        ("to_keras_hub", ""),
    ):
        with np.load(folder / f"{name}.npz") as arrays:
            theirs = _centered(arrays["logits"])
        np.testing.assert_allclose(answers[ending], theirs, atol=TOLERANCE, err_msg=name)


def test_mutated_pytorch_files_are_refused_or_read(python, folder, tmp_path):
    """As tests/checkpoints/test_mutations.py, where PyTorch is."""
    (tmp_path / "model.pth").write_bytes((folder / "timm" / "model.pth").read_bytes())
    package = pathlib.Path(keras_vit.__file__).resolve().parent.parent
    done = subprocess.run(
        [python, "-P", MUTATIONS, "model.pth", "200"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.pth"]
    assert '"refused": ' in done.stdout
    assert "other shapes" not in done.stdout
