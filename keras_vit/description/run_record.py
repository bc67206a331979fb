"""`recipe.json`: the record of a run, with everything that is needed to repeat it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from keras_vit.utils.json_files import fields_of_json, json_name, with_present_names


class Reference(NamedTuple):
    """What the accuracy of a classifier must exceed.

    Args:
        name: What it is.
        accuracy: The share of images that it has right.
        images: The independent images that the share was estimated from; 0 for no estimate.
    """

    name: str
    accuracy: float
    images: int = 0


@dataclasses.dataclass(frozen=True)
class Fact:
    """A value that a run found by itself, and where it is from.

    Args:
        value: The value, as JSON can hold it.
        origin: Where it is from; "from" in the file.
        sha256: The hash of a teacher's weights.
        reference: The accuracy that it found: of the better simple reference, or of the probe.
    """

    value: Any = None
    origin: str = dataclasses.field(default="", metadata={"json": "from"})
    sha256: str | None = None
    reference: Reference | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the fact as JSON can hold it."""
        fields = {json_name(field): getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            name: list(value) if isinstance(value, Reference) else value
            for name, value in fields.items()
            if value is not None
        }


def _entries():
    return dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The content of `recipe.json`.

    An unfinished run has whole paths in it; of a finished one, absolute paths have their last part.
    A folder that no run wrote has some of the fields, or none.

    Args:
        job: The command that trained the model, with its objective.
        command: The whole command, or the text that a program gave.
        description: What the model is, as in `description.json`.
        model: Name of the model, as printed in the paper.
        config: Fields of its config that are not the defaults.
        settings: Every setting, with the value that was used.
        facts: What the run found by itself: by name the value, and what it is from.
        preprocessing: Size, way of resizing and range of the pixels in evaluation.
        data: The data and their options.
        overwrite: Whether the run was to replace an existing output.
        classes: Number of classes.
        task: "multiclass" or "multilabel".
        images: Number of images by part, and of those that were skipped.
        versions: Versions of the packages that affect the numbers.
        hashes: SHA-256 of the images with their parts and classes, of the first weights, and of the
            whole command with its working directory.
        versions_before: The versions that a resumed run began with, if they were others.
        resumed: The steps after which a stopped run went on.
        skipped_steps: Steps that changed nothing, as their gradients were not finite.
        best: Step, score and loss of the best weights; null without validation images.
        test: The evaluation on the test images; null without any.
        objective: "masked-patches" for pre-training without labels.
        decision: What the bound of a classifier that answers "unknown" was found by.
        pretraining: Data and size of the training of the starting weights.
        data_place: Hash of the path to the data, by which later commands know them again.
        skipped: Files that could not be read, with the reasons; in exports their number.
        converted: Whether `convert` wrote the folder.
        notes: What `convert` noted of its source.
        others: Entries of other programs, which are in the file under their own names.
    """

    job: str = ""
    command: str = ""
    description: dict[str, Any] = _entries()
    model: str = ""
    config: dict[str, Any] = _entries()
    settings: dict[str, Any] = _entries()
    facts: dict[str, Fact] = _entries()
    preprocessing: dict[str, Any] = _entries()
    data: dict[str, Any] = _entries()
    overwrite: bool = False
    classes: int = 0
    task: str = ""
    images: dict[str, int] = _entries()
    versions: dict[str, str] = _entries()
    hashes: dict[str, str] = _entries()
    versions_before: dict[str, str] | None = None
    resumed: list[int] | None = None
    skipped_steps: int | None = None
    best: dict[str, float] | None = None
    test: dict[str, Any] | None = None
    objective: str | None = None
    decision: dict[str, Any] | None = None
    pretraining: dict[str, Any] | None = None
    data_place: str | None = None
    skipped: list[list] | int | None = None
    converted: bool | None = None
    notes: list[str] | None = None
    others: dict[str, Any] = _entries()

    @property
    def data_name(self) -> str:
        """The data: a path, as it is shown, or a name; "" if unknown."""
        return str(self.data.get("data") or "")

    @property
    def weights(self) -> str | None:
        """The weights that the run started from; None for random ones."""
        return self.settings.get("weights")

    @property
    def simple(self) -> Reference | None:
        """What simple numbers of the training photos reach; None if it is not known."""
        fact = self.facts.get("simple_numbers")
        return None if fact is None else fact.reference

    def add(self, more: Self) -> Self:
        """Returns the record with the values that another one has, which win over its own.

        Args:
            more: The other record; its facts come in addition.
        """
        unset = type(self)()
        names = [field.name for field in dataclasses.fields(self)]
        values = {name: getattr(more, name) for name in names}
        values = {name: value for name, value in values.items() if value != getattr(unset, name)}
        return dataclasses.replace(self, **{**values, "facts": {**self.facts, **more.facts}})

    def to_json(self) -> dict[str, Any]:
        """Returns the content of the file, without fields that have no value."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del fields["others"]
        fields["facts"] = {name: fact.to_json() for name, fact in self.facts.items()}
        # Another program's entry of a field's name stays as long as the field is not set.
        unset = type(self)()
        is_set = {name for name in fields if getattr(self, name) != getattr(unset, name)}
        others = {name: value for name, value in self.others.items() if name not in is_set}
        if not self.job:  # No run wrote it.
            return {name: value for name, value in fields.items() if value} | others
        empty = {name for name, value in fields.items() if value is None} - {"best", "test"}
        return {name: value for name, value in fields.items() if name not in empty} | others

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the record in a file; {} gives an empty one.

        A value of another type than its field's is another program's, and one of the `others`.
        """
        present = dict(fields)
        for name in ("settings", "facts", "description"):
            if isinstance(present.get(name), Mapping):
                present[name] = with_present_names(present[name])
        own, others = fields_of_json(cls, present)
        if "others" in own:  # An entry of another program that happens to have this name.
            others["others"] = own.pop("others")
        return cls(**own, others=others)
