"""`README.md` of a run, whose names of classes and data are of others."""

import json

import numpy as np
import pytest

from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.reports.pages import report_section
from keras_vit.training.evaluation.reports_by_task import ClassificationReport
from keras_vit.training.run.card import masked_patch_card, model_card, run_report

PICTURE = '<img src="https://tracker.example/x.png">'
LINK = "[here](https://tracker.example)"


def recipe(**changes):
    fields = {
        "job": "finetune",
        "model": "ViT-Ti/16",
        "settings": {"image_size": (8, 8), "weights": "imagenet21k"},
        "facts": {
            "evaluation": Fact("resize", "the default"),
            "pixels": Fact((-1.0, 1.0), "the weights"),
            "class_weight": Fact({PICTURE: 2.0, LINK: 0.5}, "balanced"),
        },
        "data": {"data": f"photos`{PICTURE}"},
        "images": {"train": 4, "validation": 0, "test": 4, "skipped": 0},
        "description": {"license": PICTURE},
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture(scope="module", params=[PICTURE, LINK])
def card(request):
    """The card of a run most of whose images are of a class with that name."""
    report = ClassificationReport(
        class_names=(request.param, "dog"),
        true=np.array([0] * 9 + [1]),
        given=np.array([0] * 10),
        probability=np.full(10, 0.9),
        loss=0.5,
        in_top_5=10,
    )
    text = model_card(recipe(), report.class_names, report)
    assert "better than always " in text
    assert "of them are " in text
    return text


def test_a_class_name_is_no_html_in_the_card(card):
    outside_code = "".join(card.split("`")[::2])
    assert "<" not in outside_code


def test_a_class_name_is_no_link_in_the_card(card):
    assert "](" not in card


def test_the_name_of_the_data_stays_within_its_code(card):
    line, *_ = [line for line in card.splitlines() if "images to train" in line]
    assert line.startswith(f"`photos'{PICTURE}`: 4 images to train")


TINT = {"tint": Fact("ultramarine", "the sky")}


@pytest.fixture(scope="module")
def with_new_fact():
    """A run with one fact more, in each form that it is given out."""
    record = recipe(facts=recipe().facts | TINT)
    report = run_report(record)
    return {
        "plan": report.aligned(),
        "card": model_card(record, ("cat", "dog"), None),
        "card of masked patches": masked_patch_card(record, []),
        "page": report_section(report),
        "JSON": json.dumps(report.to_json()),
        "CSV": str(report.table_of_facts().rows),
        "recipe.json": json.dumps(record.to_json()),
    }


@pytest.mark.parametrize(
    "form",
    ["plan", "card", "card of masked patches", "page", "JSON", "CSV", "recipe.json"],
)
def test_a_new_fact_of_a_run_is_in_every_form(with_new_fact, form):
    for text in ("tint", "ultramarine", "the sky"):
        assert text in with_new_fact[form]


def test_the_card_of_masked_patches_holds_the_name_of_the_data_in_code_too():
    text = masked_patch_card(recipe(), [])
    assert f"Data: `photos'{PICTURE}`, 4 images" in text
