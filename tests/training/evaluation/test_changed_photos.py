"""The test of docs/unknown.md for photos that change, on features that `keras-vit embed` writes."""

import pathlib
import re

import numpy as np
import pytest

from keras_vit.training.evaluation.embeddings import write_features

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "unknown.md"
FACTS = {"model": "a", "weights_sha256": "b", "feature": "pre_logits"}


@pytest.fixture
def p_value(tmp_path, monkeypatch):
    """Returns the p-value that the page's program prints for the features of two weeks."""
    block = re.search(r"```python\n(import numpy.*?ks_2samp.*?)```", PAGE.read_text(), re.S)[1]
    monkeypatch.chdir(tmp_path)

    def compute(*weeks):
        for number, values in zip((31, 32), weeks, strict=True):
            names = [f"{place}.jpg" for place in range(len(values))]
            arrays = {"names": names, "features": values.astype("float32"), **FACTS}
            write_features(f"week{number}.npz", arrays)
        found = {}
        exec(block, found)
        return found["p_value"]

    return compute


def features(seed, count=150, dim=24):
    return np.random.default_rng(seed).normal(size=(count, dim)) * np.geomspace(4, 1, dim)


def test_weeks_drawn_alike_are_called_changed_as_often_as_the_level_allows(p_value, capsys):
    found = [p_value(features(seed), features(1000 + seed)) for seed in range(100)]
    assert sum(p <= 0.05 for p in found) <= 9  # The 95% quantile of 100 draws of 5%.
    assert "no change found" in capsys.readouterr().out


@pytest.mark.parametrize("change", [lambda x: x + 1, lambda x: 2 * x])
def test_another_mean_or_spread_is_a_change(change, p_value, capsys):
    assert p_value(features(0), change(features(1))) <= 0.01
    assert "changed" in capsys.readouterr().out
