"""The picture of README: photographs, and what a classifier of the package answers.

    python docs/first_screen.py [--output docs/first_screen.png]

The photographs come with scikit-image, whole, and are CC0 or in the public domain. The classifier
knows the ten classes of CIFAR-10 and was calibrated, so that it can answer "unknown". Three
photographs are an example and no measurement; docs/unknown.md has one. Needs scikit-image.
"""

import argparse
import pathlib

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

from PIL import Image, ImageDraw, ImageFont
from skimage import data

import keras_vit

CLASSIFIER = "r14_vit_micro16_cifar10"
# What the photograph shows, its name in scikit-image, and its author; see the docstrings there.
PHOTOGRAPHS = (
    ("a cat", "chelsea", "Stefan van der Walt, CC0"),
    ("a cup of coffee", "coffee", "Rachel Michetti, CC0"),
    ("a rocket", "rocket", "SpaceX, public domain"),
)
WIDTH, HEIGHT, GAP, CAPTION = 288, 192, 16, 76  # Pixels.
BLACK, GREY, GREEN, ORANGE = "#1f2328", "#59636e", "#1a7f37", "#bc4c00"


def draw_first_screen(photographs, answers):
    """Returns one picture of photographs with their answers.

    Args:
        photographs: The pixels of each of `PHOTOGRAPHS`.
        answers: A `Prediction` for each.
    """
    width = len(photographs) * (WIDTH + GAP) + GAP
    screen = Image.new("RGB", (width, HEIGHT + 2 * GAP + CAPTION), "white")
    pen = ImageDraw.Draw(screen)
    large, small = ImageFont.load_default(26), ImageFont.load_default(14)
    for index, (photograph, answer) in enumerate(zip(photographs, answers, strict=True)):
        shown, name, author = PHOTOGRAPHS[index]
        left, top = GAP + index * (WIDTH + GAP), HEIGHT + GAP
        screen.paste(Image.fromarray(photograph).resize((WIDTH, HEIGHT)), (left, GAP))
        color = ORANGE if answer.label == "unknown" else GREEN
        pen.text((left, top + 6), answer.label, color, large)
        likely = ", ".join(f"{label} {share:.0%}" for label, share in answer.top[:2])
        pen.text((left, top + 42), f"{shown}; {likely}", BLACK, small)
        pen.text((left, top + 62), f"{name}: {author}", GREY, small)
    return screen


def main(output):
    """Draws the picture and prints the answers."""
    photographs = [getattr(data, name)() for _, name, _ in PHOTOGRAPHS]
    answers = keras_vit.load_classifier(CLASSIFIER)(photographs)
    for (shown, _, _), answer in zip(PHOTOGRAPHS, answers, strict=True):
        print(f"{shown}: {answer.label}")
    draw_first_screen(photographs, answers).quantize(256, kmeans=2).save(output, optimize=True)
    print(f"{output}: {output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw the picture of README.")
    default = pathlib.Path(__file__).with_name("first_screen.png")
    parser.add_argument("--output", type=pathlib.Path, default=default, help="the PNG file")
    main(parser.parse_args().output)
