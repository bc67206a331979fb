import csv

import cost
import pytest


@pytest.mark.parametrize("limit", [1, 5, 17, 100, 1000])
def test_the_largest_batch_is_found_to_a_sixteenth(limit):
    found = cost.largest_batch(lambda batch: batch <= limit, 1)
    assert found <= limit < found + max(1, found // 16) + 1


def test_batches_double_until_the_rate_stops_growing(monkeypatch):
    rates = {1: 10.0, 2: 15.0, 4: 20.0, 8: 20.1}
    asked = []

    def run_batch(model, size, mode, batch, runs, memory):
        asked.append((batch, runs))
        return [rates[batch] + k for k in range(max(1, runs))]

    monkeypatch.setattr(cost, "run_batch", run_batch)
    found = cost.measure("ViT-Ti/16", 32, "inference", 3, None)
    assert asked == [(1, 1), (2, 1), (4, 1), (8, 1), (8, 3)]
    assert found == {"batch": "8", "images_per_second": "21.1", "lowest": "20.1", "highest": "22.1"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_row_is_measured_once_and_drawn(mode, tmp_path, capsys):
    arguments = ["ViT-Ti/16", "--sizes", "32", "--mode", mode, "--runs", "2"]
    cost.main([*arguments, "--output", str(tmp_path)])
    (row,) = csv.DictReader((tmp_path / "cost.csv").open())
    assert float(row["lowest"]) <= float(row["images_per_second"]) <= float(row["highest"])
    assert (tmp_path / f"images_per_second_{mode}.png").exists()
    capsys.readouterr()
    cost.main([*arguments, "--output", str(tmp_path)])
    assert capsys.readouterr().out == ""  # Nothing is measured again.


@pytest.mark.slow
def test_a_batch_beyond_the_memory_does_not_fit():
    assert cost.run_batch("ViT-Ti/16", 32, "inference", 1, 0, 0.1) is None
