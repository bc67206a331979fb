import csv
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from runs import SignalAt

import keras_vit
from keras_vit.description.run_record import RunRecord
from keras_vit.training.evaluation.predictions import NonFiniteScores
from keras_vit.training.run.folder import open_folder
from keras_vit.training.run.loop import Interrupted, make_trainer, train
from keras_vit.training.settings import FineTuning


@pytest.fixture(scope="module")
def trajectory(golden):
    folder = golden("vit_token")
    return folder, folder.json("finetune_trajectory.json"), folder.load("finetune_trajectory.npz")


def golden_settings(recipe, **changes):
    return FineTuning(
        steps=recipe["steps"],
        batch_size=recipe["batch"],
        learning_rate=recipe["base_lr"],
        warmup_steps=recipe["warmup_steps"],
        decay=recipe["decay"],
        global_clipnorm=recipe["clip_global_norm"],
        momentum=recipe["momentum"],
        validation=0.0,
        evaluate_every=1,
        **changes,
    ).resolve(100)


def new_run(tmp_path):
    run = open_folder(tmp_path / "run")
    run.start(RunRecord())
    return run


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_official_finetuning_is_reproduced(trajectory, tmp_path, accumulate):
    folder, recipe, expected = trajectory
    model = folder.model(tmp_path)
    settings = golden_settings(recipe, accumulate=accumulate)
    batches = tf.data.Dataset.from_tensor_slices(
        (expected["images"].reshape(-1, 32, 32, 3), expected["labels"].reshape(-1))
    ).batch(settings.micro_batch_size)
    rows = train(make_trainer(model, settings), batches, new_run(tmp_path), settings)
    losses = [float(row["loss"]) for row in rows]
    rates = [float(row["learning_rate"]) for row in rows]
    # Float32, 8 steps; 6 digits in the table.
    np.testing.assert_allclose(losses, expected["losses"], atol=2e-5)
    np.testing.assert_allclose(rates, expected["learning_rates"], rtol=1e-5, atol=1e-9)
    keras_vit.save_checkpoint(model, tmp_path / "final.npz")
    with np.load(tmp_path / "final.npz") as final:
        for name, value in folder.load("finetune_final.npz").items():
            np.testing.assert_allclose(final[name], value, atol=2e-5, err_msg=name)


class Problem:
    """A run on four batches of noise that repeat."""

    def __init__(self, tmp_path, **changes):
        keras.utils.set_random_seed(0)
        hidden = [keras.layers.Flatten(), keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.1)]
        self.model = keras.Sequential([keras.Input((16, 16, 3)), *hidden, keras.layers.Dense(3)])
        fields = {"steps": 8, "batch_size": 4, "warmup_steps": 2, "evaluate_every": 2}
        fields |= {"weights": None, "learning_rate": 0.01} | changes
        self.settings = FineTuning(validation=0.0, **fields).resolve(100)
        self.trainer = make_trainer(self.model, self.settings)
        self.output = tmp_path / "run"
        rng = np.random.default_rng(0)
        images = rng.normal(size=(16, 16, 16, 3)).astype("float32")
        labels = rng.integers(0, 3, 16).astype("int32")
        self.batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4).repeat()

    def start(self, **options):
        run = open_folder(self.output)
        run.start(RunRecord())
        return train(self.trainer, self.batches, run, self.settings, **options)

    def resume(self, **options):
        run = open_folder(self.output, resume=True)
        step = run.checkpoints.restore(self.trainer)
        batches = self.batches.skip(step)
        return train(self.trainer, batches, run, self.settings, start_step=step, **options)


class Report:
    """What the loop reads of an evaluation."""

    def __init__(self, top_1, loss=0.5, count=10**6):
        self.score, self.loss, self.count = top_1, loss, count


def interrupt(problem, step, number):
    with pytest.raises(Interrupted) as stop:
        problem.start(callbacks=[SignalAt(step, number)])
    return stop.value


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_a_signal_stopped_goes_on_to_the_same_weights_and_averages(tmp_path, number):
    whole = Problem(tmp_path / "whole", ema_momentum=0.5)
    rows = whole.start()
    stopped = Problem(tmp_path / "stopped", ema_momentum=0.5)
    handler = signal.getsignal(number)  # In a background job it is another one.
    stop = interrupt(stopped, 3, number)
    assert stop.signal_number == number
    assert "Stopped after step 3 of 8" in str(stop)
    assert signal.getsignal(number) is handler
    resumed = Problem(tmp_path / "stopped", ema_momentum=0.5)
    resumed_rows = resumed.resume()
    assert_same(resumed.model.get_weights(), whole.model.get_weights())
    assert_same(last_weights(resumed), last_weights(whole))
    # The stop wrote another row, which splits the mean over steps 3 and 4.
    assert [row["step"] for row in resumed_rows] == ["2", "3", "4", "6", "8"]
    assert resumed_rows[-1]["loss"] == rows[-1]["loss"]


def validated(problem, *answers):
    """The folder, the rows and the weights at each validation of a run with prescribed answers."""
    answers, seen = iter(answers), []

    def validate():
        seen.append(problem.model.get_weights())
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Report) else Report(answer)

    rows = problem.start(validate=validate)
    return open_folder(problem.output, resume=True), rows, seen


def test_a_validation_that_is_not_finite_leaves_the_best_weights(tmp_path):
    problem = Problem(tmp_path, steps=2, warmup_steps=1, evaluate_every=1)
    run, rows, _ = validated(problem, 0.5, NonFiniteScores("NaN"))
    assert run.best_score() == (1, 0.5, 0.5)
    assert rows[-1]["validation_loss"] == "nan"


def last_weights(problem):
    """The weights of the last step, whose state an unfinished run keeps."""
    fresh = Problem(problem.output.parent / "fresh", ema_momentum=problem.settings.ema_momentum)
    open_folder(problem.output, resume=True).checkpoints.restore(fresh.trainer)
    return fresh.model.get_weights()


def assert_same(weights, others):
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_and_averages_are_validated_and_the_best_averages_kept(tmp_path):
    problem = Problem(tmp_path, ema_momentum=0.9)
    # Weights, averages; weights, averages; ...
    _, rows, seen = validated(problem, 0.9, 0.1, 0.2, 0.8, 0.3, 0.5, 0.4, 0.6)
    assert [row["validation_accuracy"] for row in rows] == ["0.9", "0.2", "0.3", "0.4"]
    assert [row["averaged_accuracy"] for row in rows] == ["0.1", "0.8", "0.5", "0.6"]
    assert_same(problem.model.get_weights(), seen[3])
    assert_same(last_weights(problem), seen[6])


def test_of_equal_scores_the_lower_loss_is_the_best(tmp_path):
    problem = Problem(tmp_path, patience=2, evaluate_every=1)
    answers = Report(0.6, 0.5), Report(0.6, 0.4), Report(0.6, 0.45), Report(0.6, 0.7)
    run, _, weights = validated(problem, *answers)
    assert run.best_score() == (2, 0.6, 0.4)
    assert_same(problem.model.get_weights(), weights[1])


def test_of_scores_that_differ_by_chance_the_lower_loss_is_the_best(tmp_path):
    problem = Problem(tmp_path, evaluate_every=2)
    # 22 and 20 of 24 images are nearly the same; 12 are fewer.
    answers = [Report(share / 24, loss, 24) for share, loss in ((16, 0.6), (22, 0.5), (20, 0.3))]
    run, _, weights = validated(problem, *answers, Report(12 / 24, 0.2, 24))
    assert run.best_score() == (6, 20 / 24, 0.3)
    assert_same(problem.model.get_weights(), weights[2])


def test_many_images_show_the_higher_score(tmp_path):
    problem = Problem(tmp_path, evaluate_every=2)
    answers = [Report(share, loss, 5000) for share, loss in ((0.8, 0.6), (0.9, 0.5), (0.85, 0.3))]
    run, *_ = validated(problem, *answers, answers[0])
    assert run.best_score() == (4, 0.9, 0.5)


@pytest.mark.parametrize("ema_momentum", [None, 0.9])
def test_scores_that_fall_by_chance_each_time_are_compared_with_the_highest(tmp_path, ema_momentum):
    problem = Problem(tmp_path, ema_momentum=ema_momentum)
    # Nine of ten images are nearly as many as the highest, 10; 7 and 5 are fewer.
    answers = [Report(1.0, 0.6, 10), Report(0.9, 0.59, 10), Report(0.7, 0.58, 10)]
    every = [*answers, Report(0.5, 0.57, 10)]
    run, *_ = validated(problem, *(each for each in every for _ in range(2 if ema_momentum else 1)))
    assert run.best_score() == (4, 0.9, 0.59)


def test_a_loss_that_falls_with_the_score_renews_no_patience(tmp_path):
    problem = Problem(tmp_path, patience=2, evaluate_every=1)
    answers = [Report(1 - step / 10, 0.6 - step / 100, 10) for step in range(8)]
    _, rows, _ = validated(problem, *answers)  # The second, of 9 images of 10, is the last kept.
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]


def test_a_resumed_run_compares_with_the_highest_score_before_its_stop(tmp_path):
    # The second validation has the highest score, and is not kept: its loss is higher.
    answers = Report(2 / 3, 0.3, 12), Report(5 / 6, 0.5, 12), Report(0.5, 0.2, 12)
    whole, stopped = Problem(tmp_path / "whole"), Problem(tmp_path / "stopped")
    run, *_ = validated(whole, *answers, answers[-1])
    validate = iter(answers).__next__
    with pytest.raises(Interrupted):
        stopped.start(validate=validate, callbacks=[SignalAt(5, signal.SIGTERM)])
    Problem(tmp_path / "stopped").resume(validate=lambda: answers[-1])
    assert open_folder(stopped.output, resume=True).best_score() == run.best_score()
    assert run.best_score() == (2, 2 / 3, 0.3)


def test_a_run_ends_where_validations_get_no_better(tmp_path):
    problem = Problem(tmp_path, patience=2, evaluate_every=1)
    run, rows, _ = validated(problem, 0.2, 0.6, 0.5, 0.6, 0.9)
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    assert run.best_score() == (2, 0.6, 0.5)
    # A stop between the end and the classifier's folder starts no more steps.
    again = Problem(tmp_path, patience=2, evaluate_every=1)
    assert [row["step"] for row in again.resume()] == ["1", "2", "3", "4"]


def test_steps_that_are_run_at_once_change_no_number(tmp_path):
    one = Problem(tmp_path / "one", evaluate_every=4)
    two = Problem(tmp_path / "two", evaluate_every=4, steps_per_execution=2)
    columns = ("step", "loss", "accuracy", "learning_rate")
    rows, others = ([[row[c] for c in columns] for row in p.start()] for p in (one, two))
    assert rows == others
    assert_same(one.model.get_weights(), two.model.get_weights())


class Recorder(keras.callbacks.Callback):
    """Keeps what a callback is called with, and may stop the run."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.stop_after, self.batches, self.epochs = stop_after, [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((batch, dict(logs)))
        if batch + 1 == self.stop_after:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, dict(logs)))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recorder, the run that it recorded, and the rows of its history."""
    recorder = Recorder()
    problem = Problem(tmp_path_factory.mktemp("recorded"), evaluate_every=3)
    rows = problem.start(validate=lambda: Report(0.25), callbacks=[recorder])
    return recorder, problem, rows


def test_callbacks_see_every_step(recorded):
    recorder, problem, rows = recorded
    assert recorder.model is problem.trainer
    assert [batch for batch, _ in recorder.batches] == list(range(8))
    losses = [f"{recorder.batches[step - 1][1]['loss']:.6g}" for step in (3, 6, 8)]
    assert losses == [row["loss"] for row in rows]


def test_callbacks_see_a_validation_at_its_step(recorded):
    recorder, _, _ = recorded
    plain, validated = {"loss", "accuracy"}, {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert [set(logs) for _, logs in recorder.batches] == [
        validated if step in (3, 6, 8) else plain for step in range(1, 9)
    ]


def test_a_run_is_one_epoch_of_its_callbacks(recorded):
    recorder, _, _ = recorded
    (epoch, logs), last = recorder.epochs[0], recorder.batches[-1][1]
    assert (epoch, len(recorder.epochs)) == (0, 1)
    assert logs == last
    assert (logs["val_loss"], logs["val_accuracy"]) == (0.5, 0.25)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """As `recorded`, where the recorder stops the run after step 50."""
    recorder = Recorder(stop_after=50)
    problem = Problem(tmp_path_factory.mktemp("stopped"), steps=120, evaluate_every=60)
    rows = problem.start(validate=lambda: Report(0.25), callbacks=[recorder])
    return recorder, problem, rows


def test_a_run_that_a_callback_stops_is_validated_there(stopped):
    recorder, _, rows = stopped
    assert [row["step"] for row in rows] == ["50"]
    assert rows[0]["validation_accuracy"] == "0.25"
    loss = recorder.batches[-1][1]["loss"]
    assert rows[0]["loss"] == f"{loss:.6g}"
    assert recorder.epochs == [
        (0, {**recorder.batches[-1][1], "val_loss": 0.5, "val_accuracy": 0.25})
    ]


def test_a_run_that_a_callback_stops_keeps_its_row_and_state(stopped):
    _, problem, rows = stopped
    run = open_folder(problem.output, resume=True)
    assert run.best_score() == (50, 0.25, 0.5)
    with open(run.path / "history.csv", newline="") as file:
        assert list(csv.DictReader(file)) == rows
    assert run.checkpoints.restore(problem.trainer) == 50
