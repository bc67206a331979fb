"""The images that a classifier is evaluated on: those that its run held out, and new ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_vit.description.class_labels import look_alikes
from keras_vit.description.run_record import Reference, RunRecord
from keras_vit.predictor import Predictor
from keras_vit.training.data import Examples, Source, open_source
from keras_vit.training.data.image_files import FileExamples, verify_files
from keras_vit.training.data.in_memory import InMemory
from keras_vit.training.data.parts import groups_of
from keras_vit.training.data.spec import (
    EVALUATED_DATA,
    IGNORED,
    OF_THE_RUN,
    TOGETHER,
    DataSpec,
    spec_of_run,
)
from keras_vit.training.data.split_record import NEW, PARTS, SplitRecord
from keras_vit.training.data.things import shown_in_training
from keras_vit.utils.progress import Log

from .predictions import without

_KNOWN_GROUP = "known group"
_WORDS = {
    "train": "that the run trained on",
    "validation": "by which the run chose its weights",
    "calibration": "that are for calibration",
    "test": "that the run held out",
    NEW: "that are new to the run",
    _KNOWN_GROUP: "that are new, but of a group that the run trained on or chose its weights by",
}
_HELD_OUT = ("calibration", "test")  # Neither trained on nor chosen by.


@dataclasses.dataclass(frozen=True)
class EvaluatedImages:
    """The images of an evaluation.

    Args:
        source: The data.
        examples: The images to report on.
        lines: What of the data is evaluated and what is left out, for the report.
        new: Images that the run neither used nor held out, reported apart; None if there are none,
            or if `examples` are such images.
        seen: Whether each of `examples` shows a thing that the run trained on or chose its weights
            by, bool `(N,)`; None where it is not known.
        record: What the run recorded of its images; None without.
        simple: What simple numbers of the run's photos reach; None of other photos.
        is_new: Whether `examples` are other images than the run's.
        is_used: Whether `examples` are images that the run trained on or chose its weights by.
        copies: Whether images of one thing are counted together; see `DataSpec`.
    """

    source: Source
    examples: Examples
    lines: tuple[str, ...]
    new: Examples | None = None
    seen: np.ndarray | None = None
    record: SplitRecord | None = None
    simple: Reference | None = None
    is_new: bool = False
    is_used: bool = False
    copies: str = TOGETHER


def choose_images(
    classifier: Predictor,
    given: DataSpec,
    split: str | None = None,
    class_names: Sequence[str] | None = None,
    *,
    first: str = "test",
    together: bool = False,
    log: Log | None = None,
) -> EvaluatedImages:
    """Returns the images of a data set that a classifier is evaluated on.

    A run records the content of the images that it trained on, chose its weights by and held out.
    An image of the data is what it was in the run, wherever it lies now. Without a record the data
    are split anew, as the run split them.

    Args:
        classifier: The classifier.
        given: The data.
        split: See `evaluate_classifier`.
        class_names: The classes that the data may have, which also name numbers in arrays;
            by default the classes of the classifier.
        first: The split by default, if the run or the data have it; else "test".
        together: Whether held-out and new images are wanted together. Otherwise data of which more
            than half is new are other photos than the run's, and the new ones are chosen.
        log: See `find_things`.

    Raises:
        ValueError: As `evaluate_classifier`.
    """
    _check_fields(given)
    class_names = tuple(class_names or classifier.class_names)
    recipe = RunRecord.from_json(classifier.recipe)
    run_spec = spec_of_run(recipe, given)
    spec = _spec(classifier, given, run_spec, class_names)
    in_memory = isinstance(given.data, InMemory)
    record, images = SplitRecord.read(classifier.folder), None
    if record is not None:
        if split is None and first != "test" and len(record.parts[first]):
            split = first
        source = open_source(spec, verify=spec.strict or in_memory, recorded=True, min_classes=0)
        _check_classes(source, class_names, given)
        images = _by_record(source, record, split, recipe.simple, together=together)
    if images is None:
        # What is held out then depends on the files that can be decoded.
        verify = spec.strict or in_memory
        if run_spec is not None:
            verify = spec.strict or recipe.images.get("skipped") != 0
        source = open_source(spec, verify=verify, min_classes=0, log=log)
        _check_classes(source, class_names, given)
        if split is None:
            split = next((part for part in (first, "test") if part in source.splits), "train")
        images = _drawn_again(classifier, source, split, run_spec is not None, recipe.simple)

    ignores = run_spec is not None and recipe.data.get("copies") == IGNORED
    return dataclasses.replace(
        images,
        lines=_lines(images.lines, spec, given, recipe, is_of_run=run_spec is not None),
        record=record,
        copies=IGNORED if ignores else given.copies,
    )


def _lines(lines, spec, given, recipe, *, is_of_run):
    """The lines of an evaluation, with what the data's options leave out or change."""
    counted, *others = lines
    if spec.exclude:
        counted += f"; the {len(spec.exclude)} that the run excluded are left out"
    if spec.labels:
        whose = "--labels" if given.labels else "the run's table"
        counted += f"; {len(spec.labels) - 1} have the label in {whose}"
    is_namesake = not is_of_run and recipe.data_name == given.name
    if is_namesake and any(recipe.data.get(name) for name in ("exclude", "labels", "group_by")):
        others.append(
            f"data    the run's {given.name} was another folder: its exclusions, labels and groups "
            "are not taken over"
        )
    return (counted, *others)


def _spec(classifier, given, run_spec, class_names):
    """Returns the data with the options of the run, unless others are given."""
    spec = run_spec
    if spec is None:
        is_numbered = isinstance(given.data, InMemory)
        names = class_names if is_numbered else None
        spec = dataclasses.replace(given, holdout=0.0, class_names=names)
    return dataclasses.replace(
        spec,
        data=given.data,
        data_dir=given.data_dir,
        strict=given.strict,
        follow_symlinks=given.follow_symlinks,
        test=True,
        task=classifier.task,
        bit_depth=classifier.preprocessing.bit_depth,
        **{name: getattr(given, name) or getattr(spec, name) for name in OF_THE_RUN},
    )


def _check_fields(given):
    others = [
        field.name
        for field in dataclasses.fields(given)
        if field.name not in EVALUATED_DATA and getattr(given, field.name) != field.default
    ]
    if others:
        raise ValueError(
            f"An evaluation must have no data options but {', '.join(EVALUATED_DATA[1:])}: the "
            f"classifier and its run have the others. Received: {', '.join(others)}"
        )


def _check_classes(source, known, given):
    unknown = sorted(set(source.class_names) - set(known))
    if unknown:
        raise ValueError(
            f"The data must have classes of the classifier ({', '.join(known[:10])}"
            f"{', ...' if len(known) > 10 else ''}). "
            f"Received: {given.name}, with {', '.join(unknown[:10])}"
            + "".join(f"; {line}" for line in look_alikes([*known, *unknown])[:3])
        )


def _check_split(split, known):
    if split not in known:
        raise ValueError(
            f"The split must be one of the data's: {', '.join(known)}. Received: split={split!r}"
        )


def _by_record(source, record, split, simple, *, together):
    """Returns the images by what they were in the run; None if their content is not known."""
    wanted = split or "test"
    part = _part_of_data(source, record, split)
    pool = source.splits[part]
    contents = record.contents_of(pool)
    if contents is None:
        return None
    roles, is_seen = _roles(source, record, pool, contents), record.has_seen(*contents)
    if (roles == wanted).any() and isinstance(pool, FileExamples):
        source, roles = _without_unreadable(source, pool, roles)

    counts = {role: n for role in (*PARTS, NEW, _KNOWN_GROUP) if (n := int((roles == role).sum()))}
    rest = (*_other_parts(source, part), *_notes(source))
    order = (wanted, NEW)
    if split is None and not together and 2 * counts.get(NEW, 0) > len(pool):
        order = (NEW, wanted)  # Other photos than the run's, a few of which it knows.
    chosen = next((role for role in order if role in counts), None)
    if chosen is None:
        line = f"split   none of the {len(pool)} images is new or was held out: {_texts(counts)}"
        return EvaluatedImages(source, pool, (line, *rest), seen=is_seen, is_used=True)
    places, others = np.flatnonzero(roles == chosen), np.flatnonzero(roles == NEW)
    seen = is_seen[places]
    return EvaluatedImages(
        source,
        pool.take(places),
        (*_lines_of_roles(counts, chosen, record, int(seen.sum())), *rest),
        new=pool.take(others) if chosen != NEW and len(others) else None,
        seen=seen,
        simple=None if chosen == NEW else simple,
        is_new=chosen == NEW,
        is_used=chosen not in (*_HELD_OUT, NEW),
    )


def _part_of_data(source, record, split):
    """The part of the present data that has the images of a part of the run."""
    if split is not None:
        recorded = [part for part in PARTS if len(record.parts[part])]
        _check_split(split, dict.fromkeys((*source.splits, *recorded)))
    part, others = split or "test", "train"
    if len(source.splits) > 1 and part not in source.splits:
        counts = {
            name: int(record.has(part, *contents).sum())
            for name, examples in source.splits.items()
            if (contents := record.contents_of(examples)) is not None
        }
        others = max(counts, key=lambda name: (counts[name], name == "train"), default="train")
    part = part if part in source.splits else others
    _check_split(part, source.splits)
    return part


def _roles(source, record, pool, contents):
    """What each image was in the run, text `(N,)`: a key of `_WORDS`."""
    roles = record.part_of(*contents)
    if source.groups is not None:
        is_known = _in_trained_groups(source, record, pool)
        roles[(roles == NEW) & is_known] = _KNOWN_GROUP
    return roles


def _without_unreadable(source, pool, roles):
    """Leaves out new files that cannot be read: the run did not record these, so not all are new.

    Their role becomes "", and they are among the skipped files of the source.
    """
    new = pool.take(np.flatnonzero(roles == NEW))
    readable, skipped = without(new, [*verify_files(new.names).reasons.items()])
    source = dataclasses.replace(source, skipped=[*source.skipped, *skipped])
    is_readable = np.isin(pool.names, readable.names)
    return source, np.where((roles == NEW) & ~is_readable, "", roles)


def _lines_of_roles(counts, chosen, record, num_seen):
    """What is evaluated, what is reported apart and what is left out, in words."""
    line = f"split   {counts[chosen]} images {_WORDS[chosen]}"
    if chosen != NEW and NEW in counts:
        line += f"; {counts[NEW]} {_WORDS[NEW]} are reported apart"
    if others := {role: count for role, count in counts.items() if role not in (chosen, NEW)}:
        line += f"; left out: {_texts(others)}"
    if NEW in counts and record.pixels is None:
        line += "; known by their bytes, so that a photo that was saved again counts as new"
    lines = [line]
    if chosen in _HELD_OUT and num_seen:
        lines.append(
            f"split   {num_seen} of the images that the run held out show things that it trained "
            "on or chose its weights by"
        )
    return lines


def _texts(counts):
    return ", ".join(f"{count} {_WORDS[part]}" for part, count in counts.items())


def _drawn_again(classifier, source, split, is_of_run, simple):
    """Returns the images of a part of the data, where what they were in the run is not recorded."""
    _check_split(split, source.splits)
    line = _without_record(classifier, source, split, is_of_run)
    examples, things, seen = source.splits[split], [], None
    if is_of_run and source.things is not None:
        things = [f"things  {source.things.line}"]
        seen = shown_in_training(source.splits, source.things, split)
    is_used = is_of_run and split not in _HELD_OUT
    if is_used:
        seen = np.ones(len(examples), bool)
    return EvaluatedImages(
        source,
        examples,
        (line, *things, *_other_parts(source, split), *_notes(source)),
        seen=seen,
        simple=simple if is_of_run else None,
        is_new=not is_of_run,
        is_used=is_used,
    )


def _notes(source):
    return [f"data    {note}" for note in source.notes]


def _in_trained_groups(source, record, pool):
    """Whether each image has one of its group that the run trained on or chose by."""
    trained = [np.array([], "int64")]
    for examples in source.splits.values():
        contents = record.contents_of(examples)
        if contents is not None:
            is_used = record.has_seen(*contents)
            trained.append(groups_of(examples, source.groups)[is_used])
    return np.isin(groups_of(pool, source.groups), np.concatenate(trained))


def _other_parts(source, split):
    """A line about the parts of the data that are not evaluated, if there are any."""
    others = {name: len(part) for name, part in source.splits.items() if name != split}
    if not others:
        return []
    counts = ", ".join(f"{count} of {name}" for name, count in others.items())
    total, count = sum(map(len, source.splits.values())), len(source.splits[split])
    return [f"split   {count} of the {total} images are of {split}; left out: {counts}"]


def _without_record(classifier, source, split, is_of_run):
    """The line about images whose part in the run is not recorded."""
    if not is_of_run:
        return "split   no record of what the model was trained on: all images are taken as new"
    images, now = (
        RunRecord.from_json(classifier.recipe).images,
        sum(map(len, source.splits.values())),
    )
    before = sum(images.get(part, 0) for part in PARTS)
    kind = "no record of the run's split: drawn again by its seed"
    if classifier.is_export:
        kind = "an export holds no record of its run's split: drawn again by the run's seed"
    trained = "" if split in _HELD_OUT else f"; images of {split} were trained on"
    if now == before:
        return f"split   {kind}, from {now} images as in the run{trained}"
    return (
        f"split   {kind}, from {now} images instead of {before}, so that images which were trained "
        f"on may count as held out{trained}"
    )
