"""The main job on drawn photos whose flaws are known, by the commands that a user types.

    python examples/demo.py OUTPUT [--parts 60] [--steps 60] [--max-error 0.1]

Draws photos of machine parts (draw_parts.py), then checks them, trains a classifier, evaluates it,
finds when it should answer "unknown", and exports it for a phone. Each step says what was planted
and what its command found, counted from the files that the command wrote. The commands' own lines
are in OUTPUT/log.txt, and OUTPUT/demo.html shows the results.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import time

from draw_parts import KINDS, UNKNOWN, draw_parts

from keras_vit.reports import pages

WEIGHTS = "r7_vit_nano8_cifar10"  # In the package.
KERAS_VIT = pathlib.Path(sys.executable).with_name("keras-vit")  # The same installation.


class Demo:
    """The steps, and what each of them found.

    Args:
        folder: Where everything is written; the commands run there.
        photos: The `Photo`s that were drawn.
        steps: Training steps.
        max_error: The largest share of wrong answers.
    """

    def __init__(self, folder, photos, steps, max_error):
        self.folder = folder
        self.steps = steps
        self.max_error = max_error
        self.truth = {photo.path: photo for photo in photos}
        self.results = []  # Step, what was found, and how long it took.

    def run(self, command):
        """Runs a command in the folder; returns what it printed, which `log.txt` keeps."""
        print(f"\n$ keras-vit {command}", flush=True)
        started, cpu_before = time.monotonic(), cpu_seconds()
        words = [KERAS_VIT, *shlex.split(command)]
        done = subprocess.run(words, cwd=self.folder, text=True, stdout=subprocess.PIPE)
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"$ keras-vit {command}\n{done.stdout}\n")
        if done.returncode != 0:
            sys.exit(f"keras-vit ended with exit code {done.returncode}; see {log.name}")
        seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu_before
        self.took = f"{seconds:.0f} s, {cpu:.0f} s of processor time"
        return done.stdout

    def tell(self, step, found):
        """Prints and keeps what a step found."""
        print(f"{step}: {found} ({self.took})", flush=True)
        self.results.append((step, found, self.took))

    def rows(self, path):
        """Returns the rows of a CSV file, each a dictionary."""
        with open(self.folder / path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def check(self):
        """Finds the wrong labels and the copies; corrects the labels as a person would."""
        self.run(f"check photos --weights {WEIGHTS} --group-by '(\\d+)-' --output check")
        findings = self.rows("check/findings.csv")
        doubts = [row["image"] for row in findings if row["kind"] == "wrong labels"]
        pairs = {frozenset((row["image"], row["other"])) for row in findings if row["other"]}
        photos = {path.removeprefix("photos/"): photo for path, photo in self.truth.items()}
        wrong = {path for path, photo in photos.items() if photo.planted == "wrong label"}
        copies = [
            frozenset((path, photo.original.removeprefix("photos/")))
            for path, photo in photos.items()
            if photo.planted == "copy"
        ]
        corrected = [path for path in doubts if path in wrong]
        with open(self.folder / "check" / "labels.csv", "w", newline="") as file:
            rows = [("path", "label"), *((path, photos[path].kind) for path in corrected)]
            csv.writer(file).writerows(rows)
        found = sum(pair in pairs for pair in copies)
        self.tell(
            "check",
            f"{len(corrected)} of {len(wrong)} wrong labels are among its {len(doubts)} doubts, "
            f"and {found} of {len(copies)} copies were found. You would save the corrected labels "
            "from check/check.html; here the drawing program knows them.",
        )

    def finetune(self):
        """Trains on the photos with their groups and corrected labels."""
        self.run(
            f"finetune photos --checked check --weights {WEIGHTS} --image-size 32 "
            f"--steps {self.steps} --batch-size 32 --flip both --output runs/parts"
        )
        with open(self.folder / "runs/parts/recipe.json", encoding="utf-8") as file:
            counts = json.load(file)["images"]
        splits = collections.defaultdict(set)
        for row in self.rows("check/split.csv"):
            splits[self.truth[f"photos/{row['path']}"].part].add(row["split"])
        divided = sum(len(names) > 1 for names in splits.values())
        self.tell(
            "finetune",
            f"{counts['train']} photos to train, {counts['validation']} to choose the weights, "
            f"{counts['test']} to test; of {len(splits)} parts {divided} have shots or copies in "
            "more than one of these.",
        )

    def evaluate(self):
        """Evaluates the classifier on the photos that it was not trained on."""
        printed = self.run("evaluate runs/parts --data photos --output report")
        accuracy = re.search("^top-1 +(.+)", printed, re.MULTILINE)[1]
        with open(self.folder / "report/metrics.json", encoding="utf-8") as file:
            references = json.load(file)["references"]
        compared = ", ".join(f"{name}: {value:.1%}" for name, value in references.items())
        self.tell("evaluate", f"{accuracy}. For comparison, {compared}.")

    def calibrate(self):
        """Finds when the classifier should answer "unknown"."""
        printed = self.run(
            "calibrate runs/parts --data calibration --training-data photos "
            f"--max-error {self.max_error}"
        )
        bound = re.search("^with .+", printed, re.MULTILINE)[0]
        answered = re.search("^answered .+", printed, re.MULTILINE)[0]
        self.tell("calibrate", f"{bound}; {answered}")

    def predict(self):
        """Names photos of new parts and of springs."""
        printed = self.run("predict runs/parts new --top 1 --format csv")
        rows = list(csv.DictReader(printed.splitlines()))
        self.answers = {row["path"]: row["answer"] for row in rows}
        pairs = [(self.truth[path].kind, answer) for path, answer in self.answers.items()]
        of_parts = [(kind, answer) for kind, answer in pairs if kind in KINDS]
        right = sum(kind == answer for kind, answer in of_parts)
        silent = sum(answer == "unknown" for _, answer in of_parts)
        springs = [answer for kind, answer in pairs if kind == UNKNOWN]
        refused = springs.count("unknown")
        self.tell(
            "predict",
            f"of {len(of_parts)} new parts {right} are named right, "
            f"{len(of_parts) - right - silent} wrong and {silent} unknown; of {len(springs)} "
            f"springs, which are none of the classes, {refused} are unknown.",
        )

    def export(self):
        """Writes a file for phones, whose answers are compared with Keras's."""
        printed = self.run("export runs/parts --to litert --output parts.tflite")
        size = (self.folder / "parts.tflite").stat().st_size / 1e6
        equal, largest = re.search(r"^serve +(\S+) +(\S+)", printed, re.MULTILINE).groups()
        self.tell(
            "export",
            f"parts.tflite, {size:.1f} MB, gives the class of the Keras model for {equal} of the "
            f"check images; the largest difference of a probability is {largest}.",
        )

    def verify(self):
        """Runs the exported file again, in its own runtime, as on the phone."""
        printed = self.run("verify parts.tflite")
        self.tell("verify", re.search("parts.tflite +(.+)", printed)[1])

    def write_page(self):
        """Writes `demo.html`: the results, and some new photos with their answers."""
        shown = [
            pages.GridPicture("", (self.folder / path).read_bytes(), {"answer:": answer})
            for path, answer in list(self.answers.items())[:24]
        ]
        links = {
            "check/check.html": "doubted labels and copies, where a person decides",
            "report/report.html": "accuracy, confusion and errors on the test photos",
            "runs/parts/report.html": "how the training went",
            "log.txt": "what the commands printed",
        }
        page = self.folder / "demo.html"
        pages.write_page(
            page,
            "Machine parts",
            pages.facts_table((step, f"{found} ({took})") for step, found, took in self.results),
            pages.heading("New photos and their answers"),
            pages.picture_grid(shown),
            pages.heading("Files"),
            pages.file_links(links),
        )
        return page


def cpu_seconds():
    """Returns the processor time of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(output, parts, steps, max_error):
    """Runs all steps and prints the path of the page."""
    started = time.monotonic()
    output.mkdir(parents=True)  # Fails if it exists.
    print("Drawing photos of machine parts.", flush=True)
    photos = draw_parts(output, parts)
    demo = Demo(output, photos, steps, max_error)
    seconds, cpu = time.monotonic() - started, time.process_time()
    demo.took = f"{seconds:.0f} s, {cpu:.0f} s of processor time"
    demo.tell(
        "draw",
        f"{len(photos)} photos of machine parts; planted are "
        f"{sum(photo.planted == 'wrong label' for photo in photos)} wrong labels, "
        f"{sum(photo.planted == 'copy' for photo in photos)} copies and "
        f"{sum(photo.kind == UNKNOWN for photo in photos)} springs, which are none of the classes.",
    )
    for step in (
        demo.check,
        demo.finetune,
        demo.evaluate,
        demo.calibrate,
        demo.predict,
        demo.export,
        demo.verify,
    ):
        step()
    page = demo.write_page()
    print(f"\nAll of it took {time.monotonic() - started:.0f} s. Open this page:\n{page.resolve()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run the main job on drawn photos.")
    parser.add_argument("output", type=pathlib.Path, help="a new folder for all files")
    parser.add_argument("--parts", type=int, default=60, help="of each kind (default: 60)")
    parser.add_argument("--steps", type=int, default=60, help="of training (default: 60)")
    parser.add_argument(
        "--max-error", type=float, default=0.1, help="of the answers (default: 0.1)"
    )
    main(**vars(parser.parse_args()))
