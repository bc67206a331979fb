"""`README.md` of a classifier on the Hugging Face Hub, with the YAML that the Hub reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.classifier_folder import LOADING
from keras_vit.description import Description
from keras_vit.description.licences import hub_licence, without_header
from keras_vit.hub.errors import import_hugging_face
from keras_vit.hub.repository_names import RepositoryName
from keras_vit.training.evaluation.intervals import accuracies

from .model_card import loading_block

TASK = "image-classification"
_LOADING = """```python
import keras, keras_vit

classifier = keras_vit.load_classifier("hf:NAME")
print(classifier.predict("image.jpg"))
model = keras.saving.load_model("hf://NAME")  # The model alone.
```"""
_METRICS = {
    "top_1": ("accuracy", "Top-1 accuracy"),
    "top_5": ("top_5_accuracy", "Top-5 accuracy"),
    "mAP": ("mean_average_precision", "Mean average precision"),
    "subset_accuracy": ("subset_accuracy", "All labels right"),
}


def hub_card(
    description: Description,
    recipe: Mapping[str, Any],
    text: str,
    *,
    repository: str,
    datasets: Sequence[str] = (),
) -> str:
    """Returns `README.md` of a pushed classifier.

    Args:
        description: What the classifier is.
        recipe: Its recipe, without paths; {} without one.
        text: Its `model_card.md`, or "".
        repository: "owner/name".
        datasets: Names of the Hub's data sets that it was trained on.
    """
    hub = import_hugging_face()
    data = hub.ModelCardData(
        **hub_licence(description.licence),
        library_name="keras",
        pipeline_tag=TASK,
        base_model=_base_model(description),
        datasets=list(datasets) or None,
        tags=["keras-vit", *(["vision-transformer"] if description.position_resize else [])],
        model_name=repository.partition("/")[2],
        eval_results=_results(hub, description, recipe, datasets) or None,
    )
    text = without_header(text)
    for of_folder in (loading_block(False), loading_block(True), LOADING):
        text = text.replace(f"{of_folder}\n", "")
    title, _, rest = text.partition("\n")
    title = title if title.startswith("# ") else f"# {repository}"
    loading = _LOADING.replace("NAME", repository)
    lines = [title, "", loading, "", rest.strip("\n"), ""]
    return f"---\n{data.to_yaml()}\n---\n\n" + "\n".join(lines)


def _base_model(description):
    """The Hub's repository that the training started from, or None."""
    start = RepositoryName.parse(description.origins.get("weights"))
    return start.name if start else None


def _results(hub, description, recipe, datasets):
    """The accuracy on the test images with its interval, and what `calibrate` found."""
    data = str((recipe.get("data") or {}).get("data") or "")
    name = data.removeprefix("tfds:") if data.startswith("tfds:") else "imagefolder"
    place = {"task_type": TASK, "dataset_type": (*datasets, name)[0], "dataset_name": data or name}
    test = recipe.get("test") or {}
    found = []
    for metric, value, interval in accuracies(test):
        kind, text = _METRICS[metric]
        if interval is not None:
            low, high = interval
            text += f", 95% interval {low:.4f} to {high:.4f} (Wilson), {test['images']} images"
        args = None if interval is None else {"confidence": 0.95, "interval": list(interval)}
        result = hub.EvalResult(
            **place, dataset_split="test", metric_type=kind, metric_value=round(value, 6),
            metric_name=text, metric_args=args,
        )  # fmt: skip
        found.append(result)
    for kind, value, text in _decided(recipe.get("decision")):
        result = hub.EvalResult(
            **place, dataset_split="calibration", metric_type=kind, metric_value=round(value, 6),
            metric_name=text,
        )  # fmt: skip
        found.append(result)
    return found


def _decided(decision: Mapping[str, Any] | None):
    """Type, value and text of what holds for the answers of a calibrated classifier."""
    if not decision:
        return
    images, answered = decision["images"], decision["answered"]
    yield "coverage", answered / images, f"Answered share of {images} calibration images"
    if answered:
        text = f"Wrong answers among {answered} answers"
        if decision["max_error"] is not None:
            text += (
                f"; at most {decision['max_error']:g} with probability {decision['confidence']:g}"
            )
        yield "selective_risk", decision["wrong"] / answered, text
