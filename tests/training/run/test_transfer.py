"""Linear probe and LoRA: what is trained, and the plain model that comes out."""

import types

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.description import Labels
from keras_vit.models.rebuild import inference_model, merged_weights
from keras_vit.training import SGD, FineTuning, SoftmaxCrossentropy, Trainer
from keras_vit.training.run.loop import choose_trained
from keras_vit.training.run.start_weights import (
    choose_head,
    describe_model,
    find_start,
    rate_of,
)
from makers import tiny_config

CONFIG = tiny_config(depth=2)
LORA = {"lora_kernel_a", "lora_kernel_b"}


def model_of(config=CONFIG):
    keras.utils.set_random_seed(0)
    model = keras_vit.build(config, input_shape=(8, 8, 3), classes=3, classifier_activation=None)
    head = model.get_layer("predictions").kernel
    head.assign(np.random.default_rng(0).normal(size=head.shape))
    return model


def images():
    return np.random.default_rng(0).normal(size=(6, 8, 8, 3)).astype("float32")


def trained(part, steps=3, **arguments):
    model = model_of()
    choose_trained(model, part, **arguments)
    before = merged_weights(model)
    trainer = Trainer(model)
    trainer.compile(SGD(0.5), SoftmaxCrossentropy())
    labels = np.array([0, 1, 2, 0, 1, 2])
    trainer.fit(images(), labels, batch_size=6, epochs=steps, verbose=0)
    return model, trainer, before, merged_weights(model)


def moved(before, after):
    return {path for path in before if not np.array_equal(before[path], after[path])}


@pytest.mark.slow
def test_a_linear_probe_trains_the_head_alone():
    _, trainer, before, after = trained("head")
    assert moved(before, after) == {"predictions/kernel", "predictions/bias"}
    # Learning rate and step count, and a buffer for each weight that is trained.
    assert len(trainer.optimizer.variables) == 2 + 2


def test_lora_trains_query_value_and_head():
    model, trainer, before, after = trained("lora", lora_rank=2)
    kernels = {
        f"encoder_block_{index}/attention/{name}/kernel"
        for index in range(2)
        for name in ("query", "value")
    }
    plain = {path for path in moved(before, after) if path.split("/")[-1] not in LORA}
    assert plain == {*kernels, "predictions/kernel", "predictions/bias"}
    shapes = [tuple(v.shape) for v in model.trainable_variables if v.name in LORA]
    assert shapes == [(16, 2, 2), (2, 8)] * 4
    assert len(trainer.optimizer.variables) == 2 + 8 + 2


def test_what_lora_adds_is_the_product():
    model, _, before, after = trained("lora", lora_rank=2)
    query = model.get_layer("encoder_block_1").attention.query
    product = np.einsum("dkr,re->dke", query.lora_kernel_a, query.lora_kernel_b)
    path = "encoder_block_1/attention/query/kernel"
    assert np.abs(product).max() > 1e-4
    np.testing.assert_allclose(after[path], before[path] + product, atol=1e-6)


def test_the_model_that_is_kept_is_a_plain_one(tmp_path):
    model, _, _, _ = trained("lora", lora_rank=2)
    expected = keras.ops.softmax(model(images()))
    kept = inference_model(model)
    np.testing.assert_allclose(kept(images()), expected, atol=1e-6)
    names = [weight.path for weight in model_of().weights]
    assert [weight.path for weight in kept.weights] == names
    assert len(kept.trainable_variables) == len(names)
    model.save(tmp_path / "last.keras")
    loaded = keras.saving.load_model(tmp_path / "last.keras", compile=False)
    assert [weight.path for weight in loaded.weights] == names
    np.testing.assert_allclose(keras.ops.softmax(loaded(images())), expected, atol=1e-6)


def test_lora_needs_attention():
    with pytest.raises(ValueError, match="needs the self-attention"):
        choose_trained(model_of(keras_vit.configs.BiTConfig((1,), 0.5)), "lora")


def test_a_row_of_the_head_is_kept_in_either_form_of_unicode_and_a_look_alike_is_named():
    names = Labels(("cafe\u0301", "dog")).names
    weights = types.SimpleNamespace(
        class_names=names, description=types.SimpleNamespace(classes=2), source="weights"
    )
    assert choose_head(weights, ("caf\u00e9", "dog"))[0] == (0, 1)
    rows, reason = choose_head(weights, ("Dog", "caf\u00e9"))
    assert rows == (None, 0)
    assert "'dog' and 'Dog' are different" in reason


@pytest.mark.parametrize(
    ("names", "given", "rate"),
    [(("cat", "dog"), None, 0.01), (("a", "b"), None, 0.03), (("cat", "dog"), 0.02, 0.02)],
)
def test_the_rate_is_lower_where_the_head_of_the_weights_is_kept(names, given, rate):
    settings = FineTuning(weights="cifar10", model=None, learning_rate=given, image_size=None)
    *_, head = describe_model(find_start(settings), settings, Labels(names))
    assert rate_of(settings, head) == rate
