"""Report on a model: all figures as PNG, SVG and NPZ, and an HTML page."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.description import Description
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.listing import image_files
from keras_vit.images.resizing import seen_region
from keras_vit.images.samples import read_images
from keras_vit.inspection.attention_probabilities import keras_model, token_layout
from keras_vit.inspection.distance import draw_attention_distance, mean_attention_distance
from keras_vit.inspection.embedding_weights import (
    draw_filters,
    draw_position_similarity,
    filter_components,
    position_similarity,
)
from keras_vit.inspection.rollout_pictures import draw_rollout
from keras_vit.inspection.rollouts import attention_rollout
from keras_vit.models.outputs import predict_batch
from keras_vit.predictor import Predictor, predictor_in
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
from keras_vit.utils.progress import Log

if TYPE_CHECKING:
    import keras


NUM_IMAGES = 128  # For the attention distance, as in the paper; evenly spread ones of more.


@dataclasses.dataclass
class _Shown:
    """Images of a report: `inputs` of the model, and of the first few what their pictures need."""

    image_size: tuple[int, int]
    batch_size: int
    inputs: np.ndarray | tuple[()] = ()
    originals: Sequence[np.ndarray] = ()
    regions: Sequence[tuple] = ()
    titles: Sequence[str] = ()

    @property
    def first_inputs(self):
        return self.inputs[: len(self.originals)]


# Arrays by name, and the name, the drawing and the caption of each picture.
_Made = tuple[dict[str, Any], Iterable[tuple[str, Any, str]]]


def _filters(model, _) -> _Made:
    components, shares = filter_components(model)
    caption = (
        f"The first {len(components)} principal components of the filters that embed the image, "
        f"on one scale; together {shares.sum():.0%} of their variance."
    )
    picture = ("filters", draw_filters(components), caption)
    return {"components": components, "explained_variance": shares}, [picture]


def _positions(model, _) -> _Made:
    similarity = position_similarity(model)
    caption = (
        "Cosine similarity of position embeddings. Tiles: of the position at that row and "
        "column with all others. Matrices: of columns, rows or offsets with each other."
    )
    return similarity, [("position_similarity", draw_position_similarity(similarity), caption)]


def _distance(model, shown) -> _Made:
    height, width = shown.image_size
    distances = mean_attention_distance(model, shown.inputs, batch_size=shown.batch_size)
    caption = (
        f"Mean attention distance of each head by depth, over {len(shown.inputs)} images of "
        f"{height}x{width} pixels (height x width). Class token and registers are left out."
    )
    picture = ("attention_distance", draw_attention_distance(distances, width), caption)
    return {"distances": distances, "image_size": np.array([height, width])}, [picture]


def _rollout(model, shown) -> _Made:
    maps = attention_rollout(model, shown.first_inputs, batch_size=shown.batch_size)
    has_token = token_layout(model, shown.image_size).has_class_token
    seen_by = "the class token" if has_token else "the mean over patches"
    caption = (
        f"Attention Rollout, from {seen_by}. Colours are from violet, the least "
        "attention of a patch, to yellow, the most."
    )
    drawn = zip(shown.originals, maps, shown.titles, shown.regions, strict=True)
    pictures = (
        (
            f"rollout_{number}",
            draw_rollout(image, attention, title=title, region=region),
            title if number > 1 else f"{title}. {caption}",
        )
        for number, (image, attention, title, region) in enumerate(drawn, 1)
    )
    return {"rollout": maps, "titles": np.array(shown.titles)}, pictures


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
    model: keras.Model | Predictor,
    images: Iterable[str | os.PathLike] = (),
    *,
    description: Description | None = None,
    name: str | None = None,
    num_pictures: int = 4,
    batch_size: int = 8,
    progress: Log | None = None,
) -> list[str]:
    """Writes PNG, SVG and NPZ of all figures that apply, and `index.html` with all of them.

    Args:
        folder: New or empty. It appears at the end, in one rename.
        model: A functional `keras.Model` of the package, or a `Classifier`.
        images: Image files and folders of images; without any, only weights are drawn.
        description: What the model is; by default what it holds. Its preprocessing reads the
            images; its labels, where they have names, are in the titles.
        name: The heading of the page; by default the model's name.
        num_pictures: Most images whose attention is drawn, at least 1.
        batch_size: Images that run at once.
        progress: Function that is called with a line of text for each figure.

    Returns:
        Names of the files written.

    Raises:
        ValueError: If the folder is not empty, an image cannot be read, or there are images and no
            preprocessing for them.
        ImportError: Without matplotlib.
        OSError: If a file cannot be read or written.
    """
    new_figure((1, 1))  # Raises at once without matplotlib.
    folder, paths = pathlib.Path(folder), list(images)
    check_folder(folder)
    opened = predictor_in(model)
    known = description or (opened.description if opened else Description.of_model(model))
    model = keras_model(model)
    preprocessing = known.preprocessing
    image_size = preprocessing.image_size if preprocessing else model.input_shape[1:3]
    shown = _Shown(image_size, batch_size)
    if paths:
        _read_images(shown, model, paths, known, num_pictures)
    facts: dict[str, str | int] = {
        "image size (height x width)": "{} x {}".format(*image_size),
        "images": len(shown.inputs),
    }
    parts, left_out = [facts_table(facts.items())], []
    with atomic_folder(folder) as scratch:
        for figure, (title, make) in _FIGURES.items():
            if progress:
                progress(f"{title} ...")
            try:
                arrays, pictures = make(model, shown)
            except ValueError as error:
                left_out.append(f"{title} is left out. {error}")
                continue
            np.savez(scratch / f"{figure}.npz", **arrays)
            saved = list(_save(scratch, pictures))
            saved = [columns(saved)] if len(saved) > 1 else saved
            parts += [heading(title), *saved, _links(scratch, figure, arrays)]
        parts += map(paragraph, left_out)
        write_page(scratch / "index.html", name or model.name, *parts)
        return sorted(path.name for path in scratch.iterdir())


def _read_images(shown, model, paths, description, num_pictures):
    preprocessing, labels = description.preprocessing, description.labels
    if preprocessing is None:
        raise ValueError(
            "The preprocessing of the images must be known: give a Classifier, or description= "
            f"with a keras_vit.Preprocessing. Received: {model.name}"
        )
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
    shown.inputs, shown.originals = np.stack(inputs), originals
    shown.regions = [seen_region(image.shape[:2], preprocessing) for image in originals]
    shown.titles = [pathlib.Path(file).name for file in drawn]
    if labels.names is not None:
        scores = predict_batch(model, shown.first_inputs)
        shown.titles = [
            f"{name}: {_predicted(labels, row)}"
            for name, row in zip(shown.titles, scores, strict=True)
        ]


def _predicted(labels, row):
    """The most likely class with its probability; with thresholds all labels above them."""
    chosen = [row.argmax()]
    if labels.limits is not None:
        above = np.flatnonzero(row > np.array(labels.limits))
        chosen = sorted(above, key=lambda k: -row[k])
    return ", ".join(f"{labels.output_names[k]} {row[k]:.1%}" for k in chosen) or "no label"


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
