"""`bom.json`: the CycloneDX bill of materials of a finished run, a machine-learning model."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_vit.configs import BiTConfig
from keras_vit.description import Description
from keras_vit.description.licences import UNKNOWN
from keras_vit.description.tasks import MULTILABEL
from keras_vit.training.evaluation.intervals import accuracies
from keras_vit.utils.files import MODEL, write_text

BOM = "bom.json"
_SPECIFICATION = "1.6"
_DISTRIBUTIONS = {"keras_vit": "keras-vit-applications"}  # Where they differ from the module.


def write_bill_of_materials(
    folder: pathlib.Path, description: Description, recipe: Mapping[str, Any]
) -> None:
    """Writes `bom.json` beside the model card: the model, its data, licence and packages.

    CycloneDX 1.6, https://cyclonedx.org/docs/1.6/json/. It has no time and no serial number, so
    that the same run writes the same file, and no paths and no photos.

    Args:
        folder: The folder, with `model.keras`.
        description: What the model is.
        recipe: The finished run's recipe, without paths.
    """
    with open(folder / MODEL, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    content = bill_of_materials(description, recipe, digest)
    write_text(folder / BOM, json.dumps(content, indent=2) + "\n")


def bill_of_materials(
    description: Description, recipe: Mapping[str, Any], digest: str
) -> dict[str, Any]:
    """Returns the content of `bom.json`.

    Args:
        description: What the model is.
        recipe: The finished run's recipe, without paths.
        digest: The SHA-256 of `model.keras`, in hexadecimal digits.
    """
    labels, images = description.labels, recipe["images"]
    is_multilabel = labels.task == MULTILABEL
    data = {"type": "dataset", "bom-ref": "data", "name": str(recipe["data"]["data"])}
    counts = ", ".join(f"{count} {part}" for part, count in images.items())
    contents = {"contents": {"properties": [{"name": "images", "value": counts}]}}
    family = "residual network" if isinstance(description.config, BiTConfig) else "transformer"
    parameters: dict[str, Any] = {
        "approach": {"type": "supervised"},
        "task": "multi-label classification" if is_multilabel else "classification",
        "architectureFamily": family,
        "modelArchitecture": description.name,
        "datasets": [{**data, **contents}],
        "inputs": [{"format": "image {}x{}x{}".format(*(description.input_shape or "???"))}],
        "outputs": [{"format": f"{len(labels.names or ())} probabilities"}],
    }
    card: dict[str, Any] = {"bom-ref": "model-card", "modelParameters": parameters}
    if metrics := _metrics(recipe.get("test")):
        card["quantitativeAnalysis"] = {"performanceMetrics": metrics}
    model: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": description.name,
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "modelCard": card,
    }
    if description.licence != UNKNOWN:
        model["licenses"] = [{"license": {"name": description.licence}}]
    packages = [_package(name, version) for name, version in recipe["versions"].items()]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _SPECIFICATION,
        "version": 1,
        "metadata": {"component": model},
        "components": packages,
        "dependencies": [{"ref": "model", "dependsOn": [part["bom-ref"] for part in packages]}],
    }


def _metrics(test):
    """The accuracies on the test images with their 95% intervals by Wilson, as texts."""
    found = []
    for name, value, interval in accuracies(test):
        metric: dict[str, Any] = {"type": name, "value": f"{value:.6g}"}
        if interval is not None:
            low, high = (f"{bound:.6g}" for bound in interval)
            metric["confidenceInterval"] = {"lowerBound": low, "upperBound": high}
        found.append(metric)
    return found


def _package(name, version):
    distribution = _DISTRIBUTIONS.get(name, name)
    if name == "python":
        return {"type": "platform", "bom-ref": name, "name": name, "version": version}
    address = f"pkg:pypi/{distribution}@{version}"
    return {
        "type": "library",
        "bom-ref": address,
        "name": distribution,
        "version": version,
        "purl": address,
    }
