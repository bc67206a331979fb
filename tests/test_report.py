import json
import math

import numpy as np
import pytest

from keras_vit.reports.report import NamedFact, Report, Table, align_columns
from keras_vit.training.evaluation.reports_by_task import ClassificationReport

ROWS = [("model", "tokens", "weights"), ("ViT-B/16", "197", "imagenet"), ("BiT-R50x1", "", "-")]


def test_columns_are_aligned_at_the_left_or_at_the_right():
    assert align_columns(ROWS, left=(0, -1)).splitlines() == [
        "model      tokens  weights",
        "ViT-B/16      197  imagenet",
        "BiT-R50x1          -",
    ]
    assert align_columns(ROWS).splitlines()[1] == "ViT-B/16   197     imagenet"


def test_facts_and_tables_are_text_json_and_csv(tmp_path):
    table = Table(("class", "images", "F1"), [("cat", 3, 0.51234567), ("=dog", 0, math.nan)])
    fact = NamedFact("top-1", "50%", "4 photos", {"top_1": 0.5})
    report = Report([fact], {"per_class": table}, "per_class", ["a note"])
    assert str(report).splitlines() == [
        "top-1   50% (4 photos)",
        "",
        "class  images      F1",
        "cat         3  0.5123",
        "=dog        0       -",
        "a note",
    ]
    written = report.write(tmp_path / "new")
    assert [path.name for path in written] == ["metrics.json", "facts.csv", "per_class.csv"]
    assert json.loads(written[0].read_text()) == {"top_1": 0.5}
    assert written[1].read_text() == "fact,value,origin\ntop-1,50%,4 photos\n"
    assert written[2].read_text() == "class,images,F1\ncat,3,0.512346\n'=dog,0,\n"


@pytest.fixture(scope="module")
def with_new_fact(tmp_path_factory):
    """An evaluation with one fact more, in each form that it is given out."""

    class WithTint(ClassificationReport):
        def facts(self):
            return [*super().facts(), NamedFact("tint", "ultramarine", "the sky")]

    report = WithTint(
        class_names=("cat", "dog"),
        true=np.array([0, 0, 1]),
        given=np.array([0, 1, 1]),
        probability=np.full(3, 0.9),
        loss=0.5,
        in_top_5=3,
    )
    folder = tmp_path_factory.mktemp("evaluation")
    report.write(folder)
    return {
        "terminal": str(report),
        "Markdown": report.report().to_markdown(),
        "HTML": (folder / "report.html").read_text(),
        "JSON": (folder / "metrics.json").read_text(),
        "CSV": (folder / "facts.csv").read_text(),
    }


@pytest.mark.parametrize("form", ["terminal", "Markdown", "HTML", "JSON", "CSV"])
def test_a_new_fact_of_an_evaluation_is_in_every_form(with_new_fact, form):
    assert "tint" in with_new_fact[form]
    assert "ultramarine" in with_new_fact[form]


@pytest.mark.parametrize("form", ["terminal", "Markdown", "HTML", "CSV"])
def test_the_origin_of_a_fact_is_where_people_read(with_new_fact, form):
    assert "the sky" in with_new_fact[form]


def test_classes_are_in_the_order_of_their_recall_on_a_page():
    report = ClassificationReport(
        class_names=("cat", "dog", "owl"),
        true=np.array([0, 0, 1]),
        given=np.array([0, 0, 0]),
        probability=np.full(3, 0.9),
        loss=0.5,
        in_top_5=3,
        trained=(5, 2, 1),
    )
    table = report.by_recall()
    assert [row[0] for row in table.rows] == ["dog", "cat", "owl"]
    assert (table.columns[-1], [row[-1] for row in table.rows]) == ("trained on", [2, 5, 1])
