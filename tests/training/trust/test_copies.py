import numpy as np

from keras_vit.training.trust.copies import ALIKE, EXACT, NEAR, Copy, find_copies, joined_groups
from keras_vit.training.trust.fingerprints import fingerprint_of
from makers import smooth_picture

RNG = np.random.default_rng(0)
PICTURES = [smooth_picture(RNG, (48, 48), (6, 6)) for _ in range(30)]
FEATURES = RNG.normal(size=(30, 64)).astype("float32")


def found(pictures, features):
    return find_copies([fingerprint_of(picture, True) for picture in pictures], features)


def test_different_images_are_no_copies():
    assert found(PICTURES, FEATURES) == []


def test_equal_pixels_are_an_exact_copy_and_a_resized_image_a_near_one():
    pictures = [*PICTURES, PICTURES[4], PICTURES[9].resize((40, 40))]
    features = np.concatenate([FEATURES, RNG.normal(size=(2, 64))])
    pairs = [(pair.first, pair.second, pair.kind) for pair in found(pictures, features)]
    assert pairs == [(4, 30, EXACT), (9, 31, NEAR)]


def test_shifted_crops_with_near_features_are_alike():
    features, pictures = FEATURES.copy(), list(PICTURES)
    features[20] = features[3] + 0.05 * RNG.normal(size=64)
    assert found(pictures, features) == []  # Another picture.
    whole = smooth_picture(RNG, (56, 56), (9, 9))
    pictures[3], pictures[20] = whole.crop((0, 0, 48, 48)), whole.crop((8, 6, 56, 54))
    (pair,) = found(pictures, features)
    assert (pair.first, pair.second, pair.kind) == (3, 20, ALIKE)


def test_groups_are_joined_by_copies_and_by_given_groups():
    pairs = [Copy(0, 1, EXACT), Copy(1, 4, NEAR)]
    groups = joined_groups(6, pairs)
    assert groups[0] == groups[1] == groups[4]
    assert len(np.unique(groups)) == 4
    given = joined_groups(6, pairs, np.array(["a", "b", "b", "c", "d", "c"]))
    assert given[0] == given[1] == given[2] == given[4]
    assert given[3] == given[5] != given[0]
    assert len(np.unique(joined_groups(3, []))) == 3
