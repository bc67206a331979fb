import os

import pytest

from keras_vit.checkpoints.catalogue import RELEASED

FOLDER = RELEASED[0].folder


def test_commands_take_the_released_classifier_by_name(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample = sorted((FOLDER / "samples").iterdir())[0]
    outcome = command("predict", "cifar10", os.fspath(sample), "--top", "10")
    assert outcome.code == 0
    assert all(name in outcome.out for name in ("airplane", "truck"))


@pytest.mark.slow
def test_it_is_exported_and_checked_on_its_own_samples(command, tmp_path):
    pytest.importorskip("ai_edge_litert")
    outcome = command(
        "export",
        "cifar10",
        "--to",
        "tflite",
        "--precision",
        "dynamic_int8",
        "--output",
        tmp_path / "m.tflite",
    )
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "m.tflite").stat().st_size < 4_000_000
