import dataclasses
import itertools

import pytest
from shape_study import SHAPE_STUDY_BASE, shape_study

import keras_vit


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("depth", {"depth": 16}),
        ("width", {"width": 2048, "num_heads": 32}),
        ("mlp", {"mlp_dim": 4096}),
        ("patch", {"patch_size": 16}),
        (
            "all",
            {"depth": 16, "width": 2048, "num_heads": 32, "mlp_dim": 4096, "patch_size": 16},
        ),
    ],
)
def test_a_line_of_the_shape_study_scales_its_sizes_alone(line, changed):
    study = shape_study()
    assert study[line][2] == dataclasses.replace(SHAPE_STUDY_BASE, **changed)
    costs = [keras_vit.describe(config).flops for _, config in sorted(study[line].items())]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(costs))
