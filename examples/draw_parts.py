"""Drawn photos of machine parts on a bench, whose flaws are known.

    python examples/draw_parts.py OUTPUT [--parts 60] [--seed 0]

`OUTPUT/photos/{gear,nut,screw,washer}/PART-SHOT.jpg` has three shots of each part, turned and moved
between the shots. Three labels are wrong, and eight photos are copies of others under a new number.
`OUTPUT/calibration/{gear,nut,screw,washer}/PART-SHOT.jpg` has one shot of each of other parts.
`OUTPUT/new/PART-SHOT.jpg` has one shot of each of other parts again, and of springs, which are none
of the four kinds. `OUTPUT/truth.csv` says what each photo shows and what was planted.

A part is drawn from its signed distance: negative inside, in units of half the picture's side. The
same arguments give the same files.
"""

import argparse
import csv
import dataclasses
import math
import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

KINDS = "gear", "nut", "screw", "washer"
UNKNOWN = "spring"  # In `new` alone.
SIZE = 160  # Pixels per side.
SHOTS = 3
WRONG_LABELS = 3
COPIES = 8
METALS = (205, 205, 210), (150, 152, 158), (212, 178, 98), (196, 128, 92), (92, 94, 100)
BENCHES = (150, 112, 76), (96, 108, 96), (70, 84, 108), (186, 182, 172), (58, 58, 62), (120, 72, 62)


@dataclasses.dataclass(frozen=True)
class Photo:
    """What a photo shows and what is wrong with it.

    Attributes:
        path: Relative to the output folder.
        kind: What the photo shows; its folder may say something else.
        part: The number of the part; a copy has the number of its original.
        shot: Which shot of the part it is, from 0.
        planted: "wrong label", "copy" or nothing.
        original: The path that a copy was made of.
    """

    path: str
    kind: str
    part: int
    shot: int
    planted: str = ""
    original: str = ""


def washer(x, y, rng):
    """Returns the signed distances of a disk with a hole."""
    outer = rng.uniform(0.42, 0.66)
    inner = outer * rng.uniform(0.5, 0.75)
    radius = np.hypot(x, y)
    return np.maximum(radius - outer, inner - radius)


def nut(x, y, rng):
    """Returns the signed distances of a hexagon with a hole."""
    outer = rng.uniform(0.42, 0.6)
    inner = outer * rng.uniform(0.4, 0.6)
    turns = [cosine_and_sine(index * math.pi / 3) for index in range(6)]
    sides = [x * cos + y * sin for cos, sin in turns]
    return np.maximum(np.max(sides, axis=0) - outer, inner - np.hypot(x, y))


def gear(x, y, rng):
    """Returns the signed distances of a wheel with teeth and a bore."""
    outer = rng.uniform(0.46, 0.62)
    inner = outer * rng.uniform(0.18, 0.42)
    teeth = rng.integers(9, 19)
    height = outer * rng.uniform(0.07, 0.12)
    radius = np.hypot(x, y)
    wave = np.cos(teeth * np.arctan2(y, x))
    edge = outer + height * np.clip(2.5 * wave, -1, 1)
    return np.maximum(radius - edge, inner - radius)


def screw(x, y, rng):
    """Returns the signed distances of a screw that lies on its side."""
    length = rng.uniform(0.5, 0.78)
    shaft = rng.uniform(0.08, 0.14)
    head = shaft * rng.uniform(1.8, 2.6)
    thickness = rng.uniform(0.1, 0.2)
    turns = rng.uniform(55, 80)
    thread = 0.018 * np.cos(turns * x + 6 * y)
    tip = np.clip((length - x) * 1.2, 0, shaft)  # The end is pointed.
    body = np.maximum(np.abs(y) - tip - thread, np.abs(x) - length)
    cap = np.maximum(np.abs(x + length) - thickness, np.abs(y) - head)
    return np.minimum(body, cap)


def spring(x, y, rng):
    """Returns the signed distances of a coil that lies on its side."""
    length = rng.uniform(0.45, 0.7)
    height = rng.uniform(0.16, 0.28)
    wire = rng.uniform(0.03, 0.05)
    turns = rng.uniform(18, 30)
    slope = height * turns * np.cos(turns * x)
    coil = np.abs(y - height * np.sin(turns * x)) / np.hypot(1, slope) - wire
    return np.maximum(coil, np.abs(x) - length)


SHAPES = {"gear": gear, "nut": nut, "screw": screw, "washer": washer, "spring": spring}
# How far a part rises from the bench: the length of its shadow and the width of its round edge.
THICKNESS = {"gear": 0.09, "nut": 0.2, "screw": 0.12, "washer": 0.03, "spring": 0.1}


def smooth_noise(rng, cells, shape=(SIZE, SIZE)):
    """Returns noise between 0 and 1 that changes over a share of the picture."""
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), "uint8"))
    return np.asarray(coarse.resize(shape, Image.Resampling.BICUBIC), "float32") / 255


def scratches(x, y, rng, count):
    """Returns the strength of straight scratches, 0 to 1."""
    strength = np.zeros_like(x)
    for _ in range(count):
        cos, sin = cosine_and_sine(rng.uniform(0, math.pi))
        across = np.abs(x * cos + y * sin - rng.uniform(-0.6, 0.6))
        along = np.abs(y * cos - x * sin - rng.uniform(-0.6, 0.6))
        line = np.maximum(1 - across / 0.012, 0) * (along < rng.uniform(0.1, 0.5))
        strength = np.maximum(strength, line * rng.uniform(0.3, 1))
    return strength


def cosine_and_sine(angle):
    """Returns both as Python numbers, with which arrays stay float32."""
    return math.cos(angle), math.sin(angle)


def draw(kind, part, shot, seed):
    """Returns a photo of a part, `(SIZE, SIZE, 3)` uint8.

    A part has its shape, metal, bench and wear; a shot has its place, rotation, light and noise.
    """
    of_part = np.random.default_rng([seed, part])
    of_shot = np.random.default_rng([seed, part, shot + 1])
    grid = np.linspace(-1, 1, SIZE, dtype="float32")
    x, y = np.meshgrid(grid, grid)

    metal = np.array(METALS[of_part.integers(len(METALS))], "float32") * of_part.uniform(0.85, 1.1)
    bench = np.array(BENCHES[of_part.integers(len(BENCHES))], "float32")
    bench *= of_part.uniform(0.8, 1.15)
    thickness = THICKNESS[kind] * of_part.uniform(0.7, 1.3)
    tilt = of_part.uniform(0.75, 1)  # The camera looks a little from the side.
    shape_seed, wear_seed = of_part.integers(1 << 32, size=2)
    cos, sin = cosine_and_sine(of_shot.uniform(0, 2 * math.pi))
    center_x, center_y = of_shot.uniform(-0.18, 0.18, 2).tolist()

    def in_part(x, y):
        """Returns where a point of the picture is in the part's own frame."""
        x, y = x - center_x, (y - center_y) / tilt
        return x * cos + y * sin, y * cos - x * sin

    def distance(x, y):
        return SHAPES[kind](*in_part(x, y), np.random.default_rng(shape_seed))

    inside = distance(x, y)
    light_x, light_y = cosine_and_sine(of_shot.uniform(0, 2 * math.pi))
    reach = thickness * of_shot.uniform(0.6, 1.2)
    shadow = distance(x + light_x * reach, y + light_y * reach)
    shade = np.clip(0.5 - shadow / of_shot.uniform(0.03, 0.12), 0, 1)

    # The bench: large stains, fine grain and scratches; darker in the shadow.
    grain = 0.75 + 0.3 * smooth_noise(of_part, 6) + 0.2 * smooth_noise(of_part, 60)
    grain += 0.25 * scratches(x, y, of_part, of_part.integers(0, 8))
    picture = bench * (grain * (1 - of_shot.uniform(0.3, 0.65) * shade))[..., None]

    # The part: its edge is round, and the slope decides how much light a place gets.
    height = np.sqrt(np.clip(-inside / (thickness * 0.8), 0, 1))
    slope_y, slope_x = np.gradient(height)
    surface = 0.75 - 2.25 * (slope_x * light_x + slope_y * light_y)
    surface += 0.25 * (smooth_noise(of_part, 30) - 0.5)
    wear = scratches(*in_part(x, y), np.random.default_rng(wear_seed), 6)
    surface += of_shot.uniform(0, 0.3) * wear
    covered = np.clip(0.5 - inside * (SIZE / 2), 0, 1)[..., None]  # Smooth over one pixel.
    picture += covered * (metal * np.clip(surface, 0.15, 1.4)[..., None] - picture)

    # The lamp is brighter on one side; then the camera's exposure, color and noise.
    picture *= (1 + of_shot.uniform(0, 0.3) * (x * light_x + y * light_y))[..., None]
    picture *= (of_shot.uniform(0.75, 1.15) * of_shot.uniform(0.94, 1.06, 3)).astype("float32")
    noise = of_shot.standard_normal(picture.shape, "float32")
    picture += of_shot.uniform(2, 9) * noise
    return np.clip(picture, 0, 255).astype("uint8")


def changed_copy(photo, rng):
    """Returns a photo that was cropped a little, made smaller, and made brighter or darker."""
    edge = int(rng.integers(0, 5))
    side = int(rng.integers(120, SIZE))
    gain = rng.uniform(0.85, 1.15)
    cropped = photo.crop((edge, edge, SIZE - edge, SIZE - edge))
    small = cropped.resize((side, side), Image.Resampling.BICUBIC)
    return Image.fromarray(np.clip(np.asarray(small) * gain, 0, 255).astype("uint8"))


def plan_photos(parts, seed):
    """Returns the `Photo`s of all three folders, with the wrong labels and the copies.

    Args:
        parts: Parts of each kind, each with three shots.
        seed: Decides which number is a part of which kind, and what is planted.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.repeat(KINDS, parts)).tolist()
    photos = [
        Photo(f"photos/{kind}/{part:03}-{shot}.jpg", kind, part, shot)
        for part, kind in enumerate(kinds)
        for shot in range(SHOTS)
    ]
    # One photo of each of several parts, and never two of one part.
    chosen = rng.choice(len(kinds), WRONG_LABELS + COPIES, replace=False) * SHOTS
    for index in chosen[:WRONG_LABELS]:
        photo = photos[index]
        folder = KINDS[(KINDS.index(photo.kind) + 1) % len(KINDS)]
        path = f"photos/{folder}/{photo.part:03}-{photo.shot}.jpg"
        photos[index] = dataclasses.replace(photo, path=path, planted="wrong label")
    for number, index in enumerate(chosen[WRONG_LABELS:], start=len(kinds)):
        photo = photos[index]
        path = f"photos/{photo.kind}/{number:03}-0.jpg"
        copy = dataclasses.replace(photo, path=path, planted="copy", original=photo.path)
        photos.append(copy)
    for folder, kinds in (
        ("calibration", np.repeat(KINDS, parts * 2 // 3)),
        ("new", np.repeat([*KINDS, *[UNKNOWN] * len(KINDS)], parts // 6)),
    ):
        for part, kind in enumerate(rng.permutation(kinds).tolist(), start=len(photos)):
            inner = f"{folder}/{kind}" if folder == "calibration" else folder
            photos.append(Photo(f"{inner}/{part:03}-0.jpg", kind, part, 0))
    return photos


def draw_parts(output, parts=60, seed=0):
    """Draws all photos into a folder, writes `truth.csv`, and returns the `Photo`s."""
    output = pathlib.Path(output)
    photos = plan_photos(parts, seed)
    for folder in {(output / photo.path).parent for photo in photos}:
        folder.mkdir(parents=True, exist_ok=True)

    def save(photo):
        picture = Image.fromarray(draw(photo.kind, photo.part, photo.shot, seed))
        rng = np.random.default_rng([seed, photo.part, photo.shot, len(photo.original)])
        quality = int(rng.integers(80, 96))
        if photo.planted == "copy":
            picture = changed_copy(picture, rng)
        picture.save(output / photo.path, quality=quality)

    with ThreadPoolExecutor() as threads:
        list(threads.map(save, photos))
    with open(output / "truth.csv", "w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, [field.name for field in dataclasses.fields(Photo)])
        rows.writeheader()
        rows.writerows(map(dataclasses.asdict, photos))
    return photos


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw photos of machine parts.")
    parser.add_argument("output", type=pathlib.Path, help="the folder to write")
    parser.add_argument("--parts", type=int, default=60, help="of each kind (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    arguments = parser.parse_args()
    drawn = draw_parts(arguments.output, arguments.parts, arguments.seed)
    print(f"{len(drawn)} photos in {arguments.output}")
