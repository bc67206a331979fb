import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.training import Adam, SoftmaxCrossentropy, Trainer
from keras_vit.training.trainer.tensorflow_backend import TensorFlowSteps

# Tiny, but with every kind of layer of each architecture.
VIT = {"patch_size": 8, "width": 16, "depth": 1, "mlp_dim": 32, "num_heads": 2}
CONFIGS = {
    "ViT": keras_vit.ViTConfig(**VIT),
    "hybrid": keras_vit.ViTConfig(
        **{**VIT, "patch_size": 1}, resnet=keras_vit.configs.ResNetStem((1, 1), 0.5)
    ),
    "BiT": keras_vit.configs.BiTConfig((1, 1, 1, 1), 1),
    "Axial": keras_vit.configs.AxialConfig(**VIT),
}


def steps_of(config, size=32):
    keras.utils.set_random_seed(0)
    model = keras_vit.build(
        config, input_shape=(size, size, 3), classes=4, classifier_activation=None
    )
    trainer = Trainer(model, ema_momentum=0.9)
    # A large epsilon: Adam makes whole steps of rounding noise.
    trainer.compile(
        Adam(1e-3, weight_decay=0.1, global_clipnorm=1.0, epsilon=1e-3),
        SoftmaxCrossentropy(0.1),
        metrics=["accuracy"],
        jit_compile=False,
    )
    rng = np.random.default_rng(0)
    images = rng.standard_normal((4, size, size, 3)).astype("float32")
    batch = (tf.constant(images), tf.constant(rng.integers(0, 4, 4)))
    trainer._maybe_symbolic_build(data_batch=batch)
    trainer.make_train_function()
    return trainer, TensorFlowSteps(trainer), batch


def trained(config, jit_compile):
    trainer, steps, batch = steps_of(config)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step(batch):
        steps._train_on([batch])
        return trainer.get_metrics_result()["loss"]

    losses = [float(step(batch)) for _ in range(3)]
    return losses, [np.array(v) for v in trainer.state_variables()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_the_whole_step_compiles_to_the_same_numbers(name):
    plain, compiled = (trained(CONFIGS[name], jit_compile) for jit_compile in (False, True))
    np.testing.assert_allclose(plain[0], compiled[0], atol=1e-5)
    assert plain[0][2] < plain[0][0]
    for one, other in zip(plain[1], compiled[1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)  # float32, 3 steps
