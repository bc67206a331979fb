"""The same training on one device and on two replicas: the losses agree.

Two halves of this machine's CPU stand in for two GPUs. On GPUs the strategy is
`keras_vit.training.strategy("mirrored")`, and nothing else changes. Plain Keras differs here: it
clips each replica's gradient by itself and draws the same dropout masks in both.
"""

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import SGD, Trainer

# Before TensorFlow uses the CPU.
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)

digits, labels = load_digits(return_X_y=True)
images = np.kron(digits.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")
pairs = (keras_vit.preprocess_input(images[:160]), labels[:160])
batches = tf.data.Dataset.from_tensor_slices(pairs).batch(32)  # The global batch.


class Losses(keras.callbacks.Callback):
    """Collects the loss of every step."""

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"] * (batch + 1) - sum(self.losses))  # From the mean so far.


def train(strategy):
    """Returns the losses of five steps with dropout and clipping, and the weights after them."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        config = keras_vit.ViTConfig(4, 32, 2, 64, 2, dropout_rate=0.1)
        vit = keras_vit.build(config, input_shape=(32, 32, 3), classes=10)
        model = Trainer(vit)
        model.compile(SGD(0.1, global_clipnorm=1.0), "sparse_categorical_crossentropy")
    losses = Losses()
    model.fit(batches, callbacks=[losses], verbose=0)
    print(f"replicas: {strategy.num_replicas_in_sync}, losses: {np.round(losses.losses, 5)}")
    weights = np.concatenate([weight.ravel() for weight in vit.get_weights()])
    return np.array(losses.losses), weights


losses_of_one, weights_of_one = train(tf.distribute.OneDeviceStrategy("CPU:0"))
losses_of_two, weights_of_two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
print(f"largest difference of a loss: {np.abs(losses_of_one - losses_of_two).max():.1e}")
print(f"largest difference of a weight: {np.abs(weights_of_one - weights_of_two).max():.1e}")
