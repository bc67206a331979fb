"""Makes torchvision importable with a PyTorch of another build, without its operators."""

import importlib
import sys

import torch

try:
    importlib.import_module("torchvision")
except RuntimeError:  # A wheel for another build of torch has no compiled operators: none is used.
    for module in [name for name in sys.modules if name.startswith("torchvision")]:
        del sys.modules[module]
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
