"""The models of the shape study: the paper's Appendix D.2 and Figure 8.

python -c "import shape_study; print(shape_study.shape_study()['depth'][8])"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from keras_vit.configs import ViTConfig

# The base of the shape study, where the lines of Figure 8 meet.
SHAPE_STUDY_BASE = ViTConfig(32, width=1024, depth=8, mlp_dim=2048, num_heads=16)


def shape_study(
    factors: Iterable[float] = (0.5, 1, 2, 4, 8),
) -> dict[str, dict[float, ViTConfig]]:
    """Returns the models of the shape study, by the scaled dimension and the factor.

    Paper, Appendix D.2 and Figure 8: the depth, the width, the MLP, the patches or all of
    them are scaled from a base of 8 blocks, D = 1024, an MLP of 2048 and patches of 32
    pixels. Heads stay 64 wide, so their number grows with the width. A factor divides the
    patch, as a smaller one makes the model larger. The paper gives the base and a
    largest depth of 64; the other factors are ours.

    Args:
        factors: Numbers by which every size stays a whole number; 1 is the base.

    Returns:
        Configs by "depth", "width", "mlp", "patch" and "all", then by factor.

    Raises:
        ValueError: If a scaled size is not a whole number.

    Example:
    >>> shape_study()["depth"][8].depth
    64
    """
    base = SHAPE_STUDY_BASE
    lines = {
        "depth": ("depth",),
        "width": ("width", "num_heads"),
        "mlp": ("mlp_dim",),
        "patch": ("patch_size",),
        "all": ("depth", "width", "num_heads", "mlp_dim", "patch_size"),
    }
    factors = tuple(factors)

    def scaled(field, factor):
        value = getattr(base, field)
        value = value / factor if field == "patch_size" else value * factor
        if value != int(value) or value < 1:
            raise ValueError(
                f"A factor must make every size a whole number. Received: factor={factor}, "
                f"which makes {field}={value}"
            )
        return int(value)

    return {
        line: {
            factor: dataclasses.replace(base, **{field: scaled(field, factor) for field in fields})
            for factor in factors
        }
        for line, fields in lines.items()
    }
