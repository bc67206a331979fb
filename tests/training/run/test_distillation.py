import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest
import scipy.special
from PIL import Image
from runs import tiny_settings

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.command_line import main
from keras_vit.opening import open_predictor
from keras_vit.preprocessing import NORMALIZATIONS, Preprocessing, value_range
from keras_vit.training import SGD, SoftmaxCrossentropy, Trainer
from keras_vit.training.data import DataSpec
from keras_vit.training.run.distillation import DistillationTrainer, open_teacher
from keras_vit.training.run.finetune import finetune, plan_of
from keras_vit.training.run.machine import dtype_policy
from keras_vit.training.run.start import start
from keras_vit.training.settings import FineTuning, RunOptions
from makers import tiny_config, write_picture

RNG = np.random.default_rng(0)
LOGITS, ANSWERS = RNG.normal(0, 3, (2, 6, 5)).astype("float32")
LABELS = RNG.integers(0, 5, 6)
IMAGES = RNG.standard_normal((6, 8, 8, 3)).astype("float32")
NAMES = ("dark", "grey", "light")
IMAGENET = value_range(*NORMALIZATIONS["imagenet"])


def kl(temperature):
    """Hinton's loss of each example, in float64 NumPy."""
    teacher = scipy.special.softmax(ANSWERS.astype("float64") / temperature, axis=-1)
    student = scipy.special.softmax(LOGITS.astype("float64") / temperature, axis=-1)
    return temperature**2 * scipy.special.rel_entr(teacher, student).sum(-1)


def crossentropy(labels, logits):
    return -(labels * scipy.special.log_softmax(logits.astype("float64"), axis=-1)).sum(-1)


def given(logits):
    """A model that gives these logits for the images 0, 1, ..., with a bias of zeros to train."""
    images = keras.Input((1,), dtype="float32")
    table = keras.layers.Embedding(len(logits), logits.shape[1], weights=[logits], trainable=False)
    outputs = keras.layers.Flatten()(table(images))
    return keras.Model(
        images, keras.layers.Dense(5, kernel_initializer="identity", trainable=True)(outputs)
    )


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_the_loss_is_shared_between_labels_and_teacher(kind):
    teacher = given(ANSWERS)  # It answers without its dropout.
    teacher = keras.Model(teacher.input, keras.layers.Dropout(0.9)(teacher.output))
    trainer = DistillationTrainer(
        given(LOGITS),
        teacher=teacher,
        distillation=kind,
        distillation_weight=0.3,
        temperature=2.0,
    )
    weights = [0.5, 2.0, 1.0, 3.0, 0.25]
    trainer.compile(SGD(0.0), SoftmaxCrossentropy(0.1, class_weight=weights), metrics=["accuracy"])
    images = np.arange(6.0, dtype="float32")[:, None]
    shares = RNG.dirichlet(np.ones(5), 6).astype("float32")  # As mixup blends labels.
    labels = crossentropy(weights * (0.9 * shares + 0.02), LOGITS)
    taught = kl(2.0) if kind == "soft" else crossentropy(np.eye(5)[ANSWERS.argmax(-1)], LOGITS)
    logs = trainer.train_on_batch(images, shares, return_dict=True)
    assert logs["loss"] == pytest.approx((0.7 * labels + 0.3 * taught).mean(), rel=1e-5)
    assert logs["accuracy"] == pytest.approx((LOGITS.argmax(-1) == shares.argmax(-1)).mean())
    # Evaluation is of the labels alone.
    loss, _ = trainer.evaluate(images, shares, verbose=0)
    assert loss == pytest.approx(labels.mean(), rel=1e-5)
    # Class numbers are the same as shares of one class.
    for y in (LABELS, np.eye(5, dtype="float32")[LABELS]):
        logs = trainer.train_on_batch(images, y, return_dict=True)
        of_class = crossentropy(weights * (0.9 * np.eye(5)[LABELS] + 0.02), LOGITS)
        taught = kl(2.0) if kind == "soft" else crossentropy(np.eye(5)[ANSWERS.argmax(-1)], LOGITS)
        assert logs["loss"] == pytest.approx((0.7 * of_class + 0.3 * taught).mean(), rel=1e-5)


def test_a_penalty_of_the_students_weights_is_not_shared_with_the_teacher():
    model = given(LOGITS)
    model.layers[-1].kernel.regularizer = keras.regularizers.L2(0.1)  # The identity gives 0.5.
    trainer = DistillationTrainer(model, teacher=given(ANSWERS), distillation_weight=0.3)
    trainer.compile(SGD(0.0), SoftmaxCrossentropy())
    images = np.arange(6.0, dtype="float32")[:, None]
    labels = crossentropy(np.eye(5)[LABELS], LOGITS)
    logs = trainer.train_on_batch(images, LABELS, return_dict=True)
    expected = (0.7 * labels + 0.3 * kl(3.0)).mean() + 0.5
    assert logs["loss"] == pytest.approx(expected, rel=1e-5)


def student(classes=5, **changes):
    keras.utils.set_random_seed(0)
    config = tiny_config(**changes)
    return keras_vit.build(
        config, input_shape=(8, 8, 3), classes=classes, classifier_activation=None
    )


def dense(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(5)])


def test_each_head_of_a_distilled_model_learns_from_its_own_target():
    model, teacher = student(classifier="token+distillation"), dense(1)
    trainer = DistillationTrainer(
        model, teacher=teacher, distillation="hard", distillation_weight=0.3
    )
    sgd = SGD(1.0, 0.0, None)
    trainer.compile(sgd, SoftmaxCrossentropy(), metrics=["accuracy"], run_eagerly=True)
    answers = np.eye(5)[np.array(teacher(IMAGES)).argmax(-1)]
    trainer.train_on_batch(IMAGES, LABELS)
    # Heads start at zero, so each bias moves by its share of the targets less 1/5.
    for name, share, targets in (
        ("class_token_head", 0.7, np.eye(5)[LABELS]),
        ("distillation_token_head", 0.3, answers),
    ):
        bias = np.array(model.get_layer(name).bias)
        np.testing.assert_allclose(bias, share * (targets.mean(0) - 0.2), atol=1e-6)
    # It predicts with the mean of both.
    heads = [model.get_layer(f"{token}_token_head").output for token in ("class", "distillation")]
    one, other = keras.Model(model.input, heads)(IMAGES)
    mean = (np.array(one) + np.array(other)) / 2
    np.testing.assert_allclose(trainer.predict(IMAGES, verbose=0), mean, atol=1e-6)


def test_micro_batches_are_one_batch_and_the_state_is_the_students():
    trained = []
    for trainer_type, gradient_accumulation_steps in (
        (DistillationTrainer, 1),
        (DistillationTrainer, 2),
        (Trainer, 1),
    ):
        given = {} if trainer_type is Trainer else {"teacher": dense(1)}
        trainer = trainer_type(
            dense(0),
            ema_momentum=0.9,
            gradient_accumulation_steps=gradient_accumulation_steps,
            **given,
        )
        trainer.compile(SGD(0.1), SoftmaxCrossentropy(), metrics=["accuracy"])
        options = {"batch_size": 4 // gradient_accumulation_steps, "shuffle": False, "verbose": 0}
        trainer.fit(IMAGES, LABELS, epochs=2, **options)
        trained.append([np.array(v) for v in trainer.state_variables()])
        if given:
            for weight, value in zip(trainer.teacher.weights, dense(1).weights, strict=True):
                np.testing.assert_array_equal(np.array(weight), np.array(value))
    whole, parts, plain = trained
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert [one.shape for one in whole] == [one.shape for one in plain]


def teacher_folder(path, names=("light", "other", *NAMES[:2]), task="multiclass"):
    """A classifier by brightness, trained on other images, with more classes than the students."""
    images = keras.Input((4, 4, 3))
    mean = keras.layers.GlobalAveragePooling2D()(images)
    activation = {"multiclass": "softmax", "multilabel": "sigmoid"}[task]
    scores = keras.layers.Dense(4, activation=activation)(mean)
    model = keras.Model(images, scores)
    # The logits of brightness b by class, with its middle at 0: light, other, dark, grey.
    slopes = np.array([2.0, 0, -2, 0], "float32")
    model.layers[-1].set_weights([np.tile(slopes, (3, 1)), np.array([-1.0, -9, -1, 1], "float32")])
    save_classifier(path, model, names, Preprocessing((4, 4), value_range=IMAGENET), task=task)
    return path


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return teacher_folder(tmp_path_factory.mktemp("teachers") / "grey")


def test_the_teacher_sees_the_students_images_as_its_own(teacher):
    of_student = Preprocessing((10, 6))
    opened = open_teacher(teacher, NAMES)
    pixels = RNG.uniform(0, 255, (10, 6, 3)).astype("float32")
    with dtype_policy("mixed_bfloat16"):  # The student's policy.
        logits = np.array(opened.build(of_student)(pixels[None] / 127.5 - 1))[0]
    channels = [Image.fromarray(pixels[..., c]) for c in range(3)]
    resized = [np.array(c.resize((4, 4), Image.Resampling.BILINEAR)) for c in channels]
    mean, std = (np.array(values) for values in NORMALIZATIONS["imagenet"])
    inputs = ((np.stack(resized, -1) / 255 - mean) / std).astype("float32")
    light, _, dark, grey = np.array(open_predictor(teacher).model(inputs[None]))[0]
    expected = np.array([dark, grey, light]) / (dark + grey + light)
    np.testing.assert_allclose(scipy.special.softmax(logits), expected, atol=1e-5)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Images of every brightness, with labels that do not depend on it."""
    folder = tmp_path_factory.mktemp("shades")
    for number in range(48):
        part = "test" if number % 4 == 0 else "train"
        pixels = np.full((8, 8, 3), number * 5.3) + RNG.normal(0, 4, (8, 8, 3))
        write_picture(folder / part / NAMES[number % 3] / f"{number}.png", pixels)
    return folder


SETTINGS = tiny_settings(
    image_size=(8, 8), steps=40, evaluate_every=40, batch_size=12, optimizer="adam",
    learning_rate=3e-3, augmentation="none", validation=0.0,
)  # fmt: skip


def settings(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def agreement(classifier, teacher, data):
    paths = sorted((data / "test").rglob("*.png"))
    given = [prediction.labels for prediction in classifier.predict(paths)]
    return np.mean(
        [one == other.labels for one, other in zip(given, teacher.predict(paths), strict=True)]
    )


@pytest.mark.slow
def test_a_student_agrees_with_its_teacher(teacher, data, tmp_path):
    lines, agreements = [], []
    for name, changes in (("alone", {}), ("taught", {"teacher": str(teacher)})):
        given = settings(**changes, distillation_weight=0.9)
        done = finetune(data, tmp_path / name, given, test=False, log=lines.append)
        agreements.append(agreement(done.classifier, open_predictor(teacher), data))
    assert agreements[1] > max(0.8, agreements[0] + 0.2), agreements
    plan = "\n".join(lines)
    for line in ("distillation_weight  0.9", "temperature  3.0"):
        assert line.replace("  ", " ") in " ".join(plan.split())
    recipe = json.loads((tmp_path / "taught" / "recipe.json").read_text())
    fact = recipe["facts"]["teacher"]
    assert fact["value"] == f".../{teacher.name}"  # Without the folders of the machine.
    assert len(fact["sha256"]) == 64
    # The student alone is saved.
    shapes = [
        [w.shape for w in keras.saving.load_model(tmp_path / name / "model.keras").weights]
        for name in ("alone", "taught")
    ]
    assert shapes[0] == shapes[1]


def test_a_run_is_resumed_with_its_own_teacher_alone(teacher, data, tmp_path):
    folder = shutil.copytree(teacher, tmp_path / "teacher")
    spec, given = DataSpec(str(data)), settings(teacher=str(folder))
    started = start(spec, RunOptions(tmp_path / "run"), given)
    with started.folder.locked():
        started.folder.start(started.record.add(plan_of(started).record))
    options = RunOptions(tmp_path / "run", resume=True)
    resumed = start(DataSpec(), options, FineTuning())
    assert plan_of(resumed).stages[-1].rows == (2, 3, 0)
    shutil.rmtree(folder)
    model = open_predictor(teacher).model
    model.layers[-1].bias.assign(np.zeros(4))
    names = ("light", "other", "dark", "grey")
    save_classifier(folder, model, names, Preprocessing((4, 4), value_range=IMAGENET))
    with pytest.raises(ValueError, match="run was started"):
        plan_of(start(DataSpec(), options, FineTuning()))


def test_what_does_not_fit_is_one_line(teacher, data, tmp_path, capsys):
    several = teacher_folder(tmp_path / "several", task="multilabel")
    unknown = teacher_folder(tmp_path / "unknown", names=("light", "other", "black", "grey"))
    start = ["finetune", "--data", str(data), "--weights", "none", "--image-size", "8"]
    start += ["--model", "ViT-Mini/4", "--dry-run", "--output", str(tmp_path / "out")]
    for more, line in (
        (["--teacher", str(several)], "The teacher must give one class an image. "),
        (["--teacher", str(unknown)], "name every class of the data, and is without dark."),
        (["--teacher", str(tmp_path / "none")], "No such folder or file: "),
        (["--teacher", str(teacher), "--loss", "sigmoid"], 'teacher needs loss="softmax"'),
        (["--teacher", str(teacher), "--task", "multilabel"], 'teacher needs loss="softmax"'),
        (["--temperature", "5"], "--teacher"),
    ):
        assert main([*start, *more]) == 2
        error = [row for row in capsys.readouterr().err.splitlines() if row.startswith("keras-vit")]
        assert len(error) == 1, (more, error)
        assert line in error[0], more
    assert main([*start, "--teacher", str(teacher)]) == 0
    assert "teacher" in capsys.readouterr().out
