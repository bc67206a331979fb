"""`--log-to`: what each tracker records of a run, on this machine and without a network."""

import dataclasses
import json
import sqlite3
import sys

import pytest
import tensorflow as tf

from keras_vit import command_line
from keras_vit.training.run.classifier_jobs import finetune
from keras_vit.training.run.run_options import TRACKER_NAMES
from keras_vit.training.run.trackers import TRACKERS, SafeTracker
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes

SETTINGS = FineTuning(
    model=tiny_config(),
    weights=None,
    image_size=(12, 8),
    steps=2,
    batch_size=6,
    accumulate=1,
    learning_rate=1e-6,
    evaluate_every=1,
    validation=0.2,
    augmentation="flip",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("data"), {"train": 10, "test": 4})


def run(data, output, **options):
    settings = dataclasses.replace(SETTINGS, **options.pop("settings", {}))
    return finetune(data, output, settings, log=len, **options)


def summaries(folder):
    """The names of what is in the event files of a folder, with their values."""
    found = {}
    for path in folder.glob("*.tfevents*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            found |= {value.tag: value for value in event.summary.value}
    return found


def test_the_names_are_the_keys_of_the_table():
    assert tuple(TRACKERS) == TRACKER_NAMES


def test_tensorboard_has_recipe_card_and_pictures(data, tmp_path):
    run(data, tmp_path / "run", log_to="tensorboard")
    found = summaries(tmp_path / "run" / "tensorboard")
    assert {"loss", "validation_accuracy", "recipe.json", "model_card.md"} <= found.keys()
    width, height, first, *_ = tf.make_ndarray(found["first batch"].tensor)
    assert (width, height, first[:4]) == (b"8", b"12", b"\x89PNG")
    assert b"## Accuracy" in tf.make_ndarray(found["model_card.md"].tensor)[0]
    assert str(data).encode() not in tf.make_ndarray(found["recipe.json"].tensor)[0]


def test_without_samples_no_picture_goes_to_a_tracker(data, tmp_path):
    run(data, tmp_path / "run", log_to="tensorboard", settings={"samples": "none"})
    found = summaries(tmp_path / "run" / "tensorboard")
    assert "recipe.json" in found
    assert "first batch" not in found
    assert "most confident errors" not in found


def test_wandb_offline_has_rows_recipe_card_and_pictures(data, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run(data, tmp_path / "run", log_to="wandb")
    (record,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = record.read_bytes()
    for text in (b"validation_accuracy", b"learning_rate", b"first batch", b"## Accuracy"):
        assert text in content
    assert len(list((tmp_path / "wandb").rglob("*.png"))) >= 6
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert recipe["tracker"]["run"] in record.name


def test_mlflow_in_a_local_store_has_rows_recipe_card_and_pictures(data, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    run(data, tmp_path / "run", log_to="mlflow")
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    client = mlflow.MlflowClient()
    found = client.get_run(recipe["tracker"]["run"])
    assert found.info.status == "FINISHED"
    assert len(client.get_metric_history(found.info.run_id, "loss")) == 2
    folder = tmp_path / "store"
    assert next(iter(folder.rglob("model_card.md"))).read_text().startswith("# ")
    assert len(list((folder).rglob("first_batch/*.png"))) == 6


def test_trackio_has_rows_recipe_card_and_pictures(data, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    run(data, tmp_path / "colors", log_to="trackio")
    (path,) = (tmp_path / "trackio").glob("keras-vit*.db")
    found = sqlite3.connect(path).execute("select metrics from metrics")
    rows = [row[0].decode() if isinstance(row[0], bytes) else row[0] for row in found]
    assert sum('"validation_accuracy"' in row for row in rows) == 2
    assert any("model_card.md" in row for row in rows)
    assert any("first batch 0" in row for row in rows)


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_missing_package_is_one_line_before_the_run(name, data, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, name, None)
    arguments = ["finetune", "--data", data, "--output", tmp_path / "run", "--log-to", name]
    assert command_line.main(list(map(str, arguments))) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if f"pip install {name}" in line]) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_tracker_is_one_line(data, tmp_path):
    with pytest.raises(ValueError, match="log_to must be one of .*wandb"):
        run(data, tmp_path / "run", log_to="paper")


class Failing:
    run = "x"

    def __init__(self, *arguments):
        pass

    def add(self, step, numbers):
        raise OSError("no network\nat all")


def test_a_tracker_that_fails_does_not_stop_the_run(monkeypatch, tmp_path):
    monkeypatch.setitem(TRACKERS, "wandb", (Failing, "sys"))
    tracker = SafeTracker("wandb", "run", tmp_path)
    with pytest.warns(UserWarning, match="the run goes on without it: no network at all"):
        tracker.add(1, {"loss": 1.0})
    tracker.add(2, {"loss": 1.0})
    tracker.close()


def test_a_resumed_run_has_the_same_record(data, tmp_path, monkeypatch):
    opened = []

    class Recorded(Failing):
        def __init__(self, title, folder, run):
            opened.append(run)
            self.run = run or "abc"
            self.add = self.text = self.pictures = self.close = lambda *arguments: None

    monkeypatch.setitem(TRACKERS, "wandb", (Recorded, "sys"))
    monkeypatch.setitem(sys.modules, "wandb", sys)

    class Stop(__import__("keras").callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        run(data, tmp_path / "run", log_to="wandb", callbacks=[Stop()])
    finetune(str(data), tmp_path / "run", resume=True, log=len)
    assert opened == [None, "abc"]
