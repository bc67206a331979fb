"""Forms in which a classifier is pushed to the Hub, and how each is loaded from there."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Form:
    """A form of a classifier on the Hub.

    Args:
        library: The Hub's name of the library that loads it: `library_name` of a model card.
        language: The language of `loading`, as in a block of Markdown.
        loading: Lines that load it, with the repository as NAME.
        has_decision: Whether its files hold what `calibrate` found.
    """

    library: str
    language: str
    loading: str
    has_decision: bool


FORMS = {
    "folder": Form(
        "keras",
        "python",
        """import keras, keras_vit

classifier = keras_vit.load_classifier("hf:NAME")
print(classifier.predict("image.jpg"))
model = keras.saving.load_model("hf://NAME")  # The model alone.""",
        has_decision=True,
    ),
    "transformers": Form(
        "transformers",
        "python",
        """from transformers import pipeline

print(pipeline("image-classification", "NAME")("image.jpg"))""",
        has_decision=False,
    ),
    "timm": Form(
        "timm",
        "python",
        """import timm

model = timm.create_model("hf_hub:NAME", pretrained=True).eval()
config = timm.data.resolve_model_data_config(model)
transform = timm.data.create_transform(**config, is_training=False)""",
        has_decision=False,
    ),
    "web": Form(
        "transformers.js",
        "js",
        """import { pipeline } from "@huggingface/transformers";

const classify = await pipeline("image-classification", "NAME", { dtype: "fp32" });
console.log(await classify("image.jpg"));""",
        has_decision=True,
    ),
}


def loading_lines(form: str, repository: str) -> str:
    """Returns the block of Markdown that loads a repository of a form."""
    known = FORMS[form]
    return f"```{known.language}\n{known.loading.replace('NAME', repository)}\n```"
