"""A training run from data to a classifier's folder: what fine-tuning and pre-training share."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from keras_vit._version import __version__
from keras_vit.classifier import Classifier, load_classifier, write_files
from keras_vit.models.rebuild import inference_model
from keras_vit.training.data import Examples, Source, open_source
from keras_vit.training.data.examples import typical_size
from keras_vit.training.evaluation import classification
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.devices import Place, predictor_of
from keras_vit.training.trainer.trainer import Trainer

from .folder import RunFolder, command_of_unfinished
from .from_settings import make_schedule, make_trainer, not_decayed
from .loop import train
from .memory import choose_accumulation, step_memory
from .model_card import model_card, write_samples
from .required import required
from .transfer import Body, dtype_policy


@dataclasses.dataclass(frozen=True)
class Job:
    """What differs between the jobs.

    Args:
        name: The command's name.
        settings_type: The class of the settings.
        find_body: From the settings to the architecture and its weights.
        build: From body, settings and the number of classes to a model that gives logits,
            and what to say of its weights.
        make_trainer: From model and resolved settings to a compiled trainer; by default
            that of the classifiers.
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
    make_trainer: Callable[[keras.Model, Any], Trainer] = make_trainer
    open_data: Callable[..., tuple[Source, Examples, Examples | None]] | None = None
    validation: Callable[..., Any] | None = None
    finish: Callable[..., Any] | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run of which everything is known but the model's weights; nothing is written yet.

    Args:
        job: The job.
        run: The folder.
        body: The architecture and where its weights are.
        source: The data.
        train: The images to train on.
        validation: Those to choose the best weights by, or None.
        settings: Resolved settings.
        recipe: What `recipe.json` will hold.
    """

    job: Job
    run: RunFolder
    body: Body
    source: Source
    train: Examples
    validation: Examples | None
    settings: Any
    recipe: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Finished:
    """A run that is done.

    Args:
        classifier: The best weights, as read back from the folder.
        report: Of the test images; None if the data have none.
        history: The rows of `history.csv`.
    """

    classifier: Classifier
    report: classification.ClassificationReport | None
    history: list[dict[str, str]]


def run_job(
    job: Job,
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: Settings,
    *,
    log: Callable[[str], object] = print,
    **options: Any,
) -> Any:
    """Trains a model and writes its folder; see `finetune` for the arguments.

    Returns:
        What `job.finish` returns; a `Finished` where the job has none.
    """
    run, settings, where, command = _asked(job, data, output, settings, **options)
    place = Place(settings.strategy)  # Before TensorFlow does anything else: workers meet here.
    plan = _plan(job, run, settings, where, command, place.replicas)
    settings, source = plan.settings, plan.source

    keras.utils.set_random_seed(settings.seed)
    with dtype_policy(settings.precision), place.scope():
        model, said = job.build(plan.body, settings, len(source.class_names))
        trainer = job.make_trainer(model, settings)
    start_step = run.checkpoints.restore(trainer) if run.resume else 0
    batches = place.batches(
        plan.train,
        image_size=settings.image_size,
        batch_size=settings.micro_batch_size,
        seed=settings.seed,
        augmentation=settings.augmentation,
        mixup=settings.mixup,
        resize=settings.resize,
        start_step=start_step * required(settings.accumulate, "accumulate"),
        num_classes=len(source.class_names),
        data_service=settings.data_service,
    )
    if not run.resume:
        run.start(plan.recipe)  # The first thing written: what is wrong has been told by now.
    more = {"weights": said}
    if settings.weight_decay:
        more["not decayed"] = ", ".join(not_decayed(trainer))
    if start_step:
        more["resumed"] = f"after step {start_step}"
    log(describe_plan(plan, more))
    validation = job.validation or _validation
    history = train(
        trainer,
        batches,
        run,
        settings,
        start_step=start_step,
        validate=validation(trainer, plan.validation, source, settings),
    )
    finish = job.finish or _finish
    recipe = {
        **plan.recipe,
        "skipped_steps": int(keras.ops.convert_to_numpy(trainer.skipped_steps)),
    }
    finished = finish(run, model, source, settings, recipe, history, run.overwrite, log)
    place.leave()
    return finished


def dry_run(
    job: Job,
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: Settings,
    **options: Any,
) -> str:
    """Returns what `run_job` would do, for people; trains nothing and writes nothing.

    Args:
        job: The job.
        data: As for `finetune`.
        output: As for `finetune`.
        settings: As for `finetune`.
        **options: As for `finetune`.

    Raises:
        ValueError: If something does not fit; weights are not looked into.
    """
    return describe_plan(plan_run(job, data, output, settings, **options))


def plan_run(
    job: Job,
    data: str | os.PathLike | None,
    output: str | os.PathLike,
    settings: Settings,
    **options: Any,
) -> Plan:
    """Returns everything that is known of a run before it starts, as for one device.

    Arguments and errors are those of `dry_run`.
    """
    options.pop("log", None)
    run, settings, where, command = _asked(job, data, output, settings, **options)
    return _plan(job, run, settings, where, command)


def _asked(
    job,
    data,
    output,
    settings,
    *,
    data_dir: str | os.PathLike | None = None,
    holdout: float = 0.2,
    strict: bool = False,
    exclude: Iterable[str] = (),
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    split_seed: int | None = None,
    test: bool = True,
):
    """Returns folder, settings, place of the data and command: of this run or the resumed."""
    # The same command again, as a machine that was taken away gives it, goes on.
    resume = resume or (not overwrite and command_of_unfinished(output) == command != "")
    run = RunFolder(output, resume=resume, overwrite=overwrite)
    where = {
        "data": None if data is None else os.fspath(data),
        "data_dir": None if data_dir is None else os.fspath(data_dir),
        "holdout": holdout,
        "strict": strict,
        "exclude": list(exclude),
        "split_seed": settings.seed if split_seed is None else split_seed,
        "test": test,
    }
    if resume:
        recipe = run.recipe(job.name)
        where, command = recipe["data"], recipe["command"]
        settings = job.settings_type.from_json(recipe["settings"])
        run.overwrite = overwrite or recipe.get("overwrite", False)
    if where["data"] is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    return run, settings, where, command


def _plan(job, run, settings, where, command, replicas=1) -> Plan:
    body = job.find_body(settings)  # Before the data are read: a wrong name is told at once.
    source, train_part, validation_part = (job.open_data or _open)(where, settings)
    num_images = len(train_part) + len(validation_part or ())
    if settings.image_size is None:
        settings = settings.resolve(num_images, typical_size(train_part))
    else:
        settings = settings.resolve(num_images)
    if settings.patience and validation_part is None:
        raise ValueError(
            "patience needs validation images, to tell when there is nothing more to gain. "
            f"Received: patience={settings.patience}, none of them"
        )
    make_schedule(settings)
    settings = choose_accumulation(settings, body.config, replicas=replicas)
    recipe = {
        "job": job.name,
        "command": command,
        "model": body.name,
        "config": dataclasses.asdict(body.config),
        "settings": settings.to_json(),
        "data": where,
        "overwrite": run.overwrite,
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
    return Plan(job, run, body, source, train_part, validation_part, settings, recipe)


def _open(where, settings) -> tuple[Source, Examples, Examples | None]:
    """Returns the source, its part to train on, and that for validation."""
    seed = where.get("split_seed", settings.seed)
    source = open_source(
        where["data"],
        data_dir=where["data_dir"],
        seed=seed,
        holdout=where["holdout"],
        strict=where["strict"],
        exclude=tuple(where["exclude"]),
    )
    if not where.get("test", True):
        kept = {name: part for name, part in source.splits.items() if name != "test"}
        source = dataclasses.replace(source, splits=kept)
    examples = source.splits["train"]
    if settings.validation == 0:
        return source, examples, None
    if "validation" in source.splits:
        return source, examples, source.splits["validation"]
    train_part, validation_part = examples.split(settings.validation_share(len(examples)), seed)
    return source, train_part, validation_part if len(validation_part) else None


def _validation(trainer, examples, source, settings):
    if examples is None:
        return None
    predictor = predictor_of(trainer)

    def validate():
        return classification.evaluate(
            predictor,
            examples,
            source.class_names,
            preprocessing=settings.preprocessing,
            batch_size=min(settings.micro_batch_size, 64),
            from_logits=True,
        )

    return validate


def describe_plan(plan: Plan, more: Mapping[str, Any] | None = None) -> str:
    """Returns the resolved recipe for people, before the run starts.

    Args:
        plan: The run.
        more: What is known besides, by name; a name of a setting stands in its place.
    """
    recipe, settings, images = plan.recipe, plan.settings, plan.recipe["images"]
    seen = settings.steps * settings.batch_size
    height, width = settings.image_size
    micro_batches = f" ({settings.accumulate} micro-batches)" if settings.accumulate > 1 else ""
    memory = step_memory(settings, plan.body.config, settings.micro_batch_size)
    table = {
        "model": f"{recipe['model']} at {height}x{width}, {recipe['classes'] or 'no'} classes",
        "recipe": _recipe_line(settings),
        "weights": getattr(settings, "weights", None) or "random",
        "data": f"{recipe['data']['data']}: {images['train']} images to train, "
        f"{images['validation']} to validate, {images['test']} to test"
        + (f", {images['skipped']} skipped" if images["skipped"] else ""),
        "steps": f"{settings.steps} of {settings.batch_size} images{micro_batches}: "
        f"{seen:,} images seen, {seen / max(images['train'], 1):.1f} epochs",
        "memory": f"about {memory / 2**30:.2g} GiB for {settings.micro_batch_size} images at once",
    }
    for name, value in settings.to_json().items():
        if name not in (*table, *_TOLD) and name not in _without_meaning(settings):
            table[name] = value
    table |= more or {}
    width = max(map(len, table))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in table.items())


# Settings that the lines above them tell.
_TOLD = ("recipe_source", "scale", "image_size", "batch_size", "accumulate")
# Settings that are not told while they are off.
_OPTIONAL = (
    "averaging",
    "stochastic_depth_rate",
    "skip_nonfinite_steps",
    "head_bias",
    "label_smoothing",
    "mixup",
    "resize",
    "patience",
    "remat",
    "strategy",
    "jit_compile",
    "data_service",
    "cooldown_steps",
    "boundaries",
)


def _recipe_line(settings):
    if settings.recipe is None:
        return "the defaults"
    scaled = f", scaled by {settings.scale:g}" if settings.scale != 1 else ""
    return f"{settings.recipe} ({settings.recipe_source}){scaled}"


def _without_meaning(settings):
    """Names of settings that this run does not read."""
    names = [name for name in _OPTIONAL if not getattr(settings, name)]
    names += ["beta_1", "beta_2"] if settings.optimizer == "sgd" else ["momentum"]
    if not settings.weight_decay:
        names.append("weight_decay_times")
    if settings.decay != "rsqrt":
        names.append("timescale")
    if settings.layer_decay == 1:
        names.append("layer_decay")
    if getattr(settings, "train", "") != "lora":
        names += ["lora_rank", "lora_alpha"]
    if settings.steps_per_execution == 1:
        names.append("steps_per_execution")
    return names


def _finish(run, model, source, settings, recipe, history, overwrite, log):
    """Evaluates the best weights, writes the classifier's folder and gives it its name."""
    kept = inference_model(model)
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
    run.publish(overwrite)
    for path, reason in source.skipped:
        log(f"skipped {path}: {reason}")
    if not run.writes:
        return Finished(classifier, report, history)
    log(f"written {run.output}")
    return Finished(load_classifier(run.output), report, history)
