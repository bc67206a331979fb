"""The trainer: the same numbers on one device, several replicas and several workers.

Importing this package registers its losses, optimizers, schedules and the trainer with Keras.
"""

from keras_vit.training.trainer import losses as losses, optimizer as optimizer, trainer as trainer
