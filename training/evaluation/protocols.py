"""Names, choices and defaults of the evaluation protocols, shared with the command line.

Imports neither NumPy nor TensorFlow, so that `keras-vit evaluate --help` is fast.
"""

from __future__ import annotations

import dataclasses
import os

from keras_vit.utils.fields import documented, setting

# Few-shot evaluation, as in big_vision's `fewshot_lsr`.
SHOTS = (1, 5, 10, 25)  # Images per class.
SEEDS = (0, 1, 2)  # Each chooses other images.
NEIGHBOURS = 20  # Training images that vote, for an accuracy in addition to few-shot's.
L2 = 1024.0  # Added to the diagonal of the summed, not averaged, squares.
DTYPES = ("float32", "float64")  # The linear map's; the official code computes in float32.
FEW_SHOT_RESIZE = "resize_central_crop"  # Resizing of images, one of preprocessing.EVALUATIONS.

# Near-duplicates: bits of 64 in which perceptual hashes may differ, and the smallest
# correlation of the thumbnails.
DUPLICATE_DISTANCE = 10
DUPLICATE_SIMILARITY = 0.95


@documented
@dataclasses.dataclass(frozen=True)
class VtabOptions:
    """A run of VTAB-1k; the arguments of `run_vtab` and the flags of `keras-vit vtab`."""

    tasks: tuple[str, ...] = setting(
        (),
        "names such as dtd or clevr_count, or groups: natural, specialized, structured; by default "
        "all 19",
        unit="TASK",
    )
    seeds: tuple[int, ...] = setting(
        (0, 1, 2), "one run of each task per seed; the median counts", unit="SEED"
    )
    scale: float = setting(1.0, "factor on steps and batch size, for a small trial", unit="SHARE")
    linear: bool = setting(
        False,
        "fit a linear map from features of the frozen model; its regularisation is chosen on the "
        "200 validation images",
        flag="linear-probe",
    )
    tune: bool = setting(
        False,
        "train on 800 images and evaluate on 200 of the training data, to choose settings",
    )
    data_dir: str | os.PathLike | None = setting(
        None, "the folder of TensorFlow Datasets", unit="DIR"
    )
    skip_missing: bool = setting(False, "leave out tasks whose data are missing")
    keep_models: bool = setting(False, "keep the folders of the fine-tuned classifiers")


@dataclasses.dataclass(frozen=True)
class ImageNetProtocol:
    """A test set for ImageNet classifiers.

    Args:
        title: Its name in tables.
        dataset: The TFDS name; None for one that is not in TFDS.
        split: The TFDS split.
        num_images: Images in it.
        real_labels: Whether the re-assessed labels of ReaL replace the original ones.
        only_its_classes: Whether the classifier chooses among the classes of the test set
            alone, as its authors do.
    """

    title: str
    dataset: str | None
    split: str
    num_images: int
    real_labels: bool = False
    only_its_classes: bool = False


IMAGENET_PROTOCOLS = {
    "imagenet": ImageNetProtocol("ImageNet", "imagenet2012", "validation", 50_000),
    "imagenet-real": ImageNetProtocol(
        "ImageNet ReaL", "imagenet2012", "validation", 50_000, real_labels=True
    ),
    "imagenet-v2": ImageNetProtocol("ImageNet-V2", "imagenet_v2/matched-frequency", "test", 10_000),
    "imagenet-a": ImageNetProtocol(
        "ImageNet-A", "imagenet_a", "test", 7_500, only_its_classes=True
    ),
    "imagenet-r": ImageNetProtocol(
        "ImageNet-R", "imagenet_r", "test", 30_000, only_its_classes=True
    ),
    "objectnet": ImageNetProtocol("ObjectNet", None, "test", 50_273),
}
