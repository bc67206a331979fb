"""Writes tests/golden/position_resize.npz: tables of positions resized by PyTorch.

python position_resize_golden.py            # Where torch is installed.
"""

import numpy as np
import torch
from torch.nn.functional import interpolate

OPTIONS = {
    "official": {"mode": "bilinear", "align_corners": True},
    "bilinear": {"mode": "bilinear"},
    "bilinear_antialias": {"mode": "bilinear", "antialias": True},
    "bicubic": {"mode": "bicubic", "antialias": True},
    "bicubic_torch": {"mode": "bicubic"},
    "bicubic_dinov2": {"mode": "bicubic"},
    "bicubic_corners": {"mode": "bicubic", "align_corners": True},
}
arrays = {}
for old, new in (((4, 5), (7, 9)), ((6, 7), (4, 3)), ((5, 5), (5, 3))):
    case = "{}x{}_{}x{}".format(*old, *new)
    table = np.random.default_rng(0).normal(size=(*old, 2)).astype("float32")
    arrays[f"in_{case}"] = table
    images = torch.tensor(table.astype("float64")).permute(2, 0, 1)[None]
    for rule, options in OPTIONS.items():
        size = {"size": new}
        if rule == "bicubic_dinov2":  # Meta's DINOv2, interpolate_offset=0.1.
            size = {"scale_factor": tuple((n + 0.1) / o for n, o in zip(new, old, strict=True))}
        resized = interpolate(images, **size, **{"align_corners": False, **options})
        arrays[f"{rule}_{case}"] = resized[0].permute(1, 2, 0).numpy().astype("float32")
np.savez_compressed("position_resize.npz", **arrays)
