"""Images per second of ViT-B/16 on one NVIDIA GPU: here, in KerasHub, timm and big_vision.

    python benchmarks/gpu.py [--sides ours timm] [--jobs infer:256 train:256] [--profile]

Each cell is a separate process, in bfloat16 (mixed), with random weights, images of 224 pixels
that are on the device, SGD with momentum. A line of JSON is printed for each, then one table.
Median of five measurements after compilation, with the lowest and the highest.

Sides: `ours` (JAX), `ours-plain` (without cuDNN's attention), `ours-torch`, `kerashub` (JAX),
`timm`, `timm-reduce-overhead`, `timm-max-autotune` (modes of `torch.compile`), `timm-eager`,
`bigvision` (needs flax, and big_vision's models on the path). A side that is not installed is
left out.
Jobs: `infer:B`, `train:B` (Keras's own step), `fit:B` (`Trainer.fit` from the device; `host:B`
from the memory of the host), `predict:B` (from the host), each with `:384` for another size;
and `finetune:B`, the command on JPEG files of 500 x 375 pixels, which needs TensorFlow.
`--profile` sums the kernels of the first `train` cell of JAX by name.
"""

import argparse
import collections
import concurrent.futures
import csv
import glob
import gzip
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from gpu_training import COMMAND, write_weights

SIDES = ("ours", "ours-plain", "ours-torch", "kerashub", "timm", "timm-reduce-overhead")
MORE_SIDES = ("timm-max-autotune", "timm-eager", "bigvision")
JOBS = ("infer:256", "infer:1", "train:256", "fit:256", "host:256", "predict:256", "infer:256:384")
NEEDS = {"ours": "jax", "kerashub": "keras_hub", "timm": "timm", "bigvision": "big_vision"}
# Steps in a call of `fit`, whose start and end take a tenth of a second.
STEPS = 100
# What only this project's trainer does.
OURS_ONLY = ("fit", "host", "predict", "finetune")


def timed(run, wait, batch, seconds=0.8):
    """Returns the rate of a call that returns before the device is done."""
    start = time.perf_counter()
    run(), wait()
    first = time.perf_counter() - start
    run(), wait()
    start = time.perf_counter()
    run(), wait()
    calls = max(3, min(200, int(seconds / max(time.perf_counter() - start, 1e-4))))
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        rates.append(batch * calls / (time.perf_counter() - start))
    return summary(rates) | {"first_s": round(first, 1)}


def summary(rates):
    """Returns the median with the lowest and the highest."""
    spread = [round(min(rates)), round(max(rates))]
    return {"images_s": round(statistics.median(rates), 1), "spread": spread}


def repeated(run, images):
    """Returns the rate of a call that is done when it returns."""
    rates = []
    for _ in range(3):  # The first one compiles.
        start = time.perf_counter()
        run()
        rates.append(images / (time.perf_counter() - start))
    return summary(rates[1:])


def keras_model(side, size):
    """Returns a model of 1000 classes that gives logits."""
    import keras

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    if side == "ours-plain":
        keras.config.disable_flash_attention()
    if side == "kerashub":
        import keras_hub

        backbone = keras_hub.models.ViTBackbone((size, size, 3), 16, 12, 12, 768, 3072)
        logits = keras.layers.Dense(1000, dtype="float32")(backbone.output[:, 0])
        return keras.Model(backbone.input, logits)
    import keras_vit

    shape = (size, size, 3)
    return keras_vit.build("ViT-B/16", classifier_activation=None, input_shape=shape)


def compiled(model):
    """Compiles a model or a trainer."""
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    return model


def on_jax(side, job, images, labels, profile):
    """A cell of Keras on JAX."""
    import jax
    from jax import numpy as jnp

    model, batch = keras_model(side, images.shape[1]), len(images)
    x, y, kept = jnp.asarray(images), jnp.asarray(labels), []

    def wait():
        jax.block_until_ready(kept)

    if job == "infer":
        state = [[v.value for v in model.trainable_variables]]
        state.append([v.value for v in model.non_trainable_variables])
        call = jax.jit(lambda *inputs: model.stateless_call(*inputs, training=False)[0])

        def run():
            kept[:] = [call(*state, x)]

        found = timed(run, wait, batch)
    elif job == "train":
        compiled(model)

        def run():
            kept[:] = [model.train_on_batch(x, y)]

        found = timed(run, wait, batch)
        if profile:
            found["kernels_ms"] = kernels(run, wait)
    else:
        from keras_vit.training import Trainer

        trainer = compiled(Trainer(model))
        if job == "predict":
            many = np.concatenate([images] * 8)
            found = repeated(lambda: trainer.predict(many, batch, verbose=0), len(many))
        else:
            pair = (x, y) if job == "fit" else (images, labels)

            def batches():
                while True:
                    yield pair

            fit = lambda: trainer.fit(batches(), steps_per_epoch=STEPS, verbose=0)  # noqa: E731
            found = repeated(fit, STEPS * batch)
    memory = jax.local_devices()[0].memory_stats()
    return found | {"peak_gb": memory and round(memory["peak_bytes_in_use"] / 1e9, 2)}


def kernels(run, wait, steps=3):
    """Returns the milliseconds of a step by the name of the kernel, the longest first."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(steps):
                run()
            wait()
        events = []
        for path in glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True):
            with gzip.open(path) as file:
                events += json.load(file)["traceEvents"]
    named = [event for event in events if event.get("ph") == "M"]
    devices = {e["pid"] for e in named if "GPU" in e.get("args", {}).get("name", "")}
    streams = {
        (e["pid"], e.get("tid")) for e in named if "Stream" in e.get("args", {}).get("name", "")
    }
    total = collections.Counter()
    for event in events:
        place = event.get("pid"), event.get("tid")
        if event.get("ph") == "X" and place[0] in devices and place in streams:
            total[event["name"][:80]] += event["dur"] / 1000 / steps
    return {name: round(duration, 3) for name, duration in total.most_common(30)}


def on_pytorch(job, images, labels):
    """A cell of Keras on PyTorch."""
    import torch

    model = keras_model("ours", images.shape[1])
    x, y = torch.tensor(images, device="cuda"), torch.tensor(labels, device="cuda")

    def infer():
        with torch.no_grad():
            model(x, training=False)

    compiled(model)
    run = infer if job == "infer" else lambda: model.train_on_batch(x, y)
    found = timed(run, torch.cuda.synchronize, len(images))
    return found | {"peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2)}


def in_timm(side, job, images, labels):
    """A cell of timm, in autocast, with TF32 for what is left in float32."""
    import timm
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    name = "vit_base_patch16_224"
    model = timm.create_model(name, num_classes=1000, img_size=images.shape[1]).cuda()
    x = torch.tensor(images).permute(0, 3, 1, 2).contiguous().cuda()
    y = torch.tensor(labels).cuda()
    mode = side.partition("-")[2] or None
    call = model if mode == "eager" else torch.compile(model, mode=mode)
    model.train(job != "infer")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def infer():
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            call(x)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()

    found = timed(infer if job == "infer" else train, torch.cuda.synchronize, len(images))
    return found | {"peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2)}


def in_big_vision(job, images, labels):
    """A cell of big_vision's model with optax."""
    import jax
    import optax
    from big_vision.models import vit
    from jax import numpy as jnp

    model = vit.Model(1000, variant="B/16", pool_type="tok", dtype_mm="bfloat16")
    x, y, kept = jnp.asarray(images), jnp.asarray(labels), []
    params = jax.jit(model.init)(jax.random.key(0), x[:1])["params"]
    optimizer = optax.sgd(0.01, 0.9)

    def step(params, state, x, y):
        def loss(params):
            logits = model.apply({"params": params}, x, train=True)[0].astype("float32")
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    call = jax.jit(lambda params, x: model.apply({"params": params}, x)[0])
    train, state = jax.jit(step, donate_argnums=(0, 1)), [params, optimizer.init(params)]

    def run():
        if job == "infer":
            kept[:] = [call(params, x)]
        else:
            state[0], state[1], value = train(*state, x, y)
            kept[:] = [value]

    return timed(run, lambda: jax.block_until_ready(kept), len(images))


def write_photos(folder, source, classes=10, images=2048):
    """Writes JPEG files of 500 x 375 pixels: crops of photos in a folder, or smooth noise."""
    from PIL import Image

    photos = sorted(pathlib.Path(source).glob("*/*")) if source else []

    def write(number):
        rng = np.random.default_rng(number)
        if photos:
            path = photos[number % len(photos)]
            name, image = path.parent.name, Image.open(path).convert("RGB")
            left, top = (int(rng.integers(0, room + 1)) for room in _room(image))
            image = image.crop((left, top, left + 500, top + 375))
        else:
            name = f"class_{number % classes}"
            pixels = rng.integers(0, 256, (24, 32, 3), "uint8")
            image = Image.fromarray(pixels).resize((500, 375), Image.Resampling.BICUBIC)
        place = pathlib.Path(folder, name)
        place.mkdir(parents=True, exist_ok=True)
        image.save(place / f"{number}.jpg", quality=90)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(write, range(images)))


def _room(image):
    return image.width - 500, image.height - 375


def finetune(batch, size, source):
    """The command from JPEG files, without the steps that compile."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        write_photos(folder / "photos", source)
        weights = write_weights("ViT-B/16", 224, folder / "weights.npz")
        command = [*COMMAND, "finetune", "--data", folder / "photos", "--weights", weights]
        command += ["--output", folder / "run", "--image-size", size, "--batch-size", batch]
        command += ["--steps", 160, "--evaluate-every", 40, "--validation", "0.02"]
        subprocess.run([*map(str, command)], check=True, stdout=sys.stderr)
        with open(folder / "run" / "history.csv") as file:
            rows = list(csv.DictReader(file))
    return summary([float(row["images_per_second"]) for row in rows[1:]])


def cell(side, job, batch, size, profile, photos):
    """Returns what a separate process measures."""
    os.environ["KERAS_BACKEND"] = "torch" if side == "ours-torch" else "jax"
    if job == "finetune":
        return finetune(batch, size, photos)
    images = np.random.default_rng(0).uniform(-1, 1, (batch, size, size, 3)).astype("float32")
    labels = np.arange(batch) % 1000
    if side == "ours-torch":
        return on_pytorch(job, images, labels)
    if side.startswith("timm"):
        return in_timm(side, job, images, labels)
    if side == "bigvision":
        return in_big_vision(job, images, labels)
    return on_jax(side, job, images, labels, profile)


def main():
    """Starts a process for each cell and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=(*SIDES, *MORE_SIDES))
    parser.add_argument("--jobs", nargs="+", default=JOBS)
    parser.add_argument("--seconds", type=float, default=300, help="limit of a cell")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--photos", help="folder of CLASS/* from which finetune takes crops")
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        job, batch, *size = arguments.jobs[0].split(":")
        side, size = arguments.sides[0], int(size[0]) if size else 224
        found = cell(side, job, int(batch), size, arguments.profile, arguments.photos)
        print(json.dumps(found), flush=True)
        return
    table, profile = collections.defaultdict(dict), arguments.profile
    for job in arguments.jobs:
        for side in arguments.sides:
            needed = NEEDS.get(side.partition("-")[0], "jax")
            if importlib.util.find_spec(needed) is None or (
                job.partition(":")[0] in OURS_ONLY and side not in ("ours", "ours-plain")
            ):
                continue
            command = [sys.executable, __file__, "--cell", "--sides", side, "--jobs", job]
            profiled = profile and side == "ours" and job.startswith("train")
            command += ["--profile"] * profiled
            command += ["--photos", arguments.photos] if arguments.photos else []
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=arguments.seconds
                )
                lines = done.stdout.strip().splitlines()
                found = json.loads(lines[-1]) if lines else {"error": done.stderr[-300:]}
            except subprocess.TimeoutExpired:
                found = {"error": f"more than {arguments.seconds:g} s"}
            print(json.dumps({"side": side, "job": job, **found}), flush=True)
            table[job][side] = found.get("images_s", "")
    print("\n| job | " + " | ".join(arguments.sides) + " |")
    print("| --- " * (1 + len(arguments.sides)) + "|")
    for job, rates in table.items():
        print(f"| {job} | " + " | ".join(str(rates.get(s, "")) for s in arguments.sides) + " |")


if __name__ == "__main__":
    main()
