"""Exports to SavedModel, TFLite, ONNX and OpenVINO, and conversion of weights."""

import lazy_loader

from keras_vit._installation import check_installation

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

check_installation()
