"""Tiny pictures, folders of labelled pictures and tiny configs, for all tests."""

import io

import numpy as np
from PIL import Image

from keras_vit.configs import ViTConfig

COLORS = {"blue": (30, 30, 220), "green": (30, 220, 30), "red": (220, 30, 30)}


def tiny_config(**changes):
    """Returns the config of a Vision Transformer that is built in a moment.

    Args:
        **changes: Fields of `ViTConfig` that the test needs otherwise.
    """
    sizes = {"patch_size": 4, "width": 16, "depth": 1, "mlp_dim": 16, "num_heads": 2}
    return ViTConfig(**{**sizes, **changes})


def encode(picture, file_format="PNG", **options):
    """Returns the bytes of an image file.

    Args:
        picture: An image of Pillow, or uint8 `(H, W, 3)`.
        file_format: A format that Pillow writes.
        **options: Options of `PIL.Image.Image.save`.
    """
    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture)
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def smooth_picture(rng, size, cells):
    """Returns an image of random colours that change smoothly, as in photos.

    Args:
        rng: A generator of NumPy.
        size: Pixels (height, width).
        cells: Random colours (down, across).
    """
    small = Image.fromarray(rng.integers(0, 256, (*cells, 3), np.uint8))
    return small.resize(size[::-1], Image.Resampling.BICUBIC)


def write_picture(path, pixels):
    """Writes a picture and the folders that it needs, and returns its path.

    Args:
        path: The file, whose suffix gives the format.
        pixels: `(H, W, 3)`; numbers outside of [0, 255] are clipped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(pixels, 0, 255).astype("uint8")).save(path)
    return path


def write_exposures(folder, things, exposures):
    """Writes photos of surfaces, each at several exposures, and returns their names in the folder.

    Args:
        folder: The folder to write to; things are "good" and "bad" by turns.
        things: Surfaces.
        exposures: Photos of each; `good/4_2.png` is the third photo of the fifth surface.
    """
    rng, names = np.random.default_rng(0), []
    surfaces = [
        np.asarray(smooth_picture(rng, (100, 100), (12, 12)), "float64") for _ in range(things)
    ]
    for thing, surface in enumerate(surfaces):
        for exposure in range(exposures):
            names.append(f"{('good', 'bad')[thing % 2]}/{thing}_{exposure}.png")
            pixels = surface * (0.6 + 0.15 * exposure) + rng.normal(0, 2, (100, 100, 3))
            write_picture(folder / names[-1], pixels)
    return names


def write_classes(folder, counts, colors=COLORS, *, size=(10, 12), noise=25, rng=0, suffix=".png"):
    """Writes noisy pictures of some colours, `folder/{part}/{class}/{number}.png`.

    Args:
        folder: The folder.
        counts: Pictures of each class, by part, such as `{"train": 10, "test": 4}`; a number for
            `folder/{class}/{number}.png`.
        colors: Mean of each class, a grey value or (red, green, blue). None gives pixels of any
            value, which do not depend on the class.
        size: Pixels (height, width).
        noise: Standard deviation of the pixels.
        rng: A seed, or a generator of NumPy.
        suffix: The format.

    Returns:
        The folder.
    """
    rng = np.random.default_rng(rng)
    parts = counts if isinstance(counts, dict) else {"": counts}
    for part, count in parts.items():
        for name, color in colors.items():
            for number in range(count):
                if color is None:
                    pixels = rng.integers(0, 256, (*size, 3), np.uint8)
                else:
                    pixels = rng.normal(color, noise, (*size, 3))
                write_picture(folder / part / name / f"{number}{suffix}", pixels)
    return folder


def turned(folder, suffix, big_endian=False):
    """Returns the paths of an image with each EXIF orientation from 1 to 8."""
    image = smooth_picture(np.random.default_rng(3), (47, 60), (5, 4))
    paths = []
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif.endian = ">" if big_endian else "<"
        exif[0x010F] = "a maker"  # A tag before the orientation.
        exif[0x0112] = orientation
        paths.append(folder / f"{orientation}.{suffix}")
        image.save(paths[-1], exif=exif, lossless=True)
    return paths


def red_class_model():
    """A model of one pixel that gives the class "red", of 1000, the highest score.

    The classes after it follow.
    """
    import keras  # Not by tests that need pictures alone.

    inputs = keras.Input((1, 1, 3))
    red = keras.ops.round(inputs[:, 0, 0, :1])  # (B, 1)
    classes = keras.ops.arange(1000, dtype="float32")
    behind = keras.ops.mod(classes - red, 1000)
    return keras.Model(inputs, -behind)


def copy_weights(model, other):
    """Loads the weights of a model into another of `keras_vit.build`, as a transfer does."""
    from keras_vit.checkpoints.load import arrays_of_model, load_arrays  # With Keras.

    arrays = arrays_of_model(model)
    return load_arrays(arrays, arrays.stated, other)
