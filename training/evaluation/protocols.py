"""Names, choices and defaults of the evaluation protocols, shared with the command line.

Imports neither NumPy nor TensorFlow, so that `keras-vit evaluate --help` is fast.
"""

from __future__ import annotations

import dataclasses

# Few-shot evaluation, as in big_vision's `fewshot_lsr`.
SHOTS = (1, 5, 10, 25)  # Images per class.
SEEDS = (0, 1, 2)  # Each chooses other images.
L2 = 1024.0  # Added to the diagonal of the summed, not averaged, squares.
FEW_SHOT_RESIZE = "resize_central_crop"  # Resizing of images, one of preprocessing.EVALUATIONS.


@dataclasses.dataclass(frozen=True)
class ImageNetProtocol:
    """A test set for ImageNet classifiers.

    Args:
        title: Its name in tables.
        dataset: The TFDS name; None for one that is not in TFDS.
        split: The TFDS split.
        real_labels: Whether the re-assessed labels of ReaL replace the original ones.
        only_its_classes: Whether the classifier chooses among the classes of the test set
            alone, as its authors do.
    """

    title: str
    dataset: str | None
    split: str
    real_labels: bool = False
    only_its_classes: bool = False


IMAGENET_PROTOCOLS = {
    "imagenet": ImageNetProtocol("ImageNet", "imagenet2012", "validation"),
    "imagenet-real": ImageNetProtocol(
        "ImageNet ReaL", "imagenet2012", "validation", real_labels=True
    ),
    "imagenet-v2": ImageNetProtocol("ImageNet-V2", "imagenet_v2/matched-frequency", "test"),
    "imagenet-a": ImageNetProtocol("ImageNet-A", "imagenet_a", "test", only_its_classes=True),
    "imagenet-r": ImageNetProtocol("ImageNet-R", "imagenet_r", "test", only_its_classes=True),
    "objectnet": ImageNetProtocol("ObjectNet", None, "test"),
}
