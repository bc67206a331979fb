"""What runs say of photos that show one thing, by how their parts came about."""

import json

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.run.finetune import finetune
from keras_vit.training.settings import FineTuning
from makers import write_exposures

THINGS, EXPOSURES = 20, 3
NAMES = [
    f"{('good', 'bad')[thing % 2]}/{thing}_{exposure}.png"
    for thing in range(THINGS)
    for exposure in range(EXPOSURES)
]
CROSSING = {name: "test" if name.endswith("_2.png") else "train" for name in NAMES}
CROSSING |= {name: "test" for name in NAMES if name.startswith(("good/0_", "bad/1_"))}
RUNS = {
    "drawn": {},
    "given": {"split": CROSSING},
    "grouped": {"group_by": r"_(\d)"},
    "ignored": {"split": CROSSING, "copies": "ignore"},
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of 20 surfaces, each at three exposures; classes by lot."""
    folder = tmp_path_factory.mktemp("exposures") / "photos"
    assert write_exposures(folder, THINGS, EXPOSURES) == NAMES
    return folder


@pytest.fixture(scope="module")
def runs(photos, tiny, tmp_path_factory):
    """Each run with its printed lines."""
    settings = FineTuning(
        weights=str(tiny), image_size=(8, 8), steps=1, batch_size=8, samples="none"
    )
    done = {}
    for name, options in RUNS.items():
        lines = []
        output = tmp_path_factory.mktemp("runs") / name
        run = finetune(str(photos), output, settings, log=lines.append, **options)
        done[name] = run, "\n".join(map(str, lines))
    return done


EXPECTED = {
    "drawn": "60 photos show 20 things, kept together",
    "given": "6 of them show things that were not trained on: ",
    "grouped": "none of them shows a thing that was not trained on",
    "ignored": "copies were not looked for (--copies ignore)",
}


@pytest.mark.parametrize("where", ["output", "README.md", "report.html"])
@pytest.mark.parametrize("name", RUNS)
def test_each_place_of_a_result_says_what_it_says_of_new_things(runs, name, where):
    run, output = runs[name]
    text = output if where == "output" else (run.folder / where).read_text()
    assert EXPECTED[name] in text.replace("None of", "none of").replace(
        "Copies were", "copies were"
    )


def test_parts_that_are_drawn_share_no_things(runs):
    run, output = runs["drawn"]
    assert not run.report.is_shown_before.any()
    assert "were not trained on" not in output


def test_what_crosses_given_parts_is_counted_in_the_plan(runs):
    _, output = runs["given"]
    assert "18 of the 24 test images show things of which others are trained on" in " ".join(
        output.split()
    )


def test_the_record_has_the_number_of_new_things(runs):
    run, _ = runs["given"]
    tested = json.loads((run.folder / "recipe.json").read_text())["test"]
    assert tested["new_things"]["images"] == 6
    assert tested["seen"] == 18


def test_an_evaluation_of_the_data_of_the_run_says_it_again(runs, photos):
    run, _ = runs["given"]
    report = evaluate_classifier(run.classifier, str(photos))
    assert report.is_shown_before.sum() == 18
    assert "6 of them show things that were not trained on" in str(report)


def test_an_evaluation_of_other_photos_recalls_the_test_of_the_run(runs, photos, tmp_path):
    run, _ = runs["drawn"]
    for name in NAMES[:8]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = np.asarray(Image.open(photos / name))[::-1]
        Image.fromarray(pixels).save(tmp_path / name)
    text = str(evaluate_classifier(run.classifier, str(tmp_path)))
    assert "on the test images of the run" in text
