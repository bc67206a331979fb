"""Program that classifies images with MediaPipe, in an environment that has nothing else.

    python mediapipe_classes.py FILES.json IMAGES.json

FILES are TFLite files, IMAGES image files. Prints JSON: for each file and image, the score of each
class name.
"""

import json
import pathlib
import sys

import mediapipe
from mediapipe.tasks.python import BaseOptions, vision


def main(files, images):
    files, images = (json.loads(pathlib.Path(path).read_text()) for path in (files, images))
    answers = []
    for file in files:
        options = vision.ImageClassifierOptions(base_options=BaseOptions(model_asset_path=file))
        with vision.ImageClassifier.create_from_options(options) as classifier:
            for image in images:
                result = classifier.classify(mediapipe.Image.create_from_file(image))
                (head,) = result.classifications
                answers.append({found.category_name: found.score for found in head.categories})
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
