"""Report on a model: all figures as PNG, SVG and NPZ, and an HTML page."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.listing import image_files
from keras_vit.images.resizing import EVALUATION_STEPS
from keras_vit.images.samples import read_images
from keras_vit.inspection.attention_probabilities import keras_model, token_layout
from keras_vit.inspection.distance import draw_attention_distance, mean_attention_distance
from keras_vit.inspection.embedding_weights import (
    draw_filters,
    draw_position_similarity,
    filter_components,
    position_similarity,
)
from keras_vit.inspection.rollouts import attention_rollout, draw_rollout
from keras_vit.models.outputs import predict_batch
from keras_vit.preprocessing import Preprocessing
from keras_vit.reports.pages import (
    columns,
    facts_table,
    file_links,
    heading,
    paragraph,
    wide_picture,
    write_page,
)
from keras_vit.utils.files import atomic_folder, check_folder
from keras_vit.utils.plots import evenly_spread, new_figure

if TYPE_CHECKING:
    import keras

    from keras_vit.predictor import Predictor


NUM_IMAGES = 128  # For the attention distance, as in the paper; evenly spread ones of more.


@dataclasses.dataclass(frozen=True)
class InspectedModel:
    """A model that a report is written on.

    Args:
        model: A functional `keras.Model` of the package, or a `Classifier`.
        preprocessing: The preprocessing from an image to the model's input.
        class_names: Names of the model's classes, for predictions in the titles, or None.
        thresholds: For a multi-label model, the probability of each label above which an image has
            it; None for other models.
        name: The heading of the page; by default the model's name.
    """

    model: keras.Model | Predictor
    preprocessing: Preprocessing
    class_names: Sequence[str] | None = None
    thresholds: Sequence[float] | None = None
    name: str | None = None


@dataclasses.dataclass
class _Inspected:
    """The model and its images: `images` are inputs, `originals` the first few files."""

    model: keras.Model
    image_size: tuple[int, int]
    batch_size: int
    images: np.ndarray | tuple[()] = ()
    originals: Sequence[np.ndarray] = ()
    regions: Sequence[tuple] = ()
    titles: Sequence[str] = ()

    @property
    def first_images(self):
        return self.images[: len(self.originals)]


# Arrays by name, and the name, the drawing and the caption of each picture.
_Made = tuple[dict[str, Any], Iterable[tuple[str, Any, str]]]


def _filters(inspected) -> _Made:
    components, shares = filter_components(inspected.model)
    caption = (
        f"The first {len(components)} principal components of the filters that embed the image, "
        f"on one scale; together {shares.sum():.0%} of their variance."
    )
    picture = ("filters", draw_filters(components), caption)
    return {"components": components, "explained_variance": shares}, [picture]


def _positions(inspected) -> _Made:
    similarity = position_similarity(inspected.model)
    caption = (
        "Cosine similarity of position embeddings. Tiles: of the position at that row and "
        "column with all others. Matrices: of columns, rows or offsets with each other."
    )
    return similarity, [("position_similarity", draw_position_similarity(similarity), caption)]


def _distance(inspected) -> _Made:
    height, width = inspected.image_size
    distances = mean_attention_distance(
        inspected.model, inspected.images, batch_size=inspected.batch_size
    )
    caption = (
        f"Mean attention distance of each head by depth, over {len(inspected.images)} images of "
        f"{height}x{width} pixels (height x width). Class token and registers are left out."
    )
    picture = ("attention_distance", draw_attention_distance(distances, width), caption)
    return {"distances": distances, "image_size": np.array([height, width])}, [picture]


def _rollout(inspected) -> _Made:
    maps = attention_rollout(
        inspected.model, inspected.first_images, batch_size=inspected.batch_size
    )
    has_token = token_layout(inspected.model, inspected.image_size).has_class_token
    seen_by = "the class token" if has_token else "the mean over patches"
    caption = (
        f"Attention Rollout, from {seen_by}. Colours are from violet, the least "
        "attention of a patch, to yellow, the most."
    )
    shown = zip(inspected.originals, maps, inspected.titles, inspected.regions, strict=True)
    pictures = (
        (
            f"rollout_{number}",
            draw_rollout(image, attention, title=title, region=region),
            title if number > 1 else f"{title}. {caption}",
        )
        for number, (image, attention, title, region) in enumerate(shown, 1)
    )
    return {"rollout": maps, "titles": np.array(inspected.titles)}, pictures


# The heading and the function of each figure, by the name of its .npz file. It returns arrays by
# name, and pictures; it raises ValueError without the part of the model, or images, that it shows.
_FIGURES = {
    "filters": ("Filters of the embedding", _filters),
    "position_similarity": ("Position embeddings", _positions),
    "attention_distance": ("Attention distance", _distance),
    "rollout": ("Attention Rollout", _rollout),
}


def write_report(
    folder: str | os.PathLike,
    inspected: InspectedModel,
    images: Iterable[str | os.PathLike] = (),
    *,
    num_pictures: int = 4,
    batch_size: int = 8,
    progress: Callable[[str], object] | None = None,
) -> list[str]:
    """Writes PNG, SVG and NPZ of all figures that apply, and `index.html` with all of them.

    Args:
        folder: New or empty. It appears at the end, in one rename.
        inspected: The model, and what is known of it.
        images: Image files and folders of images; without any, only weights are drawn.
        num_pictures: Most images whose attention is drawn, at least 1.
        batch_size: Images that run at once.
        progress: Function that is called with a line of text for each figure.

    Returns:
        Names of the files written.

    Raises:
        ValueError: If the folder is not empty, or an image cannot be read.
        ImportError: Without matplotlib.
        OSError: If a file cannot be read or written.
    """
    new_figure((1, 1))  # Raises at once without matplotlib.
    folder, paths = pathlib.Path(folder), list(images)
    check_folder(folder)
    image_size = inspected.preprocessing.image_size
    seen = _Inspected(keras_model(inspected.model), image_size, batch_size)
    if paths:
        _read_images(seen, paths, inspected, num_pictures)
    facts = {
        "image size (height x width)": "{} x {}".format(*image_size),
        "images": len(seen.images),
    }
    parts, left_out = [facts_table(facts.items())], []
    with atomic_folder(folder) as scratch:
        for figure, (title, make) in _FIGURES.items():
            if progress:
                progress(f"{title} ...")
            try:
                arrays, pictures = make(seen)
            except ValueError as error:
                left_out.append(f"{title} is left out. {error}")
                continue
            np.savez(scratch / f"{figure}.npz", **arrays)
            shown = list(_save(scratch, pictures))
            shown = [columns(shown)] if len(shown) > 1 else shown
            parts += [heading(title), *shown, _links(scratch, figure, arrays)]
        parts += map(paragraph, left_out)
        write_page(scratch / "index.html", inspected.name or seen.model.name, *parts)
        return sorted(path.name for path in scratch.iterdir())


def _read_images(seen, paths, inspected, num_pictures):
    preprocessing = inspected.preprocessing
    files = evenly_spread(image_files(paths), NUM_IMAGES)
    # Drawn images first, spread over all files: images of one folder often have one class.
    drawn = evenly_spread(files, num_pictures)
    originals: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    for file in dict.fromkeys([*drawn, *files]):
        (image,) = read_images([file], preprocessing.bit_depth)
        if len(originals) < len(drawn):
            originals.append(image)
        inputs.append(np.asarray(apply_preprocessing(image, preprocessing)))
    seen.images, seen.originals = np.stack(inputs), originals
    seen.regions = [seen_region(image.shape[:2], preprocessing) for image in originals]
    seen.titles = [pathlib.Path(file).name for file in drawn]
    if inspected.class_names is not None:
        scores = predict_batch(seen.model, seen.first_images)
        seen.titles = [
            f"{name}: {_predicted(inspected, row)}"
            for name, row in zip(seen.titles, scores, strict=True)
        ]


def _predicted(inspected, row):
    """The most likely class with its probability; with thresholds all labels above them."""
    chosen = [row.argmax()]
    if inspected.thresholds is not None:
        labels = np.flatnonzero(row > np.array(inspected.thresholds))
        chosen = sorted(labels, key=lambda k: -row[k])
    return ", ".join(f"{inspected.class_names[k]} {row[k]:.1%}" for k in chosen) or "no label"


def seen_region(
    image_size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[float, float, float, float]:
    """Returns the part of an image that its preprocessing keeps.

    Args:
        image_size: Pixels (height, width) of the file's image.
        preprocessing: The preprocessing from the image to the model's input.

    Returns:
        Pixels (top, left, bottom, right).
    """
    size = preprocessing.image_size
    cropped, resized, starts = EVALUATION_STEPS[preprocessing.evaluation].geometry(
        image_size, size, preprocessing.resize_size
    )
    edges = []
    for side, length in enumerate(image_size):
        kept = length if cropped is None else int(cropped[side])
        pixel = kept / int(resized[side])  # Pixels of the image in one of the resized image.
        first = 0 if starts is None else int(starts[side])
        before = (length - kept) // 2
        edges.append((before + first * pixel, before + (first + size[side]) * pixel))
    (top, bottom), (left, right) = edges
    return top, left, bottom, right


def _save(folder, pictures) -> Iterator[str]:
    """Writes pictures, and yields them for the page."""
    for name, drawing, caption in pictures:
        for suffix in ("png", "svg"):
            drawing.savefig(folder / f"{name}.{suffix}")
        yield wide_picture((folder / f"{name}.png").read_bytes(), name, caption)


def _links(folder, figure, arrays):
    """Returns links to the arrays of a figure, with their shapes, and to its drawings."""
    shapes = (f"{name} {np.shape(array)}" for name, array in arrays.items())
    drawings = sorted(path.name for path in folder.glob(f"{figure}*.svg"))
    return file_links({f"{figure}.npz": ", ".join(shapes), **dict.fromkeys(drawings, "")})
