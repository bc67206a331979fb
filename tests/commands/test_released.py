import os
import re

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
@pytest.mark.parametrize(
    ("to", "precision"), [("tflite", "dynamic_int8"), ("tflite", "int8"), ("onnx", "int8")]
)
def test_it_is_exported_and_checked_on_its_own_samples(command, tmp_path, to, precision):
    path = tmp_path / f"m.{to}"
    flags = ("--to", to, "--precision", precision, "--output", path)
    outcome = command("export", "cifar10", *flags)
    assert outcome.code == 0, outcome.err
    assert path.stat().st_size < 4_000_000
    # One image near the bound of "unknown" may become one that is answered.
    assert "unknown included; the bound on the errors was not tested" in outcome.out
    (row,) = re.findall(r"^serve +([\d.]+)%", outcome.out, flags=re.M)
    assert float(row) > 90
