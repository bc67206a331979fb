"""`bom.json` of a run, by the schema of CycloneDX 1.6."""

import hashlib
import json

import pytest

from keras_vit.description import Description, Labels
from keras_vit.training.run.bill_of_materials import bill_of_materials
from keras_vit.training.run.classifier_jobs import finetune
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes

RECIPE = {
    "images": {"train": 8, "test": 20},
    "data": {"data": "photos"},
    "test": {"images": 20, "top_1": 0.95, "top_5": 1.0},
    "versions": {"keras_vit": "0.1.0", "python": "3.12.1", "tensorflow": "2.20.0"},
}


def described(**changes):
    labels = Labels(("cat", "dog"), "multiclass")
    fields = {"name": "ViT-B/16", "input_shape": (8, 8, 3), "classes": 2, "labels": labels}
    return Description(**fields, **changes)


def test_a_run_writes_its_bill_without_paths(tmp_path):
    data = write_classes(tmp_path / "secret" / "photos", {"train": 4, "test": 2})
    settings = FineTuning(
        model=tiny_config(), weights=None, image_size=(12, 8), steps=1, batch_size=4, accumulate=1
    )
    finetune(data, tmp_path / "run", settings, log=len)
    text = (tmp_path / "run" / "bom.json").read_text()
    assert "secret" not in text
    assert (
        "/"
        not in json.loads(text)["metadata"]["component"]["modelCard"]["modelParameters"][
            "datasets"
        ][0]["name"]
    )
    digest = hashlib.sha256((tmp_path / "run" / "model.keras").read_bytes()).hexdigest()
    assert json.loads(text)["metadata"]["component"]["hashes"][0]["content"] == digest


def test_accuracies_have_their_intervals_and_the_licence_is_stated():
    model = bill_of_materials(described(licence="Apache-2.0"), RECIPE, "0" * 64)["metadata"]
    metrics = model["component"]["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert metrics[0] == {
        "type": "top_1",
        "value": "0.95",
        "confidenceInterval": {"lowerBound": "0.763869", "upperBound": "0.991119"},
    }
    assert model["component"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    unknown = bill_of_materials(described(), RECIPE, "0" * 64)["metadata"]["component"]
    assert "licenses" not in unknown


def test_the_bill_fits_the_schema_of_cyclonedx():
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    for recipe in (RECIPE, {**RECIPE, "test": None}):
        text = json.dumps(bill_of_materials(described(licence="Apache-2.0"), recipe, "0" * 64))
        assert validator.validate_str(text) is None
    wrong = text.replace("machine-learning-model", "model of a machine")
    assert validator.validate_str(wrong) is not None
