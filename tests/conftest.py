"""What several tests need: golden arrays of the official code, and tiny models."""

import gc
import json
import os
import pathlib
import pickle
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import filelock
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The bare folders training/ and export/ of the repository are not the installed packages.
sys.path[:] = [path for path in sys.path if pathlib.Path(path or ".").resolve() != ROOT]


def pytest_addoption(parser):
    parser.addoption(
        "--no-grappler",
        action="store_true",
        help="Run graphs as they were traced: TensorFlow's optimisation of tiny graphs takes a "
        "fifth of the time of the default tests.",
    )


# They begin first, so that no worker is alone with one at the end.
LONGEST = ("test_the_road.py", "test_changed_images.py", "test_exactness.py", "test_backends.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def _without_grappler(pytestconfig):
    if pytestconfig.getoption("--no-grappler"):
        import keras  # noqa: F401
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        gc.collect()
        gc.freeze()  # Else each collection searches all of TensorFlow, for a second.
        gc.set_threshold(10_000, 20, 10)


@pytest.fixture(scope="session", autouse=True)
def _exports_run_here():
    """Runs exports in this process, except for tests that use `own_process`."""
    from keras_vit.export import check

    check.SEPARATE_PROCESS = False
    yield
    check.SEPARATE_PROCESS = True


@pytest.fixture(scope="module")
def chromium():
    """Returns a browser whose camera shows a test picture."""
    sync_api = pytest.importorskip("playwright.sync_api", reason='pip install -e ".[web]"')
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    arguments += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Returns a function that makes a folder once for all workers of a run of the tests.

    `once(name, make)` calls `make(folder)` if no worker has, and returns what it returned. A test
    copies what it changes.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def get(name, make):
        folder, done = root / name, root / f"{name}.done"
        with filelock.FileLock(f"{folder}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # Where it failed before.
                folder.mkdir()
                done.write_bytes(pickle.dumps(make(folder)))
            return pickle.loads(done.read_bytes())  # noqa: S301

    return get


@pytest.fixture(scope="session")
def colors(once):
    """Pictures of three colours, `{train,test}/COLOR/*.png`: four and two of each."""
    from makers import write_classes

    return once("colors", lambda folder: write_classes(folder, {"train": 4, "test": 2}))


@pytest.fixture(scope="session")
def tiny(once):
    """The folder of a classifier of the three colours, with random weights."""
    import keras

    import keras_vit
    from makers import COLORS, tiny_config

    def make(folder):
        keras.utils.set_random_seed(0)
        model = keras_vit.build(tiny_config(), input_shape=(8, 8, 3), classes=3)
        model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
        known = keras_vit.Preprocessing((8, 8))
        keras_vit.save_classifier(folder / "tiny", model, tuple(COLORS), known)
        return folder / "tiny"

    return once("classifier_of_colors", make)


class Golden:
    """A folder of arrays that the official code computed; see golden/README.md."""

    def __init__(self, name):
        self.folder = ROOT / "tests" / "golden" / name

    @property
    def config(self):
        """The model's description by the code that made the arrays."""
        return json.loads((self.folder / "config.json").read_text())

    def load(self, file="expected.npz"):
        """Returns the arrays of a file by name."""
        with np.load(self.folder / file, allow_pickle=False) as arrays:
            return dict(arrays)

    def json(self, file):
        """Returns the content of a JSON file."""
        return json.loads((self.folder / file).read_text())

    def checkpoint(self):
        """Returns the checkpoint's arrays by name, drawn from their seed in file order."""
        recipe = self.json("checkpoint.json")
        rng = np.random.RandomState(recipe["seed"])
        return {
            entry["name"]: (
                entry["mean"] + entry["std"] * rng.standard_normal(entry["shape"])
            ).astype("float32")
            for entry in recipe["arrays"]
        }

    @property
    def vit_config(self):
        """The config of a model of the official code, a Vision Transformer or a hybrid."""
        from keras_vit.configs import ResNetStem, ViTConfig

        described, resnet = self.config, None
        if described.get("resnet_width_factor"):
            units = tuple(described["resnet_num_layers"] or ())
            resnet = ResNetStem(units, described["resnet_width_factor"])
        return ViTConfig(
            patch_size=tuple(described["patch_size"]),
            width=described["hidden_size"],
            depth=described["num_layers"],
            mlp_dim=described["mlp_dim"],
            num_heads=described["num_heads"],
            classifier=described["classifier"],
            representation_size=described["representation_size"],
            resnet=resnet,
        )

    def model(self, folder):
        """Returns the Vision Transformer or hybrid with the checkpoint's weights, giving logits.

        The checkpoint is written to `folder`.
        """
        import keras_vit

        config = self.config
        model = keras_vit.build(
            self.vit_config,
            classes=config["num_classes"],
            input_shape=(*config["image_size"], 3),
            classifier_activation=None,
        )
        path = folder / "checkpoint.npz"
        np.savez(path, **self.checkpoint())
        keras_vit.load_checkpoint(model, path)
        return model


@pytest.fixture(scope="session")
def golden():
    """Returns a function from a folder's name to its golden arrays."""
    return Golden


def _loss(model, images, labels):
    import keras

    scores = model(images)
    return keras.ops.mean(
        keras.losses.sparse_categorical_crossentropy(labels, scores, from_logits=True)
    )


def _loss_and_gradients(model, images, labels):
    import keras

    variables = model.trainable_variables
    if keras.backend.backend() == "jax":
        import jax

        def loss_of(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return _loss(model, images, labels)

        value_and_grad = jax.jit(jax.value_and_grad(loss_of))
        loss, values = value_and_grad([variable.value for variable in variables])
    elif keras.backend.backend() == "torch":
        model.zero_grad()
        loss = _loss(model, images, labels)
        loss.backward()
        values = [variable.value.grad for variable in variables]
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = _loss(model, images, labels)
        values = tape.gradient(loss, [variable.value for variable in variables])
    gradients = {
        variable.path: None if value is None else keras.ops.convert_to_numpy(value)
        for variable, value in zip(variables, values, strict=True)
    }
    return float(loss), gradients


@pytest.fixture(scope="session")
def loss_and_gradients():
    """Returns a function `(model, images, labels)` to the softmax loss and its gradients.

    The model gives logits. Gradients are arrays by the variable's path, None where none
    flows; on the backend that Keras runs on.
    """
    return _loss_and_gradients


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A fake Hugging Face Hub, with an empty cache, to which a token may write."""
    pytest.importorskip("huggingface_hub")
    from fake_hub import TOKEN, FakeHub
    from huggingface_hub import constants

    from keras_vit.hub import repositories

    server = FakeHub()
    for name, value in {
        "ENDPOINT": server.address,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "hub_cache"),
        "HF_TOKEN_PATH": str(tmp_path / "no_token"),
        "HF_HUB_DISABLE_XET": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    server.forget = repositories._downloaded.cache_clear  # As another process.
    server.forget()
    yield server
    server.close()
    server.forget()
