import sys

import pytest

from keras_vit.commands.benchmark import _bytes
from keras_vit.training.paper import cost
from keras_vit.training.paper.cost_results import Measurement


@pytest.fixture
def measured(monkeypatch):
    """Every cell gets the same made-up measurement."""
    found = Measurement(4, (10.0, 11.0, 9.0), {"4": 10.0}, 2**20, 16, 17, "CPU", 1.0)
    monkeypatch.setattr(cost, "measure", lambda cell, plan: found)


def test_tables_and_plots_are_written_and_listed(command, measured, tmp_path):
    output = tmp_path / "out"
    arguments = ("ViT-Ti/16", "--sizes", 32, 64, "--mode", "inference", "training")
    outcome = command("benchmark", *arguments, "--output", output)
    assert outcome.code == 0, outcome.err
    assert "4/4 ViT-Ti/16 at 64 pixels, training, float32: 10 images/s at batch 4" in outcome.out
    assert "| ViT-Ti/16 | 10 (9 to 11) at 4 | 10 (9 to 11) at 4 |" in outcome.out
    drawn = {
        f"{name}_{mode}_float32.{suffix}"
        for name in ("images_per_second", "largest_batch")
        for mode in ("inference", "training")
        for suffix in ("png", "svg")
    }
    written = {path.name for path in output.iterdir()}
    assert written == drawn | {"benchmark.json", "benchmark.csv", "benchmark.md"}
    again = command("benchmark", *arguments, "--output", output, "--no-pictures")
    assert "4 of 4 are in" in again.out


def test_wrong_input_is_an_error_of_one_line(refused, measured, tmp_path, monkeypatch):
    output = ("--output", tmp_path / "out")
    assert "Nearest: ViT-B/16, ViT-b/16" in refused("benchmark", "ViT-B16", *output)
    assert "4GiB" in refused("benchmark", "--memory", "much", *output)
    assert "14 pixels or more" in refused("benchmark", "ViT-H/14", "--sizes", 8, *output)
    (tmp_path / "file").write_text("")
    assert "must be a folder" in refused("benchmark", "--output", tmp_path / "file")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "[plots]" in refused("benchmark", *output)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4GiB", 2**32), ("900 MiB", 900 * 2**20), ("1.5gb", 1_500_000_000), ("none", None)],
)
def test_sizes_of_memory_are_read(text, expected):
    assert _bytes(text) == expected
