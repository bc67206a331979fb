import csv
import io
import sys

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.training import machine
from keras_vit.training.paper import cost
from keras_vit.training.paper.cost_results import (
    BenchmarkCell,
    BenchmarkResults,
    Measurement,
    draw_batches,
    draw_rates,
)
from makers import tiny_config

PLAN = cost.BenchmarkPlan(models=("ViT-Ti/16", "BiT-R50x1"), sizes=(64, 32), runs=3, memory=2**30)


def measured(cell, plan):
    rate = 1e6 / cell.image_size**2
    return Measurement(8, (rate, 1.1 * rate, 0.8 * rate), {"8": rate}, 5 * 2**20, 24, 25, "CPU", 1)


@pytest.fixture
def asked(monkeypatch):
    """Cells that are measured, of which the measurement is made up."""
    cells = []

    def measure(cell, plan):
        cells.append(cell)
        return measured(cell, plan)

    monkeypatch.setattr(cost, "measure", measure)
    return cells


def test_a_run_that_was_stopped_goes_on_with_what_is_missing(asked, tmp_path, monkeypatch):
    once = cost.measure

    def stopped_at_the_third(cell, plan):
        if len(asked) == 2:
            raise KeyboardInterrupt
        return once(cell, plan)

    monkeypatch.setattr(cost, "measure", stopped_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        cost.benchmark(tmp_path, PLAN, log=lambda line: None)
    assert list(BenchmarkResults(tmp_path).cells) == asked
    first = BenchmarkResults(tmp_path).cells

    monkeypatch.setattr(cost, "measure", once)
    messages = []
    results = cost.benchmark(tmp_path, PLAN, log=messages.append)
    assert asked == PLAN.cells() == list(results.cells)  # None of them twice.
    assert messages[0].startswith("2 of 4 are in")
    assert {cell: results.cells[cell] for cell in first} == first
    assert BenchmarkResults(tmp_path).cells == results.cells


def test_another_setting_is_refused(asked, tmp_path):
    cost.benchmark(tmp_path, PLAN, log=lambda line: None)
    other = cost.BenchmarkPlan(models=PLAN.models, sizes=PLAN.sizes, runs=3, memory=2**31)
    with pytest.raises(ValueError, match=r"memory \(1073741824, not 2147483648\)"):
        cost.benchmark(tmp_path, other)
    (tmp_path / "benchmark.json").write_text("[]")
    with pytest.raises(ValueError, match="must be the file of a benchmark"):
        cost.benchmark(tmp_path, PLAN)


def test_tables_have_median_and_spread(asked, tmp_path):
    results = cost.benchmark(tmp_path, PLAN, log=lambda line: None)
    (row, *_) = csv.DictReader(io.StringIO((tmp_path / "benchmark.csv").read_text()))
    assert (row["model"], row["image_size"], row["runs"]) == ("ViT-Ti/16", "64", "3")
    assert [row[name] for name in ("lowest", "images_per_second", "highest")] == [
        "195.3", "244.1", "268.6"
    ]  # fmt: skip
    assert (row["largest_batch"], row["too_large_batch"], row["peak_mib"]) == ("24", "25", "5")
    table = (tmp_path / "benchmark.md").read_text()
    assert "| model | 32 px | 64 px |" in table
    assert "| BiT-R50x1 | 977 (781 to 1.07e+03) at 8 | 244 (195 to 269) at 8 |" in table
    for name in ("processor", "threads", "memory", "tensorflow", "keras"):
        assert name in table
    results.add(
        BenchmarkCell("ViT-S/16", 64), Measurement(0, (), {}, 0, 0, 1, "CPU", 1, "1: killed")
    )
    assert "does not fit" in results.to_markdown()


def test_figures_have_a_line_for_each_model_on_logarithmic_scales(asked, tmp_path):
    results = cost.benchmark(tmp_path, PLAN, log=lambda line: None)
    (axes,) = draw_rates(results, "inference", "float32").axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == set(PLAN.models)
    np.testing.assert_allclose(lines["ViT-Ti/16"].get_xdata(), [32, 64])
    np.testing.assert_allclose(lines["ViT-Ti/16"].get_ydata(), [1e6 / 32**2, 1e6 / 64**2])
    (axes,) = draw_batches(results, "inference", "float32").axes
    assert set(axes.get_lines()[0].get_ydata()) == {24}
    assert "1 GiB" in axes.get_title()
    assert draw_rates(results, "training", "float32") is None


def test_a_plan_that_cannot_be_met_is_refused_at_once():
    for arguments, message in (
        ({"models": ("ViT-X/16",)}, "ViT-X/16"),
        ({"sizes": (8,)}, "must be of"),
        ({"sizes": ()}, "positive"),
        ({"modes": ("both",)}, "modes"),
        ({"precision": "int8"}, "precision"),
        ({"memory": 0}, "memory must be positive"),
        ({"runs": 0}, "runs"),
    ):
        with pytest.raises(ValueError, match=message):
            cost.BenchmarkPlan(**arguments)
    assert {"ViT-H/14", "BiT-R152x2", "R50+ViT-L/16", "Axial-ViT-B/16"} <= set(
        cost.BenchmarkPlan().models
    )


def test_a_process_that_has_just_ended_has_no_memory():
    assert machine._bytes("Name:\tpython\nState:\tZ (zombie)\n", "VmRSS") == 0
    assert machine._bytes("VmRSS:\t     12 kB\n", "VmRSS") == 12 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's count of memory")
@pytest.mark.slow
def test_a_child_that_takes_too_much_dies_and_the_parent_lives():
    child = cost.MeasuringProcess(BenchmarkCell("ViT-Ti/16", 32), threads=1, budget=None)
    try:
        rates, memory = child.time(2, runs=2, min_seconds=0.01)
        assert child.device == "CPU"
        assert len(rates) == 2
        assert min(rates) > 0
        assert memory >= machine.process_memory(child.process.pid) - 2**20
        child.budget = memory + 100 * 2**20
        assert child.time(4, runs=0, min_seconds=0)[0] == []
        assert child.time(2**15, runs=0, min_seconds=0) is None  # 400 MB of images alone.
        assert "more than the memory given" in child.note
        assert not child.process.is_alive()
        assert child.time(2, runs=1, min_seconds=0) is None  # An ended process gives no result.
    finally:
        child.close()


@pytest.fixture
def small_model(monkeypatch):
    """Steps of a tiny model for any cell."""
    from keras_vit.training.paper import cost_steps

    def build(name, **arguments):
        return keras_vit.build(tiny_config(), **arguments)

    monkeypatch.setattr(cost_steps, "build", build)
    return cost_steps.CostSteps


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_training_step_trains_on_the_batch(small_model, precision):
    before = keras.config.dtype_policy()
    steps = small_model("any", 8, "training", precision)
    assert keras.config.dtype_policy() == before
    values = steps.step_of(3)()
    assert any(np.isclose(value, np.log(1000), rtol=1e-3) for value in values)  # A zero head.
    rates, memory = steps.time(5, runs=2, min_seconds=0.0)
    assert len(rates) == 2
    assert memory > 0


def test_an_inference_step_gives_probabilities_of_the_batch(small_model):
    found = small_model("any", 8).step_of(3)()
    np.testing.assert_allclose(found.sum(axis=-1), np.ones(3), rtol=1e-5)
