"""Settings of preprocessing, and the functions of `keras.applications` for ImageNet models."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import math
import numbers
import pathlib
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keras_vit import images as image_formats
from keras_vit.images.pixels import FULL_DEPTH, check_no_paths, scaled_pixels

if TYPE_CHECKING:
    import keras
    import numpy as np

    from keras_vit.images.pixels import Pixels

# "resize": to the image size without keeping the aspect ratio; official ViT code.
# "resize_small_central_crop": the short side, then the middle; big_vision.
# "resize_central_crop": both sides to a little more, then the middle; big_vision's few-shot.
# "huggingface", "torchvision": with antialiasing as Pillow resizes, to `resize_size`, then the
#     middle, as Hugging Face's image processors, or torchvision's and timm's transforms crop it.
# "keras_hub": the middle of the image size's aspect ratio, then to the image size.
EVALUATIONS = (
    "resize",
    "resize_small_central_crop",
    "resize_central_crop",
    "huggingface",
    "torchvision",
    "keras_hub",
)
PILLOW_EVALUATIONS = ("huggingface", "torchvision")
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")

MAX_SIDE = 2**15  # Pixels; more than any model or format of images has.

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # By channel, for pixels in [0, 1].
IMAGENET_STD = (0.229, 0.224, 0.225)

# Mean and standard deviation of pixels in [0, 1].
NORMALIZATIONS = {
    "half": ((0.5,), (0.5,)),
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
}

# Values of pixels 0 and 255; each a number, or one for each channel.
ValueRange = tuple[float | tuple[float, ...], float | tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Preprocessing from an image to a model's input; the content of `preprocessing.json`.

    Called with images it returns the model's input, exactly as `Classifier.predict` computes it.
    It needs TensorFlow, on every backend of Keras.

    Args:
        image_size: Pixels (height, width) of the model's input.
        evaluation: Way of resizing; one of `EVALUATIONS`.
        value_range: Values for pixels 0 and 255; each a number, or one for each channel.
        interpolation: Filter of the resize; one of `INTERPOLATIONS`. The two official crops
            have their own filter.
        resize_size: Pixels before the crop of "huggingface" and "torchvision": a number for
            the short side, or (height, width); by default the image size.
        bit_depth: Bits of the values of a 16-bit PNG, TIFF or PIL image, from 8 to 16: the high 8
            of them are a pixel, and larger values are white. Images of 8 bits do not change.

    Call arguments:
        images: Pixels in [0, 255]: an image `(H, W, C)` or a batch `(B, H, W, C)`, as an array or a
            tensor, also in a `tf.data` map; a PIL image, which EXIF's orientation turns; or a
            list of images of any sizes. A warning names floats that were scaled before.

    Output shape:
        float32 `(height, width, C)`, or `(B, height, width, C)`; a tensor for a tensor.

    Raises:
        ValueError: If a value is out of range or unknown, or two do not fit each other; on a call,
            if images have other axes or channels.

    Example:
    >>> preprocessing = Preprocessing((32, 32))
    >>> preprocessing([np.zeros((48, 64, 3), "uint8")] * 2).shape
    (2, 32, 32, 3)
    """

    image_size: tuple[int, int]
    evaluation: str = "resize"
    value_range: ValueRange = (-1.0, 1.0)
    interpolation: str = "bilinear"
    resize_size: int | tuple[int, int] | None = None
    bit_depth: int = FULL_DEPTH

    def __post_init__(self):
        is_number = isinstance(self.image_size, numbers.Integral)
        size = () if is_number else tuple(self.image_size)
        values = tuple(map(_plain, self.value_range))
        if not _is_size(size):
            raise ValueError(
                f"The image size must be two whole numbers (height, width) from 1 to {MAX_SIDE}. "
                f"Received: image_size={self.image_size!r}"
            )
        if self.evaluation not in EVALUATIONS:
            raise ValueError(
                f"evaluation must be one of {EVALUATIONS}. Received: {self.evaluation!r}"
            )
        if len(values) != 2 or not _is_range(*values):
            raise ValueError(
                "The value range must be two finite numbers in ascending order, or two lists of "
                f"numbers for the channels. Received: value_range={self.value_range!r}"
            )
        official_crop = self.evaluation in ("resize_small_central_crop", "resize_central_crop")
        if self.interpolation not in (INTERPOLATIONS[:1] if official_crop else INTERPOLATIONS):
            raise ValueError(
                f"interpolation must be one of {INTERPOLATIONS}, and be left out for the official "
                f"crops. Received: {self.interpolation!r}, evaluation={self.evaluation!r}"
            )
        if type(self.bit_depth) is not int or not 8 <= self.bit_depth <= FULL_DEPTH:
            raise ValueError(
                f"bit_depth must be a whole number from 8 to {FULL_DEPTH}. "
                f"Received: {self.bit_depth!r}"
            )
        object.__setattr__(self, "image_size", size)
        object.__setattr__(self, "value_range", values)
        object.__setattr__(self, "resize_size", self._checked_resize_size())

    def __call__(self, images: Pixels) -> np.ndarray | keras.KerasTensor:
        if reason := scaled_pixels(images):
            warnings.warn(reason, stacklevel=2)
        return image_formats.decoding.preprocess_images(images, self)  # With TensorFlow.

    def _checked_resize_size(self):
        wanted = self.resize_size
        if wanted is None:
            return None
        if self.evaluation not in PILLOW_EVALUATIONS:
            raise ValueError(
                f"resize_size must be left out where evaluation is not one of "
                f"{PILLOW_EVALUATIONS}. Received: {wanted!r}, evaluation={self.evaluation!r}"
            )
        sides = tuple(wanted) if isinstance(wanted, (list, tuple)) else (wanted, wanted)
        if not _is_size(sides) or sides[0] < self.image_size[0] or sides[1] < self.image_size[1]:
            raise ValueError(
                "resize_size must be a whole number of pixels or (height, width), and no side may "
                f"be shorter than the image size's. Received: {wanted!r}, "
                f"image_size={self.image_size}"
            )
        return sides if isinstance(wanted, (list, tuple)) else wanted

    def with_image_size(self, image_size: tuple[int, int]) -> Preprocessing:
        """Returns the same preprocessing for another image size: the crop keeps its share."""
        wanted = self.resize_size
        if isinstance(wanted, tuple):
            (height, width), (old_height, old_width) = wanted, self.image_size
            wanted = (height * image_size[0] // old_height, width * image_size[1] // old_width)
        elif wanted is not None:
            wanted = wanted * max(image_size) // max(self.image_size)
        return dataclasses.replace(self, image_size=image_size, resize_size=wanted)

    def to_fields(self) -> dict[str, Any]:
        """Returns all fields as types of JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # Lists for tuples.

    def to_json(self) -> str:
        """Returns the text of `preprocessing.json`."""
        return json.dumps(self.to_fields(), indent=2) + "\n"

    @property
    def num_channels(self) -> int | None:
        """Channels that the value range is for; None for any number."""
        least = self.value_range[0]
        return len(least) if isinstance(least, tuple) else None

    @classmethod
    def from_fields(cls, fields: Any) -> Preprocessing:
        """Returns the preprocessing whose fields are given, as JSON holds them.

        Raises:
            ValueError: If a field is missing, unknown or wrong.
        """
        try:
            return cls(**fields)
        except TypeError as error:
            known = [field.name for field in dataclasses.fields(cls)]
            raise ValueError(
                f"A preprocessing must be a JSON object with image_size, and may have {known[1:]}. "
                f"Received: {fields!r:.200}"
            ) from error


def value_range(mean: Sequence[float], std: Sequence[float], scale: float = 1 / 255):
    """Returns the values of pixels 0 and 255 after `(scale * pixel - mean) / std`.

    Args:
        mean: By channel.
        std: By channel.
        scale: Factor for the pixels.

    Returns:
        Two numbers if all channels are equal, else two tuples with a number for each channel.
    """
    pairs = list(zip(mean, std, strict=True))
    least = tuple(-m / s for m, s in pairs)
    most = tuple((255 * scale - m) / s for m, s in pairs)
    return (least[0], most[0]) if len(set(pairs)) == 1 else (least, most)


def describe_range(values: ValueRange) -> str:
    """Returns a human-readable value range, such as "-1 to 1"."""
    text = _range_text(values)
    if not isinstance(values[0], Sequence):
        return text
    is_imagenet = text == _range_text(value_range(*NORMALIZATIONS["imagenet"]))
    return f"{text} by channel" + (", ImageNet's mean and deviation" if is_imagenet else "")


def describe_resize(preprocessing: Preprocessing) -> str:
    """Returns the human-readable resize, such as "torchvision, bicubic, cropped from 248"."""
    text, before = preprocessing.evaluation, preprocessing.resize_size
    if preprocessing.interpolation != "bilinear":
        text += f", {preprocessing.interpolation}"
    if before is not None:
        sides = before if isinstance(before, tuple) else (before,)
        text += f", cropped from {'x'.join(map(str, sides))}"
    if preprocessing.bit_depth != FULL_DEPTH:
        text += f", {preprocessing.bit_depth} bits of 16-bit images"
    return text


def _range_text(values):
    sides = (side if isinstance(side, Sequence) else (side,) for side in values)
    return ", ".join(f"{low:.4g} to {high:.4g}" for low, high in zip(*sides, strict=True))


def preprocess_input(
    x: np.ndarray | keras.KerasTensor, data_format: str | None = None, mode: str = "tf"
) -> np.ndarray | keras.KerasTensor:
    """Scales pixels from [0, 255] to [-1, 1], the input range of the official weights.

    The modes are the same as in `keras.applications.imagenet_utils.preprocess_input`, with two
    differences: tensors may hold integers, and the argument is never changed in place.

    Args:
        x: Images with values in [0, 255], integers or floats: an array or a tensor. A warning
            names floats that were scaled before, where their values are known.
        data_format: "channels_last", "channels_first" or None.
        mode: "tf" for [-1, 1]; "torch" for the mean and standard deviation of ImageNet, which
            weights of torchvision, DeiT and other code bases need; "caffe" as in Keras.

    Returns:
        An array or tensor of the same shape: float32 (`keras.config.floatx()`) for
        integers, else the type of `x`.

    Raises:
        ValueError: If `data_format` or `mode` is unknown, or `x` is a path.
    """
    import keras  # Not at the top: a `Preprocessing` is read and written without Keras.
    import numpy as np

    check_no_paths(x)
    tf = sys.modules.get("tensorflow")  # A tf.data pipeline has its tensors on any backend.
    ops = tf if tf and tf.is_symbolic_tensor(x) else keras.ops
    is_tensor = ops is tf or keras.ops.is_tensor(x) or isinstance(x, keras.KerasTensor)
    if is_tensor and not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        x = ops.cast(x, keras.config.floatx())
    # Another array: Keras changes arrays in place.
    x = x * 1 if is_tensor else np.array(x)
    if reason := scaled_pixels(x):
        warnings.warn(reason, stacklevel=2)
    return keras.applications.imagenet_utils.preprocess_input(x, data_format, mode)


def decode_predictions(
    preds: np.ndarray | keras.KerasTensor, top: int = 5
) -> list[list[tuple[str, str, np.floating]]]:
    """Returns the most likely classes of an ImageNet model's predictions; needs no network.

    Args:
        preds: `(B, 1000)`, an array or tensor.
        top: Number of classes for each image.

    Returns:
        For each image a list of `(WordNet id, name, score)`, the highest score first.

    Raises:
        ValueError: If the shape is not `(B, 1000)`.
    """
    if len(preds.shape) != 2 or preds.shape[1] != 1000:
        raise ValueError(
            "`decode_predictions` expects a batch of predictions "
            "(i.e. a 2D array of shape (samples, 1000)). "
            f"Received array with shape: {preds.shape}. Other classes have their names in a "
            "classifier: keras_vit.load_classifier(folder)(photos)"
        )
    import keras

    classes = imagenet_classes()
    return [
        [(*classes[index], row[index]) for index in row.argsort()[::-1][:top]]
        for row in keras.ops.convert_to_numpy(preds)
    ]


@functools.cache
def imagenet_classes() -> list[tuple[str, str]]:
    """Returns the WordNet id and the name of each of the 1000 ImageNet classes, in order."""
    path = pathlib.Path(__file__).with_name("imagenet_classes.csv")
    with open(path, newline="", encoding="utf-8") as file:
        return [(row["wordnet_id"], row["name"]) for row in csv.DictReader(file)]


def _plain(value):
    """Returns a number as a float, lists as tuples of floats, and other values unchanged."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return float(value) if isinstance(value, (int, float)) else value


def as_size(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """Returns pixels (height, width); a number is both sides of a square."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def _is_size(size):
    return len(size) == 2 and all(type(side) is int and 0 < side <= MAX_SIDE for side in size)


def _is_range(least, most):
    if isinstance(least, tuple) and isinstance(most, tuple):
        return len(least) == len(most) > 0 and all(map(_is_range, least, most))
    return all(isinstance(n, float) and math.isfinite(n) for n in (least, most)) and least < most
