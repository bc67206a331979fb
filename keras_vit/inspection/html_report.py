"""Report on a model: all figures as PNG, SVG and NPZ, and an HTML page."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
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
from keras_vit.inspection.heads import (
    axial_head_maps,
    draw_axial_heads,
    draw_heads,
    has_axial_units,
    head_maps,
)
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


class ReportPicture(NamedTuple):
    """A drawing that is saved as NAME.png and NAME.svg."""

    name: str
    drawing: Any
    caption: str


@dataclasses.dataclass
class _Inspected:
    """The model and its images: `images` are inputs, `originals` the first few files."""

    model: Any
    image_size: tuple[int, int]
    query: str | None = None
    batch_size: int = 8
    images: Any = None
    originals: Sequence[np.ndarray] = ()
    regions: Sequence[tuple] = ()
    titles: Sequence[str] = ()

    @property
    def layout(self):
        return token_layout(self.model, self.image_size)

    @property
    def first_images(self):
        return self.images[: len(self.originals)]


class ReportFigure(NamedTuple):
    """A row of `FIGURES`.

    Args:
        heading: Heading on the page.
        needs_images: Whether the figure needs images.
        check: Function that raises ValueError if the model lacks the part that is shown.
        make: Function that returns arrays by name, and pictures.
    """

    heading: str
    needs_images: bool
    check: Callable[[_Inspected], Any]
    make: Callable[[_Inspected], tuple[dict[str, Any], Iterable[ReportPicture]]]


def _filters(inspected):
    components, shares = filter_components(inspected.model)
    caption = (
        f"The first {len(components)} principal components of the filters that embed the image, "
        f"on one scale; together {shares.sum():.0%} of their variance."
    )
    picture = ReportPicture("filters", draw_filters(components), caption)
    return {"components": components, "explained_variance": shares}, [picture]


def _positions(inspected):
    similarity = position_similarity(inspected.model)
    caption = (
        "Cosine similarity of position embeddings. Tiles: of the position at that row and "
        "column with all others. Matrices: of columns, rows or offsets with each other."
    )
    drawing = draw_position_similarity(similarity)
    return similarity, [ReportPicture("position_similarity", drawing, caption)]


def _distance(inspected):
    is_axial = has_axial_units(inspected.model)
    distances = mean_attention_distance(
        inspected.model, inspected.images, batch_size=inspected.batch_size
    )
    height, width = inspected.image_size
    caption = (
        f"Mean attention distance of each head by depth, over {len(inspected.images)} images of "
        f"{height}x{width} pixels (height x width). "
        + (
            "Layers are the row, then the column attention of each unit."
            if is_axial
            else "Class token and registers are left out."
        )
    )
    picture = ReportPicture(
        "attention_distance", draw_attention_distance(distances, width), caption
    )
    return {"distances": distances, "image_size": np.array([height, width])}, [picture]


def _rollout(inspected):
    maps = attention_rollout(
        inspected.model,
        inspected.first_images,
        query=inspected.query,
        batch_size=inspected.batch_size,
    )
    caption = f"Attention Rollout, {SEEN_BY[inspected.layout.query(inspected.query)]}."

    def pictures():
        rows = zip(inspected.originals, maps, inspected.titles, inspected.regions, strict=True)
        for number, (image, attention, title, region) in enumerate(rows, 1):
            drawing = draw_rollout(image, attention, title=title, region=region)
            shares = (
                f"Patches have {attention.min():.2%} (violet) to {attention.max():.2%} (yellow)."
            )
            yield ReportPicture(f"rollout_{number}", drawing, f"{title}. {caption} {shares}")

    return {"rollout": maps, "titles": np.array(inspected.titles)}, pictures()


def _heads(inspected):
    if has_axial_units(inspected.model):
        return _axial_heads(inspected)
    maps = head_maps(
        inspected.model,
        inspected.first_images,
        query=inspected.query,
        batch_size=inspected.batch_size,
    )
    caption = (
        f"Heads by layer, {SEEN_BY[inspected.layout.query(inspected.query)]}; each tile "
        "has its own scale."
    )

    def pictures():
        rows = zip(inspected.first_images, maps, inspected.titles, strict=True)
        for number, (image, heads, title) in enumerate(rows, 1):
            drawing = draw_heads(image, heads, title=title)
            yield ReportPicture(f"heads_{number}", drawing, f"{title}. {caption}")

    return {"heads": maps, "titles": np.array(inspected.titles)}, pictures()


def _axial_heads(inspected):
    maps = axial_head_maps(inspected.model, inspected.first_images, batch_size=inspected.batch_size)
    caption = (
        "Attention to each position, the mean over its row or its column as queries, "
        "by unit (block.unit) and head; each tile has its own scale."
    )

    def pictures():
        rows = zip(inspected.first_images, inspected.titles, strict=True)
        for number, (image, title) in enumerate(rows):
            of_image = {name: values[number] for name, values in maps.items()}
            drawing = draw_axial_heads(image, of_image, title=title)
            yield ReportPicture(f"heads_{number + 1}", drawing, f"{title}. {caption}")

    return {**maps, "titles": np.array(inspected.titles)}, pictures()


def _check_filters(inspected):
    components, _ = filter_components(inspected.model, count=1)
    draw_filters(components)


def _check_rollout(inspected):
    inspected.layout.query(inspected.query)


def _check_heads(inspected):
    if not has_axial_units(inspected.model):
        inspected.layout.query(inspected.query)
    elif inspected.query is not None:
        raise ValueError(
            "An Axial-ResNet has only rows and columns as queries, so query must be left out. "
            f"Received: query={inspected.query!r}"
        )


def _check_distance(inspected):
    if not has_axial_units(inspected.model):
        token_layout(inspected.model, inspected.image_size)


# By the name of the .npz file.
FIGURES = {
    "filters": ReportFigure("Filters of the embedding", False, _check_filters, _filters),
    "position_similarity": ReportFigure(
        "Position embeddings",
        False,
        lambda inspected: position_similarity(inspected.model),
        _positions,
    ),
    "attention_distance": ReportFigure("Attention distance", True, _check_distance, _distance),
    "rollout": ReportFigure("Attention Rollout", True, _check_rollout, _rollout),
    "heads": ReportFigure("Attention of single heads", True, _check_heads, _heads),
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
    inspected = _Inspected(keras_model(model), preprocessing.image_size, query, batch_size)
    images = list(images)
    names, left_out = _applicable(inspected, figures, bool(images))
    if any(FIGURES[figure].needs_images for figure in names):
        _read_images(
            inspected, images, preprocessing, class_names, thresholds, num_images, num_pictures
        )
    facts = {
        "image size (height x width)": "{} x {}".format(*preprocessing.image_size),
        "images": 0 if inspected.images is None else len(inspected.images),
    }
    parts = [facts_table(facts)]
    with atomic_folder(folder) as scratch:
        for figure in names:
            if progress:
                progress(f"{FIGURES[figure].heading} ...")
            arrays, pictures = FIGURES[figure].make(inspected)
            np.savez(scratch / f"{figure}.npz", **arrays)
            parts += [heading(FIGURES[figure].heading), *_save(scratch, pictures)]
        parts += map(paragraph, left_out)
        write_page(scratch / "index.html", name or inspected.model.name, *parts)
        written = sorted(path.name for path in scratch.iterdir())
    return written


def _applicable(inspected, figures, has_images):
    """Returns the names of the figures to make, and the reasons why others are left out."""
    unknown = [figure for figure in figures or () if figure not in FIGURES]
    if unknown:
        raise ValueError(f"figures must be of {', '.join(FIGURES)}. Received: {', '.join(unknown)}")
    names, left_out = [], []
    for figure, row in FIGURES.items():
        if figures is not None and figure not in figures:
            continue
        try:
            row.check(inspected)
            if row.needs_images and not has_images:
                raise ValueError("Images are needed. Received: none")
        except ValueError as error:
            asked_of_query = inspected.query is not None and row.check in (
                _check_rollout,
                _check_heads,
            )
            if figures is not None or asked_of_query:
                raise ValueError(f"{row.heading}: {error}") from error
            left_out.append(f"{row.heading} is left out. {error}")
        else:
            names.append(figure)
    if not names:
        raise ValueError(f"No figure applies to this model. {' '.join(left_out)}")
    return names, left_out


def _read_images(
    inspected, paths, preprocessing, class_names, thresholds, num_images, num_pictures
):
    files = image_files(paths)
    files = evenly_spread(files, num_images)
    # Drawn images first, spread over all files: images of one folder often have one class.
    shown = evenly_spread(range(len(files)), num_pictures)
    rest = (file for place, file in enumerate(files) if place not in shown)
    files = [*(files[place] for place in shown), *rest]
    originals, inputs = [], []
    for number, file in enumerate(files):
        try:
            image = read_image(file)
        except ValueError as error:
            raise ValueError(f"{file} cannot be read as an image. {error}") from error
        if number < len(shown):
            originals.append(image)
        inputs.append(np.asarray(apply_preprocessing(image, preprocessing)))
    inspected.images = np.stack(inputs)
    inspected.originals = originals
    inspected.regions = [seen_region(image.shape[:2], preprocessing) for image in originals]
    names = [pathlib.Path(file).name for file in files[: len(shown)]]
    inspected.titles = names
    if class_names is not None:
        scores = predict_batch(inspected.model, inspected.first_images)
        inspected.titles = [
            f"{name}: {_predicted(class_names, row, thresholds)}"
            for name, row in zip(names, scores, strict=True)
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


def _save(folder, pictures):
    """Writes pictures, and yields them for the page."""
    for name, drawing, caption in pictures:
        for suffix in ("png", "svg"):
            drawing.savefig(folder / f"{name}.{suffix}")
        yield wide_picture((folder / f"{name}.png").read_bytes(), name, caption)
