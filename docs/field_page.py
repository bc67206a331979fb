"""The pages docs/*fields.md, from the docstrings of the dataclasses that are written as JSON.

    python docs/field_page.py

A field without a text in the `Args` of its class is an error.
"""

import dataclasses
import inspect
import json
import pathlib
import re
import textwrap

from keras_vit.configs import BiTConfig, PoolingStem, ResNetStem, ViTConfig
from keras_vit.configs.blocks import AttentionConfig, BlockConfig, MLPConfig
from keras_vit.description import Description, Labels
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "keras_vit" / "weights" / "vit_mini4_cifar10" / "description.json"

RECIPE_START = """# The fields of recipe.json

```python
import json
import pathlib

recipe = json.loads(pathlib.Path("runs/pets/recipe.json").read_text())
print(recipe["settings"]["learning_rate"], recipe["images"], recipe["test"])
```

The folder of a classifier has this file with everything that is needed to repeat the run.
[description.json](description_fields.md) next to it says what the model is.

`None` stands for null. This page is made from the docstrings of the code by
`python docs/field_page.py`.
"""

DESCRIPTION_START = """# The fields of description.json

```python
import keras_vit

description = keras_vit.describe("runs/pets")  # Also of an export or a repository.
print(description.labels.names, description.image_size, description.license)
```

The folder of a classifier has this file, and an export holds it too: it says what the model is.
[recipe.json](fields.md) next to it has the run.

`None` stands for null. This page is made from the docstrings of the code by
`python docs/field_page.py`.
"""

# Heading, text below it, and the classes; the fields of the first one are listed.
RECIPE_SECTIONS = (
    (
        "## Fields",
        "A finished folder has relative paths as they were typed, and the last part of others; the "
        "folder of an unfinished run has the whole paths. Fields without a value are left out, "
        "except for `best` and `test`.",
        (RunRecord,),
    ),
    ("## facts", "Each fact is an object.", (Fact,)),
    (
        "## settings",
        "They are the flags of `keras-vit finetune` and `keras-vit pretrain`, with `_` for `-`, "
        "and have here the defaults of `finetune`.",
        (FineTuning, PreTraining, MaskedPatches),
    ),
    ("## data", "They are flags of the same commands.", (DataSpec,)),
)

DESCRIPTION_SECTIONS = (
    (
        "## Fields",
        "Fields that have their default are left out. A classifier of the package has",
        (Description,),
    ),
    (
        "## config",
        "The `type` is `ViTConfig`, `AxialConfig` or `BiTConfig`. The first two have",
        (ViTConfig, BlockConfig, AttentionConfig, MLPConfig),
    ),
    ("## resnet", "The stem of a hybrid has", (ResNetStem,)),
    ("## resnet with widths", "A stem for small images has", (PoolingStem, ResNetStem)),
    ("## config of a ResNet", "A `BiTConfig` has", (BiTConfig,)),
    ("## preprocessing", "How an image becomes the model's input.", (Preprocessing,)),
    ("## labels", "The classes.", (Labels,)),
)

# The start and the sections by the name of the page.
PAGES = {
    "fields.md": (RECIPE_START, RECIPE_SECTIONS),
    "description_fields.md": (DESCRIPTION_START, DESCRIPTION_SECTIONS),
}

LEFT_OUT = {(RunRecord, "others")}  # Entries that have other names in the file.
RENAMED = {(Fact, "origin"): "from"}


def texts_of(documented):
    """Returns the text of each argument in the docstring of a class."""
    arguments = (inspect.getdoc(documented) or "").partition("Args:\n")[2]
    arguments = re.split(r"\n\n(?=\S)", arguments)[0]
    found = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", arguments, re.M)
    return {name: " ".join(text.split()) for name, text in found}


def fields_of(classes):
    """Yields the name and the text of each field of the first class, and of new ones of the others.

    The others also have texts of the first one's fields.

    Raises:
        ValueError: If a field has no text.
    """
    texts = {}
    for documented in reversed(classes):
        texts |= texts_of(documented)
    names = [field.name for field in dataclasses.fields(classes[0])]
    if issubclass(classes[0], FineTuning):
        names += [field.name for other in classes[1:] for field in dataclasses.fields(other)]
    for name in dict.fromkeys(names):
        if (classes[0], name) in LEFT_OUT:
            continue
        if name not in texts:
            raise ValueError(f"{classes[0].__name__}.{name} must have a text in its docstring.")
        yield RENAMED.get((classes[0], name), name), texts[name]


def list_of(classes):
    """Returns the fields as a list of Markdown."""
    lines = []
    for name, text in fields_of(classes):
        item = f"- `{name}`: {text}".replace("*", "\\*").rstrip(".")
        lines.append(textwrap.fill(item, 100, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines)


def page(start, sections):
    """Returns the text of a page."""
    parts = [start.strip()]
    for heading, text, classes in sections:
        parts += [heading, textwrap.fill(text, 100)]
        if Description in classes:
            example = json.loads(EXAMPLE.read_text())
            entries = [f'  "{name}": {json.dumps(value)}' for name, value in example.items()]
            parts.append("```text\n{\n" + ",\n".join(entries) + "\n}\n```")
        parts.append(list_of(classes))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for name, (start, sections) in PAGES.items():
        (ROOT / "docs" / name).write_text(page(start, sections))
