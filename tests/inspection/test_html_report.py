import re

import numpy as np
import pytest
from page_flaws import flaws_of

import keras_vit
from keras_vit import inspection
from keras_vit.description import Description
from keras_vit.images.resizing import seen_region
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config, write_picture

SHAPE = (8, 12, 3)  # 2 x 3 patches of 4 pixels.
AXIAL = keras_vit.configs.AxialConfig(4, 16, 1, 16, 2, classifier="token")
AXIAL_RESNET = keras_vit.configs.AxialResNetConfig((1, 2), width_factor=0.5, num_heads=2)
WIDE = (32, 48, 3)
EVERY_FIGURE = {"filters", "position_similarity", "attention_distance", "rollout"}


def test_an_error_names_the_part_that_a_model_lacks(random_model):
    resnet = keras_vit.build("BiT-R50x1", include_top=False, input_shape=(32, 32, 3))
    assert inspection.filter_components(resnet, 2)[0].shape == (2, 7, 7, 3)
    for ask in (inspection.attention_maps, inspection.attention_rollout):
        with pytest.raises(ValueError, match="Vision Transformer.*BiTConfig"):
            ask(resnet, np.zeros((1, 32, 32, 3)))
    nowhere = random_model(tiny_config(position_embedding="none"))
    for model in (resnet, nowhere):
        with pytest.raises(ValueError, match="position embeddings"):
            inspection.position_similarity(model)
    with pytest.raises(ValueError, match=r"input shape \(None, 8, 12, 3\)"):
        inspection.attention_maps(nowhere, np.zeros((1, 8, 8, 3)))
    with pytest.raises(ValueError, match="one image"):
        inspection.attention_rollout(nowhere, np.zeros((0, *SHAPE)))


@pytest.mark.parametrize(
    ("evaluation", "expected"),
    [
        ("resize", (0, 0, 100, 200)),
        # The short side to 256 * 32 / 224 = 37 pixels, then the middle 32.
        ("resize_small_central_crop", (6.8, 56.8, 93.2, 143.2)),
        ("resize_central_crop", (6.8, 13.5, 93.2, 186.5)),
        ("huggingface", (6.8, 56.8, 93.2, 143.2)),
        ("keras_hub", (0, 50, 100, 150)),
    ],
)
def test_the_region_is_what_the_preprocessing_keeps(evaluation, expected):
    resize_size = 37 if evaluation == "huggingface" else None
    preprocessing = Preprocessing((32, 32), evaluation, resize_size=resize_size)
    found = seen_region((100, 200), preprocessing)
    np.testing.assert_allclose(found, expected, atol=4)  # The crop is by whole pixels of 2.7.


@pytest.mark.parametrize(
    ("config", "shape", "figures"),
    [
        (
            tiny_config(patch_size=1, resnet=keras_vit.configs.ResNetStem((1,), 0.5)),
            (16, 24, 3),
            EVERY_FIGURE,
        ),
        (AXIAL, SHAPE, {"filters", "position_similarity"}),
        (AXIAL_RESNET, WIDE, {"filters", "position_similarity"}),
    ],
    ids=["hybrid", "Axial-ViT", "Axial-ResNet"],
)
def test_other_architectures_have_the_figures_that_apply(
    random_model, config, shape, figures, tmp_path
):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 31, 3), "uint8")
    file = write_picture(tmp_path / "wide.png", pixels)
    inspection.write_report(
        tmp_path / "out",
        random_model(config, shape),
        [file],
        description=Description(preprocessing=Preprocessing(shape[:2])),
        num_pictures=1,
    )
    written = {path.name for path in (tmp_path / "out").iterdir()}
    drawn = {f"{name}_1" if name == "rollout" else name for name in figures}
    assert written == {
        "index.html",
        *(f"{name}.npz" for name in figures),
        *(f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg")),
    }
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert ("Attention Rollout is left out." in page) == ("rollout" not in figures)


@pytest.fixture(scope="module")
def report(random_model, tmp_path_factory):
    """The folder of a report on a Vision Transformer."""
    folder = tmp_path_factory.mktemp("report")
    pixels = np.random.default_rng(0).integers(0, 255, (20, 31, 3), "uint8")
    file = write_picture(folder / "picture.png", pixels)
    model, known = random_model(tiny_config(), SHAPE), Preprocessing(SHAPE[:2])
    described = Description(preprocessing=known)
    inspection.write_report(folder / "out", model, [file], description=described)
    return folder / "out"


def test_images_without_a_preprocessing_are_refused(random_model, tmp_path):
    model = random_model(tiny_config(), SHAPE)
    with pytest.raises(ValueError, match="description="):
        inspection.write_report(tmp_path / "out", model, ["a.png"])


def test_the_page_links_to_each_array_and_drawing(report):
    page = (report / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="([^"#]+)"', page))
    assert linked == {path.name for path in report.iterdir() if path.suffix in (".npz", ".svg")}
    assert "rollout (1, 2, 3), titles (1,)" in page


def test_the_page_has_no_flaws_for_people(report, chromium):
    assert flaws_of(chromium, (report / "index.html").as_uri()) == []
