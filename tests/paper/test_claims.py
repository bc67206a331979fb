"""The study of paper/claims/README.md: its page, its verdicts and the choice of learning rates."""

import dataclasses
import importlib
import pathlib

import numpy as np
import pytest
import scipy.stats

from makers import write_classes

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "paper" / "claims"


@pytest.fixture
def module(monkeypatch):
    """A function from a name to a module of the study."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_the_page_shows_the_committed_results(module):
    report = module("report")
    text = report.PAGE.read_text(encoding="utf-8")
    shown = report.page(text, module("trainings").Results())
    assert shown == text, "python paper/claims/report.py"
    for name in module("claims").CLAIMS:
        assert f"<!-- table {name} -->" in text
        assert f"\n## {name.replace('_', ' ').capitalize()}\n" in text  # Linked from the table.


def test_every_training_has_fields_that_exist(module):
    claims = module("claims")
    from keras_vit.configs import BiTConfig, ViTConfig
    from keras_vit.training.settings import MaskedPatches

    kinds = (BiTConfig, ViTConfig, MaskedPatches)
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    cases = [*claims.CLAIMS.values()]
    assert cases
    for claim in cases:
        for side in claim.sides.values():
            own = set(side.changes) - known
            assert own <= {"images", "classes", "start", "few_shot"}
            claims.config_of(side.changes)


def test_a_difference_is_seen_where_a_t_test_sees_it(module):
    report = module("report")
    rng = np.random.default_rng(0)
    seen = set()
    for shift in (0.0, 1.0, 3.0):
        sides = {"a": rng.normal(shift, 1, 3), "b": rng.normal(0, 1, 3)}
        value, _, least = report.contrast({"a": 1, "b": -1, "unused": 0}, sides)
        p = scipy.stats.ttest_ind(sides["a"], sides["b"]).pvalue
        assert (abs(value) > least) == (p < 0.05)
        seen.add(p < 0.05)
    assert seen == {False, True}
    assert report.sign_verdict(1.0, 0.5) == "reproduced"
    assert report.sign_verdict(-1.0, 0.5) == "contradicted"
    assert report.sign_verdict(-1.0, 2.0) == "not seen at this size"


def test_rates_are_added_while_the_best_is_the_last(module, tmp_path):
    trainings, claims = module("trainings"), module("claims")
    claim = claims.Claim(
        "", "", {"body": claims.Side(), "tuned": claims.Side({"start": "body"})}, ()
    )
    results = trainings.Results(tmp_path / "results.json")
    best = 1e-2  # Two steps above the middle.
    for _ in range(20):
        for _, run in list(trainings.missing(claim, results)):
            rate = run["learning_rate"]
            results.add(run, {"validation": -abs(np.log(rate / best)), "test": 0.5})
    again = trainings.Results(results.path)
    assert trainings.rates_of(claim, "body", again) == ([3e-4, 1e-3, 3e-3, 1e-2, 3e-2], best)
    assert len(trainings.finished(claim, "tuned", again)) == len(claims.SEEDS)
    assert not list(trainings.missing(claim, again))
    run = trainings.run_of(claim, "tuned", best, 1, again)
    assert run["start"] == {"learning_rate": best, "seed": 1}


@pytest.mark.slow
def test_every_kind_of_training_runs(module, tmp_path):
    training_run, trainings = module("training_run"), module("trainings")
    labels = dict.fromkeys("0123")
    write_classes(tmp_path / "data", {"train": 20, "test": 4}, labels, size=(32, 32))
    file = tmp_path / "images.npz"
    training_run.decode(str(tmp_path / "data"), file)

    def train(keep=False, **changes):
        run = {"steps": 2, "batch_size": 4, "width": 8, "depth": 1, "learning_rate": 1e-3}
        run |= {"seed": 0, **changes}
        return run, training_run.train(run, file, tmp_path, keep)

    body, colours = train(keep=True, target="mean-color", global_clipnorm=None)
    assert trainings.model_file(tmp_path, body).exists()
    assert 0 <= colours["test"] <= 1
    _, tuned = train(start=body, images=8)
    assert np.shape(tuned["attention_distance"]) == (1, 4)  # (layers, heads)
    upstream, result = train(keep=True, classes=[0, 2], few_shot=[1, 3])
    assert 0 <= result["few_shot"] <= 1
    higher = train(start=upstream, classes=[1, 3], image_size=32, optimizer="sgd")
    assert higher[1]["validation"] in (0, 0.25, 0.5, 0.75, 1)  # Two images of each class.
    units = {"num_blocks": [1], "width_factor": 0.5}
    train(**units)
    train(resnet=units, patch_size=2)
    train(ema_momentum=0.9)
    _, diverged = train(optimizer="sgd", learning_rate=1e30, global_clipnorm=None)
    assert diverged["diverged"] == 2
