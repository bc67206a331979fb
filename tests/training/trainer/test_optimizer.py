import keras
import numpy as np
import pytest

from keras_vit.training import SGD, Adam, Muon, warmup_schedule

SHAPES = {"layer/kernel": (4, 3), "layer/bias": (3,)}
RNG = np.random.default_rng(0)
START = {path: RNG.standard_normal(shape).astype("float32") for path, shape in SHAPES.items()}
GRADIENTS = [
    {path: RNG.standard_normal(shape).astype("float32") for path, shape in SHAPES.items()}
    for _ in range(6)
]


def trained(optimizer, start, gradients):
    """Returns the weights after each step."""
    variables = []
    with keras.name_scope("layer"):
        for path, value in start.items():
            variables.append(keras.Variable(value, name=path.split("/")[1]))
    steps = []
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradient.values()], variables)
        steps.append([keras.ops.convert_to_numpy(v) for v in variables])
    return [np.stack(weights) for weights in zip(*steps, strict=True)]


def numpy_sgd(learning_rates, momentum, clip):
    weights = {path: value.astype("float64") for path, value in START.items()}
    buffers = dict.fromkeys(SHAPES, 0.0)
    for learning_rate, gradient in zip(learning_rates, GRADIENTS, strict=True):
        norm = np.sqrt(sum(np.sum(g.astype("float64") ** 2) for g in gradient.values()))
        for path, g in gradient.items():
            buffers[path] = momentum * buffers[path] + g * min(1.0, clip / norm)
            weights[path] = weights[path] - learning_rate * buffers[path]
    return weights


def test_sgd_keeps_the_learning_rate_out_of_the_momentum_buffer():
    schedule = warmup_schedule(0.5, steps=6, warmup_steps=2)
    learning_rates = [float(schedule(step)) for step in range(6)]
    kernel, bias = trained(SGD(schedule), START, GRADIENTS)
    expected = numpy_sgd(learning_rates, 0.9, 1.0)
    np.testing.assert_allclose(kernel[-1], expected["layer/kernel"], atol=1e-6)
    np.testing.assert_allclose(bias[-1], expected["layer/bias"], atol=1e-6)
    # Keras's own SGD does not: with this schedule it ends elsewhere.
    keras_sgd = keras.optimizers.SGD(schedule, momentum=0.9, global_clipnorm=1.0)
    other, _ = trained(keras_sgd, START, GRADIENTS)
    assert np.abs(other[-1] - expected["layer/kernel"]).max() > 0.05


def test_adam_adds_epsilon_after_the_bias_correction():
    tiny = [{path: 1e-8 * np.sign(g) for path, g in GRADIENTS[0].items()}]
    kernel, _ = trained(Adam(0.1), START, tiny)
    # m and v are corrected to g and g^2: the step is lr * 1e-8 / (1e-8 + 1e-8).
    expected = START["layer/kernel"] - 0.05 * np.sign(GRADIENTS[0]["layer/kernel"])
    np.testing.assert_allclose(kernel[-1], expected, atol=1e-4)


def test_weight_decay_times_the_learning_rate_is_that_of_keras():
    schedule = warmup_schedule(0.1, steps=6, warmup_steps=2, decay="linear")
    ours, _ = trained(Adam(schedule, weight_decay=0.3, epsilon=1e-7), START, GRADIENTS)
    theirs, _ = trained(keras.optimizers.AdamW(schedule, weight_decay=0.3), START, GRADIENTS)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_weight_decay_times_the_schedule_follows_its_shape_alone():
    schedule = warmup_schedule(0.1, steps=6, warmup_steps=2)
    nothing = [{path: np.zeros_like(g) for path, g in GRADIENTS[0].items()}] * 6
    kernel, bias = trained(
        Adam(schedule, weight_decay=0.3, weight_decay_times="schedule"), START, nothing
    )
    kept = np.prod([1 - 0.3 * float(schedule(step)) / 0.1 for step in range(6)])
    np.testing.assert_allclose(kernel[-1], START["layer/kernel"] * kept, rtol=1e-5)
    np.testing.assert_array_equal(bias[-1], START["layer/bias"])


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("adamw", lambda **decay: Adam(3e-2, **decay)),
        ("sgdw", lambda **decay: SGD(3e-2, global_clipnorm=None, **decay)),
    ],
)
def test_decay_times_the_schedule_is_that_of_tensorflow_addons(golden, name, optimizer):
    arrays = golden("tensorflow_addons").load()
    start = {"layer/kernel": arrays["kernel_0"], "layer/bias": arrays["bias_0"]}
    gradients = [
        {"kernel": kernel, "bias": bias}
        for kernel, bias in zip(arrays["grads_kernel"], arrays["grads_bias"], strict=True)
    ]
    kernel, bias = trained(
        optimizer(weight_decay=1e-2, weight_decay_times="schedule", weight_decay_names=("*",)),
        start,
        gradients,
    )
    # float32, 6 steps; Addons' Adam adds its epsilon of 1e-7 elsewhere.
    np.testing.assert_allclose(kernel, arrays[f"{name}/kernel"], atol=2e-6)
    np.testing.assert_allclose(bias, arrays[f"{name}/bias"], atol=2e-6)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(warmup_schedule(0.1, steps=9, warmup_steps=1), momentum=0.8, weight_decay=0.1),
        Adam(1e-2, weight_decay=0.2, weight_decay_names=("*bias",), weight_decay_times="schedule"),
        Muon(1e-2, momentum=0.8, weight_decay=0.2),
    ],
)
def test_an_optimizer_survives_serialisation(optimizer):
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.get_config() == optimizer.get_config()
    for one, other in zip(
        trained(copy, START, GRADIENTS), trained(optimizer, START, GRADIENTS), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SGD(0.1, momentum=1.0), "momentum"),
        (lambda: Adam(0.1, beta_1=1.5), "beta_1"),
        (lambda: Muon(0.1, momentum=1.0), "momentum"),
        (lambda: Adam(0.1, weight_decay=-1.0), "weight_decay"),
        (lambda: SGD(layer_decay=1.1), "layer_decay"),
        (lambda: Adam(0.1, weight_decay_times="lr"), "learning_rate"),
        (lambda: Adam(lambda: 0.1, weight_decay_times="schedule"), "base_lr"),
        (lambda: SGD(0.1).exclude_from_weight_decay(var_names=["bias"]), "weight_decay_names"),
    ],
)
def test_an_optimizer_that_cannot_be_is_refused(make, word):
    with pytest.raises(ValueError, match=word):
        make()


@pytest.mark.parametrize("clipping", [{"clipnorm": 1.0}, {"clipvalue": 0.5}])
def test_the_default_of_global_clipnorm_gives_way_to_another_clipping(clipping):
    ours, keras_sgd = SGD(0.1, momentum=0.0, **clipping), keras.optimizers.SGD(0.1, **clipping)
    assert ours.global_clipnorm is None
    expected = trained(keras_sgd, START, GRADIENTS)
    for found, right in zip(trained(ours, START, GRADIENTS), expected, strict=True):
        np.testing.assert_allclose(found[0], right[0], rtol=1e-6)


def test_two_ways_to_clip_are_refused_as_in_keras():
    with pytest.raises(ValueError, match="clipnorm"):
        SGD(0.1, global_clipnorm=2.0, clipnorm=1.0)
