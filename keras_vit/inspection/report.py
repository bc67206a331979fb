"""All pictures of a model, with the numbers behind them, in one folder."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit.classifier import image_files, predict_batch
from keras_vit.drawing import new_figure
from keras_vit.files import atomic_folder, check_folder
from keras_vit.inspection.axial import axial_head_maps, draw_axial_heads, has_axial_units
from keras_vit.inspection.distance import draw_attention_distance, mean_attention_distance
from keras_vit.inspection.filters import draw_filters, filter_components
from keras_vit.inspection.heads import draw_heads, head_maps
from keras_vit.inspection.page import html_page
from keras_vit.inspection.positions import draw_position_similarity, position_similarity
from keras_vit.inspection.rollout import attention_rollout, draw_rollout
from keras_vit.inspection.tokens import keras_model, token_layout
from keras_vit.preprocessing import Preprocessing

SEEN_BY = {
    "token": "from the class token",
    "patches": "the mean over patches as the query, which is what the head reads",
}


class Picture(NamedTuple):
    """A drawing that becomes NAME.png and NAME.svg."""

    name: str
    drawing: Any
    caption: str


@dataclasses.dataclass
class _Inspected:
    """What the pictures are made of; `images` are inputs, `originals` the first few files."""

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


class Figure(NamedTuple):
    """A row of `FIGURES`.

    Args:
        heading: Its title on the page.
        needs_images: Whether it is of images.
        check: Raises ValueError if the model has no such part.
        make: From what is inspected to arrays by name and pictures.
    """

    heading: str
    needs_images: bool
    check: Callable[[_Inspected], Any]
    make: Callable[[_Inspected], tuple[dict[str, Any], Iterator[Picture]]]


def _filters(inspected):
    components, shares = filter_components(inspected.model)
    caption = (
        f"The first {len(components)} principal components of the filters that embed the image, "
        f"scaled as one set; together {shares.sum():.0%} of their variance."
    )
    pictures = iter([Picture("filters", draw_filters(components), caption)])
    return {"components": components, "explained_variance": shares}, pictures


def _positions(inspected):
    similarity = position_similarity(inspected.model)
    caption = (
        "Cosine similarity of position embeddings. Tiles: of the position at that row and "
        "column with all others. Matrices: of columns, rows or offsets with each other."
    )
    pictures = iter([Picture("position_similarity", draw_position_similarity(similarity), caption)])
    return similarity, pictures


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
            else "Tokens that are no patches are left out."
        )
    )
    pictures = iter(
        [Picture("attention_distance", draw_attention_distance(distances, width), caption)]
    )
    return {"distances": distances, "image_size": np.array([height, width])}, pictures


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
            yield Picture(f"rollout_{number}", drawing, f"{title}. {caption} {shares}")

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
        f"Single heads and layers, {SEEN_BY[inspected.layout.query(inspected.query)]}; each tile "
        "on its own scale."
    )

    def pictures():
        rows = zip(inspected.first_images, maps, inspected.titles, strict=True)
        for number, (image, heads, title) in enumerate(rows, 1):
            drawing = draw_heads(image, heads, title=title)
            yield Picture(f"heads_{number}", drawing, f"{title}. {caption}")

    return {"heads": maps, "titles": np.array(inspected.titles)}, pictures()


def _axial_heads(inspected):
    maps = axial_head_maps(inspected.model, inspected.first_images, batch_size=inspected.batch_size)
    caption = (
        "Attention that each position gets, the mean over its row or its column as the queries, "
        "by unit (block.unit) and head; each tile on its own scale."
    )

    def pictures():
        rows = zip(inspected.first_images, inspected.titles, strict=True)
        for number, (image, title) in enumerate(rows):
            of_image = {name: values[number] for name, values in maps.items()}
            drawing = draw_axial_heads(image, of_image, title=title)
            yield Picture(f"heads_{number + 1}", drawing, f"{title}. {caption}")

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
            "The maps of an Axial-ResNet have no other query than rows and columns: leave it out. "
            f"Received: query={inspected.query!r}"
        )


def _check_distance(inspected):
    if not has_axial_units(inspected.model):
        token_layout(inspected.model, inspected.image_size)


# Its name is that of its .npz.
FIGURES = {
    "filters": Figure("Filters of the embedding", False, _check_filters, _filters),
    "position_similarity": Figure(
        "Position embeddings",
        False,
        lambda inspected: position_similarity(inspected.model),
        _positions,
    ),
    "attention_distance": Figure("Attention distance", True, _check_distance, _distance),
    "rollout": Figure("Attention Rollout", True, _check_rollout, _rollout),
    "heads": Figure("Attention of single heads", True, _check_heads, _heads),
}


def write_report(
    folder: str | os.PathLike,
    model: Any,
    preprocessing: Preprocessing,
    images: Iterable[str | os.PathLike] = (),
    *,
    class_names: Sequence[str] | None = None,
    name: str | None = None,
    figures: Sequence[str] | None = None,
    query: str | None = None,
    num_images: int = 128,
    num_pictures: int = 4,
    batch_size: int = 8,
    progress: Callable[[str], Any] | None = None,
) -> list[str]:
    """Writes PNG, SVG and NPZ of all figures that apply, and `index.html` that shows them.

    Args:
        folder: New or empty. It appears at the end, in one rename.
        model: A functional `keras.Model` of the package, or a `Classifier`.
        preprocessing: How an image becomes the model's input.
        images: Files, and folders of images.
        class_names: Of the model's outputs, for the titles; None leaves predictions out.
        name: The heading of the page; the model's own by default.
        figures: Names of `FIGURES`; by default all that the model and the images allow.
        query: See `attention_rollout`.
        num_images: Images that the attention distance is averaged over; of more, evenly
            spread ones are taken.
        num_pictures: Images of which attention is drawn, the first of those.
        batch_size: Images that run at once.
        progress: Gets a line of text for each figure.

    Returns:
        Names of the files written.

    Raises:
        ValueError: If the folder is not empty, an image cannot be read, or a figure that is
            asked for needs a part that the model does not have.
        ImportError: Without matplotlib.
        OSError: If a file cannot be read or written.
    """
    new_figure((1, 1))  # Without matplotlib nothing else need be tried.
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
        _read_images(inspected, images, preprocessing, class_names, num_images, num_pictures)
    sections = []
    with atomic_folder(folder) as scratch:
        for figure in names:
            if progress:
                progress(f"{FIGURES[figure].heading} ...")
            arrays, pictures = FIGURES[figure].make(inspected)
            np.savez(scratch / f"{figure}.npz", **arrays)
            sections.append((FIGURES[figure].heading, list(_save(scratch, pictures))))
        page = html_page(
            name or inspected.model.name,
            {
                "image size (height x width)": "{} x {}".format(*preprocessing.image_size),
                "images": 0 if inspected.images is None else len(inspected.images),
            },
            sections,
            left_out,
        )
        (scratch / "index.html").write_text(page, encoding="utf-8")
        written = sorted(path.name for path in scratch.iterdir())
    return written


def _applicable(inspected, figures, has_images):
    """Names of the figures to make, and why others are left out."""
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
                raise ValueError("It needs images. Received: none")
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
        raise ValueError(f"Nothing can be shown of this model. {' '.join(left_out)}")
    return names, left_out


def _read_images(inspected, paths, preprocessing, class_names, num_images, num_pictures):
    from keras_vit.images import apply_preprocessing, read_image

    files = image_files(paths)
    if len(files) > num_images:
        files = [files[k] for k in np.linspace(0, len(files) - 1, num_images).round().astype(int)]
    # The pictures first, spread over all: files of one folder are often of one class.
    shown = np.linspace(0, len(files) - 1, min(num_pictures, len(files))).round().astype(int)
    files = [files[k] for k in shown] + [
        file for k, file in enumerate(files) if k not in set(shown)
    ]
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
            f"{name}: {class_names[row.argmax()]} {row.max():.1%}"
            for name, row in zip(names, scores, strict=True)
        ]


def seen_region(
    image_size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[float, float, float, float]:
    """Returns the part of an image that its preprocessing keeps.

    It is read off an image whose pixels hold their own places, so it is right for every
    preprocessing that resizes and crops.

    Args:
        image_size: Pixels (height, width) of the file's image.
        preprocessing: How it becomes the model's input.

    Returns:
        Pixels (top, left, bottom, right).
    """
    from keras_vit.images import apply_preprocessing

    places = np.moveaxis(np.indices(image_size, dtype="float32"), 0, -1) + 0.5
    places = np.concatenate([places, places[..., :1]], axis=-1)
    low, high = np.array(preprocessing.value_range)
    kept = np.asarray(apply_preprocessing(places, preprocessing), "float64")
    kept = (kept - low) * 255 / (high - low)
    edges = []
    for line, length in ((kept[:, 0, 0], image_size[0]), (kept[0, :, 1], image_size[1])):
        # Not from the ends, where magnifying repeats the last pixel.
        first, last = len(line) // 4, len(line) - 1 - len(line) // 4
        step = (line[last] - line[first]) / max(last - first, 1)
        start = line[first] - (first + 0.5) * step
        end = start + len(line) * step
        edges.append((max(start, 0.0), min(end, float(length))) if step > 0 else (0.0, length))
    (top, bottom), (left, right) = edges
    return (float(top), float(left), float(bottom), float(right))


def _save(folder, pictures):
    for picture in pictures:
        for suffix in ("png", "svg"):
            picture.drawing.savefig(folder / f"{picture.name}.{suffix}")
        yield folder / f"{picture.name}.png", picture.caption
