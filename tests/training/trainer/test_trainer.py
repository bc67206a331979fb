import keras
import numpy as np
import pytest

import keras_vit.layers
from keras_vit.training import SGD, NonFiniteError, Trainer, warmup_schedule

RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((22, 8, 8, 3)).astype("float32")
LABELS = RNG.integers(0, 4, 22)


def build(dropout_rate=0.0, seed=0, **options):
    """A trainer of a network of two dense layers, which compiles fast."""
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(8, "gelu")]
    if dropout_rate:
        layers.append(keras.layers.Dropout(dropout_rate))
    return Trainer(keras.Sequential([*layers, keras.layers.Dense(4)]), **options)


def compiled(trainer, optimizer=None, reduction="sum_over_batch_size", **options):
    trainer.compile(
        optimizer or SGD(warmup_schedule(0.5, steps=12, warmup_steps=2)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction),
        metrics=["accuracy"],
        **options,
    )
    return trainer


def weights(trainer):
    return [keras.ops.convert_to_numpy(v) for v in trainer.trainable_variables]


def fit(trainer, batch_size, epochs=3, **options):
    options = {"shuffle": False, "verbose": 0, **options}
    history = trainer.fit(IMAGES, LABELS, batch_size=batch_size, epochs=epochs, **options)
    return history.history["loss"], weights(trainer)


def assert_close(one, other, atol=1e-5):  # float32, 9 steps
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.fixture(scope="module")
def whole():
    """Losses of three epochs and the weights after them, with batches of 8."""
    return fit(compiled(build()), 8)


def test_fit_is_that_of_keras_where_keras_is_right(whole):
    losses, trained = whole
    plain = build().model
    plain.compile(
        SGD(warmup_schedule(0.5, steps=12, warmup_steps=2)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = plain.fit(IMAGES, LABELS, batch_size=8, epochs=3, shuffle=False, verbose=0)
    np.testing.assert_allclose(losses, history.history["loss"], atol=1e-5)
    assert_close(trained, [v.numpy() for v in plain.trainable_variables])


@pytest.mark.parametrize("options", [{}, {"jit_compile": True}, {"steps_per_execution": 3}])
def test_micro_batches_are_one_batch(options, whole):
    # 22 examples: the epoch's last step has 6 of them, in batches of 4 and 2.
    parts = fit(compiled(build(gradient_accumulation_steps=2), **options), 4)
    np.testing.assert_allclose(whole[0], parts[0], atol=1e-5)
    assert_close(whole[1], parts[1])


def test_everything_counts_optimizer_steps():
    trainer = compiled(build(gradient_accumulation_steps=2), steps_per_execution=2)
    fit(trainer, 4, epochs=2)
    # 6 batches, 3 steps in an epoch.
    assert int(trainer.step.numpy()) == int(trainer.optimizer.iterations.numpy()) == 6
    fit(trainer, 4, epochs=1, steps_per_epoch=2)
    assert int(trainer.step.numpy()) == 8


def test_the_validation_split_is_the_end_of_the_arrays():
    options = {"shuffle": False, "verbose": 0, "batch_size": 4}
    split = compiled(build()).fit(IMAGES, LABELS, validation_split=0.25, **options)
    end = (IMAGES[16:], LABELS[16:])
    apart = compiled(build()).fit(IMAGES[:16], LABELS[:16], validation_data=end, **options)
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(split.history[name], apart.history[name], atol=1e-6)


def test_weights_of_examples_count_as_given():
    counted = RNG.uniform(0, 2, 22)
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        one, several = (
            compiled(build(gradient_accumulation_steps=steps), SGD(0.5), reduction)
            for steps in (1, 3)
        )
        losses, trained = fit(one, 22, epochs=1, sample_weight=counted)
        parts = fit(several, 8, epochs=1, sample_weight=counted)
        np.testing.assert_allclose(losses, parts[0], atol=1e-5)
        assert_close(trained, parts[1])


@pytest.mark.any_backend
@pytest.mark.parametrize(("batch_size", "micro"), [(8, 1), (4, 2)])
def test_steps_are_those_of_numpy(batch_size, micro):
    dense = keras.layers.Dense(4, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Flatten(), dense])
    trainer = compiled(
        Trainer(model, gradient_accumulation_steps=micro), SGD(0.5, global_clipnorm=None)
    )
    losses, trained = fit(trainer, batch_size, epochs=1, steps_per_epoch=2)
    parameters, momentum, expected = np.zeros((193, 4)), np.zeros((193, 4)), []
    for rows in (slice(0, 8), slice(8, 16)):
        inputs = np.concatenate([IMAGES[rows].reshape(8, -1), np.ones((8, 1))], axis=1)
        exponentials = np.exp(inputs @ parameters)
        shares = exponentials / exponentials.sum(axis=1, keepdims=True)
        expected.append(-np.log(shares[range(8), LABELS[rows]]).mean())
        momentum = 0.9 * momentum + inputs.T @ (shares - np.eye(4)[LABELS[rows]]) / 8
        parameters -= 0.5 * momentum
    np.testing.assert_allclose(losses, [np.mean(expected)], rtol=1e-4)
    assert_close(trained, (parameters[:-1], parameters[-1]), atol=1e-4)


@pytest.mark.any_backend
def test_a_step_is_the_same_for_any_scale_of_the_weights_of_examples():
    counted = np.linspace(0, 2, 8)
    trained = [
        fit(
            compiled(build(), SGD(0.5), "mean_with_sample_weight"),
            8,
            epochs=1,
            steps_per_epoch=1,
            sample_weight=np.resize(scale * counted, 22),
        )
        for scale in (1, 1e-4)
    ]
    np.testing.assert_allclose(trained[0][0], trained[1][0], rtol=1e-4)
    assert_close(trained[0][1], trained[1][1])


@pytest.mark.any_backend
def test_evaluation_counts_every_example_once():
    trainer = compiled(build())
    whole = trainer.evaluate(IMAGES, LABELS, batch_size=22, verbose=0)
    uneven = trainer.evaluate(IMAGES, LABELS, batch_size=5, verbose=0)
    np.testing.assert_allclose(whole, uneven, rtol=1e-6)
    right = trainer.predict(IMAGES, batch_size=5, verbose=0).argmax(-1) == LABELS
    assert uneven[1] == pytest.approx(right.mean())


def test_dropout_repeats_for_a_seed_and_differs_between_micro_batches():
    one = fit(compiled(build(dropout_rate=0.3)), 8)[1]
    assert_close(one, fit(compiled(build(dropout_rate=0.3)), 8)[1], atol=0)
    other_seed = Trainer(build(dropout_rate=0.3).model, seed=1)
    assert np.abs(fit(compiled(other_seed), 8)[1][0] - one[0]).max() > 1e-3
    trainer = build(dropout_rate=0.3)
    drawn = {
        tuple(np.ravel([np.array(state) for state in trainer.draw_seeds(replica, micro)]))
        for replica in range(3)
        for micro in range(3)
    }
    assert len(drawn) == 9


def test_not_a_number_stops_and_keeps_the_last_good_weights():
    good, bad = compiled(build()), compiled(build(), steps_per_execution=2)
    fit(good, 8, epochs=1, steps_per_epoch=1)
    poisoned = IMAGES.copy()
    poisoned[12] = np.nan
    with pytest.raises(NonFiniteError, match="step 2, .*0.25") as error:
        bad.fit(poisoned, LABELS, batch_size=8, epochs=3, shuffle=False, verbose=0)
    assert (error.value.step, error.value.learning_rate) == (2, 0.25)
    assert_close(weights(good), weights(bad), atol=0)


def test_steps_that_are_not_finite_are_skipped_on_request():
    poisoned = IMAGES.copy()
    poisoned[12] = np.nan
    trainer = compiled(build(skip_nonfinite_steps=2))
    history = trainer.fit(poisoned, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert int(trainer.optimizer.iterations.numpy()) == 4
    with pytest.raises(NonFiniteError, match="step 8"):
        trainer.fit(poisoned, LABELS, batch_size=8, shuffle=False, verbose=0)


@pytest.mark.any_backend
def test_a_skipped_step_changes_neither_weights_nor_averages():
    trainer = compiled(build(ema_momentum=0.5, skip_nonfinite_steps=1), SGD(0.5))
    fit(trainer, 8, epochs=1, steps_per_epoch=1)
    before = [*weights(trainer), *map(keras.ops.convert_to_numpy, trainer.averages)]
    assert np.abs(before[0] - before[4]).max() > 1e-4  # An average would move.
    trainer.fit(IMAGES[:8] * np.nan, LABELS[:8], batch_size=8, verbose=0)
    assert int(trainer.skipped_steps.numpy()) == 1
    after = [*weights(trainer), *map(keras.ops.convert_to_numpy, trainer.averages)]
    assert_close(after, before, atol=0)


def test_averages_start_at_the_weights_and_never_reach_them(whole):
    trainer = build(ema_momentum=0.9)
    averages = [v.copy() for v in weights(trainer)]

    class Follow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            for average, weight in zip(averages, weights(trainer), strict=True):
                average += 0.1 * (weight - average)

    _, trained = fit(compiled(trainer), 8, callbacks=[Follow()])
    assert_close([v.numpy() for v in trainer.averages], averages, atol=1e-6)
    assert_close(trained, whole[1], atol=0)
    averaged = trainer.evaluate(IMAGES, LABELS, verbose=0, use_averages=True)
    assert averaged != trainer.evaluate(IMAGES, LABELS, verbose=0)
    assert_close(trained, weights(trainer), atol=0)


def test_averages_are_those_of_tensorflow_addons(golden):
    arrays = golden("tensorflow_addons").load()
    dense = keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((4,)), dense])
    dense.set_weights([arrays["kernel_0"], arrays["bias_0"]])

    class Prescribed(Trainer):
        """Has a loss whose gradient is prescribed."""

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.sum(dense.kernel * keras.ops.transpose(x)) + keras.ops.sum(
                dense.bias * y
            )

    trainer = Prescribed(model, ema_momentum=0.9)
    trainer.compile(SGD(3e-2, global_clipnorm=None))
    for kernel, bias in zip(arrays["grads_kernel"], arrays["grads_bias"], strict=True):
        trainer.train_on_batch(kernel.T, bias)
    for ours, name in zip(trainer.averages, ("kernel", "bias"), strict=True):
        np.testing.assert_allclose(ours, arrays[f"moving_average/averaged_{name}"], atol=1e-6)


def test_a_trainer_survives_saving(tmp_path):
    trainer = compiled(build(gradient_accumulation_steps=2, ema_momentum=0.9))
    fit(trainer, 4, epochs=1)
    trainer.save(tmp_path / "trainer.keras")
    copy = keras.saving.load_model(tmp_path / "trainer.keras")
    assert copy.gradient_accumulation_steps == 2
    assert copy.ema_momentum == 0.9
    assert_close([v.numpy() for v in copy.weights], [v.numpy() for v in trainer.weights], atol=0)
    assert_close(fit(copy, 4, epochs=1)[1], fit(trainer, 4, epochs=1)[1], atol=0)


@pytest.mark.parametrize(
    "options",
    [{"gradient_accumulation_steps": 0}, {"ema_momentum": 1.0}, {"skip_nonfinite_steps": -1}],
)
def test_a_trainer_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        build(**options)


@pytest.mark.parametrize(
    ("optimizer", "loss", "word"),
    [
        (
            keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
            "mse",
            "gradient_accumulation_steps",
        ),
        (keras.optimizers.Adam(use_ema=True), "mse", "ema_momentum"),
        (SGD(0.1), keras.losses.MeanSquaredError(reduction="sum"), "mean over examples"),
    ],
)
def test_what_would_not_be_exact_is_refused(optimizer, loss, word):
    trainer = build()
    trainer.compile(optimizer, loss)
    with pytest.raises(ValueError, match=word):
        fit(trainer, 8)


def test_weights_that_are_frozen_after_the_averages_were_made_are_refused():
    trainer = build(ema_momentum=0.9)
    trainer.model.layers[-1].trainable = False
    trainer.compile(SGD(0.1), "mse")
    with pytest.raises(ValueError, match="before building"):
        fit(trainer, 8)


def test_replicas_and_micro_batches_draw_other_masks_in_layers_of_keras_and_the_same_in_ours():
    trainer = build(dropout_rate=0.5)
    trainer.model = keras.Sequential([*trainer.model.layers, keras_vit.layers.Dropout(0.5)])
    trainer.model.build((None, 8, 8, 3))

    def drawn(replica, first):
        theirs, ours = (np.array(seed).tolist() for seed in trainer.draw_seeds(replica, first))
        return theirs, ours

    theirs, ours = zip(*(drawn(*place) for place in ((0, 0), (1, 0), (0, 4))), strict=True)
    assert len(set(map(tuple, theirs))) == 3
    assert len(set(map(tuple, ours))) == 1
    assert drawn(1, 0) == (theirs[1], ours[1])
    trainer.step.assign(1)
    assert drawn(0, 0)[0] not in theirs
    assert drawn(0, 0)[1] not in ours
