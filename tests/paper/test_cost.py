import csv

import cost
import pytest


@pytest.mark.parametrize("limit", [1, 5, 17, 100, 1000])
def test_the_largest_batch_is_found_to_a_sixteenth(limit):
    found = cost.largest_batch(lambda batch: batch <= limit, 1)
    assert found <= limit < found + max(1, found // 16) + 1


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
