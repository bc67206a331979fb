"""A training run from data to a classifier's folder: what fine-tuning and pre-training share."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_vit._version import __version__
from keras_vit.classifier import Classifier, load_classifier, publish, write_files

from .data import Examples, Source, open_source, training_batches
from .evaluation import classification
from .loop import train
from .memory import choose_accumulation
from .model_card import model_card
from .run_folder import RunFolder
from .samples import write_samples
from .settings import Settings
from .trainer import Trainer
from .transfer import Body, dtype_policy, with_probabilities


@dataclasses.dataclass(frozen=True)
class Job:
    """What differs between the jobs.

    Args:
        name: The command's name.
        settings_type: The class of the settings.
        find_body: From the settings to the architecture and its weights.
        build: From body, settings and the number of classes to a model that gives logits,
            and what to say of its weights.
        make_trainer: From model and resolved settings to a compiled trainer.
        open_data: From the data's place and settings to the source, its part to train on,
            and that for validation or None; None: images with labels.
        validation: From trainer, examples, source and settings to what scores the weights;
            None: by accuracy.
        finish: Writes the output's folder; None: a classifier's.
    """

    name: str
    settings_type: type[Settings]
    find_body: Callable[[Any], Body]
    build: Callable[[Body, Any, int], tuple[keras.Model, str]]
    make_trainer: Callable[[keras.Model, Any], Trainer]
    open_data: Callable[..., tuple[Source, Examples, Examples | None]] | None = None
    validation: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that is done.

    Args:
        classifier: The best weights, as read back from the folder.
        report: Of the test images; None if the data have none.
        history: The rows of `history.csv`.
    """

    classifier: Classifier
    report: classification.Report | None
    history: list[dict[str, str]]


def run_job(
    job: Job,
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: Settings,
    *,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: Iterable[str] = (),
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    log: Callable[[str], object] = print,
) -> Finished:
    """Trains a classifier and writes its folder; see `finetune` for the arguments."""
    run = RunFolder(output, resume=resume, overwrite=overwrite)
    where = {
        "data": None if data is None else os.fspath(data),
        "data_dir": None if data_dir is None else os.fspath(data_dir),
        "holdout": holdout,
        "strict": strict,
        "exclude": list(exclude),
    }
    if resume:
        recipe = run.recipe(job.name)
        where, command = recipe["data"], recipe["command"]
        settings = job.settings_type.from_json(recipe["settings"])
        overwrite = overwrite or recipe.get("overwrite", False)
    if where["data"] is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    body = job.find_body(settings)  # Before the data are read: a wrong name is told at once.
    source, train_part, validation_part = (job.open_data or _open)(where, settings)
    num_images = len(train_part) + len(validation_part or ())
    settings = settings.resolve(num_images)
    settings = choose_accumulation(settings, body.config)
    recipe = {
        "job": job.name,
        "command": command,
        "model": body.name,
        "config": dataclasses.asdict(body.config),
        "settings": settings.to_json(),
        "data": where,
        "overwrite": overwrite,
        "classes": len(source.class_names),
        "images": {
            "train": len(train_part),
            "validation": len(validation_part or ()),
            "test": len(source.splits.get("test", ())),
            "skipped": len(source.skipped),
        },
        "versions": {
            "keras_vit": __version__,
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
            "python": platform.python_version(),
        },
    }

    keras.utils.set_random_seed(settings.seed)
    with dtype_policy(settings.precision):
        model, said = job.build(body, settings, len(source.class_names))
        trainer = job.make_trainer(model, settings)
    start_step = run.checkpoints.restore(trainer) if resume else 0
    batches = training_batches(
        train_part,
        image_size=settings.image_size,
        batch_size=settings.micro_batch_size,
        seed=settings.seed,
        augmentation=settings.augmentation,
        start_step=start_step * settings.accumulate,
        num_classes=len(source.class_names),
    )
    if not resume:
        run.start(recipe)  # The first thing written: what is wrong has been told by now.
    log(describe_run(recipe, settings, said, start_step))
    history = train(
        trainer,
        batches,
        run,
        settings,
        start_step=start_step,
        validate=(job.validation or _validation)(trainer, validation_part, source, settings),
    )
    finish = job.finish or _finish
    return finish(run, model, source, settings, recipe, history, overwrite, log)


def _open(where, settings) -> tuple[Source, Examples, Examples | None]:
    """Returns the source, its part to train on, and that for validation."""
    source = open_source(
        where["data"],
        data_dir=where["data_dir"],
        seed=settings.seed,
        holdout=where["holdout"],
        strict=where["strict"],
        exclude=tuple(where["exclude"]),
    )
    examples = source.splits["train"]
    if "validation" in source.splits:
        return source, examples, source.splits["validation"]
    share = settings.resolve(len(examples)).validation
    if not share:
        return source, examples, None
    train_part, validation_part = examples.split(share, settings.seed)
    return source, train_part, validation_part if len(validation_part) else None


def _validation(trainer, examples, source, settings):
    if examples is None:
        return None

    def validate():
        return classification.evaluate(
            trainer.model,
            examples,
            source.class_names,
            preprocessing=settings.preprocessing,
            batch_size=min(settings.micro_batch_size, 64),
            from_logits=True,
        )

    return validate


def describe_run(recipe: dict, settings: Settings, said: str, start_step: int) -> str:
    """Returns the resolved recipe for people, before the run starts."""
    images = recipe["images"]
    seen = settings.steps * settings.batch_size
    height, width = settings.image_size
    table = {
        "model": f"{recipe['model']} at {height}x{width}, {recipe['classes'] or 'no'} classes",
        "weights": said,
        "data": f"{recipe['data']['data']}: {images['train']} images to train, "
        f"{images['validation']} to validate, {images['test']} to test"
        + (f", {images['skipped']} skipped" if images["skipped"] else ""),
        "steps": f"{settings.steps} of {settings.batch_size} images"
        + (f" ({settings.accumulate} micro-batches)" if settings.accumulate > 1 else "")
        + f": {seen:,} images seen, {seen / max(images['train'], 1):.1f} epochs",
    }
    shown = {*table, "image_size", "batch_size", "accumulate"}
    for name, value in settings.to_json().items():
        if name not in shown:
            table[name] = value
    if start_step:
        table["resumed"] = f"after step {start_step}"
    width = max(map(len, table))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in table.items())


def _finish(run, model, source, settings, recipe, history, overwrite, log):
    """Evaluates the best weights, writes the classifier's folder and gives it its name."""
    kept = with_probabilities(model)
    test = source.splits.get("test")
    report = None
    if test is not None and len(test):
        report = classification.evaluate(
            kept,
            test,
            source.class_names,
            preprocessing=settings.preprocessing,
            batch_size=min(settings.micro_batch_size, 64),
            skipped=source.skipped,
            progress=True,
        )
        log(f"test    top-1 {report.top_1:.4f}, top-5 {report.top_5:.4f} of {report.count} images")
    best = run.best_score()
    recipe = {
        **recipe,
        "best": best and {"step": best[0], "accuracy": best[1], "loss": best[2]},
        "test": report and report.to_json(),
    }
    classifier = Classifier(kept, source.class_names, settings.preprocessing, recipe, run.path)
    write_files(run.path, classifier, history, model_card(recipe, source.class_names))
    held_out = test if test is not None and len(test) else source.splits["train"]
    write_samples(run.path, held_out)
    run.remove_states()
    publish(run.path, run.output, overwrite=overwrite)
    for path, reason in source.skipped:
        log(f"skipped {path}: {reason}")
    log(f"written {run.output}")
    return Finished(load_classifier(run.output), report, history)
