"""Report on a model: all figures as PNG, SVG and NPZ, and an HTML page."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.listing import image_files
from keras_vit.images.pages import facts_table, heading, paragraph, wide_picture, write_page
from keras_vit.images.resizing import EVALUATION_STEPS
from keras_vit.images.transcoding import read_image
from keras_vit.inspection.attention_probabilities import keras_model, token_layout
from keras_vit.inspection.distance import draw_attention_distance, mean_attention_distance
from keras_vit.inspection.filters import draw_filters, filter_components
from keras_vit.inspection.heads import draw_heads, head_maps
from keras_vit.inspection.position_embeddings import draw_position_similarity, position_similarity
from keras_vit.inspection.rollouts import attention_rollout, draw_rollout
from keras_vit.prediction import predict_batch
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import atomic_folder, check_folder
from keras_vit.utils.plots import evenly_spread, new_figure

SEEN_BY = {
    "token": "from the class token",
    "patches": "from the mean over patches, which the head classifies",
}


@dataclasses.dataclass
class _Inspected:
    """The model and its images: `images` are inputs, `originals` the first few files."""

    model: Any
    image_size: tuple[int, int]
    query: str | None
    batch_size: int
    images: Any = ()
    originals: Sequence[np.ndarray] = ()
    regions: Sequence[tuple] = ()
    titles: Sequence[str] = ()

    @property
    def first_images(self):
        return self.images[: len(self.originals)]

    @property
    def seen_by(self):
        layout = token_layout(self.model, self.image_size)
        return SEEN_BY[layout.query(self.query)]

    def by_image(self, name, caption, draw):
        """Yields the name, the drawing and the caption of the picture of each of the first images.

        Args:
            name: The name of the figure.
            caption: Text behind the title.
            draw: Function from the number of an image, from 0, to its drawing.
        """
        for number, title in enumerate(self.titles):
            yield f"{name}_{number + 1}", draw(number), f"{title}. {caption}"


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
    options = {"query": inspected.query, "batch_size": inspected.batch_size}
    maps = attention_rollout(inspected.model, inspected.first_images, **options)

    def draw(number):
        title, region = inspected.titles[number], inspected.regions[number]
        return draw_rollout(inspected.originals[number], maps[number], title=title, region=region)

    caption = (
        f"Attention Rollout, {inspected.seen_by}. Colours are from violet, the least attention of "
        "a patch, to yellow, the most."
    )
    arrays = {"rollout": maps, "titles": np.array(inspected.titles)}
    return arrays, inspected.by_image("rollout", caption, draw)


def _heads(inspected) -> _Made:
    options = {"query": inspected.query, "batch_size": inspected.batch_size}
    maps = head_maps(inspected.model, inspected.first_images, **options)

    def draw(number):
        image, title = inspected.first_images[number], inspected.titles[number]
        return draw_heads(image, maps[number], title=title)

    caption = f"Heads by layer, {inspected.seen_by}; each tile has its own scale."
    arrays = {"heads": maps, "titles": np.array(inspected.titles)}
    return arrays, inspected.by_image("heads", caption, draw)


class ReportFigure(NamedTuple):
    """A row of `FIGURES`.

    Args:
        heading: Heading on the page.
        needs_images: Whether the figure needs images.
        make: Function that returns arrays by name, and pictures; it raises ValueError if the model
            lacks the part that is shown.
    """

    heading: str
    needs_images: bool
    make: Callable[[_Inspected], _Made]


# By the name of the .npz file.
FIGURES = {
    "filters": ReportFigure("Filters of the embedding", False, _filters),
    "position_similarity": ReportFigure("Position embeddings", False, _positions),
    "attention_distance": ReportFigure("Attention distance", True, _distance),
    "rollout": ReportFigure("Attention Rollout", True, _rollout),
    "heads": ReportFigure("Attention of single heads", True, _heads),
}


def write_report(
    folder: str | os.PathLike,
    model: Any,
    preprocessing: Preprocessing,
    images: Iterable[str | os.PathLike] = (),
    *,
    class_names: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
    name: str | None = None,
    figures: Sequence[str] | None = None,
    query: str | None = None,
    num_images: int = 128,
    num_pictures: int = 4,
    batch_size: int = 8,
    progress: Callable[[str], Any] | None = None,
) -> list[str]:
    """Writes PNG, SVG and NPZ of all figures that apply, and `index.html` with all of them.

    Args:
        folder: New or empty. It appears at the end, in one rename.
        model: A functional `keras.Model` of the package, or a `Classifier`.
        preprocessing: The preprocessing from an image to the model's input.
        images: Image files and folders of images.
        class_names: Names of the model's classes, for predictions in the titles, or None.
        thresholds: For a multi-label model, the probability of each label above which an image has
            it; None for other models.
        name: The heading of the page; by default the model's name.
        figures: Names of `FIGURES`; by default all that the model and the images allow.
        query: See `attention_rollout`.
        num_images: Most images for the attention distance; evenly spread ones of more.
        num_pictures: Most images whose attention is drawn.
        batch_size: Images that run at once.
        progress: Function that is called with a line of text for each figure.

    Returns:
        Names of the files written.

    Raises:
        ValueError: If the folder is not empty, an image cannot be read, or a figure in
            `figures` needs a part that the model lacks.
        ImportError: Without matplotlib.
        OSError: If a file cannot be read or written.
    """
    new_figure((1, 1))  # Raises at once without matplotlib.
    folder = pathlib.Path(folder)
    check_folder(folder)
    if min(num_images, num_pictures, batch_size) < 1:
        raise ValueError(
            "Numbers of images must be at least 1. Received: "
            f"num_images={num_images}, num_pictures={num_pictures}, batch_size={batch_size}"
        )
    if unknown := sorted(set(figures or ()) - set(FIGURES)):
        raise ValueError(f"figures must be of {', '.join(FIGURES)}. Received: {', '.join(unknown)}")
    inspected = _Inspected(keras_model(model), preprocessing.image_size, query, batch_size)
    names, images = figures or list(FIGURES), list(images)
    if images and any(FIGURES[figure].needs_images for figure in names):
        _read_images(
            inspected, images, preprocessing, class_names, thresholds, num_images, num_pictures
        )
    facts = {
        "image size (height x width)": "{} x {}".format(*preprocessing.image_size),
        "images": len(inspected.images),
    }
    parts, left_out = [], []
    with atomic_folder(folder) as scratch:
        for figure in names:
            row = FIGURES[figure]
            if progress:
                progress(f"{row.heading} ...")
            try:
                if row.needs_images and not images:
                    raise ValueError("Images are needed. Received: none")
                arrays, pictures = row.make(inspected)
            except ValueError as error:
                if figures is not None or (query is not None and figure in ("rollout", "heads")):
                    raise ValueError(f"{row.heading}: {error}") from error
                left_out.append(f"{row.heading} is left out. {error}")
                continue
            np.savez(scratch / f"{figure}.npz", **arrays)
            parts += [heading(row.heading), *_save(scratch, pictures)]
        if not parts:
            raise ValueError(f"No figure applies to this model. {' '.join(left_out)}")
        parts = [facts_table(facts.items()), *parts, *map(paragraph, left_out)]
        write_page(scratch / "index.html", name or inspected.model.name, *parts)
        written = sorted(path.name for path in scratch.iterdir())
    return written


def _read_images(
    inspected, paths, preprocessing, class_names, thresholds, num_images, num_pictures
):
    files = evenly_spread(image_files(paths), num_images)
    # Drawn images first, spread over all files: images of one folder often have one class.
    shown = evenly_spread(files, num_pictures)
    originals: list[np.ndarray] = []
    inputs: list[np.ndarray] = []
    for file in dict.fromkeys([*shown, *files]):
        try:
            image = read_image(file)
        except ValueError as error:
            raise ValueError(f"{file} cannot be read as an image. {error}") from error
        if len(originals) < len(shown):
            originals.append(image)
        inputs.append(np.asarray(apply_preprocessing(image, preprocessing)))
    inspected.images = np.stack(inputs)
    inspected.originals = originals
    inspected.regions = [seen_region(image.shape[:2], preprocessing) for image in originals]
    inspected.titles = [pathlib.Path(file).name for file in shown]
    if class_names is not None:
        scores = predict_batch(inspected.model, inspected.first_images)
        inspected.titles = [
            f"{name}: {_predicted(class_names, row, thresholds)}"
            for name, row in zip(inspected.titles, scores, strict=True)
        ]


def _predicted(class_names, row, thresholds):
    """The most likely class with its probability; with thresholds all labels above them."""
    chosen = [row.argmax()]
    if thresholds is not None:
        chosen = sorted(np.flatnonzero(row > np.array(thresholds)), key=lambda k: -row[k])
    return ", ".join(f"{class_names[k]} {row[k]:.1%}" for k in chosen) or "no label"


def seen_region(
    image_size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[float, float, float, float]:
    """Returns the part of an image that its preprocessing keeps.

    Args:
        image_size: Pixels (height, width) of the file's image.
        preprocessing: The preprocessing from the image to the model's input.

    Returns:
        Pixels (top, left, bottom, right), beyond the image where it was padded.
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
