"""Training photos per second of the input pipeline, compared with other libraries.

JPEGs of three sizes are made of scikit-learn's two sample photographs; the larger ones get noise,
so that a pixel takes as many bytes as in a camera's file. Each pipeline reads files, decodes, crops
at random, resizes to 224 pixels, flips, scales and batches, on the same cores. Its processes stand
still while the others have their turn. A ratio is the median over the turns of one run, so that
the load of other programs cancels out.

    pip install torch torchvision grain  # A library that is not installed is left out.
    python benchmarks/input_pipeline.py [--cores 1 2] [--sizes 500x375 1024x768 4000x3000]
        [--sides keras_vit "torchvision, our resize"] [--turns 5] [--seconds 3]
"""

import argparse
import contextlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from machine import describe, peak_memory

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SIDE = 224  # Pixels of a training image.
AREA = (0.05, 1.0)  # Share of the photo in a crop, as in `inception_crop`.
ASPECT = (3 / 4, 4 / 3)
# By size: files, JPEG quality, noise in pixel values, and images in a batch.
PHOTOS = {
    "500x375": (256, 96, 0, 32),  # ImageNet's usual size.
    "1024x768": (128, 92, 4, 32),
    "4000x3000": (32, 95, 5, 4),  # A camera's.
}


def make_photos(folder, size):
    """Writes JPEG files in two classes, each of another part of a photograph; returns their kB."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    count, quality, noise, _ = PHOTOS[size]
    photographs = [Image.fromarray(array) for array in load_sample_images().images]
    generator = np.random.default_rng(0)
    total = 0
    for number in range(count):
        part = (number % 20, number % 13, 600 + number % 40, 400 + number % 27)
        photo = photographs[number % 2].crop(part).resize([*map(int, size.split("x"))])
        if noise:
            grain = generator.normal(0, noise, (photo.height, photo.width, 3)).astype("float32")
            photo = Image.fromarray((photo + grain).clip(0, 255).astype("uint8"))
        path = folder / "files" / f"photograph {number % 2}" / f"{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo.save(path, quality=quality)
        total += path.stat().st_size
    return total / count / 1000


def paths_in(folder):
    return sorted(map(str, (folder / "files").glob("*/*.jpg")))


def write_tfrecords(folder):
    from keras_vit.training.data import open_source, write_records

    write_records(open_source(folder / "files", holdout=0), folder / "tfrecords")
    return folder / "tfrecords", {}


def write_tfds(folder):
    """Writes the same files as a TensorFlow Datasets data set."""
    import tensorflow_datasets as tfds

    class Photographs(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            labels = tfds.features.ClassLabel(num_classes=2)
            features = tfds.features.FeaturesDict({"image": tfds.features.Image(), "label": labels})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for path in map(pathlib.Path, paths_in(folder)):
                encoded = io.BytesIO(path.read_bytes())
                yield path.name, {"image": encoded, "label": int(path.parent.name[-1])}

    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):  # It prints that it downloads; it does not.
        Photographs(data_dir=folder / "tfds").download_and_prepare()
    return "tfds:photographs", {"data_dir": folder / "tfds"}


# Pipelines: functions of a folder, the cores and the batch size to batches without end.


def ours(folder, cores, batch, augmentation="inception_crop", write=None):
    from keras_vit.training.data import TrainingBatches, open_source, training_batches

    data, options = write(folder) if write else (folder / "files", {})
    examples = open_source(data, holdout=0, **options).splits["train"]
    batches = TrainingBatches(
        image_size=(SIDE, SIDE),
        batch_size=batch,
        seed=0,
        augmentation=augmentation,
        num_classes=2,
    )
    return training_batches(examples, batches)


def bare_tensorflow(folder, cores, batch):
    """Whole photos, read and decoded with the accurate DCT, not batched."""
    import tensorflow as tf

    from keras_vit.training.data.examples import without_autotune

    def decode(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), 3, dct_method="INTEGER_ACCURATE")
        return image[0, 0, 0]  # A batch of photos would have to be copied.

    photos = tf.data.Dataset.from_tensor_slices(paths_in(folder)).repeat()
    return without_autotune(photos.map(decode, 4 * cores).batch(batch).prefetch(2))


def bare_pillow(folder, cores, batch):
    """The same by Pillow, in one thread."""
    from PIL import Image

    paths = itertools.cycle(paths_in(folder))
    while True:
        yield [Image.open(next(paths)).convert("RGB").load() for _ in range(batch)]


def pillow_crop(path, generator):
    """Returns a random crop, resized with Pillow's antialiasing, flipped and scaled."""
    import numpy as np
    from PIL import Image

    photo = Image.open(path).convert("RGB")
    while True:
        area = photo.width * photo.height * generator.uniform(*AREA)
        aspect = np.exp(generator.uniform(*np.log(ASPECT)))
        width, height = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < width <= photo.width and 0 < height <= photo.height:
            break
    left = generator.integers(photo.width - width + 1)
    top = generator.integers(photo.height - height + 1)
    box = (left, top, left + width, top + height)
    photo = photo.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
    if generator.random() < 0.5:
        photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(photo, "float32") * np.float32(2 / 255) - np.float32(1)


def pillow_loop(folder, cores, batch):
    import numpy as np

    paths, generator = itertools.cycle(paths_in(folder)), np.random.default_rng(0)
    while True:
        yield np.stack([pillow_crop(next(paths), generator) for _ in range(batch)])


def data_loader(folder, cores, batch, same_resize=False):
    """Transforms of torchvision's reference, or with the resize and the areas of ours."""
    # A wheel for another build of PyTorch has no compiled operators: none is used.
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "helpers"))
    importlib.import_module("any_torchvision")
    import torch
    from torchvision import datasets, transforms as first
    from torchvision.transforms import v2

    normalize = ((0.5,) * 3, (0.5,) * 3)
    if same_resize:  # Pillow always antialiases; a tensor is resized with or without.
        steps = [
            v2.PILToTensor(),
            v2.RandomResizedCrop(SIDE, scale=AREA, antialias=False),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*normalize),
        ]
    else:
        steps = [
            first.RandomResizedCrop(SIDE),
            first.RandomHorizontalFlip(),
            first.ToTensor(),
            first.Normalize(*normalize),
        ]
    photos = datasets.ImageFolder(folder / "files", first.Compose(steps))
    order = torch.utils.data.RandomSampler(photos, replacement=True, num_samples=10**9)
    return torch.utils.data.DataLoader(photos, batch, sampler=order, num_workers=cores)


def grain_threads(folder, cores, batch):
    import grain

    # 16 threads as by default, and no more photos ahead than a turn's first batches.
    options = grain.ReadOptions(prefetch_buffer_size=2 * batch)
    return grain_photos(folder, batch).to_iter_dataset(options)


def grain_processes(folder, cores, batch):
    import grain
    from absl import flags

    flags.FLAGS(sys.argv[:1])
    options = grain.MultiprocessingOptions(num_workers=cores, per_worker_buffer_size=2)
    one_thread = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return grain_photos(folder, batch).to_iter_dataset(one_thread).mp_prefetch(options)


def grain_photos(folder, batch):
    import grain

    class Crop(grain.transforms.RandomMap):
        def random_map(self, path, generator):
            return pillow_crop(path, generator)

    photos = grain.MapDataset.source(paths_in(folder)).seed(0).shuffle().repeat()
    return photos.random_map(Crop()).batch(batch)


OURS = "keras_vit"
# By name: the library, its pipeline and further arguments.
SIDES = {
    OURS: ("keras_vit", ours, {}),
    "tf.io.decode_jpeg alone": ("tensorflow", bare_tensorflow, {}),
    "Pillow, decoding alone": ("PIL", bare_pillow, {}),
    "Pillow, in a loop": ("PIL", pillow_loop, {}),
    "torchvision, reference": ("torchvision", data_loader, {}),
    "torchvision, our resize": ("torchvision", data_loader, {"same_resize": True}),
    "Grain, threads": ("grain", grain_threads, {}),
    "Grain, processes": ("grain", grain_processes, {}),
    "keras_vit, medium1": ("keras_vit", ours, {"augmentation": "medium1"}),
    "keras_vit, TFRecords": ("keras_vit", ours, {"write": write_tfrecords}),
    "keras_vit, TFDS": ("tensorflow_datasets", ours, {"write": write_tfds}),
}


def processor_seconds():
    """Returns the processor time of all processes of this session."""
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == os.getsid(0):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def serve(side, folder, cores, batch, seconds):
    """Prints photos per second and CPU milliseconds per photo for every line of the input."""
    os.sched_setaffinity(0, range(cores))
    _, pipeline, options = SIDES[side]
    batches = iter(pipeline(folder, cores, batch, **options))
    next(batches)
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(2 * cores + 2):  # Those that lay ready, and one more for each process.
            next(batches)
        start = end = time.perf_counter()
        processor, count = processor_seconds(), 0
        while end - start < seconds:
            for _ in range(cores):  # Processes finish theirs at about the same time.
                next(batches)
            count += cores * batch
            end = time.perf_counter()
        processor = processor_seconds() - processor
        print(json.dumps([count / (end - start), 1000 * processor / count]), flush=True)
    print(peak_memory(), flush=True)
    os._exit(0)  # Threads of the pipelines need no orderly end.


class Contestant:
    """A side in a session of processes, which stands still except in its turns."""

    def __init__(self, *arguments):
        self.results = []
        command = [sys.executable, __file__, "--serve", *map(str, arguments)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"The pipeline failed: {' '.join(command)}")
        self._signal(signal.SIGSTOP)

    def take_turn(self):
        self._signal(signal.SIGCONT)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.results.append(json.loads(self._process.stdout.readline()))
        self._signal(signal.SIGSTOP)

    def end(self):
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number):
        os.killpg(self._process.pid, number)


def compare(sides, folder, cores, batch, arguments):
    """Yields for each side: name, photos per second, ratios of ours to it, CPU milliseconds."""
    contestants = {}
    try:
        for side in sides:
            contestants[side] = Contestant(side, folder, cores, batch, arguments.seconds)
        for _ in range(arguments.turns):
            for contestant in contestants.values():
                contestant.take_turn()
    finally:
        for contestant in contestants.values():
            contestant.end()
    base = contestants[OURS].results
    for side, contestant in contestants.items():
        pairs = zip(base, contestant.results, strict=True)
        ratios = sorted(mine[0] / theirs[0] for mine, theirs in pairs)
        rate, milliseconds = map(statistics.median, zip(*contestant.results, strict=True))
        yield side, rate, ratios, milliseconds


def main():
    if sys.argv[1:2] == ["--serve"]:
        side, folder, cores, batch, seconds = sys.argv[2:]
        return serve(side, pathlib.Path(folder), int(cores), int(batch), float(seconds))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, nargs="+", default=[1, os.cpu_count()])
    parser.add_argument("--sizes", choices=PHOTOS, nargs="+", default=[*PHOTOS])
    parser.add_argument("--sides", choices=SIDES, nargs="+", default=[*SIDES])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of a turn, at least")
    arguments = parser.parse_args()
    sides = [OURS]
    for side in arguments.sides:
        library = SIDES[side][0]
        if importlib.util.find_spec(library) is None:
            print(f"{side} is left out: pip install {library}")
        elif side != OURS:
            sides.append(side)
    print(describe("tensorflow", "pillow"))
    print("| photos | cores | pipeline | photos/s | keras_vit / it | lowest, highest | CPU ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            kilobytes = make_photos(folder, size)
            for cores in sorted(set(arguments.cores)):
                for row in compare(sides, folder, cores, PHOTOS[size][-1], arguments):
                    side, rate, ratios, milliseconds = row
                    print(
                        f"| {size}, {kilobytes:.0f} kB | {cores} | {side} | {rate:.0f} | "
                        f"{statistics.median(ratios):.2f} | {ratios[0]:.2f}, {ratios[-1]:.2f} | "
                        f"{milliseconds:.2f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
